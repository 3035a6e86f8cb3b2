"""Ensembles of heads: embeddings whose dot product is the mean of the heads' cosines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.csls import is_corrected
from pipeline.retrieval.embedding_file import (
    Blocks,
    EmbeddingsHeader,
    read_embeddings,
    write_in_blocks,
)
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.similarity import unit_rows
from pipeline.store.hashing import sha256_of_file
from pipeline.store.packed import TextIndex

_ROWS = 4096

ENSEMBLES: dict[str, Mapping[str, float]] = {
    "ours": {"ours-cca": 1.0, "ours-linear": 2.0, "ours-gru": 1.0},
}
"""Ensembles by name: presets of `pipeline.heads.presets` with weights; not from a paper."""


def members_in(ensembles: Mapping[str, Mapping[str, float]], name: str) -> Mapping[str, float]:
    """Return the members of an ensemble with their weights; {} if none has this name.

    `NAME@RECIPE` is the ensemble of NAME's members on the image features of a recipe.
    """
    base, at, recipe = name.partition("@")
    if name in ensembles or not at:
        return ensembles.get(name, {})
    return {f"{member}@{recipe}": weight for member, weight in ensembles.get(base, {}).items()}


def members_of(name: str, members: Mapping[str, float] | None = None) -> Mapping[str, float]:
    """Return the weights of an ensemble's members, by experiment; None or empty: of `ENSEMBLES`."""
    weights = members or members_in(ENSEMBLES, name)
    if not weights:
        raise EmbeddingsError(
            f"ensemble {name!r} has no members; name experiments with their weights, or use the "
            f"ensemble {' or '.join(ENSEMBLES)}"
        )
    return weights


def ensemble(
    members: Mapping[str, str | Path],
    out: str | Path,
    *,
    name: str | None = None,
    weights: Mapping[str, float] | None = None,
) -> Embeddings:
    """Average the cosines of several embedding files, and write the result as another file.

    A row is the concatenation of the members' unit vectors, each scaled by the square root of its
    relative weight, so that the dot product of two rows is the weighted mean of the cosines.

    Parameters
    ----------
    members : mapping of str to str or Path. Embedding files of the same images and captions, by
        member name: at least two, rows in any order, similarity "cosine", or CSLS (see
        `pipeline.Stored`), whose corrected cosines are averaged.
    out : str or Path. The embedding file of the ensemble.
    name : str or None. Name of the ensemble, for its provenance; None: the file name without
        suffix.
    weights : mapping of str to float, or None. Weight of each member, above 0; None: equal weights.

    Returns
    -------
    Embeddings
        Similarity "dot", rows in the order of the first member and of norm 1, memory-mapped; dim is
        the sum of the members'. A zero row of a member counts as cosine 0 and reduces the norm.

    Raises
    ------
    EmbeddingsError
        A file is missing or corrupt, a member has no weight or another similarity, or members are
        of different images, captions or pairs.

    Examples
    --------
    >>> rows = np.eye(2, dtype=np.float32)
    >>> space = pipeline.Embeddings(
    ...     ["a.jpg", "b.jpg"], rows, ["a.jpg#0", "b.jpg#0"], ["a.jpg", "b.jpg"], rows, "cosine", {}
    ... )
    >>> pipeline.write_embeddings("member.h5", space)
    >>> members = {"first": "member.h5", "second": "member.h5"}
    >>> pipeline.ensemble(members, "both.h5", weights={"first": 2, "second": 1}).similarity
    'dot'
    """
    out = Path(out)
    if weights is not None and weights.keys() != members.keys():
        raise EmbeddingsError(
            f"found weights for {', '.join(weights)}, but the members are "
            f"{', '.join(members)}; every member needs a weight"
        )
    paths = {member: Path(path) for member, path in members.items()}
    embeddings = [read_embeddings(path) for path in paths.values()]
    header, images, captions = _side_by_side(
        embeddings, None if weights is None else [weights[m] for m in members]
    )
    members_json = {m: {"embeddings_sha256": sha256_of_file(path)} for m, path in paths.items()}
    provenance = {"experiment": name or out.stem, "members": members_json}
    header = replace(header, provenance={**header.provenance, **provenance})
    return write_in_blocks(out, header, images, captions)


