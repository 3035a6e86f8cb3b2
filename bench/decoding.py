"""Reading of photographs: milliseconds against Pillow alone, and whether every result is Pillow's.

    python -m bench.decoding [FOLDER ...] [--damaged 20]

Without folders it reads the photos next to the project, if there are any. Files are in memory.
Rates are CPU milliseconds per image of one thread, the best of a few alternating rounds: `decode`
to an array, and `window`, the resize to the crop of a recipe. Then both ways read every file, saved
again in each way that JPEG files differ, and damaged at random places; pixels, statuses and reasons
must be equal, and so must the windows of every recipe. Exit status 1 if any differs.
"""

import argparse
import io
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
from PIL import Image

from pipeline.images import transforms
from pipeline.images.decoding import decode as decoding
from pipeline.images.decoding.decode import Decoded, decode, read_image
from pipeline.images.recipes import RECIPES, Crop, Resize
from pipeline.images.transforms import windows_of

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
FOLDERS = [SHARED / "coco-sample/images", SHARED / "flickr8k/original_res_sample"]
ROUNDS = 5
WINDOWS = {
    "shorter-side 256 bilinear, centre 224": (Resize("shorter-side", 256), Crop("centre", 224)),
    "shorter-side 256 bicubic, centre 224": (
        Resize("shorter-side", 256, "bicubic"), Crop("centre", 224)),
    "squash 224 bilinear": (Resize("squash", 224), Crop("none", 224)),
    "squash 32 bilinear": (Resize("squash", 32), Crop("none", 32)),
}  # fmt: skip


@contextmanager
def pillow_alone() -> Iterator[None]:
    """Read as without the extra `fast`."""
    with (
        patch.object(decoding, "sound_jpeg", lambda data, image: None),
        patch.object(transforms, "exact_resize", lambda: None),
    ):
        yield


def milliseconds(steps: dict[str, Callable[[], object]], images: int) -> dict[str, float]:
    """Return the CPU milliseconds per image of each step, the best of alternating rounds."""
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(ROUNDS):
        for name, step in steps.items():
            started = time.process_time()
            step()
            best[name] = min(best[name], 1e3 * (time.process_time() - started) / images)
    return best


def rates(files: list[bytes]) -> None:
    """Print milliseconds of both ways."""
    read = [read_image(data).pixels for data in files]
    arrays = [np.asarray(pixels) for pixels in read if pixels is not None]
    images = [Image.fromarray(array) for array in arrays]

    def decoded() -> None:
        for data in files:
            np.asarray(read_image(data).pixels)

    def by_pillow(step: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            with pillow_alone():
                step()

        return run

    steps: dict[str, Callable[[], object]] = {
        "decode": decoded, "decode, Pillow": by_pillow(decoded)
    }  # fmt: skip
    for name, (resize, crop) in WINDOWS.items():
        steps[name] = lambda r=resize, c=crop: [windows_of(a, r, c) for a in arrays]  # type: ignore[misc]
        steps[f"{name}, Pillow"] = by_pillow(
            lambda r=resize, c=crop: [windows_of(i, r, c) for i in images]  # type: ignore[misc]
        )
    found = milliseconds(steps, len(files))
    print(f"{'ms per image':40}{'Pillow':>9}{'here':>9}{'ratio':>7}")
    for name in list(steps)[::2]:
        ours, theirs = found[name], found[f"{name}, Pillow"]
        print(f"{name:40}{theirs:9.3f}{ours:9.3f}{theirs / ours:7.2f}")


def variants(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a file, and its image saved again with each option of JPEG."""
    yield "as it is", data
    image = decode(data)

    def saved(mode: str = "RGB", **options: object) -> bytes:
        buffer = io.BytesIO()
        image.convert(mode).save(buffer, "JPEG", **options)
        return buffer.getvalue()

    yield "progressive", saved(progressive=True)
    for number, name in enumerate(("4:4:4", "4:2:2", "4:2:0")):
        yield name, saved(subsampling=number)
        yield f"{name}, progressive", saved(subsampling=number, progressive=True, quality=95)
    yield "restart markers", saved(restart_marker_rows=1)
    yield "optimised", saved(optimize=True, quality=40)
    yield "grey", saved("L")
    yield "CMYK", saved("CMYK")
    yield "RGB, not YCbCr", saved(keep_rgb=True)
    for orientation in range(1, 10):
        exif = Image.Exif()
        exif[0x0112] = orientation
        yield f"orientation {orientation}", saved(exif=exif)
    yield "bytes after the end", data + b"\xff\xd8 more"


def damaged(data: bytes, count: int, rng: np.random.Generator) -> Iterator[bytes]:
    """Yield copies of a file that end early or have a few other bytes."""
    for number in range(count):
        copy = bytearray(data)
        if number % 4 == 0:
            del copy[int(rng.integers(len(data))) :]
        # Half of them in the headers, which decide most.
        end = len(copy) if number % 2 else min(700, len(copy))
        for place in rng.integers(max(1, end), size=int(rng.integers(1, 5))):
            if copy:
                copy[place] = int(rng.integers(256))
        yield bytes(copy)


def same(one: Decoded, other: Decoded) -> bool:
    """Return whether two readings of a file are equal."""
    if (one.status, one.reason, one.source_crc32) != (
        other.status, other.reason, other.source_crc32,
    ):  # fmt: skip
        return False
    return one.pixels is None or np.array_equal(np.asarray(one.pixels), np.asarray(other.pixels))


def compared(files: list[bytes], count: int) -> int:
    """Print how many readings are equal, and return how many differ."""
    rng = np.random.default_rng(0)
    cases: Counter[str] = Counter()
    equal: Counter[str] = Counter()
    for data in files:
        kinds = [*variants(data), *(("damaged", copy) for copy in damaged(data, count, rng))]
        for kind, copy in kinds:
            ours = read_image(copy)
            with pillow_alone():
                theirs = read_image(copy)
            kind = kind if ours.pixels is not None or kind != "damaged" else "damaged, refused"
            cases[kind] += 1
            equal[kind] += same(ours, theirs)
    for kind, number in cases.items():
        print(f"{kind:40}{equal[kind]:9} of {number} readings equal")
    shapes = {(recipe.resize, recipe.crop) for recipe in RECIPES.values()}
    windows, alike = 0, 0
    for data in files:
        image = decode(data)
        for resize, crop in shapes:
            with pillow_alone():
                theirs_cut = windows_of(image, resize, crop)
            windows += 1
            alike += np.array_equal(windows_of(image, resize, crop), theirs_cut)
    print(f"{'windows of all recipes':40}{alike:9} of {windows} equal ({len(shapes)} rules)")
    return cases.total() - equal.total() + windows - alike


def main() -> None:
    """Print milliseconds, then differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folders", nargs="*", type=Path, default=FOLDERS)
    parser.add_argument("--damaged", type=int, default=20, help="Damaged copies of each file.")
    parser.add_argument("--count", type=int, default=10**6, help="Most files of a folder.")
    options = parser.parse_args()
    files = [
        path.read_bytes()
        for folder in options.folders
        for path in sorted(folder.glob("*.jp*g"))[: options.count]
    ]
    if not files:
        sys.exit(f"no JPEG files in {', '.join(map(str, options.folders))}; name folders of photos")
    print(f"{len(files)} files, {np.mean([len(data) for data in files]) / 1000:.0f} kB on average")
    rates(files)
    if differ := compared(files, options.damaged):
        sys.exit(f"{differ} differ")


if __name__ == "__main__":
    main()
