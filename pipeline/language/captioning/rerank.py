"""Rerank generated captions in the space of a retrieval head.

Beam search keeps probable captions, which suit many images. As in Fang et al. 2015 (CVPR), section
5, but the score is that of the language model plus the weighted cosine of caption and image, and on
request the weighted consensus with captions of similar images; the weights are not fitted.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

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
from pipeline.language.captioning.consensus import Training, consensus
from pipeline.language.score_captions import RankingHead
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import QUIET, Monitor

WEIGHT = 4.0
"""Default weight of the cosine, tuned on Flickr8k's dev images with `xu2015-soft-attention`."""


def rerank_captions(
    files: Sequence[Path],
    out: str | Path,
    *,
    head: RankingHead,
    weight: float = WEIGHT,
    training: Training | None = None,
    monitor: Monitor = QUIET,
) -> list[Described]:
    """Rerank the captions of files, and write them to another one; see `pipeline.rerank`."""
    out, started = Path(out), time.monotonic()
    for name, value in {"cosine": weight, "consensus": training.weight if training else 0}.items():
        if not value >= 0:
            raise LanguageError(f"the weight of the {name} is {value}; set a number of at least 0")
    if training is not None and training.neighbours < 1:
        raise LanguageError(f"{training.neighbours} neighbours were requested; ask for at least 1")
    require_captions_file(out)
    described = _pooled(files)
    several = [d for d in described if len(d.captions) > 1]
    if not several:
        raise LanguageError(
            f"{files[0]} has one caption per image, so there is nothing to rerank; write "
            "candidates with `pipeline caption --top 20 --beam 20`"
        )
    texts = [[caption.text for caption in d.captions] for d in several]
    images = [d.image for d in several]
    terms = {"cosine": (weight, head.cosines(images, texts))}
    provenance, *others = map(read_provenance, files)
    hashes = [sha256_of_file(file) for file in files]
    reranking = {
        "captions_sha256": hashes if others else hashes[0],
        "tensors_sha256": head.head.tensors_sha256,
        "weight": weight,
    }
    if training is not None:
        terms["consensus"] = (training.weight, consensus(head, training, images, texts))
        reranking |= {"consensus": training.weight, "neighbours": training.neighbours}
    new = {d.image: _by_score(d, at, terms) for at, d in enumerate(several)}
    reranked = [new.get(d.image, d) for d in described]
    changed = sum(a.text != b.text for a, b in zip(described, reranked, strict=True))
    pooled = {"pooled_with": others} if others else {}
    write_captions(out, reranked, {**provenance, **pooled, "reranked": reranking})
    seconds = time.monotonic() - started
    monitor.log(
        f"{out}: {len(described)} images, {changed} with another caption, in {seconds:.1f} s"
    )
    return reranked


def _pooled(files: Sequence[Path]) -> list[Described]:
    """Return the images of the first file, each with its candidates of all files.

    A sentence of several files counts once, with its highest score, and the first one wins ties.
    """
    first, *others = map(read_described, files)
    images = {described.image for described in first}
    candidates = []
    for file, described in zip(files[1:], others, strict=True):
        by_image = {one.image: one for one in described}
        if different := images ^ by_image.keys():
            raise LanguageError(
                f"{files[0]} and {file} have different images: {len(different)} are in only one of "
                f"them, first {min(different)!r}; write both for one split"
            )
        candidates.append(by_image)
    pooled = []
    for one in first:
        captions: dict[str, Caption] = {}
        of_others = [by_image[one.image].captions for by_image in candidates]
        for caption in chain(one.captions, *of_others):
            known = captions.setdefault(caption.text, caption)
            if caption.score > known.score:
                captions[caption.text] = caption
        pooled.append(
            replace(one, captions=tuple(captions.values()), error="") if captions else one
        )
    return pooled


def _by_score(
    described: Described, at: int, terms: Mapping[str, tuple[float, Sequence[Sequence[float]]]]
) -> Described:
    """Return the candidates of image `at` in the order of their scores plus weighted terms."""
    captions = []
    for number, c in enumerate(described.captions):
        values = {name: of_images[at][number] for name, (_, of_images) in terms.items()}
        score = c.score + sum(weight * values[name] for name, (weight, _) in terms.items())
        captions.append(Caption(c.text, score, {**c.parts, **values, "generated": c.score}))
    order = np.argsort([-caption.score for caption in captions], kind="stable")
    return replace(described, captions=tuple(captions[at] for at in order))
