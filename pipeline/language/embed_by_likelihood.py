"""Embedding file of a language model: retrieval by the likelihood of captions.

Mao et al. 2014 (m-RNN), the baseline of Kiros et al. 2014, section 3.1.1: images are ranked by the
perplexity of a caption under each. For an image, captions are ranked by P(caption | image) /
P(caption), where P(caption) is the mean over training images; without the prior, short and frequent
captions would rank first everywhere.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from pipeline.datasets.entries import PackedEntries
from pipeline.datasets.manifest import MANIFEST_FILE, read_manifest
from pipeline.datasets.splits import split_for
from pipeline.experiments.layout import Layout, unseeded
from pipeline.heads.head_types import Experiment
from pipeline.heads.inputs.feature_rows import FeatureRows, Features
from pipeline.heads.inputs.pairs import require_same_texts
from pipeline.language import LanguageError
from pipeline.language.captioning.captioner import LanguageCaptioner
from pipeline.language.captioning.captioners import open_language_model
from pipeline.language.model import SentenceModel
from pipeline.language.presets import resolve_language_experiment
from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import QUIET, Monitor, Progress, no_progress
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.text.encoders.token_ids import PADDING

PRIOR_IMAGES = 50
"""Number of training images, evenly spaced, whose mean likelihood approximates P(caption)."""

_CAPTIONS_AT_ONCE = 512

CPU = torch.device("cpu")

_Ids = npt.NDArray[np.int64]


def embed_by_likelihood(
    name: str,
    layout: Layout,
    out: Path,
    experiment_named: Callable[[str], Experiment],
    *,
    split: str | None = None,
    limit: int | None = None,
    device: str = "cpu",
    monitor: Monitor = QUIET,
) -> Embeddings:
    """Score all images and captions of a split with a trained language model; write the result.

    It is that of `likelihood_embeddings`. `split` None is the test split, and `limit` the number
    of its images, since the time grows quadratically.
    """
    opened = open_language_model(name, layout, experiment_named, device=device)
    captioner = opened.captioner
    assert isinstance(captioner, LanguageCaptioner)
    trained = captioner.trained
    manifest = read_manifest(layout.dataset)
    split = split_for("test", manifest, split)
    entries = manifest.select(split)[:limit]
    entries = entries.take(np.flatnonzero(entries.num_captions))
    if not len(entries):
        raise LanguageError(f"no image of the split {split!r} has a caption to compare with")
    training = manifest.select(trained.train_split)
    step = max(1, len(training) // PRIOR_IMAGES)
    features = FeatureSet(opened.images)
    opened.inputs.require(features, "image")

    def conditions(of: PackedEntries) -> np.ndarray:
        return captioner.conditions(FeatureRows(features, of.ids).take(np.arange(len(of))))

    published = resolve_language_experiment(unseeded(name))
    folders = {"sentences": published.sentences, "tags": published.tags}
    captions, ids = entries.captions, {}
    for kind in trained.inputs.keys() & folders.keys():
        rows = FeatureSet(layout.text(folders[kind].name))
        trained.inputs[kind].require(rows, kind)
        require_same_texts(captions, rows)
        read = FeatureRows(rows, captions.ids).take(np.arange(len(captions.ids)))
        ids[kind] = read.astype(np.int64)
    likelihoods_of = partial(
        log_likelihoods,
        trained.module,
        sentences=ids["sentences"],
        tags=ids.get("tags"),
        device=captioner.device,
    )
    with monitor.progress(f"compare {name}", "image") as progress:
        likelihoods = likelihoods_of(conditions(entries), progress=progress)
    some = training.take(np.arange(0, len(training), step)[:PRIOR_IMAGES])
    prior = likelihoods_of(conditions(some))
    owners = np.repeat(np.arange(len(entries)), entries.num_captions)
    embeddings = likelihood_embeddings(
        likelihoods,
        prior,
        entries.ids,
        captions.ids,
        [entries.ids[row] for row in owners.tolist()],
        {
            "dataset": manifest.name,
            "split": split,
            "manifest_sha256": sha256_of_file(layout.dataset / MANIFEST_FILE),
            "limit": limit,
            "prior_images": len(some),
            **trained.provenance,
        },
    )
    write_embeddings(out, embeddings)
    return embeddings


@torch.inference_mode()
def log_likelihoods(
    model: SentenceModel,
    conditions: Features,
    sentences: _Ids,
    tags: _Ids | None = None,
    progress: Progress = no_progress,
    device: torch.device = CPU,
) -> npt.NDArray[np.float64]:
    """Return log P(sentence | condition) of all pairs, (conditions, sentences) float64, in nats.

    Conditions and tags are those of `SentenceModel.start`; sentences are (n, length) token ids,
    `START` first, `PADDING` at the end. The end mark is included. `device` is that of the model.
    """
    lengths = (sentences != PADDING).sum(axis=1)
    # Batch sentences of one length, so that little padding is computed.
    order = np.argsort(lengths, kind="stable")
    log_likelihood = np.zeros((len(conditions), len(sentences)))
    for number, condition in enumerate(conditions):
        for start in range(0, len(order), _CAPTIONS_AT_ONCE):
            some = order[start : start + _CAPTIONS_AT_ONCE]
            ids = torch.from_numpy(sentences[some, : int(lengths[some].max())]).to(device)
            pairs = torch.cartesian_prod(torch.arange(1), torch.arange(len(some))).to(device)
            state = model.start(
                torch.from_numpy(condition[None]).to(device),
                None if tags is None else torch.from_numpy(tags[some]).to(device),
                pairs,
            )
            total = torch.zeros(len(some), dtype=torch.float64, device=device)
            for words, targets in zip(ids.unbind(dim=1), ids[:, 1:].unbind(dim=1), strict=False):
                scores, state = model.step(state, words)
                log_p = scores.log_softmax(dim=1)
                of_words = log_p.gather(1, targets[:, None])[:, 0].double()
                total += of_words.masked_fill(targets == PADDING, 0.0)
            log_likelihood[number, some] = total.cpu().numpy()
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
