"""Golden outputs of the commands: `python -m bench.golden` renews tests/golden/commands.json.

The cases of `bench.replay` run with the code of the tree. The file has two digests of each output,
of its bytes and of its structure (names of parts, types, shapes, ids), and what it was made with,
since the bytes of numbers depend on the processor and on versions of libraries. To find out which
outputs are the same on every processor, the cases also run with the instructions of older ones.
Where the libraries are those of the file, such outputs are compared by their bytes, others by their
structure; with other libraries all are compared by their structure. Renew the file in the commit
that changes outputs on purpose.
"""

import hashlib
import json
import platform
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from bench.replay.cases import Case, selected
from bench.replay.checkout import copy_tree
from bench.replay.compare import changed, outputs
from bench.replay.inputs import make_inputs
from bench.replay.places import contents
from bench.replay.side import Side

FILE = Path(__file__).resolve().parents[1] / "tests/golden/commands.json"

# About 80 CPU seconds each: the cases that need heads, and the others. `other-networks` and
# `zero-shot`, 11 s each, are left to tests/images. `language` reads the head that `fine-tuning`
# trains again.
CHAINS: Mapping[str, tuple[str, ...]] = {
    "heads": ("commands", "seeds", "fine-tuning", "language", "shards"),
    "features": (
        "sources", "recipes-in-full", "given-boxes", "unusable-photos", "failed-rows", "phrases",
        "unusable-clips", "heads-of-clips",
    ),
}  # fmt: skip

# Kernels of older processors, for all libraries that choose them when they start: without AVX-512,
# and without AVX and fused multiply-add.
_OLDER_PROCESSORS = (
    {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_CBWR": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    },
    {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    },
)
_LIBRARIES = (
    "av", "fasttext-wheel", "gensim", "h5py", "numpy", "pillow", "scikit-learn", "scipy",
    "torch", "torchvision",
)  # fmt: skip
# Cases that train, and their outputs that may be equal on two processors by chance: ranks of heads
# whose weights differ.
_TRAINING = (*CHAINS["heads"][:-1], "heads", "failed-rows", "phrases", "heads-of-clips")
_BY_CHANCE = ("data/evaluations/", "data/caption-scores/", "data/heads/", "made/", "stdout/")
_DIGITS = 16
_NO_STRUCTURE = "-"

Digests = dict[str, tuple[str, str]]
"""Of each output of a case, by path: digest of the bytes, and of the structure."""


EVERYWHERE = "everywhere"
"""Last word of the entry of an output that has the same bytes on every processor."""


class Golden(TypedDict):
    """Contents of the file: by case and path, both digests, and `EVERYWHERE` if it applies."""

    processor: str
    libraries: dict[str, str]
    cases: dict[str, dict[str, str]]


def processor() -> str:
    """Return the processor's capability and manufacturer, for both of which kernels are chosen."""
    import torch

    return f"{torch.backends.cpu.get_cpu_capability()} {_vendor()}"


def libraries() -> dict[str, str]:
    """Return the versions on which bytes depend."""
    return {name: version(name) for name in _LIBRARIES}


def _vendor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    return next((line.split()[-1] for line in lines if "vendor_id" in line), platform.machine())


def run_chain(
    chain: str, work: Path, variables: Mapping[str, str] | None = None
) -> dict[str, Digests]:
    """Run the cases of a chain with the code of the tree; return the digests of each.

    Raises
    ------
    RuntimeError
        A command ended with an unexpected exit status; its log is included.
    """
    copy_tree(work / "code/tree")
    make_inputs(work / "tree", photos=0)
    found = {}
    with Side("tree", work, variables) as side:
        before = outputs(side.folder)
        for case in selected(CHAINS[chain]):
            _run_case(side, case)
            after = outputs(side.folder)
            written = sorted(changed(before, after) & after.keys())
            found[case.name] = {
                name: (_digest((side.folder / name).read_bytes()), _structure(side.folder / name))
                for name in written
            }
            before = after
    return found


def _run_case(side: Side, case: Case) -> None:
    side.start(case)
    ended = side.finish()
    print(f"{case.name:16} {ended.seconds:6.1f} s {ended.processor_seconds:6.1f} s CPU", flush=True)
    if ended.done < len(case.steps):
        step, log = case.steps[ended.done], (side.logs / f"{case.name}.log").read_text()
        raise RuntimeError(f"`{step}` ended with {ended.status}, not {step.status}:\n{log}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def _structure(path: Path) -> str:
    """Return a digest of a file without its numbers: names of all parts, types, shapes, ids."""
    parts = contents(path)
    if parts is None:
        return _NO_STRUCTURE
    return _digest(
        "\n".join(f"{name}: {_kind(name, parts[name])}" for name in sorted(parts)).encode()
    )


def _kind(name: str, value: Any) -> str:
    if name.startswith(("filters of ", "type of ")):
        return str(value)
    if isinstance(value, np.ndarray):
        return f"{value.tolist()}" if value.dtype.hasobject else f"{value.dtype} {value.shape}"
    return type(value).__name__


def differences(found: Mapping[str, Digests], golden: Golden, compared: str) -> list[str]:
    """Return the outputs that differ from the golden ones, with their cases.

    Parameters
    ----------
    compared : str. "bytes" of all outputs; "portable", the bytes of those that are the same on
        every processor, and the structure of others; or "structure" of all.
    """
    lines = []
    for case, files in found.items():
        known = golden["cases"].get(case, {})
        for path in sorted(known.keys() | files.keys()):
            if path not in files or path not in known:
                lines.append(f"{case}: {path} {'is new' if path in files else 'is missing'}")
                continue
            data, structure, *everywhere = known[path].split()
            by_bytes = compared == "bytes" or (compared == "portable" and everywhere)
            if by_bytes and files[path][0] != data:
                lines.append(f"{case}: {path} has other bytes")
            elif files[path][1] != structure != _NO_STRUCTURE:
                lines.append(f"{case}: {path} has another structure")
    return lines


def read() -> Golden:
    """Return the contents of the file."""
    golden: Golden = json.loads(FILE.read_text("utf-8"))
    return golden


def golden_of(here: Mapping[str, Digests], older: Sequence[Mapping[str, Digests]]) -> Golden:
    """Return the contents of the file from the outputs on this processor and on older ones."""
    cases = {}
    for case, files in sorted(here.items()):
        entries = {}
        for path, (data, structure) in files.items():
            others = [run[case].get(path, ("", "")) for run in older]
            if any(other != structure for _, other in others):
                structure = _NO_STRUCTURE
            same = all(other == data for other, _ in others)
            same &= not (case in _TRAINING and path.startswith(_BY_CHANCE))
            entries[path] = " ".join((data, structure, EVERYWHERE)[: 2 + same])
        cases[case] = entries
    return {"processor": processor(), "libraries": libraries(), "cases": cases}


def main() -> None:
    """Run all cases on each processor, two chains at a time, and write the file."""
    runs: list[dict[str, Digests]] = []
    with tempfile.TemporaryDirectory(prefix="golden-") as folder, ThreadPoolExecutor(2) as pool:
        for number, variables in enumerate(({}, *_OLDER_PROCESSORS)):
            folders = [Path(folder, f"{number}", chain) for chain in CHAINS]
            results = pool.map(run_chain, CHAINS, folders, [variables] * len(CHAINS))
            runs.append({case: files for chain in results for case, files in chain.items()})
    FILE.write_text(json.dumps(golden_of(runs[0], runs[1:]), indent=1) + "\n", "utf-8")
    print(f"wrote {FILE}")


if __name__ == "__main__":
    main()
