"""The commands: each parses options and params.yaml, calls one library function and logs a line.

At their top, modules import only what `--help` needs, which is fast; functions import the rest.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1] / "pipeline" / "__init__.py"


def require_own_package() -> None:
    """Exit with status 1 if another file or folder named `pipeline` comes first on sys.path."""
    spec = find_spec("pipeline")
    origin = spec.origin if spec is not None else None
    if origin is None or Path(origin).resolve() != _PACKAGE:
        where = origin or (spec and spec.submodule_search_locations) or "nothing"
        sys.exit(
            f"pipeline: error: `import pipeline` finds {where} in place of the package {_PACKAGE}; "
            "rename that file, or run this command from another folder or without PYTHONPATH"
        )


require_own_package()
