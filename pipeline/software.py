"""Which software made a file: names and versions, and nothing that changes from run to run."""

from importlib.metadata import version

from pipeline import __version__


def created_by(*packages: str) -> str:
    """Return this package and the named installed packages with their versions."""
    return ", ".join(
        [f"caption-feature-pipeline {__version__}", *(f"{p} {version(p)}" for p in packages)]
    )
