"""Process of one side: reads cases from stdin, runs their commands, answers on stdout.

It runs by path with `python -P`, since the tested code may be older than this package, and imports
only the command line from it. Each command is a fork of this process, which has imported the large
libraries and has no threads: a command neither waits for imports nor depends on the memory of
another one.
"""

import atexit
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

_LIBRARIES = (
    "torch.utils.data", "torchvision", "h5py", "scipy.linalg", "scipy.stats", "sklearn.cluster",
    "sklearn.decomposition", "gensim.models", "fasttext", "safetensors.torch", "distributed",
    "pyarrow", "jinja2", "PIL.Image", "efficientnet_lite_pytorch", "av", "pydantic", "yaml",
    "stages.cli",
)  # fmt: skip
_LONGEST_SECONDS = 600


def main(checkout: Path, logs: Path) -> None:
    """Answer each line of stdin, a case, with a line that has the number of successful commands."""
    for name in _LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    import stages

    if Path(stages.__path__[0]).resolve().parent != checkout.resolve():
        raise RuntimeError(f"stages comes from {stages.__path__[0]}, not from {checkout}")
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
    """Return the CPU seconds of all commands and their workers so far."""
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
        status = _main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _main() -> int:
    """Run the command line and exit like Python: threads are joined, exit handlers run."""
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
