"""Page of phrase localization: the table, and images with correct, wrong and worst boxes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.datasets.phrases import RegionPhrase
from pipeline.datasets.regions import read_phrases
from pipeline.regions.localization.evaluate_localization import (
    COLUMNS,
    CUTOFFS,
    LocalizationTable,
    tabulate,
)
from pipeline.regions.localization.localized import Localized, read_localized
from pipeline.regions.localization.measures import NMS, NO_HIT, by_head, rank
from pipeline.store.errors import WrongUsage
from pipeline.store.files import require_folder
from pipeline.store.packed import TextMapping
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.wording import counted
from pipeline.web.pages.marked import Mark, marked_photo, small_jpeg
from pipeline.web.pages.rendering import write_page
from pipeline.web.report.published import localized_rows

SHOWN, TOP, SEED = 8, 3, 0
"""Number of queries per kind, number of boxes per query, and the seed that selects the queries."""

PHRASE_COLOURS = ("#e8590c", "#1c7ed6", "#2f9e44", "#ae3ec9", "#c2255c", "#0b7285")
"""Colours of the phrases of a sentence; further phrases are not shown."""

_SIDE, _QUALITY = 320, 80


@dataclass(frozen=True)
class Sentence:
    """A sentence of an image, with the boxes of its phrases by system."""

    text: str
    phrases: tuple[tuple[str, str], ...]  # phrases with their colours
    photos: Mapping[str, str]
    """By system, SVG of the image with the first box of each phrase in its colour."""


def write_localization_page(
    files: Sequence[str | Path],
    dataset: str | Path,
    out: str | Path,
    *,
    nms: float = NMS,
    monitor: Monitor = QUIET,
) -> Path:
    """Write `localization.html`, a self-contained page without scripts; deterministic."""
    if not files:
        raise WrongUsage("no localization file was passed; `pipeline localize` writes them")
    folder, manifest = Path(out), read_manifest(dataset)
    require_folder(folder)
    tables: dict[str, LocalizationTable] = {}
    shown: dict[str, dict[str, list[dict[str, str]]]] = {}
    systems: dict[str, Localized] = {}
    for file in files:
        localized = read_localized(file)
        name = str(localized.provenance.get("experiment", Path(file).stem))
        if localized.provenance.get("dataset", manifest.name) != manifest.name:
            raise WrongUsage(
                f"{file} localizes the dataset {localized.provenance['dataset']!r}, not "
                f"{manifest.name!r}; pass that one (`dataset=...`)"
            )
        tables[name] = tabulate(localized, name, nms)
        shown[name] = examples_of(localized, manifest)
        systems[name] = localized
        monitor.log(f"{name}: {counted(len(localized.query_ids), 'query', 'queries')}")
    path = folder / "localization.html"
    write_page(
        path,
        "pipeline.web.report",
        dataset=manifest.name,
        columns={column.name: column.title for column in COLUMNS},
        rows=_rows(tables),
        types={name: table.types for name, table in tables.items()},
        counts=next(iter(tables.values())).counts,
        published=localized_rows(),
        examples=shown,
        sentences=sentences_of(systems, manifest, read_phrases(dataset)),
        nms=nms,
        licence=manifest.licence,
    )
    monitor.log(f"{path}: {counted(len(tables), 'system')}")
    return path


def sentences_of(
    systems: Mapping[str, Localized], manifest: Manifest, phrases: Sequence[RegionPhrase]
) -> list[Sentence]:
    """Return sentences with the first box of each phrase, as figure 3 of Wang et al. 2016."""
    if len(systems) < 2:
        return []
    shared = set.intersection(*(set(localized.query_ids) for localized in systems.values()))
    of_caption: dict[str, list[RegionPhrase]] = {}
    for phrase in phrases:
        if phrase.caption is not None and phrase.id in shared:
            of_caption.setdefault(phrase.caption, []).append(phrase)
    several = [caption for caption, of_sentence in of_caption.items() if len(of_sentence) > 1]
    drawn: dict[str, str] = {}
    for at in np.random.default_rng(SEED).permutation(len(several)).tolist():
        drawn.setdefault(of_caption[several[at]][0].image, several[at])
    captions = manifest.captions()
    texts, files = TextMapping(captions.ids, captions.texts), manifest.path_by_id
    sentences = []
    for image, caption in sorted([*drawn.items()][:SHOWN]):
        of_sentence = dict(zip(PHRASE_COLOURS, of_caption[caption], strict=False))
        photo = small_jpeg(files.get(image), _SIDE, _QUALITY)
        photos = {name: _all_phrases(of, image, of_sentence, photo) for name, of in systems.items()}
        named = tuple((phrase.phrase, colour) for colour, phrase in of_sentence.items())
        sentences.append(Sentence(texts[caption], named, photos))
    return sentences


def _all_phrases(
    localized: Localized, image: str, phrases: Mapping[str, RegionPhrase], photo: bytes
) -> str:
    """Return an image with the first box of each phrase in its colour."""
    row = localized.image_ids.index(image)
    queries = np.array([localized.query_ids.index(phrase.id) for phrase in phrases.values()])
    scores, boxes = by_head(localized)(row, queries), localized.boxes[localized.regions_of(row)]
    marks = [
        _mark(boxes[int(np.argmax(scores[:, at]))], "", "found", colour)
        for at, colour in enumerate(phrases)
        if len(boxes)
    ]
    width, height = localized.sizes[row].tolist()
    return marked_photo(
        photo, (width, height), marks, ", ".join(p.phrase for p in phrases.values())
    )


def examples_of(localized: Localized, manifest: Manifest) -> dict[str, list[dict[str, str]]]:
    """Return queries by kind, with the first boxes drawn over their images, for the template."""
    ranked = rank(localized, by_head(localized))
    first = ranked.first_hit
    rng = np.random.default_rng(SEED)
    late = np.flatnonzero((first >= CUTOFFS[-1]) & (first < NO_HIT))
    kinds = {
        "Right at once": _drawn(localized, np.flatnonzero(first == 0), rng),
        "Wrong at first": _drawn(localized, np.flatnonzero((first > 0) & (first < NO_HIT)), rng),
        "Worst failures": _once_an_image(localized, late[np.argsort(-first[late], kind="stable")]),
    }
    files = manifest.path_by_id
    return {
        kind: [_example(localized, int(query), int(first[query]), files) for query in queries]
        for kind, queries in kinds.items()
    }


def _drawn(localized: Localized, queries: RowNumbers, rng: np.random.Generator) -> RowNumbers:
    return np.sort(_once_an_image(localized, rng.permutation(queries)))


def _once_an_image(localized: Localized, queries: RowNumbers) -> RowNumbers:
    _, places = np.unique(localized.query_image[queries], return_index=True)
    return queries[np.sort(places)][:SHOWN]


def _example(
    localized: Localized, query: int, first: int, files: Mapping[str, Path]
) -> dict[str, str]:
    image = int(localized.query_image[query])
    scores = by_head(localized)(image, np.array([query]))[:, 0]
    order = np.argsort(-scores, kind="stable")[:TOP]
    boxes = localized.boxes[localized.regions_of(image)]
    marks = [_mark(box, "", "true") for box in localized.truth_of(query)]
    hits = [_mark(boxes[row], str(number), "found") for number, row in enumerate(order, 1)]
    marks += hits[::-1]  # the best one on top
    image_id = localized.image_ids[image]
    phrase = localized.phrase_texts[localized.query_phrase[query]]
    width, height = localized.sizes[image].tolist()
    jpeg = small_jpeg(files.get(image_id), _SIDE, _QUALITY)
    svg = marked_photo(jpeg, (width, height), marks, f"{phrase}: {image_id}")
    became = "first" if first == 0 else f"right box at place {first + 1} of {len(boxes)}"
    return {"phrase": phrase, "image": image_id, "became": became, "svg": svg}


def _mark(box: Any, label: str, kind: str, colour: str = "") -> Mark:
    x0, y0, x1, y1 = (float(value) for value in box)
    return Mark((x0, y0, x1, y1), label, kind, colour)


def _rows(tables: Mapping[str, LocalizationTable]) -> dict[str, dict[str, float]]:
    """Return the rows of the heads, then those of the baselines, which are the same for all."""
    rows = {name: dict(table.rows[name]) for name, table in tables.items()}
    for table in tables.values():
        for name, row in table.rows.items():
            rows.setdefault(name, dict(row))
    return rows
