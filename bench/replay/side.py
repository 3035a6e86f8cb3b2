"""One side of the comparison: its code, its working folder and its process."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.replay.cases import Case
from stages.renamed import RENAMED

_RUNNER = Path(__file__).with_name("runner.py")


def old_options(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command with the former names of renamed options."""
    words = list(arguments)
    for old, new in RENAMED.get(words[words[0] == "prepare"], {}).items():
        parts = new.split()
        starts = range(len(words) - len(parts) + 1)
        for at in [at for at in starts if words[at : at + len(parts)] == parts]:
            words[at : at + len(parts)] = [old]
    return words


class RunnerEnded(RuntimeError):
    """The process of a side ended instead of answering."""


@dataclass(frozen=True)
class Ended:
    """Outcome of the commands of a case.

    Attributes
    ----------
    done : int. Number of commands with the expected status; the first other one ends the case.
    status : int. Exit status of the last command, or minus a signal number.
    seconds, processor_seconds : float. Wall time, and CPU time of all processes of the case.
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

    def __init__(self, name: str, work: Path) -> None:
        """Start the process with the code in `<work>/code/<name>`."""
        self.name, self._old = name, not (work / "code" / name / "stages/renamed.py").is_file()
        self.folder, self.logs = work / name, work / "logs" / name
        self.logs.mkdir(parents=True, exist_ok=True)
        if self._old:
            params = self.folder / "params.yaml"
            params.write_text(params.read_text().replace("num-images:", "images:"))
        code = work / "code" / name
        variables = os.environ | {
            "PYTHONPATH": str(code),
            **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
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
        spelled = old_options if self._old else list
        steps = [(spelled(step.arguments), step.status) for step in case.steps]
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
