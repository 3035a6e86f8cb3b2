"""Embedding of query sentences and images with a trained head."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.heads.inputs.feature_rows import ArrayRows, Features
from pipeline.heads.trained_head import TrainedHead
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.query.picture_features import PictureFeatures
from pipeline.store.wording import counted
from pipeline.text.encoders.base import CaptionEncoder, unknown_to_all


def embed_sentences(
    trained: TrainedHead,
    encoder: CaptionEncoder,
    texts: Sequence[str],
    log: Callable[[str], None],
) -> Features:
    """Embed sentences or words as captions, each by itself, (texts, dim) or (texts, parts, dim)."""
    _log_unknown_words(encoder, texts, log)
    return trained.head.embed_captions(ArrayRows(encoder.encode(texts)))


def embed_pictures(
    trained: TrainedHead, network: PictureFeatures, images: Sequence[Path | Image.Image]
) -> Features:
    """Embed images, each by itself, (images, dim) or (images, parts, dim) float32."""
    rows = np.concatenate([network.of(image) for image in images])
    return trained.head.embed_images(ArrayRows(rows))


def _log_unknown_words(
    fitted: CaptionEncoder, texts: Sequence[str], log: Callable[[str], None]
) -> None:
    """Log unknown words; raise for a text without a known word."""
    reports = fitted.reports(texts)
    # A block that knows a word is enough: the row is not that of an unknown sentence.
    if unknown := unknown_to_all(reports.values()):
        first = [texts[at] for at in sorted(unknown)[:5]]
        which = f"{len(unknown)} of {counted(len(texts), 'query', 'queries')}, first {first}"
        if len(texts) == 1:
            which = f"the query {first[0]!r}"
        raise EmbeddingsError(
            f"no word of {which} is known; use other words: rare words of the captions may be "
            "missing from the vocabulary"
        )
    # Without names of encoders, which a visitor of `serve` does not know.
    words = [[word for word, _ in report.oov_words] for report in reports.values()]
    if ignored := [word for word in words[0] if all(word in of for of in words)] if words else []:
        log(f"unknown words are ignored: {', '.join(ignored[:10])}")
    for at in {at: None for report in reports.values() for at in report.cut[:5]}:
        log(f"too long, its last words are cut off: {texts[at]}")
