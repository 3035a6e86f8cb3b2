"""Clips per second of `pipeline extract` against a simple loop, and memory by clip length.

    python -m bench.video --clips FOLDER
    python -m bench.video --lengths 10 100 600

Two programs compute the mean of EfficientNet-Lite0 over two frames per second, in one process:

naive : each clip is fully decoded into a list of images; those at 0, 0.5, 1 ... s pass through the
    original network, one at a time; torch on all cores.
fast  : `efficientnet-lite0-pool` on a dataset of clips.

Rates count from the first finished clip; the rows of both are compared. With `--lengths`, prints
the peak memory for synthetic clips of these lengths in seconds, each in a separate process.
"""

import argparse
import math
import resource
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from PIL import Image

from bench.regions import Marks, rate
from pipeline.clips.extract_clips import extract_clips
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.recipes import resolve_recipe
from pipeline.images.weights import load_weights
from pipeline.store.shards.feature_set import read_features

RECIPE = "efficientnet-lite0-pool"
SUFFIXES = {".avi", ".mp4", ".webm", ".mkv", ".mov"}


def dataset_of(folder: Path, files: list[Path]) -> Path:
    """Write a dataset of the clips of a folder."""
    entries = tuple(ImageEntry(f.name, f.name, "train", ()) for f in files)
    Manifest("bench", files[0].parent.resolve(), entries, "", "", {}, media="clips").write(folder)
    return folder


@torch.inference_mode()
def naive(files: list[Path]) -> tuple[list[tuple[float, int]], np.ndarray]:
    """Run the simple loop; return times with the number of finished clips, and the rows."""
    recipe = resolve_recipe(RECIPE)
    net: Any = backbone_named(recipe.backbone).filled(load_weights(recipe).state).eval()
    marks, rows = [], []
    for file in files:
        pictures: list[tuple[Fraction, Image.Image]] = []
        with av.open(str(file)) as container:
            for frame in container.decode(video=0):
                assert frame.pts is not None
                assert frame.time_base is not None
                pictures.append((frame.pts * frame.time_base, frame.to_image()))
                lasts = frame.duration * frame.time_base
        # Some AVI files have the stamps of two frames exchanged.
        stamps = sorted(stamp for stamp, _ in pictures)
        start, end = stamps[0], stamps[-1] + lasts
        outputs = []
        for k in range(math.ceil((end - start) * 2)):
            shown = sum(stamp - start <= Fraction(k, 2) for stamp in stamps) - 1
            resized = pictures[shown][1].resize((224, 224), Image.Resampling.BILINEAR)
            x = torch.from_numpy((np.asarray(resized, np.float32) - 127) / 128)
            output = net.extract_features(x.permute(2, 0, 1)[None])
            outputs.append(output.mean(dim=(2, 3))[0].numpy())
        rows.append(np.mean(outputs, axis=0))
        marks.append((time.perf_counter(), len(rows)))
    return marks, np.stack(rows)


def compare(files: list[Path], folder: Path) -> None:
    """Print the rates of both programs on some clips."""
    dataset = dataset_of(folder / "data", files)
    marks, expected = naive(files)
    slowest = rate(marks)
    fast = Marks()
    started = time.perf_counter()
    extract_clips(dataset, folder / "out", recipe=RECIPE, monitor=fast)
    found = rate(fast.marks)
    whole = len(files) / (time.perf_counter() - started)
    print(
        f"{len(files)} clips, {torch.get_num_threads()} cores; with the start {whole:.1f} clips/s"
    )
    print(f"naive {slowest:8.2f} clips/s\nfast  {found:8.2f} clips/s  {found / slowest:5.1f} x")
    rows = read_features(folder / "out").read([file.name for file in files])
    difference = np.linalg.norm(rows - expected) / np.linalg.norm(expected)
    print(f"relative difference of the rows: {difference:.1e}")


def draw(path: Path, seconds: int) -> Path:
    """Write a clip of 320 x 240 pixels, 25 frames per second, with a drifting image."""
    noise = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    ground = np.asarray(Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        for k in range(25 * seconds):
            x, y = k * 3 % 320, k % 240
            window = np.ascontiguousarray(ground[y : y + 240, x : x + 320])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(window, format="rgb24")))
        container.mux(stream.encode())
    return path


def measure(seconds: int) -> None:
    """Print the peak memory of extracting one synthetic clip."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "clips").mkdir()
        path = folder / "clips/a.mp4"
        # Drawn in a process of its own, whose memory does not count.
        code = f"from bench.video import *; draw(Path({str(path)!r}), {seconds})"
        subprocess.run([sys.executable, "-c", code], check=True)
        extract_clips(dataset_of(folder / "data", [path]), folder / "out", recipe=RECIPE)
        size = path.stat().st_size / 1e6
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"{seconds:6} s, {size:6.1f} MB of file: {most:6.0f} MB of memory", flush=True)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--clips", type=Path, help="Folder of clips.  [default: 24 drawn ones]")
    parser.add_argument("--lengths", type=int, nargs="+", help="Seconds of drawn clips.")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
    elif options.lengths:
        for seconds in options.lengths:
            program = [sys.executable, "-m", "bench.video", "--measure", str(seconds)]
            subprocess.run(program, check=True)
    else:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if options.clips is None:
                (folder / "clips").mkdir()
                files = [draw(folder / f"clips/{k:02d}.mp4", 10) for k in range(24)]
            else:
                found = options.clips.iterdir()
                files = sorted(path for path in found if path.suffix in SUFFIXES)
            compare(files, folder)


if __name__ == "__main__":
    main()
