"""Rerank generated captions by their similarity to the image in the space of a retrieval head.

Beam search keeps probable captions, which suit many images. As in Fang et al. 2015 (CVPR), section
5, but the score is that of the language model plus one weighted cosine, whose weight is not fitted.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.language import LanguageError
from pipeline.language.captioning.captions import Caption
from pipeline.language.captioning.captions_file import (
    Described,
    read_described,
    read_provenance,
    require_captions_file,
    write_captions,
)
from pipeline.language.score_captions import RankingHead
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import QUIET, Monitor

WEIGHT = 4.0
"""Default weight of the cosine, tuned on Flickr8k's dev images with `xu2015-soft-attention`."""


def rerank_captions(
    file: str | Path,
    out: str | Path,
    *,
    head: RankingHead,
    weight: float = WEIGHT,
    monitor: Monitor = QUIET,
) -> list[Described]:
    """Rerank the captions of a file, and write them to another one; see `pipeline.rerank`."""
    file, out, started = Path(file), Path(out), time.monotonic()
    if not weight >= 0:
        raise LanguageError(f"the weight of the cosine is {weight}; set a number of at least 0")
    require_captions_file(out)
    described = read_described(file)
    several = [d for d in described if len(d.captions) > 1]
    if not several:
        raise LanguageError(
            f"{file} has one caption per image, so there is nothing to rerank; write candidates "
            "with `pipeline caption --top 20 --beam 20`"
        )
    texts = [[caption.text for caption in d.captions] for d in several]
    cosines = head.cosines([d.image for d in several], texts)
    new = {d.image: _by_score(d, c, weight) for d, c in zip(several, cosines, strict=True)}
    reranked = [new.get(d.image, d) for d in described]
    changed = sum(a.text != b.text for a, b in zip(described, reranked, strict=True))
    provenance: Mapping[str, Any] = {
        **read_provenance(file),
        "reranked": {
            "captions_sha256": sha256_of_file(file),
            "tensors_sha256": head.head.tensors_sha256,
            "weight": weight,
        },
    }
    write_captions(out, reranked, provenance)
    seconds = time.monotonic() - started
    monitor.log(
        f"{out}: {len(described)} images, {changed} with another caption, in {seconds:.1f} s"
    )
    return reranked


def _by_score(described: Described, cosines: Sequence[float], weight: float) -> Described:
    """Return the candidates of an image in the order of their new scores."""
    captions = [
        Caption(
            c.text, c.score + weight * cosine, {**c.parts, "cosine": cosine, "generated": c.score}
        )
        for c, cosine in zip(described.captions, cosines, strict=True)
    ]
    order = np.argsort([-caption.score for caption in captions], kind="stable")
    return replace(described, captions=tuple(captions[at] for at in order))
