"""Arguments of the public functions: texts and paths are checked by their annotations."""

import os
from collections.abc import Callable
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any

from pipeline.store.errors import UnexpectedType

# Any path, such as those of other libraries.
_ACCEPTED: dict[Any, tuple[type, ...]] = {
    str: (str,), Path: (str, os.PathLike), str | Path: (str, os.PathLike)
}  # fmt: skip
_ACCEPTED |= {kind | None: (*accepted, type(None)) for kind, accepted in _ACCEPTED.items()}


def checked(function: Callable[..., Any], module: str) -> Callable[..., Any]:
    """Return a function of `module` that refuses what is not the text or path that it expects."""
    of_function = signature(function)
    expected = {
        name: _ACCEPTED[parameter.annotation]
        for name, parameter in of_function.parameters.items()
        if parameter.annotation in _ACCEPTED
    }
    if not expected:
        return function

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        given = of_function.bind_partial(*arguments, **named).arguments
        for name, value in given.items():
            if (accepted := expected.get(name)) is None:
                continue
            is_path = os.PathLike in accepted
            if not isinstance(value, accepted) or (is_path and "\0" in str(value)):
                what = "str or Path without a NUL" if is_path else "str"
                raise UnexpectedType(f"{name} is {value!r:.60}; expected {what}")
        return function(*arguments, **named)

    # By which it is pickled.
    call.__module__ = module
    return call
