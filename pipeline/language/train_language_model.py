"""Training of a language model on the captions of a dataset; called by `pipeline run`."""

from pathlib import Path

import numpy as np

from pipeline.datasets.manifest import read_manifest
from pipeline.heads.base import settings_from
from pipeline.heads.inputs.feature_rows import ArrayRows
from pipeline.heads.inputs.feature_spec import FeatureSpec
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.trained_head import TrainedHead
from pipeline.heads.training.trainer import train_network
from pipeline.heads.training.training_job import TrainingJob
from pipeline.heads.training.training_options import DEFAULT_TRAINING, TrainingOptions
from pipeline.language.data import LanguageInputs, OpenLanguageInputs, embed_captions
from pipeline.language.language_task import SENTENCE, language_task
from pipeline.language.model_types import LanguageExperiment, LanguageSettings
from pipeline.language.ngram import fit_ngrams, require_words
from pipeline.language.plain_text import with_plain_text
from pipeline.language.trained_model import Concepts, TrainedLanguageModel
from pipeline.store.files import created_by
from pipeline.store.hashing import sha256_of_file
from pipeline.text.encode import encoder_folder
from pipeline.text.encoders.token_ids import FIRST_WORD
from pipeline.text.fitted import load_encoder, load_options
from pipeline.text.vocabulary import Vocabulary, load_vocabulary


def fit_language_model(
    dataset: str | Path,
    out: str | Path,
    *,
    experiment: LanguageExperiment,
    inputs: LanguageInputs,
    training: TrainingOptions = DEFAULT_TRAINING,
) -> TrainedLanguageModel:
    """Train an experiment's language model on the captions of the training split and save it.

    As `pipeline.fit`: an interrupted training resumes from its last epoch and yields the same
    bytes. `leave_out_failed` concerns images, for models conditioned on them; the precision is
    always float32.
    """
    experiment = experiment.at_most(training.max_epochs)
    settings = settings_from(LanguageSettings, experiment.settings, experiment.model)
    job = TrainingJob.open(read_manifest(Path(dataset)), out, training)
    if job.options.precision == "bf16":
        job.log("language models are trained in float32")
    opened = OpenLanguageInputs(inputs, experiment)
    vocabulary = _vocabulary(Path(inputs.sentences))
    entries = job.entries(opened.features.get("images"))
    train, validation = map(opened.pairs, entries)
    sizes = opened.sizes
    job.log(
        f"{job.train_split}: {len(train.captions)} sentences, {sizes.vocab_size} token ids, "
        f"conditions of {sizes.condition_dim} numbers; {job.validation_split}: "
        f"{len(validation.captions)} sentences"
    )
    sentences, made_from = train, opened.made_from(Path(dataset))
    if experiment.corpus and inputs.corpus is not None:
        corpus = Path(inputs.corpus)
        # Also of the n-grams, but not of the concepts that captions are written from.
        sentences = with_plain_text(train, corpus, inputs, opened, job)
        made_from["corpus_file_sha256"] = sha256_of_file(corpus)
    rows = sentences.captions.take(np.arange(len(sentences.captions)))
    ids = rows[:, : sizes.length].astype(np.int64)
    require_words(ids)  # checked before hours of training: the n-grams need words
    task = language_task(experiment.model, settings, sizes)
    hashes = {name: rows.recipe_hash for name, rows in opened.features.items()}
    # Without the number of epochs: a longer training resumes from the checkpoint of a shorter one.
    named = {n: v for n, v in vars(settings).items() if n != "epochs"}
    identity = [experiment.model, named, hashes, opened.origin]
    with job.fitting(experiment.name) as options:
        net, history = train_network(task, sentences, validation, options, identity)
        points = _points(opened.head, inputs.captions, vocabulary)
        of_captions: np.ndarray | None = None
        if opened.head is not None and experiment.points == "images":
            of_captions = opened.sentence_points(entries[0])
        elif opened.head is not None:
            of_captions = train.images.take(np.arange(len(train.images)))
        return TrainedLanguageModel(
            experiment=experiment.name,
            model=experiment.model,
            settings=experiment.settings,
            seed=training.seed,
            dataset=job.manifest.name,
            train_split=job.train_split,
            validation_split=job.validation_split,
            sizes=sizes,
            inputs={name: FeatureSpec.of(rows) for name, rows in opened.features.items()},
            head=opened.origin,
            made_from=made_from,
            history=history,
            created_by=created_by("torch", "numpy", "safetensors"),
            vocabulary=vocabulary,
            module=net[SENTENCE],
            ngrams=fit_ngrams(ids[:, 1:], sizes.vocab_size),
            concepts=_concepts(train, sizes.length, points, of_captions),
        ).save(job.out)


def _vocabulary(sentences: Path) -> Vocabulary:
    folder = encoder_folder(sentences)
    return load_vocabulary(folder / load_options(folder).vocabulary_file)


def _points(
    head: TrainedHead | None, captions: str | Path | None, vocabulary: Vocabulary
) -> np.ndarray | None:
    """Return the embeddings of the words by token id, zeros for marks; None without a head."""
    if head is None or captions is None:
        return None
    fitted = load_encoder(encoder_folder(captions))
    words = embed_captions(head, ArrayRows(fitted.encode(list(vocabulary.words))))
    return np.concatenate([np.zeros((FIRST_WORD, words.shape[1]), np.float32), words])


def _concepts(
    pairs: Pairs, length: int, words: np.ndarray | None, points: np.ndarray | None
) -> Concepts:
    """Return `Concepts` of the captions of `pairs`, whose embeddings are `points`."""
    rows = pairs.captions.take(np.arange(len(pairs.captions)))
    tags = rows[:, length:].astype(np.int64)
    if words is None or points is None:
        none = np.zeros((0, 1), np.float32)
        return Concepts(none, none, tags)
    # The first of equal captions, in the order of the dataset.
    _, first = np.unique(rows[:, :length], axis=0, return_index=True)
    return Concepts(words, points[np.sort(first)], tags)
