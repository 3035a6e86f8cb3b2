"""The hub of models, which may be out of reach: asked once, instead of six times for each file."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SECONDS = 4.0


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Have huggingface_hub use its cache alone in the block if the hub does not answer.

    The library itself requests each file six times, with pauses of 23 s in all, also of files
    that are in its cache.

    Raises
    ------
    OSError
        The block needs the hub, which does not answer.
    """
    constants: Any = importlib.import_module("huggingface_hub.constants")
    if constants.HF_HUB_OFFLINE or (reason := _unreachable()) is None:
        yield
        return
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    except OSError as error:
        raise OSError(reason) from error
    finally:
        constants.HF_HUB_OFFLINE = False


def _unreachable() -> str | None:
    """Return why the hub cannot be reached, through proxies where there are some; None: it can."""
    hub: Any = importlib.import_module("huggingface_hub")
    endpoint = hub.constants.ENDPOINT
    try:
        hub.utils.get_session().head(endpoint, timeout=_SECONDS)
    # The HTTP library differs between versions of the hub's client.
    except Exception as error:
        return f"{endpoint} does not answer: {str(error) or type(error).__name__}"
    return None
