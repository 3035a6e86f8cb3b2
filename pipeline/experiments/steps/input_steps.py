"""Steps that compute image, clip and caption features, and word vectors."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pipeline.experiments.steps.given_steps import add_link, given_set, is_given
from pipeline.experiments.steps.step import Plan, Step
from pipeline.heads.head_types import CaptionFeatures
from pipeline.heads.inputs.feature_spec import FeatureSpec
from pipeline.images.concatenated_recipes import SideBySide, split_name
from pipeline.images.extract import extract
from pipeline.images.recipes import resolve_recipe
from pipeline.store.current.readers import features_record
from pipeline.store.current.record import Record, stale
from pipeline.store.errors import UnknownName
from pipeline.store.families import added
from pipeline.store.jobs.options import Storage, extract_options
from pipeline.store.progress import Monitor
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.index import INDEX_FILE
from pipeline.store.shards.side_by_side import require_same_cells, write_view
from pipeline.store.wording import counted, nearest
from pipeline.text.encode import Captions, encode
from pipeline.text.encoders.registry import class_of, encoder_options
from pipeline.text.fitting import supersede_encoder
from pipeline.text.vectors.settings import Training
from pipeline.text.vectors.store import (
    expected_vectors,
    make_way_for_vectors,
    store_vectors,
    vectors_record,
)


class AnyRecipe(Protocol):
    """Recipe of images or of another kind of media."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row."""

    @property
    def storage(self) -> str:
        """Dtype of the stored rows."""

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as JSON values."""


_NOT_OF_TRAINING = {"source", "tokenizer", "split", "corpus", "allow_leaks"}


def add_features(plan: Plan, name: str) -> Path:
    """Add the steps of the features of a recipe, of several concatenated ones, or of a set."""
    out, rows = plan.layout.features(name), len(plan.manifest.entries)
    if is_given(plan, out, lambda: recipe_for(plan, name)):
        return add_link(plan, name, out)
    given = {**plan.extract, "update": True}
    if (names := split_name(name)) is not None:
        return _add_side_by_side(plan, name, names, out)
    recipe = recipe_for(plan, name)
    media = plan.manifest.media
    job = extract if media == "images" else added("EXTRACT", media)

    def make(monitor: Monitor) -> object:
        return job(plan.layout.dataset, out, recipe=name, monitor=monitor, **extract_options(given))

    step = Step(
        "extract", name, out, (), rows_of(recipe, rows), make, features_record,
        lambda: {"rows": rows, "recipe": recipe.to_json()}, always=True,
        bytes=rows * row_bytes(recipe),
    )  # fmt: skip
    return plan.add(step)


def _add_side_by_side(plan: Plan, name: str, names: SideBySide, out: Path) -> Path:
    parts = {recipe: add_features(plan, recipe) for recipe in names.recipes}
    require_same_cells({recipe: _part(plan, recipe).shape for recipe in parts})

    def make(monitor: Monitor) -> object:
        return write_view(out, [FeatureSet(part) for part in parts.values()], names.scaling)

    size = f"{counted(len(parts), 'set')} side by side"
    step = Step(
        "extract", name, out, tuple(parts.values()), size, make, features_record,
        lambda: {"rows": len(plan.manifest.entries)}, always=True,
    )  # fmt: skip
    return plan.add(step)


def add_text(plan: Plan, captions: CaptionFeatures) -> Path:
    """Add the step that encodes captions, and that of the word vectors it needs, or of a set."""
    out = plan.layout.text(captions.name)
    if is_given(plan, out, lambda: encoder_options(captions.encoder)):
        return add_link(plan, captions.name, out, of_captions=True)
    options = dict(captions.options)
    needs: tuple[Path, ...] = ()
    if (vectors := str(options.get("vectors"))) in plan.word_vectors:
        needs = (_add_vectors(plan, vectors),)
        options["vectors"] = str(needs[0])
    rows = sum(len(entry.captions) for entry in plan.manifest.entries)

    def make(monitor: Monitor) -> object:
        return encode(
            plan.layout.dataset,
            out,
            encoder=captions.encoder,
            captions=Captions(fit_split=plan.split("train"), device=plan.training.device),
            storage=Storage(update=True),
            monitor=monitor,
            **options,
        )

    def check() -> None:
        for part in encoder_options(captions.encoder, **options).parts:
            class_of(part).require(part)

    step = Step(
        "text", captions.name, out, needs, f"{counted(rows, 'row')} of {captions.encoder}", make,
        features_record, lambda: {"rows": rows}, always=True,
        fitted=plan.layout.encoder(captions.name), check=check,
    )  # fmt: skip
    return plan.add(step)


def add_own_vectors(plan: Plan, name: str | None) -> str | None:
    """Return the word vector file of a name and add its step; the name itself if external."""
    if name is None or name not in plan.word_vectors:
        return name
    return str(_add_vectors(plan, name))


def _add_vectors(plan: Plan, name: str) -> Path:
    out, options = plan.layout.vectors(name), dict(plan.word_vectors[name])

    others = {k: options[k] for k in _NOT_OF_TRAINING & options.keys()}
    numbers = {k: v for k, v in options.items() if k not in {*others, "train"}}
    training = Training(options["train"], **numbers) if "train" in options else None

    def expected() -> Record:
        return expected_vectors(plan.layout.dataset, training=training, **others)

    def make(monitor: Monitor) -> object:
        record = expected()
        if make_way_for_vectors(out, record, monitor.log) and training is not None:
            # New vectors make encoders and features of the old ones obsolete.
            for step in plan.steps.values():
                if step.job == "text" and out in step.inputs:
                    supersede_encoder(plan.layout.encoder(step.name), step.out)
        if not stale(out, vectors_record, lambda: record):
            return None  # moved back
        return store_vectors(plan.layout.dataset, out, training=training, monitor=monitor, **others)

    def check() -> None:
        if training is not None:
            training.require()

    size = ", ".join(f"{key} {value}" for key, value in options.items())
    step = Step("vectors", name, out, (), size, make, vectors_record, expected, check=check)
    return plan.add(step)


def recipe_for(plan: Plan, name: str) -> AnyRecipe:
    """Return a recipe with the requested precision and storage."""
    given = plan.extract
    media = plan.manifest.media
    resolve = resolve_recipe if media == "images" else added("RECIPE", media)
    try:
        recipe: AnyRecipe = resolve(
            name, given.get("precision", "float32"), given.get("storage", "float32")
        )
    except UnknownName as error:
        folder = plan.layout.features(name).parent
        if near := nearest(name, [index.parent.name for index in folder.glob(f"*/{INDEX_FILE}")]):
            raise UnknownName(f"{error}; the nearest set in {folder} is {near[0]}") from None
        raise
    return recipe


def expected_images(plan: Plan, name: str) -> FeatureSpec:
    """Return the shape and recipe of image features that a step computes or concatenates."""
    names = split_name(name)
    parts = [_part(plan, one) for one in (names.recipes if names else [name])]
    return replace(parts[0], shape=(*parts[0].shape[:-1], sum(part.shape[-1] for part in parts)))


def _part(plan: Plan, name: str) -> FeatureSpec:
    """Return the shape and recipe of features of one name, made elsewhere or to be computed."""
    if (given := given_set(plan, plan.layout.features(name))) is not None:
        return FeatureSpec.of(given)
    recipe = recipe_for(plan, name)
    return FeatureSpec(recipe.shape, recipe.to_json(), "", "")


def expected_captions(captions: CaptionFeatures) -> FeatureSpec:
    """Return caption features like those that a step computes, one column for each encoder."""
    parts = encoder_options(captions.encoder, **captions.options).parts
    kinds = ["sequence" if part.rows_are_ids else part.kind for part in parts]
    blocks = [{"encoder": kind, "dim": 1, "num_ids": 1} for kind in kinds]
    recipe = {"name": captions.name, "encoder": "concatenation", "parts": blocks}
    return FeatureSpec((len(parts),), recipe, "", "")


def rows_of(recipe: AnyRecipe, rows: int) -> str:
    """Return the size of feature rows for messages."""
    megabytes = rows * row_bytes(recipe) / 1e6
    return f"{counted(rows, 'row')} of {recipe.shape} {recipe.storage}, {megabytes:.1f} MB"


def row_bytes(recipe: AnyRecipe) -> int:
    """Return the size of a feature row."""
    return math.prod(recipe.shape) * np.dtype(recipe.storage).itemsize
