"""`pipeline repro`: `dvc repro` with one line of progress and remaining time per stage."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from time import monotonic
from typing import IO, TYPE_CHECKING

import click

from pipeline.experiments.layout import Layout
from pipeline.retrieval.tables import RECALL_FILE
from pipeline.store.errors import PipelineError, WrongUsage
from pipeline.store.files import parse_json
from stages.command import Command
from stages.console import printable

if TYPE_CHECKING:
    from stages.params import Params

_STAGE = re.compile(r"(Running stage|Stage) '([^']+)'(.*)")
_AFTER_THE_LAST = "To track the changes with git"
_LOG = Path("data/repro.log")
_SECONDS_BETWEEN_LINES = 20.0
_COLUMNS = {
    f"{arrow} R@{k}": f"{direction}_r{k}"
    for arrow, direction in (("i→t", "image_to_text"), ("t→i", "text_to_image"))
    for k in (1, 5, 10)
} | {"rsum": "rsum"}


class ReproError(PipelineError):
    """A stage failed, or DVC did."""


@click.command(cls=Command)
@click.argument("targets", nargs=-1)
def repro(targets: tuple[str, ...]) -> None:
    """Run `dvc repro` on all stages or some, then print the recall table and further commands.

    Prints one line per stage, with the estimated time of the remaining stages. The output of the
    stages is in data/repro.log; its end is printed if a stage fails. Up-to-date stages are skipped,
    so that the same command resumes an interrupted run.
    """
    if not Path("dvc.yaml").is_file():
        raise WrongUsage(f"dvc.yaml not found in {Path.cwd()}; run this in the project's folder")
    # Here, so that --help needs neither of them.
    import yaml

    from stages.params import load_params

    params = load_params()
    stages = yaml.safe_load(Path("dvc.yaml").read_text(encoding="utf-8"))["stages"]
    counts = {
        kind: len(getattr(params, stage["foreach"][2:-1])) if "foreach" in stage else 1
        for kind, stage in stages.items()
    }
    watch = Watch({} if targets else counts)
    _LOG.parent.mkdir(exist_ok=True)
    with _LOG.open("w", encoding="utf-8") as log, _dvc(targets) as lines:
        for line in lines:
            log.write(line)
            watch.see(line.rstrip())
    if watch.failed:
        click.echo("\n".join(f"  {printable(text)}" for text in watch.last_lines), err=True)
        raise ReproError(
            f"{watch.failed}; its last lines are above, all are in {_LOG}. Fix the cause and run "
            "the same command again: finished stages are kept"
        )
    click.echo(watch.summary(), err=True)
    if not targets:
        _show_results(params)


@contextmanager
def _dvc(targets: tuple[str, ...]) -> Iterator[IO[str]]:
    """Yield the lines that `dvc repro` and the commands of its stages write."""
    # The environment's own programs first, whether it is activated or not.
    own = Path(sys.executable).parent
    path = f"{own}{os.pathsep}{os.environ.get('PATH', '')}"
    if (dvc := shutil.which("dvc", path=path)) is None:
        raise ReproError("dvc is not installed; pip install 'caption-feature-pipeline[dvc]'")
    running = subprocess.Popen(
        [dvc, "repro", *targets],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"},
    )
    assert running.stdout is not None
    try:
        yield running.stdout
    except BaseException:
        # Ctrl-C reaches all of the terminal; a signal to this process alone is passed on.
        running.terminate()
        raise
    finally:
        running.wait()


@dataclass
class Watch:
    """Progress of a run, from the lines of DVC and its stages.

    Attributes
    ----------
    counts : number of stages by kind; empty if only some stages are requested.
    failed : description of a failure, or "".
    last_lines : last lines of the running or failed stage.
    """

    counts: Mapping[str, int]
    failed: str = ""
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=12))
    _started: float = field(default_factory=monotonic)
    _shown: float = 0.0
    _stage: str = ""
    _since: float = 0.0
    _seen: int = 0
    _made: int = 0
    _seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _of_kind: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def see(self, line: str) -> None:
        """Process a line of DVC or of a stage."""
        now = monotonic()
        if found := _STAGE.match(line):
            self._end_stage(now)
            self._seen += 1
            self._of_kind[found[2].partition("@")[0]] += 1
            if found[1] == "Running stage":
                self._made += 1
                self._stage, self._since = found[2], now
                self.last_lines.clear()
                self._show(self._stage.replace("@", " "), now)
            return
        if line.startswith("ERROR:"):
            stage = f"stage {self._stage}" if self._stage else "dvc"
            self.failed = self.failed or f"{stage} failed ({printable(line[7:])})"
        elif line.startswith(_AFTER_THE_LAST):
            self._end_stage(now)
        elif line.strip() and not line.startswith("Updating lock file"):
            self.last_lines.append(line)
            if self._stage and now - self._shown > _SECONDS_BETWEEN_LINES:
                self._show(f"  {shorten(printable(line), 100, placeholder=' …')}", now)

    def summary(self) -> str:
        """Return the numbers of stages, and the time by kind of stage."""
        self._end_stage(monotonic())
        seconds = {kind: sum(all_of) for kind, all_of in self._seconds.items()}
        parts = ", ".join(f"{kind} {s:.0f} s" for kind, s in seconds.items())
        return (
            f"{self._made} of {self._seen} stages made, {self._seen - self._made} were up to date, "
            f"{_clock(monotonic() - self._started)}{f' ({parts})' if parts else ''}"
        )

    def _end_stage(self, now: float) -> None:
        if self._stage:
            self._seconds[self._stage.partition("@")[0]].append(now - self._since)
            self._stage = ""

    def _show(self, text: str, now: float) -> None:
        self._shown = now
        place = f"{self._seen:2d}/{sum(self.counts.values())}" if self.counts else f"{self._seen}"
        left = self.seconds_left(now)
        about = f", about {_clock(left)} left" if left else ""
        click.echo(f"[{place} {_clock(now - self._started)}{about}] {text}", err=True)

    def seconds_left(self, now: float) -> float:
        """Return the estimated remaining seconds; 0 while too little is known.

        The time of a stage is the mean of its kind, or of all stages if none of its kind has run.
        """
        everything = [s for all_of in self._seconds.values() for s in all_of]
        if not self.counts or len(everything) < 3:
            return 0.0
        usual = sum(everything) / len(everything)
        seconds = self._since - now
        for kind, count in self.counts.items():
            own = self._seconds.get(kind)
            undone = count - self._of_kind[kind] + (self._stage.partition("@")[0] == kind)
            seconds += undone * (sum(own) / len(own) if own else usual)
        return max(seconds, 0.0)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _show_results(params: "Params") -> None:
    """Write the table to stdout, and the path of the report and next commands to stderr."""
    layout = Layout.of(params.dataset)
    report = layout.report
    rows = parse_json((report / RECALL_FILE).read_text(encoding="utf-8"))
    lines = [["experiment", *_COLUMNS]]
    lines += [[row["experiment"], *(f"{row[c]:.1f}" for c in _COLUMNS.values())] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *numbers in lines:
        cells = [n.rjust(w) for n, w in zip(numbers, widths[1:], strict=True)]
        click.echo("  ".join([name.ljust(widths[0]), *cells]))
    # An ensemble has no head that a new sentence could go through.
    heads = [row for row in rows if layout.head(row["experiment"]).is_dir()] or rows
    best = max(heads, key=lambda row: row["rsum"])["experiment"]
    own = os.path.relpath(Path(sys.argv[0]))
    here = "pipeline" if shutil.which("pipeline") else own
    click.echo(
        f"\ni→t: an image looks for its captions, of {rows[0]['num_images']} images; t→i: a "
        "caption looks for its image. R@K in per cent.\n\n"
        f"The report, to be opened in a browser: {report}/html/index.html\nNext:\n"
        f"  {here} search {shlex.quote(_query(params))} --experiment {best}\n"
        f"  {here} serve --experiment {best}\n"
        f"  {here} run vsepp      # another published system; docs/heads.md lists them",
        err=True,
    )


def _query(params: "Params") -> str:
    """Return an example query: words of the drawn scenes, or a caption of another dataset."""
    if params.dataset_named(params.dataset).kind == "scenes":
        return "red hearts on the water"
    from pipeline.datasets.manifest import read_manifest

    manifest = read_manifest(Layout.of(params.dataset).dataset)
    return next(filter(None, (entry.first_caption for entry in reversed(manifest.entries))))
