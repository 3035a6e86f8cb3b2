"""The jobs of `pipeline extract`: features of images as shards, of one layer or of several."""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pipeline.datasets.manifest import DATASET_FILE, NO_PICTURES, Manifest
from pipeline.datasets.plain_images import Images, images_of, tar_files
from pipeline.images.concatenated_recipes import extract_side_by_side, split_name
from pipeline.images.recipes import Recipe, RecipeError, resolve_recipe
from pipeline.images.recipes.layers import LayerName
from pipeline.store.current.record import made_from
from pipeline.store.current.snapshot import Snapshot, snapshot_file
from pipeline.store.errors import WrongUsage
from pipeline.store.jobs.make_features import make_features, open_build
from pipeline.store.jobs.nothing_to_do import nothing_to_do
from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.jobs.sink import Sink
from pipeline.store.objects.urls import url_of
from pipeline.store.progress import QUIET, Monitor, Stopwatch
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.side_by_side import require_same_cells
from pipeline.store.workers.place import Place


def extract(
    dataset: Images | Manifest,
    out: str | Path,
    *,
    recipe: str | Recipe,
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
    recipe : str or Recipe. A recipe or its name, see `resolve_recipe`; or several names joined by
        "+", extracted into separate folders next to `out`: see
        `pipeline.store.shards.side_by_side`.
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
    if isinstance(recipe, str) and (names := split_name(recipe)) is not None:
        place.refuse_summary_of_several()
        require_same_cells({one: resolve_recipe(one).shape for one in names.recipes})
        images = images_of(dataset, monitor.log)

        def extract_one(name: str, folder: Path) -> FeatureIndex:
            return extract(
                images, folder, recipe=name, select=select, storage=storage, compute=compute,
                place=place, monitor=monitor,
            )  # fmt: skip

        return extract_side_by_side(names, Path(out), extract_one, monitor)
    resolved = resolve_recipe(recipe, compute.precision, storage.dtype)
    return _extract(dataset, [(resolved, Path(out))], select, storage, compute, place, monitor)[0]


def extract_layers(
    dataset: Images | Manifest,
    out: str | Path,
    *,
    recipes: Sequence[str | Recipe],
    select: Selection | None = None,
    storage: Storage | None = None,
    compute: Compute | None = None,
    place: Place | None = None,
    monitor: Monitor = QUIET,
) -> dict[str, FeatureIndex]:
    """Extract the output of several layers of one network, in one forward pass of each image.

    Every layer has a feature set of its own, byte for byte that of `extract`. An interrupted call
    resumes: rows that all layers still need are computed together, others alone. On workers, or in
    a store, each set is computed by itself.

    Parameters
    ----------
    dataset, select, storage, compute, place, monitor : see `extract`.
    out : str or Path. Folder of the sets; each is in a folder named after its layer, and after its
        pool if the recipe's name has one, as in "layer3-max".
    recipes : sequence of str or Recipe. Recipes that differ in layer and pool alone, such as
        "resnet152-pool@layer2" and "resnet152-pool@layer3".

    Returns
    -------
    dict of str to FeatureIndex
        The finished sets by the names of their folders, in the order of `recipes`.

    Raises
    ------
    RecipeError
        The recipes read different images or networks, or two have the same folder.
    RecipeError, WeightsError, DeviceError, FileReadError, PipelineError
        As `extract`.

    Examples
    --------
    >>> made = pipeline.extract_layers(
    ...     "data/mine",
    ...     "features/layers",
    ...     recipes=["efficientnet-lite0-pool@_blocks.3", "efficientnet-lite0-pool@_blocks.9"],
    ... )
    >>> [(name, index.header.row_shape) for name, index in made.items()]
    [('_blocks.3-pool', (40,)), ('_blocks.9-pool', (112,))]
    """
    select, storage = select or Selection(), storage or Storage()
    compute, place = compute or Compute(), place or Place()
    compute = compute.with_named_precision(place, monitor)
    place.refuse_summary_of_several()
    resolved = [resolve_recipe(r, compute.precision, storage.dtype) for r in recipes]
    folders = layer_folders(resolved)
    sets = [(recipe, Path(out, name)) for recipe, name in zip(resolved, folders, strict=True)]
    made = _extract(dataset, sets, select, storage, compute, place, monitor)
    return dict(zip(folders, made, strict=True))


def layer_folders(recipes: Sequence[Recipe]) -> list[str]:
    """Return the name of the folder of each of some layers' sets; raise if they cannot share."""
    if not recipes:
        raise WrongUsage("no layer is named; name at least one recipe")
    first, folders = recipes[0], []
    for recipe in recipes:
        for field in ("backbone", "resize", "crop", "normalise", "decode"):
            if (value := getattr(recipe, field)) != (common := getattr(first, field)):
                raise RecipeError(
                    f"{recipe.name} has {field} {value}, and {first.name} {common}; layers of one "
                    "pass belong to one network and see the same crops: extract them separately"
                )
        parts = LayerName.parse(recipe.name)
        pool = parts.pool if parts and parts.layer else None
        folders.append(recipe.tap + (f"-{pool}" if pool else ""))
    if twice := [name for name, count in Counter(folders).items() if count > 1]:
        raise RecipeError(f"the layer {twice[0]!r} is named twice; name each layer once")
    return folders


def _extract(
    dataset: Images | Manifest,
    sets: Sequence[tuple[Recipe, Path]],  # layers of one network
    select: Selection,
    storage: Storage,
    compute: Compute,
    place: Place,
    monitor: Monitor,
) -> list[FeatureIndex]:
    """Extract some layers of a network; each set resumes by itself."""
    if (url := url_of(sets[0][1])) is not None and (tars := tar_files(dataset)):
        return [_extract_tars(tars, url, sets, select, storage, compute, place, monitor)]
    manifest = images_of(dataset, monitor.log)
    manifest.require("images", f"the recipe {sets[0][0].name!r}", NO_PICTURES)
    entries = manifest.select(select.split)[: select.limit]
    files = manifest.files(entries)
    of_dataset = isinstance(dataset, str | Path) and Path(dataset, DATASET_FILE).is_file()
    done: dict[Path, FeatureIndex] = {}
    snapshots: dict[Path, Snapshot] = {}
    for recipe, out in sets if of_dataset else ():
        record = made_from(select, storage, compute, recipe=recipe.to_json())
        paths = (f"{manifest.image_root}/{file}" for file in entries.files)
        snapshots[out] = Snapshot(snapshot_file(out), record, Path(str(dataset)), paths)
        if (index := nothing_to_do(snapshots[out], out, "image", place, monitor)) is not None:
            done[out] = index
    if len(done) == len(sets):
        return [done[out] for _, out in sets]

    # Imported here: importing torch is slower than finding that there is nothing to do.
    from pipeline.images.image_source import image_sources
    from pipeline.images.network import device_for

    compute = compute.on(place, monitor)
    remaining = [(recipe, out) for recipe, out in sets if out not in done]
    recipes = [recipe for recipe, _ in remaining]
    if place.scheduler is None:  # a scheduler's workers may have other devices
        device_for(compute.device, recipes[0])
    sources = image_sources(entries.ids, files, recipes, manifest.name, compute, monitor)
    for number, (_, out) in enumerate(remaining):
        with ExitStack() as entered:
            later = list(zip(sources, remaining, strict=True))[number + 1 :]
            sinks = [
                Sink(
                    source,
                    entered.enter_context(open_build(source, source.origin, its_out, storage)),
                )
                for source, (_, its_out) in (later if url is None and not place.elsewhere else [])
            ]
            source = replace(sources[number], also=tuple(sinks))
            done[out] = make_features(source, out, storage=storage, place=place, monitor=monitor)
        if out in snapshots:
            snapshots[out].write([out.resolve()], [])
    return [done[out] for _, out in sets]


def _extract_tars(
    tars: Sequence[Path],
    out: str,
    sets: Sequence[tuple[Recipe, Path]],
    select: Selection,
    storage: Storage,
    compute: Compute,
    place: Place,
    monitor: Monitor,
) -> FeatureIndex:
    """Extract the images of tar files to a store, each file as a shard of its own."""
    from pipeline.images.tar_shards import TarShards
    from pipeline.store.jobs.object_shards import make_object_shards

    if len(sets) > 1 or select != Selection() or storage.rows_per_shard is not None:
        raise WrongUsage(
            "of tar files, each is one shard of the set in the store, with all of its images and "
            "one layer: omit `limit=...`, `split=...`, `rows_per_shard=...` and further layers"
        )
    compute = compute.on(place, monitor)
    source = TarShards(tars, sets[0][0], compute, monitor)
    return make_object_shards(source, out, storage, place, monitor, Stopwatch())
