"""Page of generated captions: scores of all systems, example images, and regularities."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.datasets.image_truth import CaptionTruth
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.language.captioning.captions_file import read_captions
from pipeline.language.score_captions import CAPTIONS_FILE, PROVENANCE_FILE, headings
from pipeline.language.scores.table import truth_columns
from pipeline.store.errors import WrongUsage
from pipeline.store.files import parse_json, require_folder
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.wording import counted
from pipeline.studies.regularities import Plane, Regularities, columns_of, read_regularities
from pipeline.web.pages.marked import small_jpeg
from pipeline.web.pages.rendering import write_page
from pipeline.web.report.figures import share_axes, thumbnail_chart

SHOWN, SEED = 20, 0
"""Number of example images, and the seed that selects them."""

_SIDE, _SMALL, _QUALITY = 320, 76, 80


def write_captions_page(
    files: Sequence[str | Path],
    scores: str | Path,
    dataset: str | Path,
    out: str | Path,
    *,
    truth: CaptionTruth | None = None,
    regularities: Sequence[str | Path] = (),
    monitor: Monitor = QUIET,
) -> Path:
    """Write `captions.html`, a self-contained page without scripts; deterministic."""
    if not files:
        raise WrongUsage("no file of captions was passed; `pipeline caption` writes them")
    folder, manifest = Path(out), read_manifest(dataset)
    require_folder(folder)
    captions = {Path(file).stem: read_captions(file) for file in files}
    rows: dict[str, Mapping[str, Any]] = {}
    for file in map(Path, files):
        row = _row(file, Path(scores) / file.stem)
        if row is None:
            monitor.log(f"{file} has no scores yet, or others have; run `pipeline score`")
        else:
            rows[file.stem] = row
    spaces = {Path(file).stem: read_regularities(file) for file in regularities}
    judged = truth_columns(truth)
    measured = {name: title for name, title in headings(truth).items() if name not in judged}
    path = folder / "captions.html"
    write_page(
        path,
        "pipeline.web.report",
        dataset=manifest.name,
        scores=_table(rows, measured),
        truth=_table(rows, judged),
        examples=examples_of(captions, manifest, truth),
        seed=SEED,
        regularities=spaces,
        regularity_columns={name: columns_of(space) for name, space in spaces.items()},
        planes={name: _planes(space, manifest) for name, space in spaces.items()},
        jpegs=_jpegs(spaces.values(), manifest),
        licence=manifest.licence,
    )
    monitor.log(f"{path}: {counted(len(captions), 'system')}, {counted(len(spaces), 'space')}")
    return path


def examples_of(
    captions: Mapping[str, Mapping[str, str | None]],
    manifest: Manifest,
    truth: CaptionTruth | None = None,
) -> list[dict[str, Any]]:
    """Return `SHOWN` random images that all systems have captioned, in dataset order."""
    shared = [
        e for e in manifest.entries if all(e.id in of_system for of_system in captions.values())
    ]
    if not shared:
        raise WrongUsage(
            f"the files {', '.join(captions)} have no image of {manifest.name} in common; pass "
            "captions of one split of this dataset"
        )
    files = manifest.path_by_id
    drawn = np.sort(np.random.default_rng(SEED).permutation(len(shared))[:SHOWN])
    return [
        {
            "image": entry.id,
            "jpeg": b64encode(small_jpeg(files[entry.id], _SIDE, _QUALITY)).decode(),
            "captions": [
                (name, of[entry.id] or "", _verdict(entry.id, of[entry.id], truth))
                for name, of in captions.items()
            ],
            "people": entry.captions,
        }
        for entry in (shared[at] for at in drawn)
    ]


def _verdict(image: str, text: str | None, truth: CaptionTruth | None) -> str:
    if text is None:
        return "no caption"
    if truth is None:
        return ""
    right = truth.judge(image, text)
    if right is None:
        return "not parsed"
    wrong = ", ".join(facet for facet, is_right in right.items() if not is_right)
    return f"wrong {wrong}" if wrong else "true"


def _row(file: Path, folder: Path) -> Mapping[str, Any] | None:
    """Return the scores of a caption file; None if they are missing or of other captions."""
    try:
        provenance = parse_json((folder / PROVENANCE_FILE).read_text(encoding="utf-8"))
        row: Mapping[str, Any] = parse_json((folder / CAPTIONS_FILE).read_text(encoding="utf-8"))
        return row if provenance["captions_sha256"] == sha256_of_file(file) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _table(
    rows: Mapping[str, Mapping[str, Any]], columns: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return cells by system and heading, for the columns that at least one system has."""
    present = [name for name in columns if any(name in row for row in rows.values())]
    return {
        system: {columns[name]: _cell(row.get(name)) for name in present}
        for system, row in rows.items()
        if present
    }


def _cell(value: float | int | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def _jpegs(spaces: Iterable[Regularities], manifest: Manifest) -> dict[str, str]:
    """Return the small JPEG of each image on a sheet, as Base64."""
    sheets = [s for space in spaces for of_kind in space.sheets.values() for s in of_kind]
    images = dict.fromkeys(image for s in sheets for image in (s.image, *s.nearest))
    files = manifest.path_by_id
    return {k: b64encode(small_jpeg(files.get(k), _SMALL, _QUALITY)).decode() for k in images}


def _planes(space: Regularities, manifest: Manifest) -> dict[str, str]:
    return {kind: _plane(kind, plane, manifest.path_by_id) for kind, plane in space.planes.items()}


def _plane(kind: str, plane: Plane, files: Mapping[str, Path]) -> str:
    pictures = [
        (f"{word}: {image}", small_jpeg(files.get(image), _SMALL, _QUALITY), (x, y))
        for word, images in plane.images.items()
        for image, (x, y) in images.items()
    ]
    words = {word: (x, y) for word, (x, y) in plane.words.items()}
    alt = f"{kind}: the words {', '.join(words)} and {len(pictures)} images that have one of them, "
    alt += "in the plane of their first two principal components"
    return thumbnail_chart(words, pictures, *share_axes(plane.shares), alt)
