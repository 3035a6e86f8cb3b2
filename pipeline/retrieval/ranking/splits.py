"""Selection of one split in an embedding file of several."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline.datasets.splits import ALL
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.galleries import images_between
from pipeline.store.schema import Natural, SchemaError, convert


def of_split(embeddings: Embeddings, split: str | None) -> Embeddings:
    """Return the images of one split, or `ALL`, with their captions; None: of the only one."""
    only, stored = embeddings.provenance.get("split"), embeddings.provenance.get("splits")
    if stored is None:
        if split in (None, ALL, only):
            return embeddings
        raise EmbeddingsError(
            f"holds the split {only!r}, not {split!r}; `pipeline embed --split all` writes a file "
            "of all splits"
        )
    try:
        # Names with numbers of images, in row order.
        parts = convert(stored, list[tuple[str, Natural]])
    except SchemaError as error:
        raise EmbeddingsError(f"its provenance is invalid at splits: {error}") from error
    ends = np.cumsum([images for _, images in parts]).tolist()
    if not ends or ends[-1] != len(embeddings.image_ids):
        raise EmbeddingsError(
            f"its provenance counts {ends[-1] if ends else 0} images in its splits, but it has "
            f"{len(embeddings.image_ids)}"
        )
    for (name, images), end in zip(parts, ends, strict=True):
        if name == split:
            rows = slice(end - images, end)
            part = images_between(embeddings, embeddings.image_of_caption, rows)
            return replace(part, provenance=_stating(embeddings.provenance, name))
    if split == ALL:
        return embeddings
    listing = ", ".join(f"{name}: {images} images" for name, images in parts)
    problem = "none is named" if split is None else f"none is {split!r}"
    raise EmbeddingsError(
        f"holds several splits ({listing}), and {problem}; name one with `split=...`, or "
        f"`split={ALL}`, or write a file of one with `pipeline embed --split NAME`"
    )


def _stating(provenance: Mapping[str, Any], split: str) -> dict[str, Any]:
    """Return the provenance of one split of a file, or of an ensemble's members."""
    stated = {key: value for key, value in provenance.items() if key != "splits"}
    members = stated.get("ensemble")
    if isinstance(members, list) and all(isinstance(member, dict) for member in members):
        stated["ensemble"] = [_stating(member, split) for member in members]
    return {**stated, "split": split}
