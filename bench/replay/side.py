"""One side of the comparison: its code, its working folder and its process."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.replay.cases import Case

_RUNNER = Path(__file__).with_name("runner.py")


class RunnerEnded(RuntimeError):
    """The process of a side ended instead of answering."""


@dataclass(frozen=True)
class Ended:
    """Outcome of the commands of a case.

    Attributes
    ----------
    done : int. Number of commands with the expected status; the first other one ends the case.
    status : int. Exit status of the last command, or minus a signal number.
    seconds, processor_seconds : float. Wall time, and CPU time without that of Dask workers.
    """

    done: int
    status: int
    seconds: float
    processor_seconds: float


class Side:
    """A process that runs cases with the code of one side.

    Attributes
    ----------
    name : str. "base" or "tree".
    folder : Path. Working folder of the commands, which contains all their outputs.
    logs : Path. Folder with one log file per case.
    """

    def __init__(self, name: str, work: Path, environment: Mapping[str, str] | None = None) -> None:
        """Start the process with the code in `<work>/code/<name>`, and more variables."""
        self.name = name
        self.folder, self.logs = work / name, work / "logs" / name
        self.logs.mkdir(parents=True, exist_ok=True)
        code = work / "code" / name
        variables = os.environ | {
            "PYTHONPATH": str(code),
            **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
            **(environment or {}),
        }
        # Bytecode is always written, as hundreds of modules are imported again by each worker: to
        # a folder of the run where the environment asks for none next to the sources.
        if variables.pop("PYTHONDONTWRITEBYTECODE", None):
            variables["PYTHONPYCACHEPREFIX"] = str(work / "bytecode")
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_RUNNER), str(code), str(self.logs)],
            cwd=self.folder, env=variables, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def start(self, case: Case) -> None:
        """Start a case."""
        assert self._process.stdin is not None
        steps = [(list(step.arguments), step.status) for step in case.steps]
        self._process.stdin.write(json.dumps({"name": case.name, "steps": steps}) + "\n")
        self._process.stdin.flush()

    def finish(self) -> Ended:
        """Wait for the end of the case.

        Raises
        ------
        RunnerEnded
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RunnerEnded(
                f"the process of {self.name} ended with {self._process.wait()}; its last words are "
                f"above, those of its commands in {self.logs}"
            )
        return Ended(**json.loads(line))

    def __enter__(self) -> Self:
        """Return the side."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process; within a case only after an error."""
        if error is not None:
            self._process.terminate()
        self._process.communicate()
