"""Compare the outputs of a commit and of the tree: `python -m bench.replay BASE [--only NAME ...]`.

The same commands run with both codes at the same time, each on one core, in separate folders. Every
written file is compared byte for byte. The exit status is 1 if there is a difference that
`explained.py` does not list, or if a command exits with an unexpected status.
"""

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.replay.cases import Case, all_cases, selected
from bench.replay.checkout import check_out, commit_of, copy_tree
from bench.replay.compare import Comparison, Difference, changed, compare, outputs
from bench.replay.explained import EXPLAINED
from bench.replay.inputs import make_inputs
from bench.replay.side import Ended, Side

_SHOWN = 12
_LOG_LINES = 6


def main() -> None:
    """Run the cases on both sides, and print one line per case and all differences."""
    parser = argparse.ArgumentParser(prog="bench.replay", description=__doc__)
    parser.add_argument("base", metavar="BASE", help="commit to compare with, such as HEAD~3")
    names = ", ".join(case.name for case in all_cases())
    only = f"these cases, and those that they need, of {names}"
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help=only)
    parser.add_argument("--keep", type=Path, help="folder of both sides, kept [default: temporary]")
    given = parser.parse_args()
    try:
        cases, commit = selected(given.only), commit_of(given.base)
    except ValueError as error:
        parser.error(str(error))
    if given.keep and given.keep.exists() and any(given.keep.iterdir()):
        parser.error(f"--keep {given.keep} is not empty; name a new folder")
    work = (given.keep or Path(tempfile.mkdtemp(prefix="replay-"))).resolve()
    try:
        failed = replay(cases, commit, work)
    finally:
        if not given.keep:
            shutil.rmtree(work)
    sys.exit(failed)


def replay(cases: list[Case], commit: str, work: Path) -> bool:
    """Run cases with the code of a commit and of the working tree, and print a report.

    Returns
    -------
    bool
        Whether there is an unexplained difference or an unexpected exit status.
    """
    started = time.monotonic()
    check_out(commit, work / "code/base")
    copy_tree(work / "code/tree")
    make_inputs(work / "base")
    shutil.copytree(work / "base", work / "tree")
    results: list[Comparison] = []
    wrong = 0
    with ExitStack() as stack:
        sides = [stack.enter_context(Side(name, work)) for name in ("base", "tree")]
        before = [outputs(side.folder) for side in sides]
        for case in cases:
            for side in sides:
                side.start(case)
            ended = [side.finish() for side in sides]
            after = [outputs(side.folder) for side in sides]
            names = set[str]().union(*map(changed, before, after))
            result = compare(sides[0].folder, sides[1].folder, names, EXPLAINED)
            before = after
            results.append(result)
            print(_line(case, ended, result), flush=True)
            wrong += _show_statuses(case, sides, ended)
            _show(result)
    files = sum(result.files for result in results)
    differing = sum(result.differing_files for result in results)
    explained = sum(result.explained_files for result in results)
    print(
        f"{files - differing - explained} files of {len(cases)} cases are equal; {differing} "
        f"differ, {explained} explained"
        + (f"; {wrong} cases ended early" if wrong else "")
        + f"; {time.monotonic() - started:.0f} s"
    )
    return bool(differing or wrong)


def _line(case: Case, ended: list[Ended], result: Comparison) -> str:
    seconds = max(side.seconds for side in ended)
    used = max(side.processor_seconds for side in ended)
    size = f"{result.bytes / 1e6:.1f} MB"
    verdict = "equal" if not result.differences else f"{result.differing_files} DIFFER"
    return (
        f"{case.name:16} {seconds:6.1f} s {used:6.1f} s CPU {result.files:5} files {size:>8}  "
        f"{verdict}"
    )


def _show_statuses(case: Case, sides: list[Side], ended: list[Ended]) -> int:
    """Print the commands with an unexpected exit status; return their number."""
    wrong = 0
    for side, end in zip(sides, ended, strict=True):
        if end.done < len(case.steps):
            wrong += 1
            step = case.steps[end.done]
            log = side.logs / f"{case.name}.log"
            print(f"  {side.name}: `{step}` ended with {end.status}, not {step.status}:")
            print(*(f"    {line}" for line in log.read_text().splitlines()[-_LOG_LINES:]), sep="\n")
    return wrong


def _show(result: Comparison) -> None:
    """Print the first difference of each file, and all explained ones."""
    places: dict[str, list[Difference]] = {}
    for difference in result.differences:
        places.setdefault(difference.path, []).append(difference)
    for found in list(places.values())[:_SHOWN]:
        print(f"  {found[0]}{f' (and {len(found) - 1} more places)' if found[1:] else ''}")
    if (more := len(places) - _SHOWN) > 0:
        print(f"  and {more} more files")
    for difference in result.explained:
        if known := difference.explained_by(EXPLAINED):
            print(f"  explained: {difference} ({known.reason})")


if __name__ == "__main__":
    main()
