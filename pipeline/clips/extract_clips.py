"""The job of `pipeline extract` on a dataset of clips: feature shards with one row per clip."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pipeline.clips.clip_file import require_av
from pipeline.clips.clip_source import ClipSource, clip_source
from pipeline.clips.recipes import resolve_clip_recipe
from pipeline.clips.sound.extract_sound import extract_sound
from pipeline.clips.sound.recipes import is_sound_recipe
from pipeline.datasets.manifest import read_manifest
from pipeline.images.concatenated_recipes import split_name
from pipeline.store.errors import WrongUsage
from pipeline.store.jobs.make_features import make_features, open_build
from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.jobs.sink import Sink
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.side_by_side import SCALINGS, write_view
from pipeline.store.workers.place import Place

NO_CLIPS = "prepare one with `pipeline prepare clips`, or leave out options for clips"
"""Remedy in messages if a dataset of images is used where clips are needed."""


def extract_clips(
    dataset: str | Path,
    out: str | Path,
    *,
    recipe: str,
    select: Selection | None = None,
    storage: Storage | None = None,
    compute: Compute | None = None,
    place: Place | None = None,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Extract the features of a dataset's clips into shards.

    As `pipeline.extract`, but each row is computed from the frames or the sound of a clip. A
    missing, unreadable or refused clip keeps its row, as NaN with a status and a reason. Recipes
    that are extracted together share the decoding of each clip, except on workers.

    Parameters
    ----------
    dataset : str or Path. Folder of a prepared dataset of clips.
    out, select, storage, place, monitor : see `pipeline.extract`.
    recipe : str. Name in `pipeline.clips.recipes` or `pipeline.clips.sound.recipes`, or several
        joined by "+", extracted into separate folders next to `out`.
    compute : Compute or None. As for images; `weights` "imagenet" means the recipe's own, for 3-D
        networks those of Kinetics-400; `batch_size` counts frames (or runs of frames; None: 8 or 1,
        on a GPU 128 or 16), `readers` the clips decoded at once. `codebook` applies to recipes of
        sound words, which have no weights: a file, or None for one next to `out`, which is fitted
        on the training split if it does not exist.

    Returns
    -------
    FeatureIndex
        Index of the finished shards; its `failed_rows` counts the clips without features.

    Raises
    ------
    MissingPackage
        PyAV is not installed.
    DatasetError
        The dataset is one of images, or cannot be read.
    WrongUsage, RecipeError, WeightsError, DeviceError, FileReadError, PipelineError
        As `pipeline.extract`; WeightsError also for a codebook of other words or clips.

    Examples
    --------
    >>> pipeline.extract_clips(
    ...     "data/clips", "features/clips", recipe="efficientnet-lite0-pool@even:8"
    ... )  # doctest: +SKIP
    """
    select, storage = select or Selection(), storage or Storage()
    compute, place, out = compute or Compute(), place or Place(), Path(out)
    require_av()
    together = split_name(recipe)
    if together is not None:
        place.refuse_summary_of_several()
    manifest = read_manifest(dataset).require("clips", f"the recipe {recipe!r} of clips", NO_CLIPS)
    names = together.recipes if together else (recipe,)
    if compute.codebook is not None and not any(map(is_sound_recipe, names)):
        raise WrongUsage("`codebook=...` applies to recipes of sound words, such as mfcc-bow-1024")
    folders = [out.resolve().parent / name for name in names] if together else [out]
    if not all(map(is_sound_recipe, names)):
        compute = compute.on(place, monitor)
    entries = manifest.select(select.split)[: select.limit]
    clips = manifest.files(entries)
    pending: list[tuple[ClipSource, Path]] = []
    for name, folder in zip(names, folders, strict=True):
        if is_sound_recipe(name):
            index = extract_sound(
                dataset, folder, recipe=name, select=select, storage=storage, compute=compute,
                place=place, monitor=monitor,
            )  # fmt: skip
        else:
            resolved = resolve_clip_recipe(name, compute.precision, storage.dtype)
            source = clip_source(entries.ids, clips, resolved, manifest.name, compute)
            pending.append((source, folder))
    for number, (source, folder) in enumerate(pending):
        others = [] if place.elsewhere else pending[number + 1 :]
        with ExitStack() as entered:
            sinks = tuple(
                Sink(
                    other,
                    entered.enter_context(open_build(other, other.origin, its_folder, storage)),
                )
                for other, its_folder in others
            )
            index = make_features(
                replace(source, also=sinks), folder, storage=storage, place=place, monitor=monitor
            )
    if together is None:
        return index
    index = write_view(out, [FeatureSet(folder) for folder in folders], together.scaling)
    monitor.log(f"{out}: {len(folders)} concatenated sets, {SCALINGS[together.scaling]}")
    return index
