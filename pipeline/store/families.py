"""The optional families and annexes: one line each, and what they add, found by name.

A family is a package that no other room imports by name. Its module `family` declares what it adds
as constants, from a name to "module:attribute", which is imported when it is first used. To remove
a family, delete `pipeline/<family>`, `stages/<family>`, their tests and its line here.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from pipeline.store.errors import UnknownName
from pipeline.store.registry import imported

FAMILIES = (
    "regions",
    "clips",
    "language",
    "studies",
    "studies.near_duplicates",
    "web",
)


def has(family: str) -> bool:
    """Return whether a family is part of this library."""
    return family in FAMILIES


@cache
def additions(point: str, package: str = "pipeline") -> Mapping[str, str]:
    """Return what all families add at a point: "module:attribute" by name, in their order.

    `point` is the name of a constant, such as "PUBLIC", of `<package>.<family>.family`.
    """
    declared: dict[str, str] = {}
    for family in FAMILIES:
        declared |= getattr(import_module(f"{package}.{family}.family"), point, {})
    return declared


def added(point: str, name: str, package: str = "pipeline") -> Any:
    """Import and return what a family adds under a name; raise UnknownName if none does."""
    if name not in (known := additions(point, package)):
        raise UnknownName(
            f"no family of {package} adds {name!r} to {point}; found {', '.join(known) or 'none'}; "
            "install the package with the family that supports it"
        )
    return imported(known[name])


def all_added(point: str, package: str = "pipeline") -> list[Any]:
    """Import and return everything that the families add at a point."""
    return [added(point, name, package) for name in additions(point, package)]
