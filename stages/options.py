"""Options of commands: those of an option object are made from its fields, as `options_of` does.

A command receives one object in their place, such as `storage`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

import click

from pipeline.store.jobs.options import Compute, Selection
from pipeline.store.option_fields import name_of
from pipeline.store.workers.place import Place
from stages.command import PATH, Decorator, flag, option, section
from stages.console import OUTPUT

JSON = flag("--json", "Print JSON; docs/commands.md lists its keys.", name="as_json")
MAP = option(
    "--map",
    "Projection of the map: principal components, or t-SNE, which is slower.",
    click.Choice(["pca", "tsne"]),
    name="projection",
    default="pca",
)

_OBJECTS: dict[type, tuple[str, str]] = {
    Selection: ("select", "Input"),
    Compute: ("compute", "Computing"),
    Place: ("place", "Cluster"),
}
"""Parameter of the command, and title in the help, if not by the name of the class."""


class _Resource(click.ParamType):
    name = "NAME=N"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, float]:
        match = re.fullmatch(r"([^=]+)=(\d+(?:\.\d+)?)", str(value))
        if match is None or not float(match[2]):
            self.fail(f"{value!r} is not a resource; write it as in GPU=1", param, ctx)
        return match[1], float(match[2])


def options_of(kind: type, *names: str, without: str = "") -> Decorator:
    """Return a decorator that adds the options of an object's fields, or of those named.

    The command receives the object, by a parameter such as `storage`.
    """
    name = kind.__name__
    parameter, title = _OBJECTS.get(kind, (name.lower(), name))
    chosen = [f.name for f in fields(kind) if f.name != without and (not names or f.name in names)]
    return group(parameter, kind, title, *(option_of(kind, name) for name in chosen))


def option_of(kind: type, name: str) -> Decorator:
    """Return the option of a field of an option object."""
    field = next(field for field in fields(kind) if field.name == name)
    default = {} if field.default is None else {"default": field.default}
    if "[default: " in field.metadata["help"]:  # None, or of params.yaml
        default = {"show_default": False}
    return option_like(field, **default)


def option_like(field: "Field[Any]", **others: Any) -> Decorator:
    """Return an option with the help, type and choices of a field, without its default."""
    text, attributes = field.metadata["help"], {**_attributes(field), **others}
    long = f"--{name_of(field).replace('_', '-')}"
    return click.option(
        long, field.name, help=text, metavar=field.metadata["metavar"], **attributes
    )


def _attributes(field: "Field[Any]") -> dict[str, Any]:
    """Return the attributes of click's option for the type of a field."""
    kind: Any = field.type
    if get_origin(kind) is UnionType:
        kind = next(part for part in get_args(kind) if part is not NoneType)
    if kind is bool:
        return {"is_flag": True}
    if get_origin(kind) is Mapping:
        return {"type": _Resource(), "multiple": True, "callback": lambda c, p, pairs: dict(pairs)}
    if choices := field.metadata["choices"] or (get_origin(kind) is Literal and get_args(kind)):
        return {"type": click.Choice(choices)}
    if kind is int:
        return {"type": click.IntRange(field.metadata["least"])}
    # A path with a default is a name or a path, such as weights.
    if Path in (kind, *get_args(field.type)) and not isinstance(field.default, str):
        return {"type": OUTPUT if field.metadata["output"] else PATH}
    return {}


def group(name: str, kind: Callable[..., Any], title: str, *options: Decorator) -> Decorator:
    """Return a decorator that adds options and passes them to the command as one `kind` object."""

    def decorate(command: Any) -> Any:
        before = len(getattr(command, "__click_params__", []))

        @wraps(command)
        def called(*args: Any, **kwargs: Any) -> Any:
            kwargs[name] = kind(**{parameter: kwargs.pop(parameter) for parameter in parameters})
            return command(*args, **kwargs)

        # Options are stored on `called`, which inherits those of `command` by `wraps`.
        decorated = section(title, *options)(called)
        parameters = [param.name for param in decorated.__click_params__[before:]]
        return decorated

    return decorate
