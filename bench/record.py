"""Records of benchmark runs; figures are compared only if they come from equal conditions.

    python -m bench.steps --json before.json
    python -m bench.steps --json after.json --compare before.json
    python -m bench.record --compare before.json after.json

A record has the printed lines and their figures, and what figures depend on: arguments, processor,
cores, cards, versions, threads, a SHA-256 of the sources and the load average. A comparison prints
the second run's table with each figure replaced by its ratio to the first, such as x0.97; equal
figures are unchanged. Where arguments, machine, versions or threads differ, it prints each
difference, no ratio, and exits with status 3: a bench does so before it measures. Sources may
differ, as a comparison is for that. Any other file ends it with status 2.
"""

import argparse
import hashlib
import os
import platform
import re
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from functools import wraps
from importlib.metadata import distributions
from io import TextIOBase
from pathlib import Path
from typing import NoReturn, TextIO

import msgspec

from pipeline.store.files import write_json

OPTIONS = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
"""The options of every recorded bench, as a parent of its own parser."""
OPTIONS.add_argument("--json", type=Path, metavar="FILE", help="Record the run in a file.")
OPTIONS.add_argument(
    "--compare", type=Path, metavar="FILE", help="Print ratios to the recorded run of a file."
)

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = (
    "torch", "torchvision", "timm", "numpy", "scipy", "scikit-learn", "pillow", "h5py",
    "onnxruntime", "openvino",
)  # fmt: skip
_INSTRUCTIONS = (
    "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16",
    "asimd", "bf16", "sve",
)  # fmt: skip
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# A number outside of words, versions and dates.
_FIGURE = re.compile(
    r"(?<![\w.,@/-])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?(?!\w|[.,]\d)"
)
_SPACED_FIGURE = re.compile(rf" *{_FIGURE.pattern}")


@dataclass(frozen=True)
class Conditions:
    """What must be equal for figures to be comparable."""

    bench: str
    arguments: list[str]
    machine: dict[str, str]
    versions: dict[str, str]
    threads: dict[str, str]

    def differences(self, other: "Conditions") -> list[str]:
        """Return a line for each difference."""
        found = []
        for name, here in asdict(self).items():
            there = getattr(other, name)
            if not isinstance(here, dict):
                here, there = {"": here}, {"": there}
            for key in {**here, **there}:
                if here.get(key) != there.get(key):
                    what = f"{name}, {key}" if key else name
                    found.append(f"{what}: {_shown(here.get(key))} and {_shown(there.get(key))}")
        return found


@dataclass(frozen=True)
class Row:
    """A printed line, and its numbers from left to right."""

    line: str
    figures: list[float]


@dataclass(frozen=True)
class Record:
    """One run of a bench."""

    conditions: Conditions
    source_sha256: str
    """Of all Python files of pipeline/ and bench/."""
    load: list[float]
    """Load average of one minute, at the start and at the end."""
    rows: list[Row]


def recorded(main: Callable[[], None]) -> Callable[[], None]:
    """Return the main function of a bench with the options of `OPTIONS`."""

    @wraps(main)
    def run() -> None:
        given, sys.argv[1:] = OPTIONS.parse_known_args()
        if given.json is None and given.compare is None:
            main()
            return
        bench, arguments = f"bench.{Path(main.__code__.co_filename).stem}", sys.argv[1:]
        before = None if given.compare is None else read_record(given.compare)
        if before is not None:
            now = conditions(bench, arguments)
            # The bench itself sets this number, later.
            set_later = {"torch": before.conditions.threads.get("torch", "")}
            _require_equal(before.conditions, replace(now, threads=now.threads | set_later))
        source, load, printed = source_sha256(), os.getloadavg()[0], _Copied(sys.stdout)
        with redirect_stdout(printed):
            main()
        after = Record(
            conditions(bench, arguments),
            source,
            [load, os.getloadavg()[0]],
            [Row(line, _figures(line)) for line in "".join(printed.parts).splitlines()],
        )
        if given.json is not None:
            write_json(given.json, asdict(after))
        if before is not None:
            compare(before, after)

    return run


class _Copied(TextIOBase):
    """A text stream that keeps what it forwards."""

    def __init__(self, shown: TextIO) -> None:
        self.shown, self.parts = shown, list[str]()

    def write(self, text: str) -> int:
        self.parts.append(text)
        return self.shown.write(text)

    def flush(self) -> None:
        self.shown.flush()


