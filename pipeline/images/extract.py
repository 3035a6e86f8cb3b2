"""The job of `pipeline extract`: features of a dataset's images, or of image files, as shards."""

from pathlib import Path

from pipeline.datasets.manifest import DATASET_FILE, NO_PICTURES, Manifest
from pipeline.datasets.plain_images import Images, images_of
from pipeline.images.concatenated_recipes import extract_side_by_side, split_name
from pipeline.images.recipes import resolve_recipe
from pipeline.store.current.record import made_from
from pipeline.store.current.snapshot import Snapshot, snapshot_file
from pipeline.store.jobs.make_features import make_features
from pipeline.store.jobs.nothing_to_do import nothing_to_do
from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.workers.place import Place


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
    """Extract image features into shards.

    A missing, unreadable or refused image keeps its row, as NaN with a status and a reason. The
    same call resumes an interrupted run; on a finished output it recomputes only rows whose images
    have changed. See `pipeline.store.jobs.make_features.make_features`.

    Parameters
    ----------
    dataset : str, Path, sequence or Manifest. A prepared dataset (folder or `Manifest`); a folder
        of image files; or a list of files and folders, with paths as ids: see
        `pipeline.datasets.plain_images`.
    out : str or Path. Output folder. Rows are float32 or float16, (images, *shape of the recipe),
        with image ids as row ids.
    recipe : str. Name of a recipe, of a backbone with a default recipe, "timm:<model>" or
        "open-clip:<model>.<tag>"; or several joined by "+", extracted into separate folders next
        to `out`: see `pipeline.store.shards.side_by_side`.
    select : Selection or None. Images to extract; None: all.
    storage : Storage or None. Row storage, and which finished rows to recompute; None: defaults.
    compute : Compute or None. Weights, arithmetic, device and parallelism; None: defaults.
    place : Place or None. Place of computation; None: this process.
    monitor : Monitor. Receives log lines and progress.

    Returns
    -------
    FeatureIndex
        Index of the finished shards; its `failed_rows` counts the images without features.

    Raises
    ------
    RecipeError, WeightsError, DeviceError
        The recipe, its weights or the device are not available.
    FileReadError
        The file system failed, not a file; finished rows are kept.
    PipelineError
        The dataset cannot be read, or the shards cannot be written.

    Examples
    --------
    >>> pipeline.extract(
    ...     "data/mine", "features/scenes", recipe="efficientnet-lite0-pool"
    ... ).header.row_shape
    (1280,)

    A plain folder of images, on a GPU:

    >>> pipeline.extract(
    ...     "photos",
    ...     "features/photos",
    ...     recipe="resnet152-grid",
    ...     storage=pipeline.Storage(dtype="float16"),
    ...     compute=pipeline.Compute(device="cuda"),
    ... )  # doctest: +SKIP
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
    snapshot = None
    if isinstance(dataset, str | Path) and Path(dataset, DATASET_FILE).is_file():
        record = made_from(select, storage, compute, recipe=resolved.to_json())
        paths = (f"{manifest.image_root}/{file}" for file in entries.files)
        snapshot = Snapshot(snapshot_file(Path(out)), record, Path(dataset), paths)
        if (index := nothing_to_do(snapshot, Path(out), "image", place, monitor)) is not None:
            return index

    # Imported here: importing torch is slower than finding that there is nothing to do.
    from pipeline.images.image_source import image_source
    from pipeline.images.network import device_for

    compute = compute.on(place, monitor)
    if place.scheduler is None:  # a scheduler's workers may have other devices
        device_for(compute.device, resolved)
    source = image_source(entries.ids, files, resolved, manifest.name, compute, monitor)
    index = make_features(source, out, storage=storage, place=place, monitor=monitor)
    if snapshot is not None:
        snapshot.write([Path(out).resolve()], [])
    return index
