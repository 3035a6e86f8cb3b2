"""The model hub: its files and cache, and the training datasets in tags of its weights."""

import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
"""A name on the hub, with its owner or, of the oldest models, without."""

_SECONDS = 4.0

# Parts of the tags of timm and open_clip. ImageNet-21k and -22k are the same up to some names.
_TAG_PARTS = {
    "in1k": "ImageNet-1k", "in12k": "ImageNet-12k", "in21k|in22k|inw21k": "ImageNet-21k",
    "laion400m": "LAION-400M", "laion2b": "LAION-2B", "laion5b": "LAION-5B",
    "laiona|laion_aesthetic": "LAION-Aesthetics", "merged2b": "LAION-2B and COYO-700M",
    "datacomp[a-z0-9]*": "DataComp", "commonpool": "CommonPool", "openai": "WebImageText",
    "webli": "WebLI", "metaclip|metaclip2": "MetaCLIP",
    "dfn2b|dfn5b|dfndr2b": "Data Filtering Networks", "cc12m": "Conceptual 12M",
    "yfcc15m": "YFCC-15M", "yfcc100m": "YFCC-100M", "ig1b": "Instagram-1B", "jft": "JFT-300M",
    "lvd142m": "LVD-142M", "lvd1689m": "LVD-1689M", "sa1b": "SA-1B", "mscoco": "COCO captions",
}  # fmt: skip


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


def cached_file(repository: str, names: Iterable[str]) -> Path | None:
    """Return the first of these files of a repository that is in the hub's cache."""
    hub: Any = importlib.import_module("huggingface_hub")
    for name in names:
        if isinstance(path := hub.try_to_load_from_cache(repository, name), str):
            return Path(path)
    return None


def hub_file(repository: str, names: Iterable[str]) -> Path:
    """Return the first of these files, cached or downloaded; raise OSError otherwise."""
    names = list(names)
    if (cached := cached_file(repository, names)) is not None:
        return cached
    hub, errors = map(importlib.import_module, ("huggingface_hub", "huggingface_hub.errors"))
    reason = "the repository has none of them"
    for name in names:
        try:
            with hub_or_cache():
                return Path(hub.hf_hub_download(repository, name))
        except errors.RemoteEntryNotFoundError:
            continue
        # The hub's client raises errors of several libraries.
        except Exception as error:
            reason = str(error).partition("\n")[0]
            break
    raise OSError(
        f"{' or '.join(names)} of {repository} are not in the cache of huggingface_hub and cannot "
        f"be downloaded ({reason})"
    )


def hub_folder(repository: str, wanted: Callable[[list[str]], list[str]]) -> Path:
    """Download the files that `wanted` chooses; return their folder, or raise OSError."""
    hub: Any = importlib.import_module("huggingface_hub")
    try:
        with hub_or_cache():
            names = wanted(hub.list_repo_files(repository))
            return Path(hub.snapshot_download(repository, allow_patterns=names))
    # The hub's client raises errors of several libraries.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise OSError(
            f"the files of {repository} are not in the cache of huggingface_hub and cannot be "
            f"downloaded ({reason})"
        ) from error


def download_remedy(repository: str) -> str:
    """Return how to fill the cache for a machine without access to the hub."""
    return f"on a machine with access, `hf download {repository}`, then {cache_remedy(repository)}"


def cache_remedy(repository: str) -> str:
    """Return the remedy for an unreachable hub repository: what to copy, and where to."""
    hub: Any = importlib.import_module("huggingface_hub")
    return (
        f"copy the folder models--{repository.replace('/', '--')} of a filled cache to "
        f"{hub.constants.HF_HUB_CACHE}"
    )


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


def datasets_in_tag(tag: str) -> tuple[str, ...]:
    """Return the datasets in a tag such as "laion2b_ft_in1k"; () if there are none."""
    found = (re.search(rf"(^|_)({part})(_|$)", tag, re.IGNORECASE) for part in _TAG_PARTS)
    return tuple(name for name, match in zip(_TAG_PARTS.values(), found, strict=True) if match)
