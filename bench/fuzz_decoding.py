"""Decode thousands of damaged image files and say how each ended.

Run as `python -m bench.fuzz_decoding [COUNT] [SEED]`, beside `tests/images/test_fuzz.py`, which
does a few hundred. Fails if a file ended as anything but an image or a stated failure.
"""

import sys
import time
from collections import Counter

from tests.images.fuzz import fuzz


def main() -> None:
    """Print counts by format and outcome, the slowest file and the peak of memory."""
    count, seed = (int(text) for text in (sys.argv[1:] + ["5000", "0"][len(sys.argv) - 1 :]))
    started = time.perf_counter()
    endings, peak = fuzz(count, seed)
    seconds = time.perf_counter() - started
    print(f"{len(endings)} files of seed {seed} in {seconds:.0f} s, peak {peak / 1024:.0f} MiB")
    slowest = max(endings, key=lambda ending: ending.seconds)
    print(f"slowest: number {slowest.number}, {slowest.name}, {slowest.seconds:.2f} s")
    table = Counter((e.name.rpartition(".")[2], e.outcome if e.sound else "FAULT") for e in endings)
    for (kind, outcome), files in sorted(table.items()):
        print(f"{kind:5} {outcome:11} {files}")
    faults = [ending for ending in endings if not ending.sound]
    for ending in faults:
        print(f"FAULT number {ending.number}, {ending.name}: {ending.outcome}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
