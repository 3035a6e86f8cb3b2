"""The job of `pipeline extract --regions`: features of proposals, one row per region."""

from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.datasets.manifest import NO_PICTURES, read_manifest
from pipeline.images.concatenated_recipes import extract_side_by_side, split_name
from pipeline.images.image_source import image_source
from pipeline.images.network import device_for
from pipeline.images.recipes import resolve_recipe
from pipeline.images.region import PhotoCache, Region
from pipeline.regions import RegionError
from pipeline.regions.box_geometry import BOX_GEOMETRY
from pipeline.regions.photo_source import PhotoSource, is_by_photo, region_features
from pipeline.regions.proposals import read_proposals, region_id
from pipeline.store.errors import WrongUsage
from pipeline.store.jobs.feature_source import FeatureSource
from pipeline.store.jobs.make_features import make_features
from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.workers.place import Place

_CUT = "outward to whole pixels, then as a picture of its own"


@dataclass(frozen=True)
class Regions:
    """Regions to extract.

    Parameters
    ----------
    folder : str or Path. Folder of proposals of `pipeline propose`.
    context : float. Margin added on every side before cutting, as a share of a region's width and
        height, clipped to the image; 0: none.

    Raises
    ------
    WrongUsage
        `context` is negative or not finite.

    Examples
    --------
    >>> regions = pipeline.Regions("data/proposals/mine/grid")
    >>> pipeline.extract_regions(
    ...     "data/mine", "data/regions/mine/boxes", recipe="box-geometry", regions=regions
    ... ).rows
    1200
    """

    folder: str | Path
    context: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.context < float("inf"):
            raise WrongUsage(f"context is {self.context}; expected a share of at least 0")


def extract_regions(
    dataset: str | Path,
    out: str | Path,
    *,
    recipe: str,
    regions: Regions,
    select: Selection | None = None,
    storage: Storage | None = None,
    compute: Compute | None = None,
    place: Place | None = None,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Extract the features of the regions of a dataset's images into shards.

    As `pipeline.extract`, but with one row per region, `<image id>@<k>`, k the number of the region
    in its image. With an image recipe, each region is cut from the decoded image, resized as the
    recipe states, and passed through the network as an image of its own; for recipes that squash,
    this is the warped crop of Wang 2016 (and of R-CNN without context). With `<backbone>-roi-align`
    the image passes through the network once, and regions are pooled from its last map.
    `box-geometry` is the box alone, to be concatenated with others: several recipes, "A+B", are
    extracted into separate folders next to `out`, named `<recipe>@<folder of the regions>`. An
    image that fails, or has changed since its boxes were proposed, fails all its regions.

    Parameters
    ----------
    dataset : str or Path. Folder of a prepared dataset.
    out : str or Path. Output folder.
    recipe : str. Image recipe, "<backbone>-roi-align", "box-geometry", or several joined by "+".
    regions : Regions. Regions to extract.
    select : Selection or None. Images to process; a limit counts images.
    storage, compute, place, monitor : see `pipeline.extract`.

    Returns
    -------
    FeatureIndex
        Index of the finished shards.

    Raises
    ------
    WrongUsage
        An option does not apply to the recipe.
    RegionError
        The proposals are of another dataset, or there are none.
    RecipeError, WeightsError, DatasetError, ShardError
        As for `pipeline.extract`.

    Examples
    --------
    >>> pipeline.extract_regions(
    ...     "data/mine",
    ...     "data/regions/mine/boxes",
    ...     recipe="box-geometry",
    ...     regions=pipeline.Regions("data/proposals/mine/grid"),
    ... ).header.row_shape
    (6,)
    """
    select, storage = select or Selection(), storage or Storage()
    compute, place = compute or Compute(), place or Place()
    if (names := split_name(recipe)) is not None:
        place.refuse_summary_of_several()

        def extract_one(name: str, folder: Path) -> FeatureIndex:
            box = name == BOX_GEOMETRY  # has no network, and cuts nothing
            return extract_regions(
                dataset, folder, recipe=name, select=select, storage=storage, place=place,
                regions=replace(regions, context=0.0) if box else regions,
                compute=Compute(threads=compute.threads) if box else compute, monitor=monitor,
            )  # fmt: skip

        of = f"@{Path(regions.folder).resolve().name}"
        return extract_side_by_side(names, Path(out), extract_one, monitor, of)
    source = _source(dataset, recipe, regions, select, storage, compute, place, monitor)
    return make_features(source, out, storage=storage, place=place, monitor=monitor)


def _source(
    dataset: str | Path,
    recipe: str,
    regions: Regions,
    select: Selection,
    storage: Storage,
    compute: Compute,
    place: Place,
    monitor: Monitor,
) -> FeatureSource:
    """Return the regions of some images as rows, pooled from maps or cut from the images."""
    manifest = read_manifest(dataset).require("images", "extract --regions", NO_PICTURES)
    proposals = read_proposals(regions.folder)
    entries = manifest.select(select.split)[: select.limit]
    proposals.require_images(manifest, (entry.id for entry in entries))
    ids: list[str] = []
    rows: list[Region] = []
    photos = PhotoCache()
    for entry in entries:
        photo, crc32 = manifest.image_root / entry.file, proposals.source_crc32[entry.id]
        for k, (x0, y0, x1, y1) in enumerate(proposals.boxes(entry.id).tolist()):
            ids.append(region_id(entry.id, k))
            rows.append(Region(photo, (x0, y0, x1, y1), regions.context, crc32, photos))
    if not ids:
        raise RegionError(f"{regions.folder} has no box for any of the {len(entries)} images")
    monitor.log(f"{len(ids)} regions of {len(entries)} images")
    if recipe != BOX_GEOMETRY:
        compute = compute.on(place, monitor)
    if is_by_photo(recipe):
        if regions.context:
            raise WrongUsage(f"`context=...` applies to regions that are cut; {recipe} cuts none")
        features = region_features(recipe, manifest.name, storage.dtype, compute)
        return PhotoSource(ids, rows, recipe, compute, features)
    resolved = resolve_recipe(recipe, compute.precision, storage.dtype)
    if place.scheduler is None:  # a scheduler's workers may have other devices
        device_for(compute.device, resolved)
    cut = {"cut": _CUT, "context": regions.context}
    return image_source(ids, rows, resolved, manifest.name, compute, monitor, cut)
