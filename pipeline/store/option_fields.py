"""Fields of option objects: an option of the library and of its commands is declared once, here.

The default, help, bounds and choices of a field made by `option` are those of the command line
option that `stages.options` makes of it. A field is recorded unless marked `recorded=False`, and
params.yaml may set a recorded one for `pipeline extract`. A recorded field ends the shortcut of an
unchanged call; rows are recomputed only if the recipe in the header differs, so an option that
changes a feature also sets a field of the recipe in `resolve_recipe`.
"""

import inspect
import re
import textwrap
from collections.abc import Sequence
from dataclasses import Field, field, fields
from typing import Any, TypeVar

from pipeline.store.errors import WrongUsage

T = TypeVar("T")


def option(
    default: T,
    *,
    help: str,  # of the command line option too; "[default: ...]" at its end if that is not a value
    name: str | None = None,  # of the command line option and the key; None: that of the field
    least: int | None = None,  # of a whole number
    choices: Sequence[str] = (),
    metavar: str | None = None,
    output: bool = False,  # a path that is written
    recorded: bool = True,  # False: no byte of any output depends on it
) -> T:
    """Return a field of an option object, a frozen dataclass with `documented`."""
    metadata = {
        "help": help, "name": name, "least": least, "choices": tuple(choices), "metavar": metavar,
        "output": output, "recorded": recorded,
    }  # fmt: skip
    made: T = field(default=default, metadata=metadata)
    return made


def name_of(option: "Field[Any]") -> str:
    """Return the name of a field as key of params.yaml, and of its option with dashes."""
    return option.metadata.get("name") or option.name


def recorded(options: Any) -> dict[str, Any]:
    """Return the values on which the bytes of an output may depend, by field."""
    names = [f.name for f in fields(options) if f.metadata.get("recorded", True)]
    return {name: getattr(options, name) for name in names}


def require_bounds(options: Any) -> None:
    """Raise if a number of an option object is below the least of its field."""
    for each in fields(options):
        value, least = getattr(options, each.name), each.metadata.get("least")
        if least is not None and value is not None and value < least:
            raise WrongUsage(f"{each.name} is {value}, expected at least {least}")


def documented(kind: type[T]) -> type[T]:
    """Add the fields with their help to the docstring of an option object, for `help()`."""
    text = [inspect.cleandoc(kind.__doc__ or ""), "", "Attributes", "----------"]
    for each in fields(kind):  # type: ignore[arg-type]
        if "help" in each.metadata:
            of_type = re.sub(r"\b(\w+\.)+", "", inspect.formatannotation(each.type))
            described = f"{each.name} : {of_type}. {each.metadata['help']}"
            text.append(textwrap.fill(described, 100, subsequent_indent="    "))
    kind.__doc__ = "\n".join(text)
    return kind
