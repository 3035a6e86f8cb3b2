"""Every public function refuses what is not the text or path that it expects, in its own words."""

import pickle
from collections.abc import Iterator
from inspect import isfunction, signature
from pathlib import Path, PurePosixPath

import pytest

import pipeline
from pipeline.store.arguments import checked
from pipeline.store.errors import UnexpectedType


def arguments() -> Iterator[tuple[str, str, bool]]:
    """Yield function, parameter and whether it may be a path, of texts and paths alone."""
    for name in pipeline.__all__:
        function = getattr(pipeline, name)
        for parameter in signature(function).parameters.values() if isfunction(function) else ():
            kinds = str(signature(function).replace(parameters=[parameter]))
            kind = kinds.partition(": ")[2].partition(" = ")[0].removesuffix(")")
            if kind.removesuffix(" | None") in ("str", "str | pathlib.Path", "pathlib.Path"):
                yield name, parameter.name, "Path" in kind


@pytest.mark.parametrize(("name", "parameter", "may_be_path"), [*arguments()])
def test_what_is_no_text_or_path_is_refused(name: str, parameter: str, may_be_path: bool) -> None:
    function = getattr(pipeline, name)
    for wrong in (5, b"x", ["x"], *([] if may_be_path else [Path("x")])):
        with pytest.raises(UnexpectedType, match=f"^{parameter} is .*; expected str"):
            function(**{parameter: wrong})
    if may_be_path:
        with pytest.raises(
            UnexpectedType, match=f"^{parameter} is .*; expected str or Path without a NUL"
        ):
            function(**{parameter: "a\0b"})
    assert pickle.loads(pickle.dumps(function)) is function


def test_paths_of_other_libraries_are_accepted() -> None:
    def name_of(path: str | Path | None, number: int = 0) -> str:
        return Path(path or "none").name

    function = checked(name_of, "x")
    assert [function(each) for each in ("a/b", PurePosixPath("a/b"), None)] == ["b", "b", "none"]
    assert checked(arguments, "x") is arguments
