"""The job of `pipeline extract`: the images of a dataset, or plain image files, to shards."""

from itertools import chain
from pathlib import Path

from pipeline.cluster.place import Place
from pipeline.datasets.manifest import DATASET_FILE, NO_PICTURES, Manifest
from pipeline.datasets.plain_images import Images, images_of
from pipeline.jobs.finished import FinishedRecord
from pipeline.jobs.make_features import make_features
from pipeline.jobs.options import Compute, Selection, Storage
from pipeline.jobs.side_by_side import extract_side_by_side, split_name
from pipeline.progress import QUIET, Monitor
from pipeline.recipes import resolve_recipe
from pipeline.shards.index import FeatureIndex


def extract(
    dataset: Images | Manifest,
    out: str | Path,
    *,
    recipe: str,
    select: Selection | None = None,
    storage: Storage | None = None,
    compute: Compute | None = None,
    place: Place | None = None,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Extract the features of images into shards.

    An image that is missing, unreadable or refused keeps its row, as NaN with a status and a
    reason. The same call resumes where the last one stopped; in a finished output it computes the
    rows whose images have changed since, and no others. See
    `pipeline.jobs.make_features.make_features`.

    Parameters
    ----------
    dataset : str, Path, sequence or Manifest. A prepared dataset, by its folder or as a `Manifest`;
        or a folder of image files, or a list of files and folders, with paths as ids: see
        `pipeline.datasets.plain_images`.
    out : str or Path. Folder of the shards; their rows are float32 or float16, (images, *shape of
        the recipe), and their row ids are image ids.
    recipe : str. Name of a recipe, of a backbone with a default recipe, "timm:<model>" or
        "open-clip:<model>.<tag>"; or several names joined by "+", which are extracted into folders
        of their own next to `out`: see `pipeline.shards.side_by_side`.
    select : Selection or None. Which images; None: all.
    storage : Storage or None. How rows are stored, and which finished ones are computed again;
        None: the defaults.
    compute : Compute or None. Weights, arithmetic, device, and how much runs at once; None: the
        defaults.
    place : Place or None. Where rows are computed; None: in this process.
    monitor : Monitor. Receives log lines and progress.

    Returns
    -------
    FeatureIndex
        Of the finished shards; its `failed_rows` counts the images without features.

    Raises
    ------
    RecipeError, WeightsError, DeviceError
        The recipe, its weights or the device are not available.
    FileReadError
        The system, not a file, is at fault; finished rows are kept.
    PipelineError
        The dataset cannot be read, or the shards cannot be written.

    Examples
    --------
    >>> extract("data/mine", "features/mine", recipe="resnet152-pool")
    >>> extract("photos", "features/photos", recipe="resnet152-pool")
    >>> extract("data/mine", "features/mine", recipe="resnet152-grid",
    ...         storage=Storage(dtype="float16"), compute=Compute(device="cuda"))
    """
    select, storage = select or Selection(), storage or Storage()
    compute, place = compute or Compute(), place or Place()
    compute = compute.with_named_precision(place, monitor)
    if (names := split_name(recipe)) is not None:
        place.refuse_summary_of_several()
        images = images_of(dataset, monitor.log)

        def extract_one(name: str, folder: Path) -> FeatureIndex:
            return extract(
                images, folder, recipe=name, select=select, storage=storage, compute=compute,
                place=place, monitor=monitor,
            )  # fmt: skip

        return extract_side_by_side(names, Path(out), extract_one, monitor)
    resolved = resolve_recipe(recipe, compute.precision, storage.dtype)
    manifest = images_of(dataset, monitor.log)
    manifest.require("images", f"the recipe {recipe!r}", NO_PICTURES)
    entries = manifest.select(select.split)[: select.limit]
    files = manifest.files(entries)
    finished = None
    if isinstance(dataset, str | Path) and Path(dataset, DATASET_FILE).is_file():
        weights = [str(compute.weights)] if Path(compute.weights).is_file() else []
        call = ["extract", recipe, resolved.to_json(), compute.named_weights, compute.trained_on]
        rows = [select.split, select.limit, storage.rows_per_shard, storage.compress]
        pictures = (f"{manifest.image_root}/{file}" for file in entries.files)
        finished = FinishedRecord(
            Path(out), [*call, *rows], Path(dataset), chain(pictures, weights)
        )
        if (index := finished.nothing_to_do("image", place, monitor)) is not None:
            return index

    # Here: torch takes longer to import than finding that nothing is to be done.
    from pipeline.images.image_source import image_source
    from pipeline.images.network import device_for

    compute = compute.on(place, monitor)
    if place.scheduler is None:  # whose workers may have what this machine lacks
        device_for(compute.device, resolved)
    source = image_source(entries.ids, files, resolved, manifest.name, compute, monitor)
    index = make_features(source, out, storage=storage, place=place, monitor=monitor)
    if finished is not None:
        finished.write()
    return index
