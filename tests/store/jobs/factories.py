"""Options of feature making by their short names, as tests write them."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pipeline.images.batches import Parallelism, picture_rows
from pipeline.images.network import RecipeNetwork
from pipeline.images.region import Source
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.workers.place import Place

_GROUPS = {"select": Selection, "storage": Storage, "compute": Compute, "place": Place}


def options(**given: Any) -> dict[str, Any]:
    """Return options by name as `select`, `storage`, `compute` and `place`; others stay."""
    found: dict[str, Any] = {}
    for group, kind in _GROUPS.items():
        names = {field.name for field in fields(kind)} & given.keys()
        if names:
            found[group] = kind(**{name: given.pop(name) for name in names})
    return {**found, **given}


def publish_images(
    build: ShardBuild, files: Sequence[Source], network: RecipeNetwork, parallelism: Parallelism
) -> None:
    """Compute the rows of image files and publish the set."""
    build.fill(lambda spans, watch: picture_rows(spans, files, network, parallelism, watch))
