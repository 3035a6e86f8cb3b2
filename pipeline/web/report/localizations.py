"""Page of phrase localization: the table, and images with correct, wrong and worst boxes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pipeline import __version__
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.datasets.phrases import RegionPhrase
from pipeline.datasets.regions import read_phrases
from pipeline.images.decoding.decode import read_image
from pipeline.regions.localization.evaluate_localization import CUTOFFS, LocalizationTable, tabulate
from pipeline.regions.localization.localized import Localized, read_localized
from pipeline.regions.localization.measures import NMS, NO_HIT, by_head, rank
from pipeline.store.errors import WrongUsage
from pipeline.store.files import require_folder, write_text
from pipeline.store.packed import TextMapping
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.wording import counted
from pipeline.web.pages.marked import Mark, marked_photo
from pipeline.web.pages.rendering import environment, jpeg_of
from pipeline.web.report.published import localized_rows

SHOWN, TOP, SEED = 8, 3, 0
"""Number of queries per kind, number of boxes per query, and the seed that selects the queries."""

PHRASE_COLOURS = ("#e8590c", "#1c7ed6", "#2f9e44", "#ae3ec9", "#c2255c", "#0b7285")
"""Colours of the phrases of a sentence; further phrases are not shown."""

_SIDE, _QUALITY = 320, 80
_COLUMNS = {
    **{f"phrase_to_region_r{k}": f"R@{k}" for k in CUTOFFS},
    "phrase_to_region_map": "mAP",
    "bound": "bound",
    "pointing_game": "pointing",
}


@dataclass(frozen=True)
class Example:
    """A query with its result.

    Attributes
    ----------
    phrase : str. The phrase.
    image : str. Image id.
    became : str. Result in a few words.
    svg : str. Image with boxes.
    """

    phrase: str
    image: str
    became: str
    svg: str


@dataclass(frozen=True)
class Sentence:
    """A sentence of an image, with the boxes of its phrases by system.

    Attributes
    ----------
    text : str. The sentence.
    phrases : tuple of tuple of 2 str. Phrases with their colours.
    photos : mapping of str to str. By system, SVG of the image with the first box of each phrase in
        its colour.
    """

    text: str
    phrases: tuple[tuple[str, str], ...]
    photos: Mapping[str, str]


def write_localization_page(
    files: Sequence[str | Path],
    dataset: str | Path,
    out: str | Path,
    *,
    nms: float = NMS,
    monitor: Monitor = QUIET,
) -> Path:
    """Write `localization.html`, a self-contained page without scripts.

    Deterministic: the same files produce the same bytes.

    Parameters
    ----------
    files : sequence of str or Path. Localization files, one row of the table each.
    dataset : str or Path. Folder of the localized dataset.
    out : str or Path. Folder of the page.
    nms : float. Threshold of non-maximum suppression before average precision.
    monitor : Monitor. Receives a line for each file, and one on the page.

    Raises
    ------
    LocalizationError
        A file is missing or corrupt.
    WrongUsage
        There is no file, or one is of another dataset.
    FileReadError
        A system error prevented reading an existing image.
    OutputError
        The folder is not writable.
    """
    if not files:
        raise WrongUsage("no localization file was passed; `pipeline localize` writes them")
    folder, manifest = Path(out), read_manifest(dataset)
    require_folder(folder)
    tables: dict[str, LocalizationTable] = {}
    shown: dict[str, dict[str, list[Example]]] = {}
    systems: dict[str, Localized] = {}
    for file in files:
        found = read_localized(file)
        name = str(found.provenance.get("experiment", Path(file).stem))
        if found.provenance.get("dataset", manifest.name) != manifest.name:
            raise WrongUsage(
                f"{file} localizes the dataset {found.provenance['dataset']!r}, not "
                f"{manifest.name!r}; pass that one (`dataset=...`)"
            )
        tables[name] = tabulate(found, name, nms)
        shown[name] = examples_of(found, manifest)
        systems[name] = found
        monitor.log(f"{name}: {counted(len(found.query_ids), 'query', 'queries')}")
    page = environment("pipeline.web.report").get_template("localization.html")
    path = folder / "localization.html"
    text = page.render(
        dataset=manifest.name,
        columns=_COLUMNS,
        rows=_rows(tables),
        types={name: table.types for name, table in tables.items()},
        counts=next(iter(tables.values())).counts,
        published=localized_rows(),
        examples=shown,
        sentences=sentences_of(systems, manifest, read_phrases(dataset)),
        nms=nms,
        made_by=f"caption-feature-pipeline {__version__}, Jinja {version('jinja2')}",
        licence=manifest.licence,
    )
    write_text(path, text)
    monitor.log(f"{path}: {counted(len(tables), 'system')}")
    return path


def sentences_of(
    systems: Mapping[str, Localized], manifest: Manifest, phrases: Sequence[RegionPhrase]
) -> list[Sentence]:
    """Return sentences with the first box of each of their phrases, for every system.

    Sentences with at least two phrases are selected by the seed, one per image; with a single
    system the list is empty. As figure 3 of Wang et al. 2016.
    """
    if len(systems) < 2:
        return []
    asked = set.intersection(*(set(found.query_ids) for found in systems.values()))
    of_caption: dict[str, list[RegionPhrase]] = {}
    for phrase in phrases:
        if phrase.caption is not None and phrase.id in asked:
            of_caption.setdefault(phrase.caption, []).append(phrase)
    several = [caption for caption, said in of_caption.items() if len(said) > 1]
    drawn: dict[str, str] = {}
    for at in np.random.default_rng(SEED).permutation(len(several)).tolist():
        drawn.setdefault(of_caption[several[at]][0].image, several[at])
    captions = manifest.captions()
    texts, files = TextMapping(captions.ids, captions.texts), manifest.path_by_id
    found_sentences = []
    for image, caption in sorted([*drawn.items()][:SHOWN]):
        said = dict(zip(PHRASE_COLOURS, of_caption[caption], strict=False))
        photo = _jpeg(files.get(image))
        photos = {name: _all_phrases(found, image, said, photo) for name, found in systems.items()}
        named = tuple((phrase.phrase, colour) for colour, phrase in said.items())
        found_sentences.append(Sentence(texts[caption], named, photos))
    return found_sentences


def _all_phrases(
    found: Localized, image: str, said: Mapping[str, RegionPhrase], photo: bytes
) -> str:
    """Return an image with the first box of each phrase in its colour."""
    row = found.image_ids.index(image)
    queries = np.array([found.query_ids.index(phrase.id) for phrase in said.values()])
    scores, boxes = by_head(found)(row, queries), found.boxes[found.regions_of(row)]
    marks = [
        replace(_mark(boxes[int(np.argmax(scores[:, at]))], "", "found"), colour=colour)
        for at, colour in enumerate(said)
        if len(boxes)
    ]
    width, height = found.sizes[row].tolist()
    return marked_photo(photo, (width, height), marks, ", ".join(p.phrase for p in said.values()))


def examples_of(found: Localized, manifest: Manifest) -> dict[str, list[Example]]:
    """Return queries by kind, with the first boxes drawn over their images.

    "Right at once" and "Wrong at first" are selected by the seed, one per image; "Worst failures"
    have the highest rank of the first correct box, ties in file order.
    """
    ranked = rank(found, by_head(found))
    first = ranked.first_hit
    rng = np.random.default_rng(SEED)
    late = np.flatnonzero((first >= CUTOFFS[-1]) & (first < NO_HIT))
    kinds = {
        "Right at once": _drawn(found, np.flatnonzero(first == 0), rng),
        "Wrong at first": _drawn(found, np.flatnonzero((first > 0) & (first < NO_HIT)), rng),
        "Worst failures": _once_an_image(found, late[np.argsort(-first[late], kind="stable")]),
    }
    files = manifest.path_by_id
    return {
        kind: [_example(found, int(query), int(first[query]), files) for query in queries]
        for kind, queries in kinds.items()
    }


def _drawn(found: Localized, queries: RowNumbers, rng: np.random.Generator) -> RowNumbers:
    return np.sort(_once_an_image(found, rng.permutation(queries)))


def _once_an_image(found: Localized, queries: RowNumbers) -> RowNumbers:
    """Return the first query of each image."""
    _, places = np.unique(found.query_image[queries], return_index=True)
    return queries[np.sort(places)][:SHOWN]


def _example(found: Localized, query: int, first: int, files: Mapping[str, Path]) -> Example:
    image = int(found.query_image[query])
    scores = by_head(found)(image, np.array([query]))[:, 0]
    order = np.argsort(-scores, kind="stable")[:TOP]
    boxes = found.boxes[found.regions_of(image)]
    marks = [_mark(box, "", "true") for box in found.truth_of(query)]
    marks += [_mark(boxes[number], str(place), "found") for place, number in enumerate(order, 1)][
        ::-1
    ]
    image_id, phrase = found.image_ids[image], found.phrase_texts[found.query_phrase[query]]
    width, height = found.sizes[image].tolist()
    svg = marked_photo(_jpeg(files.get(image_id)), (width, height), marks, f"{phrase}: {image_id}")
    became = "first" if first == 0 else f"right box at place {first + 1} of {len(boxes)}"
    return Example(phrase, image_id, became, svg)


def _mark(box: Any, label: str, kind: str) -> Mark:
    x0, y0, x1, y1 = (float(value) for value in box)
    return Mark((x0, y0, x1, y1), label, kind)


def _jpeg(file: Path | None) -> bytes:
    decoded = None if file is None else read_image(file).image
    if decoded is None:
        return b""
    decoded.thumbnail((_SIDE, _SIDE), Image.Resampling.BICUBIC)
    return jpeg_of(decoded, _QUALITY)


def _rows(tables: Mapping[str, LocalizationTable]) -> dict[str, dict[str, float]]:
    """Return the rows of the heads, then those of the baselines, which are the same for all."""
    rows = {name: dict(table.rows[name]) for name, table in tables.items()}
    for table in tables.values():
        for name, row in table.rows.items():
            if name not in tables:
                rows.setdefault(name, dict(row))
    return rows
