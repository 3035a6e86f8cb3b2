"""Dependence runs one way: no import cycle, no arrow up, no torch where no torch belongs."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.project import PROJECT

# What each room must not hold (design): the packages that none of its modules may import.
FORBIDDEN = {
    "pipeline/recipes": {"torch", "torchvision", "h5py"},
    "pipeline/networks": {"h5py"},
    "pipeline/images": {"h5py"},
    "pipeline/clips": {"h5py"},
    "pipeline/sound": {"h5py"},
    "pipeline/jobs": {"h5py", "torch"},
    "pipeline/regions": {"h5py"},
    "pipeline/shards": {"torch", "torchvision"},
    "pipeline/retrieval": {"matplotlib"},
    "pipeline": {"click", "dvc", "yaml", "stages", "tests"},
}
# Rooms from the ground up: a module may import from its own room and from those before it.
LEVELS = (
    (
        "pipeline/errors.py",
        "pipeline/data_frames.py",
        "pipeline/one_or_many.py",
        "pipeline/executor.py",
        "pipeline/progress.py",
        "pipeline/hashing.py",
        "pipeline/schema.py",
        "pipeline/packed.py",
        "pipeline/files.py",
        "pipeline/guard.py",
        "pipeline/wording.py",
    ),
    ("pipeline/summary.py", "pipeline/devices.py", "pipeline/networks", "pipeline/datasets"),
    ("pipeline/recipes", "pipeline/cluster"),
    ("pipeline/shards",),
    ("pipeline/jobs",),
    ("pipeline/images", "pipeline/text", "pipeline/retrieval", "pipeline/pages"),
    ("pipeline/regions", "pipeline/clips", "pipeline/sound"),
    ("pipeline/near_duplicates", "pipeline/embedding_map"),
    ("pipeline/heads",),
    ("pipeline/finetuning",),
    ("pipeline/localization",),
    ("pipeline/language",),
    ("pipeline/search", "pipeline/report"),
    ("pipeline/probes",),
    ("pipeline/scenes",),
    ("pipeline/experiments",),
    ("pipeline/claims",),
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
        if found.startswith("pipeline.scenes")
    }
    assert importers == {
        "pipeline/scenes", "pipeline/scenes/moving", "pipeline/experiments", "stages"
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
