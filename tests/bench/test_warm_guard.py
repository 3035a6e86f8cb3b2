"""The process that tries files for tests: it ends whatever else has its connection."""

import os
import signal
import threading
import warnings
from pathlib import Path

from bench.endurance.warm_guard import WarmGuard


def test_it_ends_while_a_fork_has_its_connection(tmp_path: Path) -> None:
    warm = WarmGuard()
    assert warm.attempt(os.path.getsize, [(tmp_path, 0)], []) == (1, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        stopping = threading.Thread(target=warm.stop, daemon=True)
        stopping.start()
        stopping.join(30)
        assert not stopping.is_alive()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
