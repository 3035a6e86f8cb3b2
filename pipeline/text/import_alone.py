"""Imports a module of a large package without the package's own start, which imports all of it."""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def import_alone(name: str) -> ModuleType:
    """Return a module without running the packages that it lies in.

    Empty modules with the paths of the packages stand in their places while it is imported;
    afterwards everything is taken out again, and a later import of the package is what it always
    was. Where the package is imported already, so is the module, as usual.

    Parameters
    ----------
    name : of the module, such as "nltk.tokenize.destructive".

    Raises
    ------
    ModuleNotFoundError
        The package is not installed.
    """
    package, *inner = name.split(".")
    if package in sys.modules:
        return import_module(name)
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    folder, path = found.submodule_search_locations[0], package
    try:
        for part in [*inner[:-1], ""]:
            shell = ModuleType(path)
            shell.__path__ = [folder]
            sys.modules[path] = shell
            folder, path = f"{folder}/{part}", f"{path}.{part}"
        return import_module(name)
    finally:
        for each in [each for each in sys.modules if each.partition(".")[0] == package]:
            del sys.modules[each]
