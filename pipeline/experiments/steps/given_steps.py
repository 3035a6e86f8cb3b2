"""Feature sets made elsewhere, in place of an experiment's own: their names, checks and links."""

import os
from collections.abc import Callable
from pathlib import Path

from pipeline.experiments.layout import Layout, unseeded
from pipeline.experiments.steps.step import Plan, Step
from pipeline.heads.inputs.pairs import require_same_texts
from pipeline.images.recipes.by_name import provider_of
from pipeline.store.errors import PipelineError, UnknownName, WrongUsage
from pipeline.store.progress import Monitor
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.index import INDEX_FILE, read_index
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.shards.verify import source_crc_of
from pipeline.store.wording import counted
from pipeline.text.encoders.registry import encoders

_LINK = "link"
# Each recipe of this package has one of these keys.
_OWN = {"backbone", "encoder", "parts", "clip", "media"}


def given_sets(
    layout: Layout, images: str | Path | None, captions: str | Path | None
) -> tuple[dict[Path, Path], str]:
    """Return sets by their places among the outputs, and the end of their experiments' names."""
    sets: dict[Path, Path] = {}
    end = ""
    for sign, given, place, known in (
        ("@", images, layout.features, provider_of),
        ("@@", captions, layout.text, encoders().get),
    ):
        if given is None:
            continue
        folder, name = Path(given), Path(given).absolute().name
        if {*"+@"} & {*name} or unseeded(name) != name:
            raise WrongUsage(
                f"{folder}: + and @ in a name mean several sets, -seed1 at its end a training; "
                "rename the folder"
            )
        own = place(name)
        if own.exists() and own.resolve() != folder.resolve():
            raise WrongUsage(
                f"{folder} has the name of {own}, other features of the same dataset, and so would "
                "its experiments; rename the folder"
            )
        if not own.exists() and known(name) is not None:
            raise WrongUsage(
                f"{folder} has the name of features that `pipeline run` computes; rename it, or "
                f"move it to {own} if it holds those"
            )
        sets[own] = folder
        end += f"{sign}{name}"
    return sets, end


def is_given(plan: Plan, out: Path, resolve: Callable[[], object]) -> bool:
    """Return whether a set is given, or is in its place under a name that `resolve` rejects.

    Raise where a step would write its features to a link to others.
    """
    if out in plan.given or (out.is_symlink() and not out.exists()):
        return True
    if not (out / INDEX_FILE).is_file():
        return False
    try:
        resolve()
    except UnknownName:
        return True
    except PipelineError:  # of a package that is not installed
        return False
    if out.is_symlink() and not _OWN & {*read_index(out).header.recipe}:
        raise WrongUsage(
            f"{out} is a link to {out.resolve()}, which was made elsewhere, and has the name of "
            "features that are to be computed; remove the link, and rename its set"
        )
    return False


def add_link(plan: Plan, name: str, out: Path, *, of_captions: bool = False) -> Path:
    """Add the step that links a set to its place; raise unless it has the rows of the dataset."""
    folder, entries = plan.given.get(out, out), plan.manifest.packed
    features = FeatureSet(folder)
    dataset = features.index.header.dataset
    own = {"", plan.manifest.name, plan.layout.name}
    if dataset not in own and not features.source_crc32.any():
        raise WrongUsage(
            f"{folder} has features of the dataset {dataset!r}, where an id may be another image "
            f"than in {plan.layout.dataset}; if they are the same, import it again as features of "
            f"{plan.layout.name!r}"
        )
    if of_captions:
        require_same_texts(entries.captions, features)
    else:
        rows = features.rows_of(entries.ids)
        if dataset not in own:
            _require_same_images(plan, features, rows)

    def make(_: Monitor) -> None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.unlink(missing_ok=True)  # a link to a folder that has gone
        out.symlink_to(os.path.relpath(folder.resolve(), out.parent.resolve()))

    size = f"{counted(len(features), 'row')} of {features.row_shape} {features.dtype}"
    step = Step(
        _LINK, name, out, (), size, make,
        lambda path: {"folder": str(path.resolve())} if path.exists() else None,
        lambda: {"folder": str(folder.resolve())},
    )  # fmt: skip
    return plan.add(step)


def _require_same_images(plan: Plan, features: FeatureSet, rows: RowNumbers) -> None:
    """Raise if rows have the CRC-32 of other files than the images of the dataset."""
    ids, now = plan.manifest.packed.ids, source_crc_of(plan.manifest)
    recorded = features.source_crc32[rows].tolist()
    other = [one for one, crc in zip(ids, recorded, strict=True) if crc not in (0, now(one))]
    if other:
        raise WrongUsage(
            f"{features.folder} was computed from other files for {len(other)} of {len(ids)} "
            f"images of {plan.layout.dataset}, first {other[:5]}; extract the features of this "
            "dataset, or name the set of these images"
        )


def given_set(plan: Plan, out: Path) -> FeatureSet | None:
    """Return a set that was made elsewhere, by its place; None if a step computes it."""
    return FeatureSet(plan.given.get(out, out)) if plan.steps[out].job == _LINK else None
