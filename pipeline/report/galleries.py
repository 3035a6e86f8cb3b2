"""Queries with what was found for them, as a page shows them, and small copies of the pictures."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from pipeline.files import appearing_whole
from pipeline.hashing import canonical_json
from pipeline.images.decode import read_image
from pipeline.pages.rendering import jpeg_of
from pipeline.report.results import Dataset, Result
from pipeline.report.retrievals import QueryResult

SIDE = 224
"""Of the square that a small copy fits into, in pixels."""

TINY = 76
"""Twice the pixels that a figure gives them, for dense screens."""

_QUALITY = 80


@dataclass(frozen=True)
class Thumbnail:
    """A small copy by its file's name, or "" and why there is none."""

    name: str
    fault: str = ""


class Thumbnails:
    """The folder that small copies go to; each picture is copied when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tiny: dict[tuple[str, str], bytes] = {}
        self._made: dict[tuple[str, str], Thumbnail] = {}

    def of(self, dataset: Dataset, image_id: str) -> Thumbnail:
        """Return the copy of a picture.

        Its name says nothing of the id, which may be any text. No metadata of the picture's file
        goes into it.

        Raises
        ------
        ImageReadError
            The system failed; see `pipeline.images.decode`.
        """
        key = dataset.manifest.name, image_id
        if key not in self._made:
            decoded = read_image(dataset.files[image_id])
            name = f"{hashlib.sha256(canonical_json(key).encode()).hexdigest()[:20]}.jpg"
            if decoded.image is not None:
                decoded.image.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC)
                with appearing_whole(self._folder / name) as part:
                    part.write_bytes(jpeg_of(decoded.image, _QUALITY))
            self._made[key] = Thumbnail(name if decoded.image else "", decoded.reason)
        return self._made[key]

    def tiny(self, dataset: Dataset, image_id: str) -> bytes:
        """Return the JPEG of a square of `TINY` pixels from a picture's middle; b"" without one.

        Raises
        ------
        ImageReadError
        """
        key = dataset.manifest.name, image_id
        if key not in self._tiny:
            decoded = read_image(dataset.files[image_id])
            if decoded.image is not None:
                square = ImageOps.fit(decoded.image, (TINY, TINY), Image.Resampling.BICUBIC)
                self._tiny[key] = jpeg_of(square, _QUALITY)
            else:
                self._made.setdefault(key, Thumbnail("", decoded.reason))
                self._tiny[key] = b""
        return self._tiny[key]

    @property
    def names(self) -> list[str]:
        """The files made, sorted."""
        return sorted(copy.name for copy in self._made.values() if copy.name)

    @property
    def faults(self) -> list[str]:
        """A sentence about each picture that there is no copy of."""
        return sorted(
            f"{image_id} of {dataset} has no picture: {copy.fault}."
            for (dataset, image_id), copy in self._made.items()
            if copy.fault
        )


def galleries_of(result: Result, thumbnails: Thumbnails) -> list[dict[str, Any]]:
    """Return what the page shows of queries and what was found; [] without texts and pictures.

    Returns
    -------
    list of dict
        `kind` "sentences" or "images", whether they are `failures`, and `queries`: for each the
        `query` and the items `found`. An item has `picture` (None for a sentence), `text`,
        `correct`, `rank` and `missed`: the best correct item, which was not among the first.
    """
    retrieval, dataset = result.retrieval, result.dataset
    if retrieval is None or dataset is None:
        return []
    parts: Sequence[tuple[str, bool, Sequence[QueryResult]]] = (
        ("sentences", False, retrieval.sentences),
        ("sentences", True, retrieval.sentence_failures),
        ("images", False, retrieval.images),
        ("images", True, retrieval.image_failures),
    )
    return [
        {
            "kind": kind,
            "failures": failures,
            "queries": [_query(of, dataset, thumbnails) for of in results],
        }
        for kind, failures, results in parts
    ]


def _query(result: QueryResult, dataset: Dataset, thumbnails: Thumbnails) -> dict[str, Any]:
    def item(found: str, rank: int, missed: bool = False) -> dict[str, Any]:
        return {
            "picture": _picture(found, dataset, thumbnails) if found in dataset.files else None,
            "text": dataset.texts.get(found, ""),
            "correct": found in result.correct,
            "rank": rank,
            "missed": missed,
        }

    found = [item(hit, rank) for rank, hit in enumerate(result.found, 1)]
    if result.rank > len(result.found):
        found.append(item(result.best_correct, result.rank, missed=True))
    return {"query": item(result.query, 0), "found": found}


def _picture(image_id: str, dataset: Dataset, thumbnails: Thumbnails) -> dict[str, str]:
    copy = thumbnails.of(dataset, image_id)
    return {
        "file": copy.name,
        "fault": copy.fault,
        "alt": dataset.captions[image_id] or image_id,
    }
