"""The job of `pipeline train` for a fine-tuned experiment: head and image network learn."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save

from pipeline.datasets.manifest import NO_PICTURES
from pipeline.devices import usable_device
from pipeline.files import appearing_whole, created_by, require_folder
from pipeline.finetuning import WEIGHTS_FILE, FinetuningError
from pipeline.finetuning.augmentation import Augmentation
from pipeline.finetuning.finetuning_task import divided, with_network
from pipeline.finetuning.network import LearningNetwork
from pipeline.finetuning.pictures import Picture, PictureRows, require_unchanged
from pipeline.hashing import canonical_json, sha256_of_file
from pipeline.heads.base import FitOptions
from pipeline.heads.fit import TrainingData, fit_with_progress, log_sizes, work_folder
from pipeline.heads.head_types import Experiment, make_head, with_epochs_at_most
from pipeline.heads.inputs.feature_spec import FeatureSpec
from pipeline.heads.inputs.pairs import Pairs, made_from
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.heads.training.task import TrainingTask
from pipeline.heads.training.trainer import NetworkHead
from pipeline.images.backbones import backbone_named
from pipeline.images.batches import feature_header
from pipeline.images.weights import Weights, WeightsError, load_weights
from pipeline.progress import QUIET, Monitor, Progress
from pipeline.recipes import RECIPES, Recipe, provider_of, resolve_recipe


def finetune(
    dataset: str | Path,
    out: str | Path,
    *,
    experiment: Experiment,
    start: str | Path,
    images: str | Path,
    captions: str | Path,
    weights: str | Path | None = None,
    train_split: str | None = None,
    validation_split: str | None = None,
    seed: int = 0,
    max_epochs: int | None = None,
    workers: int = 0,
    device: str = "cpu",
    leave_out_failed: bool = False,
    monitor: Monitor = QUIET,
) -> TrainedHead:
    """Train a fitted head further, together with the network that made its image features.

    Pictures are read from the dataset's files, cropped and mirrored at random, anew in each epoch.
    What is written is the head, fitted on features of the tuned network, and beside it the
    network's weights, `WEIGHTS_FILE`, from which `pipeline.images.extract.extract` makes them. As
    in `pipeline.heads.fit.fit` the validation split chooses the epoch, and an interrupted training
    goes on from its last epoch and gives the same bytes.

    Parameters
    ----------
    dataset, out, captions, train_split, validation_split, seed, max_epochs, device : see
        `pipeline.heads.fit.fit`.
    experiment : with `finetuning`; its settings are those of this training.
    start : folder of the head to begin with, which was fitted on `images` and `captions`.
    images : features of the network as it is before; they say of which files they were made.
    weights : of the network, as `load_weights` takes them; None: those that `images` name.
    workers : processes that read batches ahead. Each reads on up to 16 threads.
    leave_out_failed : leave out images whose features failed.
    monitor : gets log lines, and progress in epochs and in images.

    Raises
    ------
    FinetuningError
        The experiment, its recipe or the head cannot be fine-tuned, the weights are not those of
        the features, or pictures have changed or gone since these were made.
    HeadError, ShardError, DatasetError, RecipeError, WeightsError, DeviceError
        See `fit` and `load_weights`.
    """
    out, how = Path(out), experiment.finetuning
    if how is None:
        raise FinetuningError(
            f"experiment {experiment.name!r} says nothing of fine-tuning; give it `finetuning` "
            "with the experiment that it starts from"
        )
    require_folder(out)
    usable_device(device)
    settings = with_epochs_at_most(experiment.head, experiment.settings, max_epochs)
    data = TrainingData.of(dataset, images, captions, train_split, validation_split)
    begun = load_head(start)
    begun.inputs.images.require(data.images, "image")
    begun.inputs.captions.require(data.captions, "caption")
    if begun.kind != experiment.head:
        raise FinetuningError(
            f"{start} holds a head {begun.kind!r}, and {experiment.name!r} trains "
            f"{experiment.head!r}; start from a head of the same kind"
        )
    head = make_head(experiment.head, settings, data.inputs)
    if not isinstance(head, NetworkHead):
        raise FinetuningError(
            f"head {begun.kind!r} is solved in closed form, and no gradient leads through it to "
            "the image network; fine-tune with a head that is trained, such as vse, and fit this "
            "one to features of the tuned weights"
        )
    _require_same_sizes(head, begun, experiment.name)
    recipe = learnable_recipe(data.inputs.images)
    loaded = _weights_of(recipe, data.inputs.images, weights)
    monitor.log(f"{recipe.backbone} learns with {loaded.name}, {how}")
    pairs, validation = data.pairs(experiment.average_captions, leave_out_failed, monitor)
    drawn = Augmentation(seed, how.smallest_crop)
    rows = _pictures(data, pairs, recipe, drawn), _pictures(data, validation, recipe, None)
    require_unchanged([*rows[0].pictures, *rows[1].pictures])
    seen, checked = replace(pairs, images=rows[0]), replace(validation, images=rows[1])
    log_sizes(data, seen, checked, monitor)

    backbone = backbone_named(recipe.backbone)

    def network() -> LearningNetwork:
        return LearningNetwork(recipe, backbone, loaded.state, how.first_layer, how.precision)

    own_names = network().own_names
    origin = {
        **asdict(how),
        "start_sha256": begun.tensors_sha256,
        "weights": loaded.name,
        "weights_sha256": loaded.sha256,
    }
    named = {name: value for name, value in settings.items() if name != "epochs"}
    with monitor.progress(recipe.backbone, "image") as show:
        counter = _ImageCounter(head.task, pairs, show)
        task = with_network(
            head.task, begun.head.tensors(), network, how.learning_rate, counter.add
        )
        both = NetworkHead(task, [experiment.head, named, origin, data.inputs.captions.recipe_hash])
        with work_folder(out) as work:
            options = FitOptions(seed, counter.epochs_done, work, workers, device)
            history = fit_with_progress(both, seen, checked, options, experiment.name, monitor)
            of_head, of_network = divided(both.tensors(), own_names)
            head.restore({name: tensor.cpu() for name, tensor in of_head.items()})
            tuned = _save_weights(out / WEIGHTS_FILE, of_network)
            header = feature_header(recipe, tuned, data.manifest.name)
            return TrainedHead(
                experiment=experiment.name,
                kind=experiment.head,
                settings=settings,
                seed=seed,
                dataset=data.manifest.name,
                train_split=data.train_split,
                validation_split=data.validation_split,
                inputs=replace(data.inputs, images=FeatureSpec.of_header(header)),
                made_from=made_from(dataset, data.images.index, data.captions.index),
                word_vectors=begun.word_vectors,
                history=history,
                created_by=created_by("torch", "torchvision", "pillow", "numpy", "safetensors"),
                head=head,
                average_captions=experiment.average_captions,
                finetuning=origin,
            ).save(out)


def _require_same_sizes(head: NetworkHead, begun: TrainedHead, name: str) -> None:
    """Refuse to go on from a head whose modules are not those of the one that is to be trained.

    Raises
    ------
    FinetuningError
    """
    try:
        head.restore(begun.head.tensors())
    except RuntimeError as error:  # torch has no other; it lists each tensor on a line
        fault = " ".join(str(error).split())[:300]
        raise FinetuningError(
            f"{begun.experiment!r} is a head of other sizes than {name!r} ({fault}); train both at "
            "the same size, or give both the same settings"
        ) from error


def learnable_recipe(images: FeatureSpec) -> Recipe:
    """Return the recipe of image features, if its network can be fine-tuned for it.

    Raises
    ------
    FinetuningError
        The features are of several recipes, of several crops, of a network whose weights only its
        library reads, or of no recipe that is known.
    """
    name = images.name
    if "parts" in images.recipe:
        raise FinetuningError(
            f"{name!r} puts several recipes side by side; fine-tune one of them, and put its "
            "features beside the others afterwards"
        )
    if name not in RECIPES and provider_of(name) is None:
        raise FinetuningError(
            f"image features {name!r} are of no recipe of `pipeline recipes`, so their network is "
            "not known; take features that `pipeline extract` made"
        )
    recipe = resolve_recipe(
        name, *(str(images.recipe.get(key)) for key in ("precision", "storage"))
    )
    if backbone_named(recipe.backbone).load is not None:
        raise FinetuningError(
            f"{name!r} is read by its own library, which takes no tuned weights of the image "
            "network alone; take a recipe of the catalogue or timm:<model>"
        )
    if recipe.crop.windows > 1:
        alike = [
            other.name
            for other in RECIPES.values()
            if (other.backbone, other.weights, other.tap, other.pool, other.crop.windows)
            == (recipe.backbone, recipe.weights, recipe.tap, recipe.pool, 1)
        ]
        raise FinetuningError(
            f"{name!r} is the mean of {recipe.crop.windows} crops, and a network learns from one; "
            f"take {' or '.join(alike) or 'a recipe of one crop'}, and extract {name} with the "
            "tuned weights afterwards"
        )
    if canonical_json(recipe.to_json()) != canonical_json(dict(images.recipe)):
        raise FinetuningError(
            f"image features {name!r} were made by another version of their recipe; run "
            "`pipeline extract` and `pipeline train` of the head that is fine-tuned again"
        )
    return recipe


def _weights_of(recipe: Recipe, images: FeatureSpec, source: str | Path | None) -> Weights:
    """Load the weights that image features were made with."""
    if source is None:
        source = "imagenet" if images.weights == recipe.weights else images.weights
    if str(source).startswith("file:"):
        raise WeightsError(
            f"the image features {images.name!r} were made with the weights file "
            f"{images.weights[5:]!r}, and where it lies is not recorded; give its path as the "
            "weights"
        )
    loaded = load_weights(recipe, str(source))
    if loaded.sha256 != images.weights_sha256:
        raise FinetuningError(
            f"the weights {loaded.name!r} (SHA-256 {loaded.sha256[:16]}…) are not those that the "
            f"image features were made with, {images.weights!r} ({images.weights_sha256[:16]}…); "
            "give these, or extract the features and train the head with the others first"
        )
    return loaded


def _pictures(
    data: TrainingData, pairs: Pairs, recipe: Recipe, augmentation: Augmentation | None
) -> PictureRows:
    """Return the image files of a split's pairs."""
    data.manifest.require("images", "fine-tuning", NO_PICTURES)
    files = data.manifest.path_by_id
    made_of = data.images.source_crc32[data.images.rows_of(pairs.image_ids)].tolist()
    if not all(made_of):
        raise FinetuningError(
            f"{data.images.folder} does not say which files its rows were made from; make these "
            "features with `pipeline extract`"
        )
    pictures = tuple(
        Picture(image_id, files[image_id], crc32)
        for image_id, crc32 in zip(pairs.image_ids, made_of, strict=True)
    )
    return PictureRows(pictures, recipe, augmentation)


class _ImageCounter:
    """Counts the images that went through the network, among those of all epochs."""

    def __init__(self, task: TrainingTask, pairs: Pairs, show: Progress) -> None:
        """Draw an epoch's batches, of about as many images as any other epoch's."""
        rng = np.random.default_rng(0)
        batches = task.batches(pairs.image_of_caption, rng)
        self._an_epoch = sum(len(np.unique(pairs.image_of_caption[rows])) for rows in batches)
        self._all, self._done, self._show = task.epochs * self._an_epoch, 0, show

    def add(self, images: int) -> None:
        """Count the images of a batch."""
        self._show(self._done, self._all, 0)
        self._done += images

    def epochs_done(self, done: int, total: int, failed: int) -> None:
        """Take the number of epochs that are done, of an interrupted training too."""
        self._done = done * self._an_epoch


def _save_weights(path: Path, state: Mapping[str, Any]) -> Weights:
    with appearing_whole(path) as part:
        part.write_bytes(save({name: tensor.cpu().contiguous() for name, tensor in state.items()}))
    return Weights(f"file:{path.name}", sha256_of_file(path), dict(state))
