"""Retrieval by the likelihood of captions under a conditional language model, without embeddings.

Mao et al. 2014 (m-RNN), the baseline of Kiros et al. 2014, section 3.1.1: images are ranked by the
perplexity of a caption under each. For an image, captions are ranked by P(caption | image) /
P(caption), where P(caption) is the mean over training images; without the prior, short and frequent
captions would rank first everywhere.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from pipeline.heads.inputs.feature_rows import Features
from pipeline.language.model import SentenceModel
from pipeline.retrieval.embeddings import Embeddings
from pipeline.store.progress import Progress, no_progress
from pipeline.text.encoders.token_ids import PADDING

_CAPTIONS_AT_ONCE = 512

_Ids = npt.NDArray[np.int64]


@torch.inference_mode()
def log_likelihoods(
    model: SentenceModel,
    conditions: Features,
    sentences: _Ids,
    tags: _Ids | None = None,
    progress: Progress = no_progress,
) -> npt.NDArray[np.float64]:
    """Return log P(sentence | condition) of all pairs, (conditions, sentences) float64, in nats.

    Conditions and tags are those of `SentenceModel.start`; sentences are (n, length) token ids,
    `START` first, `PADDING` at the end. The end mark is included.
    """
    lengths = (sentences != PADDING).sum(axis=1)
    # Batch sentences of one length, so that little padding is computed.
    order = np.argsort(lengths, kind="stable")
    log_likelihood = np.zeros((len(conditions), len(sentences)))
    for number, condition in enumerate(conditions):
        for start in range(0, len(order), _CAPTIONS_AT_ONCE):
            some = order[start : start + _CAPTIONS_AT_ONCE]
            ids = torch.from_numpy(sentences[some, : int(lengths[some].max())])
            pairs = torch.cartesian_prod(torch.arange(1), torch.arange(len(some)))
            state = model.start(
                torch.from_numpy(condition[None]),
                None if tags is None else torch.from_numpy(tags[some]),
                pairs,
            )
            total = torch.zeros(len(some), dtype=torch.float64)
            for words, targets in zip(ids.unbind(dim=1), ids[:, 1:].unbind(dim=1), strict=False):
                scores, state = model.step(state, words)
                log_p = scores.log_softmax(dim=1)
                of_words = log_p.gather(1, targets[:, None])[:, 0].double()
                total += of_words.masked_fill(targets == PADDING, 0.0)
            log_likelihood[number, some] = total.numpy()
        progress(number + 1, len(conditions), 0)
    return log_likelihood


def likelihood_embeddings(
    likelihoods: npt.NDArray[np.float64],
    prior: npt.NDArray[np.float64],
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    caption_image_ids: Sequence[str],
    provenance: dict[str, object],
) -> Embeddings:
    """Return embeddings whose inner products are the scores of images and captions.

    An image is a unit vector of its own, a caption its scores with all images, so that tables,
    tests and ensembles of embedding files apply to likelihoods too. `likelihoods` are (images,
    captions), the `prior` (training images, captions), both float64 of `log_likelihoods`.
    """
    highest = prior.max(axis=0)  # log of a mean of exponentials, without underflow
    marginal = highest + np.log(np.exp(prior - highest).mean(axis=0))
    scores = (likelihoods - marginal).astype(np.float32)
    return Embeddings(
        image_ids, np.eye(len(image_ids), dtype=np.float32), caption_ids, caption_image_ids,
        np.ascontiguousarray(scores.T), "dot", provenance,
    )  # fmt: skip
