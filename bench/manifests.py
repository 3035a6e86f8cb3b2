"""Reading a manifest with json and manual checks, pydantic and msgspec, and storing its captions.

Run as `python -m bench.manifests [LINES]`. A line has an id, a file, a split and five captions of
ten words. Each way runs in a separate process, alternately; the best of three is printed: CPU
seconds of importing the library and of reading, and peak memory. Fails if two ways count different
captions. pydantic and pyarrow are skipped if they are not installed.
"""

import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from bench.scale import WORDS
from pipeline.datasets.entries import ImageEntry, PackedEntries
from pipeline.datasets.manifest import MANIFEST_FILE, Manifest, read_manifest

CAPTIONS, AT_ONCE, TURNS = 5, 1 << 15, 3
LIBRARIES = {"pydantic": "pydantic", "msgspec": "msgspec", "captions in pyarrow": "pyarrow"}
IMPORT = "import numpy, time; t = time.process_time(); import {}; print(time.process_time() - t)"


def entries(count: int) -> Iterator[ImageEntry]:
    """Yield random entries from a seed."""
    random = np.random.default_rng(0)
    for start in range(0, count, 1000):
        rows = min(1000, count - start)
        drawn = random.integers(0, len(WORDS), (rows, CAPTIONS, 10))
        for row in range(rows):
            file = f"{start // 1000:04d}/{start + row:07d}.jpg"
            texts = tuple(" ".join(WORDS[w] for w in caption) for caption in drawn[row])
            yield ImageEntry(file, file, "val" if start + row < 1000 else "train", texts)


def by_json(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the captions of each line, with manual type checks."""
    with path.open(encoding="utf-8", newline="\n") as stream:
        for line in stream:
            stored = json.loads(line)
            captions = stored["captions"]
            texts = [stored["id"], stored["file"], stored["split"], *captions]
            if not isinstance(captions, list) or not all(isinstance(t, str) for t in texts):
                raise TypeError("id, file, split and captions must be texts")
            yield ImageEntry(texts[0], texts[1], texts[2], tuple(captions)).captions


def by_pydantic(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the captions of each line, read by a strict pydantic adapter of `ImageEntry`."""
    from pydantic import ConfigDict, TypeAdapter

    class Entry(ImageEntry):
        __pydantic_config__ = ConfigDict(strict=True)

    adapter = TypeAdapter(Entry)
    with path.open("rb") as stream:
        for line in stream:
            yield adapter.validate_json(line).captions


def by_msgspec(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the captions of each line, read by msgspec."""
    from pipeline.store.schema import decode_lines

    with path.open("rb") as stream:
        for entry in decode_lines(stream, ImageEntry):
            yield entry.captions


def in_numpy(texts: Iterable[str]) -> Any:
    """Return texts as this project stores them."""
    from pipeline.store.packed import PackedTexts

    return PackedTexts(texts)


def in_pyarrow(texts: Iterable[str]) -> Any:
    """Return texts as a pyarrow array."""
    import pyarrow

    remaining, chunks = iter(texts), []
    while chunk := list(islice(remaining, AT_ONCE)):
        chunks.append(pyarrow.array(chunk, pyarrow.large_string()))
    return pyarrow.chunked_array(chunks).combine_chunks()


WAYS: dict[str, Any] = {
    "json, checks by hand": lambda path: sum(map(len, by_json(path))),
    "pydantic": lambda path: sum(map(len, by_pydantic(path))),
    "msgspec": lambda path: sum(map(len, by_msgspec(path))),
    "captions in a list": lambda path: len(list(chain.from_iterable(by_msgspec(path)))),
    "captions in PackedTexts": lambda path: len(in_numpy(chain.from_iterable(by_msgspec(path)))),
    "captions in pyarrow": lambda path: len(in_pyarrow(chain.from_iterable(by_msgspec(path)))),
    "read_manifest": lambda path: int(read_manifest(path.parent).packed.num_captions.sum()),
}


def measured(way: str, path: Path) -> dict[str, float]:
    """Return the cost of a way in this process."""
    start = time.process_time()
    captions = WAYS[way](path)
    return {
        "captions": captions,
        "read": time.process_time() - start,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def output(*arguments: str) -> str:
    """Return what Python prints with these arguments."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Write a manifest and print one line per way."""
    if sys.argv[1:2] == ["--way"]:
        print(json.dumps(measured(sys.argv[2], Path(sys.argv[3], MANIFEST_FILE))))
        return
    if sys.argv[1:2] == ["--make"]:
        every = PackedEntries.of(entries(int(sys.argv[2])))
        Manifest("drawn", Path(sys.argv[3]), every, "", "bench", {}).write(sys.argv[3])
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    ways = [w for w in WAYS if importlib.util.find_spec(LIBRARIES.get(w, "numpy"))]
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        # Not in this process: what a child starts with counts in its peak.
        output("-m", "bench.manifests", "--make", str(count), folder)
        for way in ways * TURNS:
            result = json.loads(output("-m", "bench.manifests", "--way", way, folder))
            library = LIBRARIES.get(way)
            imported = float(output("-c", IMPORT.format(library))) if library else 0.0
            found[way].append({**result, "import": imported})
    print(f"{count} lines; CPU s of the import and of reading, GB at the peak")
    for way, results in found.items():
        best = {key: min(result[key] for result in results) for key in results[0]}
        print(f"{way:24} {best['import']:6.3f} {best['read']:6.2f} {best['peak']:6.2f}")
        if best["captions"] != count * CAPTIONS:
            sys.exit(f"{way} read {best['captions']:.0f} captions, expected {count * CAPTIONS}")


if __name__ == "__main__":
    main()
