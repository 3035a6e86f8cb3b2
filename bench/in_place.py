"""Images read from tar files against unpacked ones: `python -m bench.in_place --images FOLDER`.

Photos, each a few times, with captions in `--tars` tar files of 100 samples. Prints seconds and
written bytes of `prepare` with and without unpacking, and images per second of `extract` from tar
files and from files, in turns, the best of three each. Fails if the shards have different bytes.
"""

import argparse
import io
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import pipeline

SAMPLES, TURNS = 100, 3


def main() -> None:
    """Print both comparisons."""
    parser = argparse.ArgumentParser(prog="bench.in_place", description=__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of JPEG files")
    parser.add_argument("--tars", type=int, default=100, help="[default: %(default)s]")
    parser.add_argument("--recipe", default="timm:test_resnet", help="[default: %(default)s]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), given)


def compare(folder: Path, given: argparse.Namespace) -> None:
    """Prepare and extract both ways in a folder."""
    (folder / "tars").mkdir()
    write(folder / "tars", sorted(given.images.glob("*.jp*g")), given.tars)
    seconds, written = {}, {}
    for unpack in (True, False):
        started = time.perf_counter()
        pipeline.prepare(folder / "tars", folder / f"{unpack}/photos", unpack=unpack)
        seconds[unpack] = time.perf_counter() - started
        files = [path for path in (folder / f"{unpack}").rglob("*") if path.is_file()]
        written[unpack] = sum(path.stat().st_size for path in files)
        way = "unpacked" if unpack else "in place"
        print(f"prepare, {way}: {seconds[unpack]:.2f} s, {written[unpack] / 1e6:.1f} MB written")
    print(
        f"prepare in place: {seconds[True] / seconds[False]:.1f} times as fast, "
        f"{written[False] / written[True]:.4f} of the bytes"
    )
    best = {True: float("inf"), False: float("inf")}
    for turn in range(TURNS):
        for unpack in (True, False) if turn % 2 else (False, True):
            started = time.perf_counter()
            pipeline.extract(
                folder / f"{unpack}/photos", folder / f"{unpack}/out-{turn}",
                recipe=given.recipe, compute=pipeline.Compute("random:0"),
            )  # fmt: skip
            best[unpack] = min(best[unpack], time.perf_counter() - started)
    rows = given.tars * SAMPLES
    for unpack, way in ((True, "files"), (False, "tar files")):
        print(f"{given.recipe} from {way}: {rows / best[unpack]:.1f} images/s")
    print(f"from tar files: {best[True] / best[False]:.3f} of the rate")
    for path in sorted((folder / "True/out-0").iterdir()):
        if path.read_bytes() != (folder / "False/out-0" / path.name).read_bytes():
            sys.exit(f"{path.name} differs")


def write(folder: Path, photos: list[Path], tars: int) -> None:
    """Write samples of a photo and a caption to tar files."""
    if not photos:
        sys.exit("the folder has no JPEG files")
    for number in range(tars):
        with tarfile.open(folder / f"{number:05d}.tar", "w") as tar:
            for k in range(SAMPLES):
                data = photos[(number * SAMPLES + k) % len(photos)].read_bytes()
                for suffix, content in (("jpg", data), ("txt", b"a photo")):
                    member = tarfile.TarInfo(f"{number:05d}{k:04d}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    main()
