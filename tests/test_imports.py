"""Dependence runs one way: no import cycle, no arrow up, no torch where no torch belongs."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.project import PROJECT

# What each room must not hold (design): the packages that none of its modules may import.
FORBIDDEN = {
    "pipeline/images/recipes": {"torch", "torchvision", "h5py"},
    "pipeline/images/networks": {"h5py"},
    "pipeline/images": {"h5py"},
    "pipeline/clips": {"h5py"},
    "pipeline/clips/sound": {"h5py"},
    "pipeline/store/jobs": {"h5py", "torch"},
    "pipeline/regions": {"h5py"},
    "pipeline/store/shards": {"torch", "torchvision"},
    "pipeline/retrieval": {"matplotlib"},
    "pipeline": {"click", "dvc", "yaml", "stages", "tests"},
}
# Rooms from the ground up: a module may import from its own room and from those before it.
LEVELS = (
    (
        "pipeline/store/errors.py",
        "pipeline/store/data_frames.py",
        "pipeline/store/one_or_many.py",
        "pipeline/store/workers/interface.py",
        "pipeline/store/progress.py",
        "pipeline/store/hashing.py",
        "pipeline/store/schema.py",
        "pipeline/store/packed.py",
        "pipeline/store/files.py",
        "pipeline/store/guard.py",
        "pipeline/store/wording.py",
    ),
    (
        "pipeline/store/summary.py",
        "pipeline/store/devices.py",
        "pipeline/images/networks",
        "pipeline/datasets",
    ),
    ("pipeline/images/recipes", "pipeline/store/workers"),
    ("pipeline/store/shards",),
    ("pipeline/store/jobs",),
    ("pipeline/images", "pipeline/text", "pipeline/retrieval", "pipeline/web/pages"),
    ("pipeline/regions", "pipeline/clips", "pipeline/clips/sound"),
    ("pipeline/studies/near_duplicates", "pipeline/studies/embedding_map"),
    ("pipeline/heads",),
    ("pipeline/heads/finetuning",),
    ("pipeline/regions/localization",),
    ("pipeline/language",),
    ("pipeline/retrieval/query", "pipeline/web/report"),
    ("pipeline/studies/probes",),
    ("pipeline/studies/scenes",),
    ("pipeline/experiments",),
    ("pipeline/studies/claims",),
    ("stages",),
)


def modules() -> dict[str, str]:
    """Return the project's modules: dotted name to path."""
    paths = [*PROJECT.glob("pipeline/**/*.py"), *PROJECT.glob("stages/**/*.py")]
    found = {}
    for path in paths:
        relative = path.relative_to(PROJECT)
        name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
        found[name] = str(relative)
    return found


MODULES = modules()


@cache
def imported(path: str, nested: bool) -> tuple[str, ...]:
    """Return the dotted names that a module imports, within functions too if `nested`."""
    return tuple(_imported(path, nested))


def _imported(path: str, nested: bool) -> Iterator[str]:
    tree = ast.parse((PROJECT / path).read_text())
    nodes = ast.walk(tree) if nested else iter(tree.body)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module


def level_of(path: str) -> int:
    """Return the level of the room that a module lies in."""
    for level, rooms in enumerate(LEVELS):
        if any(path == room or path.startswith(f"{room}/") for room in rooms):
            return level
    raise AssertionError(f"{path} lies in no known room")


def test_no_import_cycle() -> None:
    """Also none by way of an import within a function."""
    graph = {
        name: {found for found in imported(path, nested=True) if found in MODULES} - {name}
        for name, path in MODULES.items()
        if path != "pipeline/__init__.py"
    }
    for dependences in graph.values():
        dependences.discard("pipeline")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_arrow_up() -> None:
    """A module imports from its own room and from rooms below."""
    up = [
        f"{path} -> {found}"
        for name, path in MODULES.items()
        if path != "pipeline/__init__.py"
        for found in imported(path, nested=True)
        if found in MODULES and found != "pipeline"
        if level_of(MODULES[found]) > level_of(path)
    ]
    assert up == []


def test_only_experiments_and_commands_know_drawn_scenes() -> None:
    """Datasets, language, report, search and probes take a truth of any dataset in their place."""
    importers = {
        path.rpartition("/")[0]
        for path in MODULES.values()
        if path != "pipeline/__init__.py"
        for found in imported(path, nested=True)
        if found.startswith("pipeline.studies.scenes")
    }
    assert importers == {
        "pipeline/studies/scenes", "pipeline/studies/scenes/moving", "pipeline/experiments",
        "stages",
    }  # fmt: skip


@pytest.mark.parametrize("room", FORBIDDEN)
def test_a_room_does_not_hold_what_it_must_not(room: str) -> None:
    found = [
        f"{path} imports {name}"
        for path in MODULES.values()
        if path.startswith(f"{room}/")
        for name in imported(path, nested=True)
        if name.partition(".")[0] in FORBIDDEN[room]
    ]
    assert found == []
