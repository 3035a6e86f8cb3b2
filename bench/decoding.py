"""JPEG decoders on photographs: speed relative to Pillow, and pixel differences.

Run as `python bench/decoding.py [FOLDER ...]`; without folders it reads the photos next to the
project, if there are any. Files are in memory; "and resize" adds Pillow's bilinear filter to 224.
Decoders alternate, and the best rate of each counts: in CPU seconds with one thread, which other
programs affect least, and in wall time with two.
"""

import importlib
import io
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg

from pipeline.images.decoding.decode import decode
from pipeline.images.recipes import Resize
from pipeline.images.transforms import resize_image

Decoder = Callable[[bytes], Image.Image]

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
FOLDERS = [SHARED / "coco-sample/images", SHARED / "flickr8k/original_res_sample"]
ROUNDS = 5
COLUMNS = ("decode, 1 thread", "2 threads", "and resize, 1", "2 threads")


def by_torchvision(data: bytes) -> Image.Image:
    """Decode with torchvision's libjpeg-turbo, whose result is already interleaved."""
    encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return Image.fromarray(decode_jpeg(encoded, ImageReadMode.RGB).permute(1, 2, 0).numpy())


def decoders() -> dict[str, Decoder]:
    """Return the decoders that are installed; the first is the project's own."""
    found: dict[str, Decoder] = {"Pillow": decode, "torchvision.io": by_torchvision}
    try:
        simplejpeg = importlib.import_module("simplejpeg")
    except ImportError:
        return found
    found["simplejpeg"] = lambda data: Image.fromarray(simplejpeg.decode_jpeg(data))
    return found


def rates(files: list[bytes], threads: int, resized: bool) -> dict[str, float]:
    """Return the images per second of each decoder, the best of a few alternating rounds."""

    def work(decoder: Decoder, data: bytes) -> None:
        image = decoder(data)
        if resized:
            resize_image(image, Resize("squash", 224))

    now = time.process_time if threads == 1 else time.perf_counter
    best = dict.fromkeys(decoders(), 0.0)
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(ROUNDS):
            for name, decoder in decoders().items():
                started = now()
                list(pool.map(partial(work, decoder), files))
                best[name] = max(best[name], len(files) / (now() - started))
    return best


def variants(files: list[bytes]) -> dict[str, list[bytes]]:
    """Return the files, and a few of them saved again with other JPEG options."""

    def saved(data: bytes, mode: str, **options: object) -> bytes:
        buffer = io.BytesIO()
        decode(data).convert(mode).save(buffer, "JPEG", **options)
        return buffer.getvalue()

    few = files[:40]
    return {
        "as they are": files,
        "progressive": [saved(data, "RGB", progressive=True) for data in few],
        "4:4:4": [saved(data, "RGB", subsampling=0) for data in few],
        "grey": [saved(data, "L") for data in few],
        "CMYK": [saved(data, "CMYK") for data in few],
    }


def differences(decoder: Decoder, files: list[bytes]) -> str:
    """Return how a decoder's pixels differ from the project's own."""
    same, largest, means = 0, 0, []
    for data in files:
        try:
            theirs = np.asarray(decoder(data)).astype(int)
        except (RuntimeError, ValueError) as error:
            return f"refused: {str(error).splitlines()[0]}"
        gap = np.abs(theirs - np.asarray(decode(data)))
        same += int(not gap.any())
        largest = max(largest, int(gap.max()))
        means.append(gap.mean())
    return f"{same} of {len(files)} identical, mean {np.mean(means):.3f}, max {largest}"


def main() -> None:
    """Print ratios to Pillow and images a second, then differences."""
    torch.set_num_threads(1)
    folders = [Path(text) for text in sys.argv[1:]] or FOLDERS
    files = [path.read_bytes() for folder in folders for path in sorted(folder.glob("*.jpg"))]
    if not files:
        sys.exit(f"no *.jpg files in {', '.join(map(str, folders))}; name folders of photos")
    print(f"{len(files)} files, {np.mean([len(data) for data in files]) / 1000:.0f} kB on average")
    print(f"{'':15}" + "".join(f"{text:>19}" for text in COLUMNS))
    columns = [rates(files, threads, resized) for resized in (False, True) for threads in (1, 2)]
    for name in decoders():
        ratios = "".join(
            f"{best[name] / best['Pillow']:10.2f} x {best[name]:6.0f}" for best in columns
        )
        print(f"{name:15}{ratios}")
    for kind, chosen in variants(files).items():
        for name, decoder in list(decoders().items())[1:]:
            print(f"{name}, {kind}: {differences(decoder, chosen)}")


if __name__ == "__main__":
    main()
