"""Files of relevance judgments: graded relevant items by query."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.measures import DIRECTIONS
from pipeline.retrieval.search import SideName
from pipeline.store.packed import TextIndex
from pipeline.store.schema import SchemaError, decode_given, decode_lines
from pipeline.studies import StudyError

Grades = Mapping[str, Mapping[str, float]]
"""Grade of an item by query id and item id, 0 or more; 0 is not relevant."""

_Id = int | str


@dataclass(frozen=True, eq=False)
class Judged:
    """Judgments as rows of one gallery."""

    direction: str  # one of `DIRECTIONS`
    queries: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    """(pairs,) int64 as `queries`, rows of the two sides; -1 for an item outside the gallery."""
    grades: npt.NDArray[np.float64]  # (pairs,) float64
    unknown: int  # number of ignored pairs whose query is not in the gallery

    @property
    def sides(self) -> tuple[SideName, SideName]:
        """The sides of the queries and of the items."""
        return ("images", "captions") if self.direction == DIRECTIONS[0] else ("captions", "images")


class _Line(msgspec.Struct):
    query: _Id
    item: _Id
    grade: float = 1.0


def read_relevance(path: str | Path) -> dict[str, dict[str, float]]:
    """Read grades, 0 or more, by query id and item id."""
    path = Path(path)
    grades: dict[str, dict[str, float]] = {}
    try:
        data = path.read_bytes()
        if path.suffix == ".jsonl":
            lines = decode_lines(data.splitlines(), _Line)
            pairs = [(str(line.query), str(line.item), line.grade) for line in lines]
        else:
            by_query = decode_given(data, dict[str, list[_Id] | dict[str, float]])
            pairs = [
                (query, str(item), of[str(item)] if isinstance(of, dict) else 1.0)
                for query, of in by_query.items()
                for item in of
            ]
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror}; name a file of judgments") from error
    except SchemaError as error:
        raise StudyError(
            f"{path}: {error}; expected lines with query, item and grade (NAME.jsonl), or a JSON "
            "object with the items of each query"
        ) from error
    if not pairs:
        raise StudyError(f"{path} has no judged pair; expected a query with an item")
    for query, item, grade in pairs:
        if not (math.isfinite(grade) and grade >= 0):
            raise StudyError(
                f"{path}: item {item!r} of query {query!r} has the grade {grade}; expected 0 (not "
                "relevant) or more"
            )
        if grades.setdefault(query, {}).setdefault(item, grade) != grade:
            raise StudyError(
                f"{path}: item {item!r} of query {query!r} has the grades {grades[query][item]} "
                f"and {grade}; keep one"
            )
    return grades


def rows_of(grades: Grades, e: Embeddings) -> Judged:
    """Return judgments as rows of a gallery, in the direction that finds more pairs."""
    queries = list(grades)
    items = [item for of in grades.values() for item in of]
    counts = [len(of) for of in grades.values()]
    values = np.array([grade for of in grades.values() for grade in of.values()], np.float64)
    indices = [TextIndex(ids) for ids in (e.image_ids, e.caption_ids)]
    fits = []
    for direction, asking, answering in zip(DIRECTIONS, indices, indices[::-1], strict=True):
        query_rows = np.repeat(asking.rows_of(queries, len(queries)), counts)
        item_rows = answering.rows_of(items, len(items))
        asked_of = query_rows >= 0
        judged = Judged(
            direction,
            query_rows[asked_of],
            item_rows[asked_of],
            values[asked_of],
            len(asked_of) - int(asked_of.sum()),
        )
        fits.append((int((judged.items >= 0).sum()), judged))
    (least, _), (most, judged) = sorted(fits, key=lambda fit: fit[0])
    if least == most:
        first = [(query, next(iter(of), None)) for query, of in grades.items()][:3]
        raise StudyError(
            f"{most} of {len(items)} judged pairs are an image and a caption of the "
            f"embedding file, and as many a caption and an image; first pairs {first}; image ids "
            f"are such as {e.image_ids[0]!r}, caption ids such as {e.caption_ids[0]!r}: name "
            "queries and items by these"
        )
    return judged
