"""The model hub: whether it is reachable, and the training datasets in tags of its weights."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SECONDS = 4.0


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Make huggingface_hub use only its cache within the block if the hub is not reachable."""
    # Otherwise the library requests each file six times, with pauses of 23 s in total, even if the
    # file is cached.
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
    """Return why the hub is not reachable, directly or by proxy; None if it is reachable."""
    hub: Any = importlib.import_module("huggingface_hub")
    endpoint = hub.constants.ENDPOINT
    try:
        hub.utils.get_session().head(endpoint, timeout=_SECONDS)
    # The HTTP library depends on the version of the hub's client.
    except Exception as error:
        return f"{endpoint} does not answer: {str(error) or type(error).__name__}"
    return None