def conditions(bench: str, arguments: list[str]) -> Conditions:
    """Return the present conditions of a run."""
    # Imported late: a bench may set variables first, which torch reads when it is loaded.
    import torch

    cards = [torch.cuda.get_device_name(card) for card in range(torch.cuda.device_count())]
    machine = {**_processor(), "cores": str(len(os.sched_getaffinity(0)))}
    found = {each.metadata["Name"].lower(): each.version for each in distributions()}
    versions = {name: found[name] for name in _PACKAGES if name in found}
    threads = {name: os.environ[name] for name in _THREADS if name in os.environ}
    return Conditions(
        bench,
        arguments,
        machine | {"cards": ", ".join(cards)},
        {"python": platform.python_version(), **versions, "torch": torch.__version__},
        {"torch": str(torch.get_num_threads()), **threads},
    )


def source_sha256() -> str:
    """Return the SHA-256 of the names and bytes of all Python files of pipeline/ and bench/."""
    digest = hashlib.sha256()
    for path in sorted(
        path for top in ("pipeline", "bench") for path in (_ROOT / top).rglob("*.py")
    ):
        for part in (path.relative_to(_ROOT).as_posix().encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()


def read_record(path: Path) -> Record:
    """Return the record of a file; exit with status 2 if it has none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        _fail(2, f"{path} is not a record of a bench ({error}); write one with `--json FILE`")


def compare(before: Record, after: Record) -> None:
    """Print the ratios of two runs; exit with status 3 if they are not comparable."""
    _require_equal(before.conditions, after.conditions)
    print(f"\n{after.conditions.bench}: second run divided by the first; equal figures as they are")
    if before.source_sha256 == after.source_sha256:
        print("both ran the same sources: the ratios are the variation between runs")
    else:
        print(f"sources {before.source_sha256[:12]} and {after.source_sha256[:12]}")
    loads = [f"{run.load[0]:.1f} to {run.load[-1]:.1f}" for run in (before, after)]
    print(f"load average {loads[0]}, and {loads[1]}")
    print("\n".join(_ratios(before.rows, after.rows)))


def _ratios(before: list[Row], after: list[Row]) -> Iterator[str]:
    """Yield the lines of the second run, with ratios to the lines of equal words."""
    earlier: dict[str, deque[str]] = defaultdict(deque)
    for row in before:
        earlier[_words(row.line)].append(row.line)
    for row in after:
        same = earlier[_words(row.line)]
        yield _ratio(same.popleft(), row.line) if same else f"{row.line}  (only in the second)"
    yield from (f"{line}  (only in the first)" for lines in earlier.values() for line in lines)


def _ratio(before: str, after: str) -> str:
    pairs = iter(zip(_figures(before), _figures(after), strict=True))

    def shown(match: re.Match[str]) -> str:
        old, new = next(pairs)
        if old == new:
            return match[0]
        ratio = f"x{new / old:.2f}" if old else "xinf"
        return (" " * match[0].startswith(" ") + ratio).rjust(len(match[0]))

    return _SPACED_FIGURE.sub(shown, after)


def _figures(line: str) -> list[float]:
    return [float(figure.replace(",", "")) for figure in _FIGURE.findall(line)]


def _words(line: str) -> str:
    return " ".join(_FIGURE.sub("#", line).split())


def _processor() -> dict[str, str]:
    """Return the name of the processor and its instruction sets."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.is_file() else ""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    # Virtual machines hide the product, but not the family and model.
    parts = [fields.get(name, "") for name in ("model name", "cpu family", "model")]
    flags = {*fields.get("flags", fields.get("Features", "")).split()}
    name = " ".join(filter(None, parts)) or platform.processor() or platform.machine()
    return {
        "processor": name,
        "instructions": " ".join(each for each in _INSTRUCTIONS if each in flags),
    }


def _require_equal(before: Conditions, after: Conditions) -> None:
    if found := before.differences(after):
        _fail(3, "\n  ".join(["the runs cannot be compared:", *found]))


def _shown(value: object) -> str:
    return (" ".join(value) if isinstance(value, list) else str(value or "")) or "none"


def _fail(status: int, message: str) -> NoReturn:
    print(message, file=sys.stderr)
    sys.exit(status)


def main() -> None:
    """Compare two records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    files = ("BEFORE", "AFTER")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=files, required=True)
    before, after = map(read_record, parser.parse_args().compare)
    compare(before, after)


if __name__ == "__main__":
    main()
