"""Import of a module without its package's `__init__`, which would import the whole package."""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def import_alone(name: str) -> ModuleType:
    """Import a module without running the `__init__` of its packages.

    Empty modules with the packages' paths replace them during the import and are removed
    afterwards, so that a later import of the package is unaffected. If the package is already
    imported, the module is imported as usual.

    Parameters
    ----------
    name : str. Name of the module, such as "nltk.tokenize.destructive".

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
