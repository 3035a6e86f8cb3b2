"""For the whole suite: the real data, no guard processes, little memory, rules of skips."""

import faulthandler
import gc
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.store import guard
from tests.allocator import keep_pages, return_files, return_memory
from tests.objects_server import s3 as s3
from tests.objects_server import s3_requests as s3_requests
from tests.project import SHARED
from tests.skips import pytest_configure as pytest_configure

pytest.register_assert_rewrite("pipeline.testing")

_DATA = SHARED / "data"
_SECONDS_TO_EXIT = 60
_TRY = guard._try

# Without torch: the main process of pytest-xdist loads this file before it starts any worker.
keep_pages()
# torch's optimizers import it for `torch.compile`, which nothing calls: 70 MB.
sys.modules["triton"] = None  # type: ignore[assignment]
# Collections while the tests are imported find nothing to free.
gc.disable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End a process that does not exit after its tests, and print the stacks of its threads.

    Python waits for threads and child processes without a limit. pytest-xdist ends its workers, and
    a program that calls pytest, such as mutmut, goes on.
    """
    is_pytest = "pytest" in Path(sys.argv[0]).parts[-2:]
    if is_pytest and not hasattr(config, "workerinput"):
        faulthandler.dump_traceback_later(_SECONDS_TO_EXIT, exit=True, file=2)


@pytest.fixture(scope="session")
def coco_images() -> list[Path]:
    """Real photos of several sizes and aspect ratios."""
    folder = _DATA / "coco-sample" / "images"
    if not folder.is_dir():
        pytest.skip("needs the real photos of ../shared/data/coco-sample")
    return sorted(folder.glob("*.jpg"))


@pytest.fixture
def tried_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try files in another process first as users do, in at most 0.3 s each."""
    monkeypatch.setattr(guard, "_try", _TRY)
    monkeypatch.setattr(guard, "SECONDS", 0.3)


@pytest.fixture(scope="session", autouse=True)
def _one_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """Start no process that tries a file first, use one thread, and share networks."""
    import torch

    from tests.images.networks.shared import share_networks
    from tests.warm_workers import warm_workers

    # In a process of pytest-xdist, which runs all tests: it takes four seconds of another core.
    warm_workers(now=hasattr(request.config, "workerinput"))
    # A shell starts its background jobs with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Two test processes on two cores would otherwise fight over threads.
    torch.set_num_threads(1)
    # What the imports have left is not looked through again at each collection.
    gc.freeze()
    gc.enable()
    return_files()
    with pytest.MonkeyPatch.context() as patch:
        # HDF5 rejects the damaged files of tests; those that it hangs on are `tried_apart`.
        patch.setattr(guard, "_try", lambda read, files, arguments: (len(files), 0))
        # Datasets of tests have about ten images; batches of eight would be mostly padding.
        patch.setattr("pipeline.images.batches.CROPS_PER_BATCH", 2)
        # Without a device's name tests compute on the CPU, also on a machine with a GPU.
        patch.setattr("pipeline.store.devices._DRIVERS", ())
        share_networks(patch)
        yield
    # Libraries that count at the exit what is left would count it all.
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def _networks_of_one_module() -> Iterator[None]:
    """Keep no network while the tests of other modules run, some of which need 400 MB."""
    yield
    from tests.images.networks.shared import forget_networks

    forget_networks()


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """Return memory to the system after each test that has left much more than there was."""
    yield
    return_memory()


@pytest.fixture(autouse=True)
def _own_handlers() -> Iterator[None]:
    """Fail a test that leaves a handler of SIGINT, which later tests send their own process."""
    yield
    left = signal.signal(signal.SIGINT, signal.default_int_handler)
    assert left is signal.default_int_handler
