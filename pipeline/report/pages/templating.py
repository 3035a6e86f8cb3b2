"""How templates are rendered: texts from data are escaped, a missing name is an error."""

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from pipeline.report.pages.escape import shown


def environment(*packages: str) -> Environment:
    """Return the environment of the templates in some packages, the first that has one counting.

    Parameters
    ----------
    packages : each with a folder `templates`.
    """
    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _shown(value: Any) -> Any:
    """What every expression of a template goes through before it is escaped."""
    markup = hasattr(value, "__html__")  # what a macro or a block gave, done already
    return shown(value) if isinstance(value, str) and not markup else value
