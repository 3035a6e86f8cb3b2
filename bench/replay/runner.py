"""Process of one side: reads cases from stdin, runs their commands, answers on stdout.

It runs by path with `python -P`, since the tested code may be older than this package. Each command
is a fork of this process, which has imported everything and has no threads: a command neither waits
for imports nor depends on the memory of another one. Its Dask workers are forks too, of a server
that this process starts.
"""

import atexit
import importlib
import json
import os
import pkgutil
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import IO

# Imported where they are used.
_LIBRARIES = (
    "torch.utils.data", "torchvision", "h5py", "scipy.io", "scipy.linalg", "scipy.stats",
    "sklearn.cluster", "sklearn.decomposition", "gensim.models", "fasttext", "nltk.tag.perceptron",
    "safetensors.torch", "distributed", "pyarrow", "jinja2", "PIL.Image",
    "efficientnet_lite_pytorch", "av", "tabulate",
)  # fmt: skip
_LONGEST_SECONDS = 600


def main(checkout: Path, logs: Path) -> None:
    """Answer each line of stdin, a case, with a line that has the number of successful commands."""
    import stages

    if Path(stages.__path__[0]).resolve().parent != checkout.resolve():
        raise RuntimeError(f"stages comes from {stages.__path__[0]}, not from {checkout}")
    _serve_workers(preload())
    for line in sys.stdin:
        case = json.loads(line)
        started = time.monotonic()
        with (logs / f"{case['name']}.log").open("w") as log:
            folder = Path("stdout") / case["name"]
            done, status, before = 0, 0, _processor_seconds()
            for arguments, expected in case["steps"]:
                status = _run(arguments, folder / f"{done:02}.txt", log)
                if status != expected:
                    break
                done += 1
        answer = {
            "done": done,
            "status": status,
            "seconds": time.monotonic() - started,
            "processor_seconds": _processor_seconds() - before,
        }
        print(json.dumps(answer), flush=True)


def preload() -> list[str]:
    """Import libraries, and all modules of the packages, without starting a thread."""
    import pipeline
    import stages

    names = list(_LIBRARIES)
    for package in (pipeline, stages):
        found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        names += [module.name for module in found]
    for name in names:
        with suppress(ImportError):
            importlib.import_module(name)
    if threading.active_count() > 1:
        raise RuntimeError(f"an import has started threads: {threading.enumerate()}")
    return names


def _serve_workers(modules: list[str]) -> None:
    """Start a process that has imported modules, and whose forks are the workers of commands."""
    import dask
    from distributed.utils import get_mp_context

    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context()  # sets other modules, once
    forkserver.set_forkserver_preload(modules)
    forkserver.ensure_running()
    # A command is not the parent of the server, whose status it could ask for.
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]


def _run(arguments: list[str], stdout: Path, log: IO[str]) -> int:
    """Run a command: of `pipeline`, `cp FROM TO` or `rm FILE`; return its exit status."""
    print("$", *arguments, file=log, flush=True)
    if arguments[0] in _OF_FILES:
        try:
            _OF_FILES[arguments[0]](*map(Path, arguments[1:]))
        except OSError as error:
            print(error, file=log, flush=True)
            return 1
        return 0
    stdout.parent.mkdir(parents=True, exist_ok=True)
    started, used = time.monotonic(), _processor_seconds()
    pid = os.fork()
    if not pid:
        _be(arguments, stdout, log)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    printed = stdout.read_bytes().replace(os.fsencode(Path.cwd()), b"WORK")
    if printed:
        stdout.write_bytes(printed)
    else:
        stdout.unlink()
    seconds, used = time.monotonic() - started, _processor_seconds() - used
    print(f"status {status}, {seconds:.1f} s, {used:.1f} s CPU", file=log, flush=True)
    return status


def _processor_seconds() -> float:
    """Return the CPU seconds of all commands so far, without those of workers."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _copy(source: Path, to: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, to)
    else:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, to)


_OF_FILES: dict[str, Callable[..., object]] = {"cp": _copy, "rm": Path.unlink}


def _be(arguments: list[str], stdout: Path, log: IO[str]) -> None:
    """Run the command in this process; does not return."""
    status = 70
    try:
        signal.alarm(_LONGEST_SECONDS)
        with stdout.open("wb") as stream, open(os.devnull, "rb") as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), 0)
            os.dup2(stream.fileno(), 1)
            os.dup2(log.fileno(), 2)
        sys.argv = ["pipeline", *arguments]
        status = exit_status()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def exit_status() -> int:
    """Run the command of `sys.argv` and end like Python: threads are joined, exit handlers run."""
    from stages.cli import main

    try:
        main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return status


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
