"""Optional packages: the data agree with setup.cfg, and the plain installation imports none."""

import ast
import re
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from importlib.util import find_spec

import pytest

from pipeline.store.errors import MissingPackage
from pipeline.store.extras import EXTRAS, require
from tests.project import PROJECT

OF_DEVELOPERS = {"dev", "docs"}
PROGRAMS = {"dvc"}  # no module of it is imported
# mteb requires other versions than `sentences`; the others are large, for one export each.
NOT_IN_ALL = {"lance", "mteb", "zarr"}
# Modules that are imported only after `require`, or where a missing package is expected.
AFTER_REQUIRE = {
    "pipeline/images/decoding/passes.py",
    "pipeline/store/objects/web.py",
    "pipeline/store/workers/connect.py",
    "pipeline/store/workers/executor.py",
    "pipeline/text/vectors/subwords.py",
}
OPTIONAL = {module for modules in EXTRAS.values() for module in modules}


def listed() -> dict[str, list[str]]:
    """Return what setup.cfg lists: the requirements of each extra, and of "" the others."""
    setup = ConfigParser()
    setup.read(PROJECT / "setup.cfg")
    values = {**setup["options.extras_require"], "": setup["options"]["install_requires"]}
    return {extra: text.split() for extra, text in values.items()}


def name_of(requirement: str) -> str:
    """Return the package that a requirement names."""
    return re.split(r"[>=<\[]", requirement)[0]


def imported_at_top(tree: ast.Module) -> Iterator[str]:
    """Yield the top-level packages that a module imports when it is imported."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_setup_lists_every_optional_package_in_its_extra() -> None:
    packages = {
        extra: {name_of(r) for r in requirements} for extra, requirements in listed().items()
    }
    for extra in ("", "all", *OF_DEVELOPERS, *PROGRAMS):
        del packages[extra]
    assert packages == {extra: {*modules.values()} for extra, modules in EXTRAS.items()}


def test_all_has_every_extra() -> None:
    named = {extra for line in listed()["all"] for extra in re.findall(r"[\w-]+(?=[,\]])", line)}
    assert named == (EXTRAS.keys() - NOT_IN_ALL) | PROGRAMS


def test_modules_have_these_names() -> None:
    assert {m for m in OPTIONAL if find_spec(m) is None} <= NOT_IN_ALL


def test_few_packages_are_required() -> None:
    required = {name_of(requirement) for requirement in listed()[""]}
    assert len(required) <= 20
    assert not required & {p for modules in EXTRAS.values() for p in modules.values()}


def test_nothing_imports_an_optional_package_at_its_top() -> None:
    for path in [*PROJECT.glob("pipeline/**/*.py"), *PROJECT.glob("stages/**/*.py")]:
        name = str(path.relative_to(PROJECT))
        if name not in AFTER_REQUIRE and not name.startswith("pipeline/web/"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            assert not OPTIONAL & {*imported_at_top(tree)}, name


def test_the_message_has_the_need_the_package_and_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingPackage) as caught:
        require("cv2", "boxes need", ", or use grid")
    assert isinstance(caught.value, ImportError)
    assert str(caught.value) == (
        "boxes need the package opencv-contrib-python-headless (import of cv2 halted; None in "
        "sys.modules); pip install 'caption-feature-pipeline[regions]', or use grid"
    )
