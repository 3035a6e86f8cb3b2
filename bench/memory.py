"""Peak memory of `pipeline extract` against its announced memory, for several numbers of images.

    python -m bench.memory --images data/flickr8k --counts 500 6000
    python -m bench.memory --images data/flickr8k --counts 4 --recipe vgg19-fc7-10crop \\
        --weights random:0

`--images` is a prepared dataset or a folder of images. Each count runs in a separate process.
Prints the peak resident size relative to the announced size (current memory plus the announced
maximum), and relative to the peak of the first count. Fails if a peak exceeds the announcement.
"""

# The standard library only: a child's peak, as the kernel counts it, is at least as large as
# that of the process which started it.
import argparse
import csv
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

COMMAND = [sys.executable, "-c", "from stages.cli import main; main()"]
ANNOUNCED = re.compile(r"memory: ([\d.]+) GB now, at most ([\d.]+) GB more")
PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def dataset_of(images: Path, work: Path) -> Path:
    """Return a prepared dataset of the images; a plain folder is prepared below `work`."""
    if (images / "dataset.json").is_file():
        return images
    files = sorted(p for p in images.rglob("*") if p.suffix.lower() in PICTURES)
    with (work / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "caption"])
        rows.writerows([path.relative_to(images), "an image"] for path in files)
    options = ["--root", images, "--captions", work / "captions.csv", "--out", work / "dataset"]
    subprocess.run([*COMMAND, "prepare", "folder", *map(str, options)], check=True)
    return work / "dataset"


def extraction(options: list[str]) -> tuple[float, float, float]:
    """Run one extraction; return its peak GB, and the announced current and additional GB."""
    child = subprocess.Popen([*COMMAND, "extract", *options], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    log = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    found = ANNOUNCED.search(log)
    if child.returncode or found is None:
        sys.exit(f"{log}\nextraction ended with status {child.returncode}")
    if usage.ru_maxrss <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
        sys.exit("this process is larger than the one that it measures")
    return usage.ru_maxrss * 1024 / 1e9, float(found[1]), float(found[2])


def main() -> None:
    """Read the options and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--images", type=Path, required=True, help="Dataset, or folder.")
    parser.add_argument("--counts", type=int, nargs="+", default=[500, 6000])
    parser.add_argument("--recipe", default="efficientnet-lite0-pool")
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--precision", default="float32")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        dataset = dataset_of(options.images, work)
        print(f"{options.recipe}, {options.precision}, {os.cpu_count()} cores; GB resident")
        print("  images  of announced  of first   peak  now + at most more")
        peaks: list[float] = []
        over = False
        for count in options.counts:
            wanted = {
                "recipe": options.recipe,
                "weights": options.weights,
                "precision": options.precision,
                "dataset": dataset,
                "limit": count,
                "out": work / f"features-{count}",
            }
            peak, held, more = extraction([f"--{key}={value}" for key, value in wanted.items()])
            peaks.append(peak)
            # Announcements are rounded to 0.1 GB.
            over = over or peak > held + more + 0.1
            print(
                f"{count:8} {peak / (held + more):13.2f} {peak / peaks[0]:9.3f} {peak:6.3f}  "
                f"{held:.1f} + {more:.1f}",
                flush=True,
            )
    if over:
        sys.exit("more memory was taken than announced")


if __name__ == "__main__":
    main()
