"""Trains a language model on the captions of a dataset; `pipeline run` calls it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.datasets.manifest import MANIFEST_FILE, read_manifest
from pipeline.datasets.splits import split_for
from pipeline.devices import usable_device
from pipeline.files import created_by, require_folder
from pipeline.hashing import sha256_of_file
from pipeline.heads.base import FitOptions, settings_from
from pipeline.heads.fit import work_folder
from pipeline.heads.inputs.feature_rows import ArrayRows, Features
from pipeline.heads.inputs.feature_spec import FeatureSpec, require_vectors
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.heads.training.trainer import train_network
from pipeline.language import LanguageError
from pipeline.language.data import SentenceSets, embed_captions, require_cosine, sentence_pairs
from pipeline.language.language_task import SENTENCE, language_task
from pipeline.language.model_types import LanguageExperiment, LanguageSettings
from pipeline.language.ngram import fit_ngrams
from pipeline.language.trained_model import Concepts, TrainedLanguageModel
from pipeline.progress import QUIET, Monitor
from pipeline.shards.feature_set import FeatureSet
from pipeline.text.encode import encoder_folder
from pipeline.text.encoders.token_ids import FIRST_WORD
from pipeline.text.fitted import load_encoder, load_plan, vocabulary_of
from pipeline.text.vocabulary import Vocabulary


def fit_language_model(
    dataset: str | Path,
    out: str | Path,
    *,
    experiment: LanguageExperiment,
    sentences: str | Path,
    tags: str | Path | None = None,
    images: str | Path | None = None,
    captions: str | Path | None = None,
    head: str | Path | None = None,
    train_split: str | None = None,
    validation_split: str | None = None,
    seed: int = 0,
    max_epochs: int | None = None,
    device: str = "cpu",
    monitor: Monitor = QUIET,
) -> TrainedLanguageModel:
    """Train an experiment's language model on the captions of the training split and save it.

    Perplexity on the validation split chooses the epoch. As in `pipeline.heads.fit.fit`, an
    interrupted training goes on from its last epoch and ends in the same bytes.

    Parameters
    ----------
    dataset : folder of a prepared dataset.
    out : folder of the model.
    experiment : the model and its settings.
    sentences : features of the captions, token ids; their fitted encoder lies beside them.
    tags : their tags, of a model that takes any.
    images : features of the images, of a model that is conditioned on them.
    captions, head : features of the captions, with their fitted encoder beside them, and the head
        that embeds them, of a model that is conditioned on the sentence.
    train_split, validation_split, seed, max_epochs, device : see `pipeline.heads.fit.fit`.
    monitor : gets log lines, and progress in epochs.

    Raises
    ------
    LanguageError
        The model needs features that are not given, the head's similarity is not cosine, or
        sentences and tags do not belong together.
    HeadError
        A setting is unknown or out of range, features were made from other texts, or the training
        diverged.
    DatasetError, EncoderError, VocabularyError, ShardError, MissingRows, FailedRows
        The data are missing or damaged.
    """
    out = Path(out)
    require_folder(out)
    usable_device(device)
    experiment = experiment.at_most(max_epochs)
    settings = settings_from(LanguageSettings, experiment.settings, experiment.model)
    _require_inputs(experiment, tags=tags, images=images, captions=captions, head=head)
    manifest = read_manifest(Path(dataset))
    train_split = split_for("train", manifest, train_split)
    validation_split = split_for("validation", manifest, validation_split)
    condition = experiment.condition
    sets = SentenceSets(
        FeatureSet(Path(sentences)),
        FeatureSet(Path(tags)) if experiment.takes_tags and tags is not None else None,
    )
    features = {"sentences": sets.sentences}
    if sets.tags is not None:
        features["tags"] = sets.tags
    trained: TrainedHead | None = None
    condition_dim = 1
    if head is not None and captions is not None and condition == "sentence":
        trained, features["captions"] = load_head(head), FeatureSet(Path(captions))
        trained.inputs.captions.require(features["captions"], "caption")
        condition_dim = require_cosine(trained, head)
    elif images is not None and condition == "image":
        features["images"] = FeatureSet(Path(images))
        condition_dim = require_vectors(experiment.model, FeatureSpec.of(features["images"]))
    vocabulary = _vocabulary(Path(sentences))
    pairs, validation = (
        sentence_pairs(
            manifest.select(split),
            sets,
            images=features.get("images"),
            captions=features.get("captions"),
            head=trained,
        )
        for split in (train_split, validation_split)
    )
    sizes = sets.sizes(condition_dim)
    monitor.log(
        f"{train_split}: {len(pairs.captions)} sentences, {sizes.vocab_size} token ids, conditions "
        f"of {condition_dim} numbers; {validation_split}: {len(validation.captions)} sentences"
    )
    task = language_task(experiment.model, settings, sizes)
    hashes = {name: found.recipe_hash for name, found in features.items()}
    named = {n: v for n, v in vars(settings).items() if n != "epochs"}
    origin = None
    if trained is not None:
        origin = {"experiment": trained.experiment, "tensors_sha256": trained.tensors_sha256}
    identity = [experiment.model, named, hashes, origin]
    with work_folder(out) as work, monitor.progress(experiment.name, "epoch") as show:
        options = FitOptions(seed, show, work, device=device)
        net, history = train_network(task, pairs, validation, options, identity)
        made_from = {"manifest_sha256": sha256_of_file(Path(dataset) / MANIFEST_FILE)}
        made_from |= {f"{n}_sha256": found.index.content_sha256 for n, found in features.items()}
        point_of = None
        if trained is not None and captions is not None:
            point_of = _embedder(trained, encoder_folder(captions))
        ids = pairs.captions.take(np.arange(len(pairs.captions)))[:, : sizes.length]
        return TrainedLanguageModel(
            experiment=experiment.name,
            model=experiment.model,
            settings=experiment.settings,
            seed=seed,
            dataset=manifest.name,
            train_split=train_split,
            validation_split=validation_split,
            sizes=sizes,
            inputs={name: FeatureSpec.of(found) for name, found in features.items()},
            head=origin,
            made_from=made_from,
            history=history,
            created_by=created_by("torch", "numpy", "safetensors"),
            vocabulary=vocabulary,
            module=net[SENTENCE],
            ngrams=fit_ngrams(ids[:, 1:].astype(np.int64), sizes.vocab_size),
            concepts=_concepts(pairs, sets, sizes.length, vocabulary, point_of),
        ).save(out)


def _require_inputs(experiment: LanguageExperiment, **given: str | Path | None) -> None:
    """Refuse an experiment whose model needs features that are not given."""
    needed = {"nothing": [], "sentence": ["captions", "head"], "image": ["images"]}
    names = [*needed[experiment.condition], *["tags"] * experiment.takes_tags]
    if missing := [name for name in names if given[name] is None]:
        raise LanguageError(
            f"the language model {experiment.model!r} needs {' and '.join(missing)}; give the "
            "folder of each"
        )


def _vocabulary(sentences: Path) -> Vocabulary:
    folder = encoder_folder(sentences)
    (spec,) = load_plan(folder).specs
    return vocabulary_of(folder, spec)


def _embedder(head: TrainedHead, encoder: Path) -> Callable[[list[str]], Features]:
    fitted = load_encoder(encoder)

    def point_of(texts: list[str]) -> Features:
        return embed_captions(head, ArrayRows(fitted.encode(texts)))

    return point_of


def _concepts(
    pairs: Pairs,
    sets: SentenceSets,
    length: int,
    vocabulary: Vocabulary,
    point_of: Callable[[list[str]], Features] | None,
) -> Concepts:
    """Return the points of words and sentences, and the tags, of the training split."""
    rows = pairs.captions.take(np.arange(len(pairs.captions)))
    tags = rows[:, length:].astype(np.int64)
    if point_of is None:
        none = np.zeros((0, 1), np.float32)
        return Concepts(none, none, tags)
    points = pairs.images.take(np.arange(len(pairs.images)))
    _, first = np.unique(rows[:, :length], axis=0, return_index=True)
    words = point_of(list(vocabulary.words))
    marks = np.zeros((FIRST_WORD, words.shape[1]), np.float32)
    return Concepts(np.concatenate([marks, words]), points[np.sort(first)], tags)
