"""Dependence runs one way: no import cycle, no arrow up, no room imports an annex or a family."""

import ast
import importlib
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from pipeline.store.errors import UnknownName
from pipeline.store.families import FAMILIES, added
from tests.forks import exit_of
from tests.project import PROJECT

# What each room must not hold (design): the packages that none of its modules may import.
FORBIDDEN = {
    "pipeline/images/recipes": {"torch", "torchvision", "h5py"},
    "pipeline/images": {"h5py"},
    "pipeline/clips": {"h5py"},
    "pipeline/regions": {"h5py"},
    "pipeline/store/jobs": {"h5py", "torch"},
    "pipeline/store/shards": {"torch", "torchvision"},
    "pipeline/retrieval": {"matplotlib"},
    "pipeline": {"click", "dvc", "yaml", "stages", "tests"},
}
# Rooms from the ground up, each with what it may import from: itself and all before it. The most
# specific line counts.
LEVELS = (
    *(
        f"pipeline/store/{name}" + ("" if name == "objects" else ".py")
        for name in (
            "errors", "wording", "registry", "families", "extras", "one_or_many", "progress",
            "hashing", "schema", "packed", "objects", "files", "own_files", "inner_files", "guard",
            "tensor_file",
        )
    ),
    "pipeline/store/devices.py",
    "pipeline/datasets",
    "pipeline/images/networks",
    "pipeline/images/recipes",
    "pipeline/store",
    "pipeline/images",
    "pipeline/text",
    "pipeline/retrieval",
    "pipeline/heads",
    "pipeline/retrieval/query",
    "pipeline/testing",
    "pipeline/experiments",
    "pipeline/regions",
    "pipeline/clips",
    "pipeline/language",
    "pipeline/studies",
    "pipeline/web",
    "stages",
)  # fmt: skip
ANNEXES = ("studies", "web")


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
def imported(path: str) -> tuple[str, ...]:
    """Return the dotted names that a module imports, within functions too."""
    return tuple(_imported(path))


def _imported(path: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((PROJECT / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module


def level_of(path: str) -> int:
    """Return the level of a module: that of the most specific line of `LEVELS`."""
    rooms = [room for room in LEVELS if path == room or path.startswith(f"{room}/")]
    return LEVELS.index(max(rooms, key=len))


def arrows() -> Iterator[tuple[str, str]]:
    """Yield each import of a module by another one, as two paths."""
    for name, path in MODULES.items():
        if name != "pipeline":
            for imports in imported(path):
                if imports in MODULES and imports != "pipeline":
                    yield path, MODULES[imports]


def test_no_import_cycle() -> None:
    """Also none by way of an import within a function."""
    graph = {
        name: {found for found in imported(path) if found in MODULES} - {name}
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
    up = [f"{path} -> {below}" for path, below in arrows() if level_of(below) > level_of(path)]
    assert up == []


def test_no_room_imports_an_annex_or_an_optional_family() -> None:
    """They are found by name. Annexes may import families, and commands of a family anything."""

    def family_of(path: str) -> str:
        """Return the top folder of a family in `pipeline/` or `stages/`, or ""."""
        room = path.split("/")[1]
        return room if room in {family.split(".")[0] for family in FAMILIES} else ""

    wrong = [
        f"{path} -> {other}"
        for path, other in arrows()
        if (family := family_of(other)) not in ("", family_of(path))
        and (family in ANNEXES or family_of(path) not in ANNEXES)
        and (family_of(path), family) != ("web", "studies")
        and not (path.startswith("stages/") and family_of(path))
    ]
    assert wrong == []


def test_a_job_of_a_deleted_family_is_named() -> None:
    with pytest.raises(UnknownName, match="no family of pipeline adds 'films' to EXTRACT; found"):
        added("EXTRACT", "films")


# What a family's deletion takes along in the annexes: pages and comparisons of its outputs.
GOES_WITH = {
    "clips": {"pipeline.web.serve.clips"},
    "regions": {
        "pipeline.studies.claims.compare_localized",
        "pipeline.studies.claims.drawn_precision",
        "pipeline.web.report.localizations",
    },
    "language": {
        "pipeline.studies.claims.compare_captions",
        "pipeline.studies.judgments",
        "pipeline.web.report.caption_report",
    },
    "studies": {"pipeline.web"},
    "studies.near_duplicates": {"pipeline.web.pages.near_duplicates"},
    "web": set[str](),
}
_LIBRARIES = ("torchvision", "distributed", "sklearn.decomposition", "gensim.models", "scipy.stats")
_WITHOUT = """
import sys
from importlib import import_module
from pipeline.store import families
gone, *modules = sys.argv[1:]
families.FAMILIES = tuple(f for f in families.FAMILIES if not f"{f}.".startswith(f"{gone}."))
if gone == "studies":
    families.FAMILIES = tuple(f for f in families.FAMILIES if f != "web")
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith((f"pipeline.{gone}.", f"stages.{gone}.")):
            raise ImportError(f"{name} is deleted")
sys.meta_path.insert(0, Blocked())
import pipeline
for name in [*pipeline.__all__, *modules]:
    getattr(pipeline, name) if "." not in name else import_module(name)
from stages.cli import cli
for name in cli.list_commands(None):
    cli.get_command(None, name)
"""


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_everything_else_is_imported_without_a_family(family: str) -> None:
    """Each module, public name and command, with the family's folders out of reach."""
    gone = {f"pipeline.{family}", f"stages.{family}", *GOES_WITH[family]}
    gone |= {"stages.web"} if family == "studies" else set()
    rest = [name for name in MODULES if not f"{name}.".startswith(tuple(f"{g}." for g in gone))]
    for name in _LIBRARIES:  # once for all families
        importlib.import_module(name)
    assert exit_of(_import_without, family, [name for name in rest if "." in name]) == 0


def _import_without(family: str, rest: list[str]) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("pipeline", "stages"):
            del sys.modules[name]
    sys.argv = ["-c", family, *rest]
    exec(_WITHOUT, {})


@pytest.mark.parametrize("room", FORBIDDEN)
def test_a_room_does_not_hold_what_it_must_not(room: str) -> None:
    found = [
        f"{path} imports {name}"
        for path in MODULES.values()
        # The localization file is one of embeddings.
        if path.startswith(f"{room}/") and path != "pipeline/regions/localization/localized.py"
        for name in imported(path)
        if name.partition(".")[0] in FORBIDDEN[room]
    ]
    assert found == []