def average(members: Sequence[Embeddings], weights: Sequence[float] | None = None) -> Embeddings:
    """Return the embeddings of `ensemble` in memory, from those of its members."""
    header, images, captions = _side_by_side(members, weights)
    return Embeddings(
        header.image_ids,
        np.concatenate([*images]),
        header.caption_ids,
        header.caption_image_ids,
        np.concatenate([*captions]),
        header.similarity,
        header.provenance,
    )


def shares(weights: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the norm of each member's part of a row; the squares sum to 1."""
    lengths: npt.NDArray[np.float64] = np.sqrt(np.array(weights) / sum(weights))
    return lengths


def _side_by_side(
    members: Sequence[Embeddings], weights: Sequence[float] | None
) -> tuple[EmbeddingsHeader, Blocks, Blocks]:
    """Return the header of an ensemble, and its rows, computed lazily."""
    weights = [1.0] * len(members) if weights is None else list(weights)
    if len(members) < 2 or len(weights) != len(members) or min(weights) <= 0:
        raise EmbeddingsError(
            f"an ensemble needs at least two members and a weight above 0 for each; found "
            f"{len(members)} members and the weights {weights}"
        )
    first = members[0]
    several = "splits" in first.provenance
    images: list[_Part] = []
    captions: list[_Part] = []
    for number, (member, share) in enumerate(zip(members, shares(weights), strict=True), 1):
        corrected = is_corrected(member.provenance)
        if member.similarity != "cosine" and not corrected:
            raise EmbeddingsError(
                f"member {number} has the similarity {member.similarity!r}; only cosines can be "
                "averaged by concatenating embeddings: omit that member"
            )
        image_rows = _positions(first.image_ids, member.image_ids, "images", number)
        caption_rows = _positions(first.caption_ids, member.caption_ids, "captions", number)
        if (image_rows[first.image_of_caption] != member.image_of_caption[caption_rows]).any():
            raise EmbeddingsError(
                f"member {number} has other images for its captions than member 1; embed the same "
                "split of the same dataset"
            )
        images.append(_Part(member.image_embeddings, image_rows, share, corrected))
        captions.append(_Part(member.caption_embeddings, caption_rows, share, corrected))
    header = EmbeddingsHeader(
        first.image_ids,
        first.caption_ids,
        first.caption_image_ids,
        "dot",
        {
            "ensemble": [member.provenance for member in members],
            "weights": weights,
            # With several splits, for `of_split`: the rows are those of the first member.
            **{key: first.provenance[key] for key in ("split", "splits") if several},
        },
    )
    return header, _joined(images), _joined(captions)


def _positions(
    ids: Sequence[str], member_ids: Sequence[str], side: str, number: int
) -> npt.NDArray[np.int64]:
    """Return the row of each id in `member_ids`, (ids,) int64."""
    rows = TextIndex(member_ids).rows_of(ids, len(ids))
    if len(member_ids) != len(ids) or (rows < 0).any():
        other = sorted({*member_ids} ^ {*ids})
        raise EmbeddingsError(
            f"member {number} has {len(member_ids)} {side} and member 1 has {len(ids)}; "
            f"{len(other)} ids are not in both, first {other[:5]}: embed the same split"
        )
    return rows


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows of a side of one member, in the order of the first, with their scale."""

    embeddings: npt.NDArray[np.float32]
    rows: npt.NDArray[np.int64]
    length: float
    corrected: bool  # by `pipeline.retrieval.csls`: no unit vectors

    def taken(self, start: int) -> npt.NDArray[np.float32]:
        rows = self.embeddings[self.rows[start : start + _ROWS]]
        wide = rows if self.corrected else unit_rows(rows).astype(np.float32)
        return wide * np.float32(self.length)


def _joined(parts: Sequence[_Part]) -> Blocks:
    # At least one block, so that an empty side has a width too.
    for start in range(0, max(1, len(parts[0].rows)), _ROWS):
        yield np.concatenate([part.taken(start) for part in parts], axis=1)
