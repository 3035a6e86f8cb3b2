"""The job of `pipeline train` for a fine-tuned experiment: train head and image network."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save

from pipeline.datasets.manifest import NO_PICTURES, Manifest, read_manifest
from pipeline.heads import HeadError
from pipeline.heads.finetuning import WEIGHTS_FILE
from pipeline.heads.finetuning.augmentation import Augmentation
from pipeline.heads.finetuning.finetuning_task import divided, with_network
from pipeline.heads.finetuning.image_rows import ImageFile, ImageRows, require_unchanged
from pipeline.heads.finetuning.network import LearningNetwork
from pipeline.heads.fit import PairedFeatures, log_sizes
from pipeline.heads.head_types import Experiment
from pipeline.heads.inputs.feature_spec import FeatureSpec
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.heads.training.task import TrainingTask
from pipeline.heads.training.trainer import NetworkHead
from pipeline.heads.training.training_job import TrainingJob
from pipeline.heads.training.training_options import DEFAULT_TRAINING, TrainingOptions
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.batches import feature_header
from pipeline.images.recipes import RECIPES, Recipe, is_image_recipe, resolved_like
from pipeline.images.weights import Weights, WeightsError, load_weights
from pipeline.store.files import appearing_whole, created_by
from pipeline.store.hashing import canonical_json, sha256_of_file
from pipeline.store.progress import Progress
from pipeline.store.shards.feature_set import FeatureSet


def finetune(
    dataset: str | Path,
    out: str | Path,
    *,
    experiment: Experiment,
    start: str | Path,
    images: str | Path,
    captions: str | Path,
    weights: str | Path | None = None,
    training: TrainingOptions = DEFAULT_TRAINING,
) -> TrainedHead:
    """Train a fitted head further, together with the network that computed its image features.

    Images are read from the dataset's files, cropped and mirrored at random in each epoch. The
    output is the head, fitted on features of the tuned network, and next to it the network's
    weights, `WEIGHTS_FILE`, with which `pipeline.images.extract.extract` computes those features.
    As in `pipeline.heads.fit.fit`, the validation split selects the epoch, and an interrupted
    training resumes from its last epoch and yields the same bytes.

    Parameters
    ----------
    dataset, out, captions : see `pipeline.heads.fit.fit`.
    experiment : Experiment. With `finetuning`; its settings apply to this training.
    start : str or Path. Folder of the head to start from, fitted on `images` and `captions`.
    images : str or Path. Features of the untuned network, with records of their files.
    weights : str or Path or None. Weights of the network, as `load_weights` accepts them; None:
        those named in `images`.
    training : TrainingOptions. Each worker reads on up to 16 threads.

    Returns
    -------
    TrainedHead
        The tuned head, as stored in `out`.

    Raises
    ------
    HeadError
        The experiment, recipe or head does not support fine-tuning, the weights are not those of
        the features, or image files have changed or are missing; see also `fit`.
    ShardError, DatasetError, RecipeError, WeightsError, DeviceError
        See `fit` and `load_weights`.

    Examples
    --------
    >>> pipeline.finetune(
    ...     "data/mine",
    ...     "data/heads/mine/vsepp-finetuned",
    ...     experiment=pipeline.resolve_experiment("vsepp-finetuned"),
    ...     start="data/heads/mine/vsepp",
    ...     images="data/features/mine/resnet152-pool",
    ...     captions="data/text/mine/vsepp",
    ... )  # doctest: +SKIP
    """
    if experiment.finetuning is None:
        raise HeadError(
            f"experiment {experiment.name!r} has no fine-tuning options; set `finetuning` with "
            "the experiment to start from"
        )
    job = TrainingJob.open(read_manifest(Path(dataset)), out, training)
    experiment = job.in_precision(experiment)
    how = experiment.finetuning
    assert how is not None
    features = PairedFeatures(FeatureSet(Path(images)), FeatureSet(Path(captions)))
    begun = load_head(start)
    begun.inputs.images.require(features.images, "image")
    begun.inputs.captions.require(features.captions, "caption")
    if begun.kind != experiment.head:
        raise HeadError(
            f"{start} holds a head {begun.kind!r}, and {experiment.name!r} trains "
            f"{experiment.head!r}; start from a head of the same kind"
        )
    unfitted = job.unfitted_head(experiment, features.inputs, features.made_from(dataset))
    head = unfitted.head
    if not isinstance(head, NetworkHead):
        raise HeadError(
            f"head {begun.kind!r} is solved in closed form, so there are no gradients for the "
            "image network; fine-tune a trained head, such as vse, and then fit this one on "
            "features of the tuned weights"
        )
    _require_same_sizes(head, begun, experiment.name)
    recipe = learnable_recipe(features.inputs.images)
    loaded = _weights_of(recipe, features.inputs.images, weights)
    job.log(f"{recipe.backbone} learns with {loaded.name}, {how}")
    pairs, validation = features.pairs(job, experiment.average_captions)
    drawn = Augmentation(training.seed, how.smallest_crop)
    seen = _image_rows(job.manifest, features.images, pairs, recipe, drawn)
    checked = _image_rows(job.manifest, features.images, validation, recipe, None)
    require_unchanged([*seen.files, *checked.files])
    seen_pairs, held_out = replace(pairs, images=seen), replace(validation, images=checked)
    log_sizes(job, seen_pairs, held_out)

    backbone = backbone_named(recipe.backbone)

    def network() -> LearningNetwork:
        built = LearningNetwork(recipe, backbone, loaded.state, how.first_layer, how.precision)
        # At a rate of 0 no gradient is needed.
        return built if how.learning_rate else built.requires_grad_(False)

    network_names = network().own_names
    origin = {
        **asdict(how),
        "start_sha256": begun.tensors_sha256,
        "weights": loaded.name,
        "weights_sha256": loaded.sha256,
    }
    named = {name: value for name, value in unfitted.settings.items() if name != "epochs"}
    with training.monitor.progress(recipe.backbone, "image") as show:
        counter = _ImageCounter(head.task, pairs, show)
        task = with_network(
            head.task, begun.head.tensors(), network, how.learning_rate, counter.add
        )
        identity = [experiment.head, named, origin, features.inputs.captions.recipe_hash]
        both = NetworkHead(task, identity)
        with job.fitting(experiment.name, counter.epochs_done) as options:
            options = replace(options, precision=experiment.precision)
            history = both.fit(seen_pairs, held_out, options)
            of_head, of_network = divided(both.tensors(), network_names)
            head.restore({name: tensor.cpu() for name, tensor in of_head.items()})
            tuned = _save_weights(job.out / WEIGHTS_FILE, of_network)
            header = feature_header(recipe, tuned, job.manifest.name)
            return replace(
                unfitted,
                inputs=replace(features.inputs, images=FeatureSpec.of_header(header)),
                word_vectors=begun.word_vectors,
                history=history,
                created_by=created_by("torch", "torchvision", "pillow", "numpy", "safetensors"),
                finetuning=origin,
            ).save(job.out)


def _require_same_sizes(head: NetworkHead, begun: TrainedHead, name: str) -> None:
    """Raise HeadError if the initial head has other modules than the head to train."""
    try:
        head.restore(begun.head.tensors())
    except RuntimeError as error:  # torch's only type; it lists one tensor per line
        reason = " ".join(str(error).split())[:300]
        raise HeadError(
            f"{begun.experiment!r} is a head of other sizes than {name!r} ({reason}); train both "
            "at the same size, or with the same settings"
        ) from error


def learnable_recipe(images: FeatureSpec) -> Recipe:
    """Return the recipe of image features; raise HeadError if its network cannot be fine-tuned."""
    name = images.name
    if "parts" in images.recipe:
        raise HeadError(
            f"{name!r} concatenates several recipes; fine-tune one of them, and concatenate its "
            "features with the others afterwards"
        )
    if not is_image_recipe(name):
        raise HeadError(
            f"image features {name!r} have a recipe that is not in `pipeline list recipes`, so "
            "their network is unknown; use features of `pipeline extract`"
        )
    recipe = resolved_like(name, images.recipe)
    if backbone_named(recipe.backbone).load is not None:
        raise HeadError(
            f"{name!r} is loaded by its own library, which does not accept tuned weights of the "
            "image network alone; use a recipe of `pipeline list recipes` or timm:<model>"
        )
    if recipe.crop.windows > 1:
        alike = [
            other.name
            for other in RECIPES.values()
            if (other.backbone, other.weights, other.tap, other.pool, other.crop.windows)
            == (recipe.backbone, recipe.weights, recipe.tap, recipe.pool, 1)
        ]
        raise HeadError(
            f"{name!r} is the mean of {recipe.crop.windows} crops, but training needs one crop; "
            f"use {' or '.join(alike) or 'a recipe with one crop'}, and extract {name} with the "
            "tuned weights afterwards"
        )
    stored = {name: value for name, value in images.recipe.items() if name != "weights_prefix"}
    if canonical_json(recipe.to_json()) != canonical_json(stored):
        raise HeadError(
            f"image features {name!r} were extracted with another version of their recipe; run "
            "`pipeline extract` again, and `pipeline train` of the head to fine-tune"
        )
    return recipe


def _weights_of(recipe: Recipe, images: FeatureSpec, source: str | Path | None) -> Weights:
    source = source or ("imagenet" if images.weights == recipe.weights else images.weights)
    if str(source).startswith("file:"):
        raise WeightsError(
            f"the image features {images.name!r} were extracted with the weights file "
            f"{images.weights[5:]!r}, whose location is not recorded; pass its path as the "
            "weights"
        )
    loaded = load_weights(recipe, str(source), images.recipe.get("weights_prefix"))
    if loaded.sha256 != images.weights_sha256:
        raise HeadError(
            f"the weights {loaded.name!r} (SHA-256 {loaded.sha256[:16]}…) are not those of the "
            f"image features, {images.weights!r} ({images.weights_sha256[:16]}…); use these, or "
            "extract the features and train the head with the others first"
        )
    return loaded


def _image_rows(
    manifest: Manifest,
    features: FeatureSet,
    pairs: Pairs,
    recipe: Recipe,
    augmentation: Augmentation | None,
) -> ImageRows:
    manifest.require("images", "fine-tuning", NO_PICTURES)
    paths = manifest.path_by_id
    checksums = features.source_crc32[features.rows_of(pairs.image_ids)].tolist()
    if not all(checksums):
        raise HeadError(
            f"{features.folder} does not record the source files of its rows; extract these "
            "features with `pipeline extract`"
        )
    image_files = tuple(
        ImageFile(image_id, paths[image_id], crc32)
        for image_id, crc32 in zip(pairs.image_ids, checksums, strict=True)
    )
    return ImageRows(image_files, recipe, augmentation)


class _ImageCounter:
    """Progress counter over the images of all epochs."""

    def __init__(self, task: TrainingTask, pairs: Pairs, show: Progress) -> None:
        rng = np.random.default_rng(0)
        batches = task.batches(pairs.image_of_caption, rng)
        self._an_epoch = sum(len(np.unique(pairs.image_of_caption[rows])) for rows in batches)
        self._all, self._done, self._show = task.epochs * self._an_epoch, 0, show

    def add(self, images: int) -> None:
        self._show(self._done, self._all, 0)
        self._done += images

    def epochs_done(self, done: int, total: int, failed: int) -> None:
        """Set the number of finished epochs, including those of an interrupted training."""
        self._done = done * self._an_epoch


def _save_weights(path: Path, state: Mapping[str, Any]) -> Weights:
    with appearing_whole(path) as part:
        part.write_bytes(save({name: tensor.cpu().contiguous() for name, tensor in state.items()}))
    return Weights(f"file:{path.name}", sha256_of_file(path), dict(state))
