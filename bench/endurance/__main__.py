"""Run a campaign: `python -m bench.endurance kills|faults|files|situations|all [--seed N] ...`,
`corpora FOLDER...`, which reads all files of these folders, or `fuzz READER...`, which mutates the
inputs of these readers (names as in the tables of `files`) guided by the code that they reach.

Ends with status 1 if anything broke. Each failure is logged with the path of its evidence.
"""

import argparse
import math
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path

from bench.endurance.commands import make_project
from bench.endurance.corpora import corpora
from bench.endurance.evidence import Evidence
from bench.endurance.faults import faults
from bench.endurance.files import files
from bench.endurance.fuzz import fuzz
from bench.endurance.kills import kills
from bench.endurance.readers import READERS
from bench.endurance.situations import situations
from bench.replay.runner import preload

_Campaign = Callable[[Evidence, Path, Path, int, int, float], None]

_CAMPAIGNS: dict[str, tuple[_Campaign, int]] = {
    "kills": (kills, 1000),
    "faults": (faults, 300),
    "files": (files, 10_000),
    "situations": (situations, sys.maxsize),
}


def main() -> None:
    """Run the campaigns that are asked for, and print their table."""
    parser = argparse.ArgumentParser(prog="bench.endurance", description=__doc__)
    parser.add_argument(
        "campaigns",
        nargs="+",
        metavar="kills|faults|files|situations|all|corpora FOLDER|fuzz READER",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=math.inf, help="of all campaigns together")
    of_each = "of each campaign, or one for all: signals, faults, files or inputs"
    parser.add_argument("--count", type=int, nargs="+", default=(), help=of_each)
    parser.add_argument("--work", type=Path, help="folder, kept [default: a temporary one]")
    given = parser.parse_args()
    campaigns = dict(_CAMPAIGNS)
    names = list(_CAMPAIGNS) if "all" in given.campaigns else given.campaigns
    if names[0] == "corpora":
        folders = [Path(name).absolute() for name in names[1:]]
        names, campaigns = names[:1], {"corpora": (partial(corpora, folders), sys.maxsize)}
        if not folders or not all(folder.is_dir() for folder in folders):
            parser.error("corpora needs folders that exist")
    elif names[0] == "fuzz":
        readers = [reader for reader in READERS if reader.name in names[1:]]
        if len(readers) < len(names[1:]) or not readers:
            parser.error(f"fuzz needs names of readers: {'; '.join(r.name for r in READERS)}")
        if find_spec("atheris") is None:
            parser.error("fuzz needs the package atheris: pip install 'atheris>=3.0'")
        if not given.count and math.isinf(given.minutes):
            parser.error("fuzz needs --minutes or --count, the number of inputs of each reader")
        names, campaigns = names[:1], {"fuzz": (partial(fuzz, readers), sys.maxsize)}
    elif unknown := {*names} - {*campaigns}:
        parser.error(f"no campaigns: {', '.join(sorted(unknown))}")
    counts = given.count * len(names) if len(given.count) == 1 else given.count
    if len(counts) not in (0, len(names)):
        parser.error(f"--count needs one number, or {len(names)}, not {len(counts)}")
    work = given.work or Path(tempfile.mkdtemp(prefix="endurance-"))
    evidence = Evidence(work / "kept", given.seed)
    preload()
    project = work / "project"
    if not project.is_dir():
        make_project(project)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):  # what was tried until then is worth its table
        for name, count in zip_longest(names, counts):
            campaign, usual = campaigns[name]
            left = given.minutes * 60 / len(names)
            folder = work / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            started = time.monotonic()
            campaign(evidence, project, folder, count or usual, given.seed, started + left)
            print(f"{name}: {time.monotonic() - started:.0f} s")
    print(evidence.table())
    if not evidence.faults and not given.work:
        shutil.rmtree(work)
    sys.exit(bool(evidence.faults))


if __name__ == "__main__":
    main()
