"""Rows and seconds that `pipeline run` recomputes after changes of images and captions.

    python -m bench.own_data FOLDER [--images 20 76 1000] [--photos DIR] [--names NAME ...]

Follows the README: a folder of images with a table of captions is prepared and `run` computes
experiments; then images or captions change, and the same two calls are repeated. After every change
the features, encoders, heads, embeddings and tables are compared, byte for byte, with those of a
run from scratch. The images are drawn scenes with one caption each, or the photographs in DIR with
captions of scenes; one line per change is printed. The exit status is 1 if anything differs.
"""

import argparse
import csv
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.datasets.readers.folder import read_folder
from pipeline.experiments.run import run
from pipeline.store.progress import Progress, no_progress
from pipeline.studies.scenes.draw_scenes import draw_scenes

NAMES = ("qian2018-baseline", "kiros2014-linear")
KINDS = ("features", "text", "heads", "embeddings", "evaluations")
_COMPUTED = re.compile(r"(\d+) computed in .* \((?:[\d.]+) (\w+)s/s\)")


@dataclass
class Lines:
    """A monitor that counts computed rows by unit."""

    lines: list[str] = field(default_factory=list)

    def log(self, line: str) -> None:
        """Store a line."""
        self.lines.append(line)

    @contextmanager
    def progress(self, what: str, unit: str) -> Iterator[Progress]:
        """Return a progress that shows nothing."""
        yield no_progress

    def computed(self, unit: str) -> int:
        """Return the number of computed rows of a unit; an image or caption counts once per set."""
        found = map(_COMPUTED.match, self.lines)
        return sum(int(match[1]) for match in found if match and match[2] == unit)


class OwnData:
    """Images and a table of captions in a folder, with all outputs.

    Attributes
    ----------
    folder : Path. Parent of `pictures`, `captions.csv` and `data`.
    captions : dict. Caption of each image by file name; change it, then call `write`.
    """

    def __init__(self, folder: Path, images: int, photos: Path | None = None) -> None:
        """Write a number of images; a tenth as many can be added later."""
        self.folder, self.pictures = folder, folder / "pictures"
        drawn = draw_scenes(folder / "drawn", images + max(2, images // 10), 0)
        found = sorted(photos.glob("*.jpg")) if photos else []
        self.captions: dict[str, str] = {}
        self.more: list[tuple[Path, str]] = []
        self.pictures.mkdir()
        for number, entry in enumerate(drawn.entries):
            file = found[number] if found else drawn.image_root / entry.file
            self.more.append((file, entry.captions[0]))
        self.add(images)

    def add(self, images: int) -> None:
        """Add images with their captions."""
        for file, caption in self.more[:images]:
            shutil.copy(file, self.pictures / file.name)
            self.captions[file.name] = caption
        del self.more[:images]

    def remove(self, names: Sequence[str]) -> None:
        """Remove images."""
        for name in names:
            (self.pictures / name).unlink()
            del self.captions[name]

    def replace(self, names: Sequence[str]) -> None:
        """Change the contents of images: each becomes a copy of another image."""
        kept = next(name for name in self.captions if name not in names)
        for name in names:
            shutil.copy(self.pictures / kept, self.pictures / name)

    def write(self, root: str) -> Path:
        """Write the table of captions, prepare the dataset, and return its folder."""
        table, dataset = self.folder / "captions.csv", self.folder / root / "mine"
        with table.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(("path", "caption"))
            writer.writerows(sorted(self.captions.items()))
        read_folder(self.pictures, table, name="mine").write(dataset)
        return dataset

    def run(self, names: Sequence[str], root: str = "data") -> tuple[Lines, float]:
        """Prepare the dataset and run the experiments; return the log and the run's seconds."""
        dataset, lines = self.write(root), Lines()
        started = time.monotonic()
        run(names, dataset, root=dataset.parent, size="tiny", monitor=lines)
        return lines, time.monotonic() - started

    def outputs(self, root: str = "data") -> dict[str, bytes]:
        """Return the bytes of all outputs by path, except records of seconds."""
        return {
            str(path.relative_to(self.folder / root)): _content(path)
            for kind in KINDS
            for path in sorted((self.folder / root / kind).rglob("*"))
            if path.is_file() and ".work" not in path.parts
        }


def changes(images: int) -> dict[str, Callable[[OwnData], None]]:
    """Return typical changes of a dataset of a given size, by name."""
    few = max(2, images // 20)

    def edit(data: OwnData) -> None:
        for name in list(data.captions)[:few]:
            data.captions[name] += " seen from above"

    return {
        "nothing": lambda data: None,
        f"{few} images added": lambda data: data.add(few),
        f"{few} images removed": lambda data: data.remove(list(data.captions)[1 : 1 + few]),
        f"{few} images changed": lambda data: data.replace(list(data.captions)[2 : 2 + few]),
        f"{few} captions edited": edit,
    }


def _content(path: Path) -> bytes:
    """Return the bytes of a file; for JSON without measured seconds."""
    data = path.read_bytes()
    if path.suffix != ".json":
        return data
    timed = "seconds"
    return json.dumps(
        json.loads(data, object_hook=lambda o: {k: v for k, v in o.items() if timed not in k})
    ).encode()


def main() -> int:
    """Print one line per change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, nargs="+", default=[20, 76, 1000])
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--names", nargs="+", default=NAMES)
    options = parser.parse_args()
    print("| images | change | rows of images | rows of captions | s | from nothing, s | same |")
    print("|---:|---|---:|---:|---:|---:|---|")
    same = True
    for images in options.images:
        folder = options.folder / str(images)
        folder.mkdir(parents=True)
        data = OwnData(folder, images, options.photos)
        lines, seconds = data.run(options.names)
        rows = f"{lines.computed('image')} | {lines.computed('caption')}"
        print(f"| {images} | first run | {rows} | {seconds:.1f} | | |", flush=True)
        for change, apply in changes(images).items():
            apply(data)
            lines, seconds = data.run(options.names)
            shutil.rmtree(folder / "fresh", ignore_errors=True)
            _, whole = data.run(options.names, "fresh")
            equal = data.outputs() == data.outputs("fresh")
            same &= equal
            rows = f"{lines.computed('image')} | {lines.computed('caption')}"
            verdict = "yes" if equal else "no"
            print(
                f"| {images} | {change} | {rows} | {seconds:.1f} | {whole:.1f} | {verdict} |",
                flush=True,
            )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
