"""The job of `pipeline extract --regions`: proposals become feature shards, a row a region."""

from pathlib import Path
from typing import Any

from pipeline.datasets.manifest import NO_PICTURES, read_manifest
from pipeline.errors import WrongUsage
from pipeline.images.extract import extract_sources
from pipeline.images.region import PhotoCache, Region, Source
from pipeline.images.side_by_side import extract_side_by_side, split_name
from pipeline.progress import QUIET, Monitor
from pipeline.recipes import resolve_recipe
from pipeline.regions.box_geometry import BOX_GEOMETRY, box_geometry_features
from pipeline.regions.by_photo import extract_by_photo
from pipeline.regions.proposals import ProposalError, read_proposals, region_id
from pipeline.regions.roi_align import ROI_ALIGN, roi_align_features
from pipeline.shards.index import FeatureIndex

_CUT = "outward to whole pixels, then as a picture of its own"
_OF_SHARDS = {"rows_per_shard", "compress", "threads"}


def extract_regions(
    dataset: str | Path,
    out: str | Path,
    *,
    regions: str | Path,
    recipe: str,
    context: float = 0.0,
    split: str | None = None,
    limit: int | None = None,
    precision: str = "float32",
    storage: str = "float32",
    monitor: Monitor = QUIET,
    **options: Any,
) -> FeatureIndex:
    """Extract the features of the regions of a dataset's images into shards.

    Row ids are `<image id>@<k>`, k the number of the region in its image. With a recipe of pictures
    a region is cut from its photo, which is decoded once, and goes through the network as a picture
    of its own: resized as the recipe says, which for recipes that squash is the warped crop of
    Wang 2016 (and of R-CNN without context). With `<backbone>-roi-align` the photo goes through the
    network once, and regions are pooled from its last map; see `pipeline.regions.roi_align`.
    `box-geometry` is the box alone, to stand beside others: several recipes, "A+B", are extracted
    into folders of their own beside `out`, each named as `<recipe>@<folder of the regions>`. A
    photo that fails, or has changed since its boxes were proposed, fails all its regions; the same
    call again goes on where the last one stopped and gives the same bytes.

    Parameters
    ----------
    dataset, out, recipe, split, limit, precision, storage, monitor : see
        `pipeline.images.extract.extract`; `limit` counts images.
    regions : folder of proposals, as `pipeline propose` writes it.
    context : is added to a region on every side before it is cut, as a share of its width and
        height, as far as the photo reaches; 0 is none.
    options : the others of `pipeline.images.extract.extract`.

    Returns
    -------
    FeatureIndex
        Of the finished shards.

    Raises
    ------
    WrongUsage
        A context below 0, or options that the recipe does not have.
    ProposalError
        The proposals are of another dataset, or there is none at all.
    PipelineError
        See `pipeline.images.extract.extract`.
    """
    if not 0 <= context < float("inf"):
        raise WrongUsage(f"context is {context}; a share from 0 on was expected")
    if (names := split_name(recipe)) is not None:

        def extract_one(name: str, folder: Path) -> object:
            box = name == BOX_GEOMETRY  # which has no network, and cuts nothing
            return extract_regions(
                dataset,
                folder,
                regions=regions,
                recipe=name,
                context=0.0 if box else context,
                split=split,
                limit=limit,
                precision=precision,
                storage=storage,
                monitor=monitor,
                **{k: v for k, v in options.items() if not box or k in _OF_SHARDS},
            )

        of = f"@{Path(regions).resolve().name}"
        return extract_side_by_side(names, Path(out), extract_one, monitor, of)
    manifest = read_manifest(dataset).require("images", "extract --regions", NO_PICTURES)
    proposals = read_proposals(regions)
    entries = manifest.select(split)[:limit]
    proposals.require_images(manifest, (entry.id for entry in entries))
    sources: dict[str, Source] = {}
    photos = PhotoCache()
    for entry in entries:
        photo, crc32 = manifest.image_root / entry.file, proposals.source_crc32[entry.id]
        for k, (x0, y0, x1, y1) in enumerate(proposals.boxes(entry.id).tolist()):
            box = x0, y0, x1, y1
            sources[region_id(entry.id, k)] = Region(photo, box, context, crc32, photos)
    if not sources:
        raise ProposalError(f"{regions} has no box for any of the {len(entries)} images")
    monitor.log(f"{len(sources)} regions of {len(entries)} images")
    if context and (recipe == BOX_GEOMETRY or recipe.endswith(ROI_ALIGN)):
        raise WrongUsage(f"--context is of regions that are cut out; {recipe} cuts none")
    if recipe == BOX_GEOMETRY or recipe.endswith(ROI_ALIGN):
        shape = {name: options.pop(name) for name in _OF_SHARDS & options.keys()}
        features = (
            box_geometry_features(manifest.name, storage, **options)
            if recipe == BOX_GEOMETRY
            else roi_align_features(recipe, manifest.name, precision, storage, **options)
        )
        return extract_by_photo(sources, Path(out), features, monitor, **shape)
    region = {"cut": _CUT, "context": context}
    resolved = resolve_recipe(recipe, precision, storage)
    ids, rows = list(sources), list(sources.values())
    return extract_sources(
        ids, rows, Path(out), resolved, manifest.name, region=region, monitor=monitor, **options
    )
