"""Embedding file of a language model: scores of images and captions by their likelihood."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.datasets.entries import PackedEntries
from pipeline.datasets.manifest import MANIFEST_FILE, read_manifest
from pipeline.datasets.splits import split_for
from pipeline.experiments.layout import Layout, unseeded
from pipeline.heads.head_types import Experiment
from pipeline.heads.inputs.feature_rows import FeatureRows
from pipeline.heads.inputs.pairs import require_same_texts
from pipeline.language import LanguageError
from pipeline.language.captioning.captioner import LanguageCaptioner
from pipeline.language.captioning.captioners import open_language_model
from pipeline.language.likelihoods import likelihood_embeddings, log_likelihoods
from pipeline.language.presets import resolve_language_experiment
from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import FeatureSet

PRIOR_IMAGES = 50
"""Number of training images, evenly spaced, whose mean likelihood approximates P(caption)."""


def embed_by_likelihood(
    name: str,
    layout: Layout,
    out: Path,
    experiment_named: Callable[[str], Experiment],
    *,
    split: str | None = None,
    limit: int | None = None,
    monitor: Monitor = QUIET,
) -> Embeddings:
    """Score all images and captions of a split with a language model, and write the result.

    The result is that of `pipeline.language.likelihoods.likelihood_embeddings`.

    Parameters
    ----------
    name : str. Name of a trained, published language model.
    layout : Layout. Layout of the dataset.
    out : Path. The embedding file; its similarity is "dot".
    experiment_named : callable. Returns a retrieval experiment by name.
    split : str or None. None: the test split.
    limit : int or None. Only its first images; the time grows quadratically.
    monitor : Monitor. Receives progress in images.
    """
    opened = open_language_model(name, layout, experiment_named)
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
    module, sentences, tags = trained.module, ids["sentences"], ids.get("tags")
    with monitor.progress(f"compare {name}", "image") as progress:
        likelihoods = log_likelihoods(module, conditions(entries), sentences, tags, progress)
    some = training.take(np.arange(0, len(training), step)[:PRIOR_IMAGES])
    prior = log_likelihoods(module, conditions(some), sentences, tags)
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
