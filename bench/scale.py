"""Time, memory and disk of every step for 10^4 to 10^6 images, with exponents.

    python -m bench.scale --counts 10000 100000 1000000 --work FOLDER

Collections are simulated: hard links to 64 small images, with five random captions per image from
64 words. Image features come from a stub instead of the network, with real headers, shards and
checksums; everything else is the command itself, in a separate process whose wall time, CPU time
and memory are measured. Each column is fitted to a N^b by least squares over logarithms; the
exponent of the two largest collections is printed too, since constant costs such as imports
flatten the others.

A step that an earlier call finished in the same folder is read from `scale.json` there; remove the
file, or name steps with `--steps`, to run them again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

PICTURES, CAPTIONS, HELD_OUT = 64, 5, 1000
_WORDS = """a the on in with of and two man woman dog cat boy girl child people red blue green white
black brown small large young old water grass snow street beach field park road mountain sky
running jumping standing sitting walking playing holding wearing looking riding ball bike car
boat horse bird shirt hat dress jacket rock tree house bench table chair over"""
WORDS = _WORDS.split()
RECIPE, STORAGE, DIM = "efficientnet-lite0-pool", "float16", 1280
IMAGES, TEXT = Path("data/features/dataset", RECIPE), Path("data/text/dataset")
EXPERIMENT = f"""dataset: scale
extract: {{storage: {STORAGE}}}
caption_features: {{mean: {{encoder: mean}}}}
experiments:
  scale:
    images: {RECIPE}
    captions: mean
    preset: ours-linear
    settings: {{dim: 32, epochs: 1, batch_size: 500}}
  cca: {{images: {RECIPE}, captions: mean, preset: ours-cca, settings: {{dim: 32}}}}
"""
MAIN = "from stages.cli import main; main()"
LIMIT_GB, _LOOK_SECONDS = 2.0, 0.1


@dataclass(frozen=True)
class Cost:
    """Cost of a step.

    Attributes
    ----------
    seconds, cpu : wall time and CPU time.
    own, peak : maximum GB of private memory, sampled ten times per second, and of resident memory
        including mapped files, which the system reclaims when needed.
    disk : MB written.
    """

    seconds: float
    cpu: float
    own: float
    peak: float
    disk: float


@dataclass(frozen=True)
class Step:
    """A command line or a function of this file, with the folder that it writes."""

    name: str
    command: Callable[[int], list[str]]
    out: str = ""
    status: int = 0


def pipeline_command(*arguments: object) -> list[str]:
    """Return the argument vector of a `pipeline` command."""
    return [sys.executable, "-c", MAIN, *map(str, arguments)]


def own(name: str) -> Callable[[int], list[str]]:
    """Return the argument vector of a function of this file for a number of images."""
    return lambda count: [sys.executable, "-m", "bench.scale", "--own", name, str(count)]


def command(*arguments: object) -> Callable[[int], list[str]]:
    """Return a command that is the same for all numbers of images."""
    return lambda count: pipeline_command(*arguments)


def text(encoder: str, *options: object) -> Step:
    """Return the step of an encoder."""
    out = f"{TEXT}/{encoder}"
    return Step(
        f"text {encoder}",
        command("text", "--encoder", encoder, "--dataset", "dataset", "--out", out, *options),
        out,
    )


EXTRACT = ("--recipe", RECIPE, "--storage", STORAGE, "--dataset", "dataset", "--out", IMAGES)
TRAINED = ("--experiment", "scale", "--dataset", "dataset", "--image-features", IMAGES)
SPACE = ("--caption-features", TEXT / "mean", "--head", "head")
SEARCH = (
    "two dogs on the grass", *TRAINED[:4], "--head", "head",
    "--embeddings", "space.h5", "--encoder", TEXT / "mean.encoder",
)  # fmt: skip
STEPS = (
    Step(
        "prepare folder",
        command(
            "prepare", "folder", "--root", "pictures", "--captions", "captions.csv",
            "--name", "scale", "--out", "dataset",
        ),
        "dataset",
    ),
    Step("read the manifest", own("read")),
    Step("extract, stub network", own("stub"), str(IMAGES)),
    Step("extract again, images read", command("extract", *EXTRACT, "--trust-stamps")),
    Step("extract again, stamps trusted", command("extract", *EXTRACT, "--trust-stamps")),
    text("mean"),
    text("bow"),
    text("token-ids"),
    text("fv-gmm", "--components", 1, "--sample", 5000),
    Step("text mean again, finished", text("mean").command),
    Step("shards verify --quick", command("shards", "verify", "--quick", IMAGES)),
    Step("shards index", command("shards", "index", TEXT / "mean")),
    Step("merge halves", own("merge"), "merged"),
    Step(
        "train, an epoch",
        command("train", *TRAINED, *SPACE[:2], "--out", "head"),
        "head",
    ),
    Step(
        "embed",
        command("embed", *TRAINED, *SPACE, "--split", "train", "--out", "space.h5"),
        "space.h5",
    ),
    Step(
        "evaluate, first 1,000",
        command("evaluate", "space.h5", "--out", "first", "--protocol", "first-1000"),
    ),
    Step("evaluate, all", command("evaluate", "space.h5", "--out", "all"), status=1),
    Step("run", command("run", "cca", "--dataset", "dataset")),
    Step("run again, finished", command("run", "cca", "--dataset", "dataset")),
    Step("search", command("search", *SEARCH)),
    Step("search, index made", command("search", *SEARCH, "--approximate")),
    Step("search, index there", command("search", *SEARCH, "--approximate")),
)  # fmt: skip
"""Status of a command that may refuse to run for too long."""


def make_collection(count: int) -> None:
    """Draw 64 images, link them `count` times and write the captions, in the current folder."""
    from PIL import Image

    random = np.random.default_rng(0)
    base = Path("base")
    base.mkdir()
    for number in range(PICTURES):
        pixels = random.integers(0, 255, (48, 48, 3), np.uint8)
        Image.fromarray(pixels).save(base / f"{number}.jpg", quality=60)
    with Path("captions.csv").open("w", encoding="utf-8") as stream:
        stream.write("path,caption,split\n")
        for start in range(0, count, 1000):
            folder = Path("pictures", f"{start // 1000:04d}")
            folder.mkdir(parents=True)
            rows = min(1000, count - start)
            words = random.integers(0, len(WORDS), (rows, CAPTIONS, 10))
            for row in range(rows):
                name = f"{folder.name}/{start + row:07d}.jpg"
                os.link(base / f"{(start + row) % PICTURES}.jpg", Path("pictures", name))
                split = "val" if start + row < HELD_OUT else "train"
                for caption in words[row]:
                    stream.write(f"{name},{' '.join(WORDS[w] for w in caption)},{split}\n")


def read(count: int) -> None:
    """Read the manifest and go through its images once."""
    from pipeline.datasets.manifest import read_manifest

    manifest = read_manifest(Path("dataset"))
    captions = sum(len(entry.captions) for entry in manifest.entries)
    assert (len(manifest.entries), captions) == (count, CAPTIONS * count)


def stub(count: int) -> None:
    """Write shards like `pipeline extract`, with rows of a stub instead of a network."""
    from pipeline.datasets.manifest import read_manifest
    from pipeline.images.batches import feature_header
    from pipeline.images.recipes import resolve_recipe
    from pipeline.images.weights import load_weights
    from pipeline.store.builder.arrays import build_from_rows
    from pipeline.store.shards.format import RowBlock

    recipe = resolve_recipe(RECIPE, "float32", STORAGE)
    header = feature_header(recipe, load_weights(recipe), "scale", None)
    crc32 = np.array(
        [zlib.crc32(Path("base", f"{n}.jpg").read_bytes()) for n in range(PICTURES)], np.uint32
    )
    table = np.random.default_rng(0).normal(size=(PICTURES, DIM)).astype(np.float32)

    def rows(start: int, stop: int) -> RowBlock:
        which = np.arange(start, stop) % PICTURES
        status = np.zeros(stop - start, np.uint8)
        # No two rows are equal: among equal ones a search has no right order.
        noise = np.random.default_rng(start).standard_normal((len(which), DIM), np.float32)
        return RowBlock(table[which] + noise, status, ("",) * len(which), crc32[which])

    ids = [entry.id for entry in read_manifest(Path("dataset")).entries]
    build_from_rows(IMAGES, header, ids, rows)


def merge(count: int) -> None:
    """Split the mean vectors of the captions into two sets, and measure their merge."""
    halves = [Path("half-0"), Path("half-1")]
    if not halves[1].exists():
        subprocess.run([sys.executable, "-m", "bench.scale", "--own", "halve", "0"], check=True)
    arguments = pipeline_command("shards", "merge", *halves, "--out", "merged")
    os.execv(arguments[0], arguments)


def halve(count: int) -> None:
    """Write both halves of a feature set as separate sets."""
    from pipeline.store.builder.arrays import build_from_rows
    from pipeline.store.shards.feature_set import FeatureSet
    from pipeline.store.shards.format import RowBlock

    features = FeatureSet(TEXT / "mean")
    ids, middle = features.ids, len(features) // 2
    for number, part in enumerate((ids[:middle], ids[middle:])):

        def rows(start: int, stop: int, part: Sequence[str] = part) -> RowBlock:
            blocks = list(features.blocks(part[start:stop]))
            return RowBlock(
                np.concatenate([block.features for block in blocks]),
                np.zeros(stop - start, np.uint8),
                ("",) * (stop - start),
                np.concatenate([np.asarray(block.source_crc32) for block in blocks]),
            )

        build_from_rows(Path(f"half-{number}"), features.index.header, part, rows)


def measure(step: Step, count: int, folder: Path) -> Cost:
    """Run a step in a separate process and return its cost; exit if it fails."""
    out = folder / step.out
    if step.out and out.is_dir():
        shutil.rmtree(out)
    with (folder / "log.txt").open("a", encoding="utf-8") as log:
        log.write(f"== {step.name}\n")
        log.flush()
        started = time.perf_counter()
        child = subprocess.Popen(step.command(count), cwd=folder, stdout=log, stderr=log)
        own, waited = 0.0, 0
        while not waited:
            own = max(own, own_memory(child.pid))
            time.sleep(_LOOK_SECONDS)
            waited, status, usage = os.wait4(child.pid, os.WNOHANG)
        seconds = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, step.status):
        tail = "\n".join((folder / "log.txt").read_text(encoding="utf-8").splitlines()[-15:])
        print(f"{tail}\n{step.name} ended with status {child.returncode}", flush=True)
        return Cost(*[float("nan")] * 5)
    disk = sum(file.stat().st_size for file in _files(out)) / 1e6 if step.out else 0.0
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(seconds, cpu, own, usage.ru_maxrss * 1024 / 1e9, disk)


def own_memory(pid: int) -> float:
    """Return the GB of a process that are not file pages."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    lines = [line for line in text.splitlines() if line.startswith("RssAnon")]
    return int(lines[0].split()[1]) * 1024 / 1e9 if lines else 0.0


def _files(path: Path) -> Iterator[Path]:
    return (p for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file())


def exponents(counts: list[int], values: list[float]) -> str:
    """Return the exponent fitted over all counts, and that of the last two."""
    if len(counts) < 2 or min(values) <= 0 or not np.isfinite(values).all():
        return "            "
    logs = np.log(counts), np.log(values)
    last = (logs[1][-1] - logs[1][-2]) / (logs[0][-1] - logs[0][-2])
    return f"{np.polyfit(*logs, 1)[0]:5.2f} {last:5.2f}"


def main() -> None:
    """Read the options, run the steps and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--counts", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--work", type=Path, default=Path("scale"), help="Folder; 15 GB for 10^6.")
    parser.add_argument(
        "--steps", nargs="+", default=[], help="Run those again whose names begin so."
    )
    parser.add_argument("--own", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.own:
        {"read": read, "stub": stub, "merge": merge, "halve": halve}[options.own[0]](
            int(options.own[1])
        )
        return
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    options.work.mkdir(parents=True, exist_ok=True)
    record = options.work / "scale.json"
    known = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    for count in options.counts:
        folder = options.work.resolve() / str(count)
        if not (folder / "captions.csv").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            before = Path.cwd()
            os.chdir(folder)
            make_collection(count)
            os.chdir(before)
            (folder / "params.yaml").write_text(EXPERIMENT, encoding="utf-8")
        for step in STEPS:
            asked = any(step.name.startswith(name) for name in options.steps)
            if f"{step.name} {count}" in known and not asked:
                continue
            cost = measure(step, count, folder)
            known[f"{step.name} {count}"] = asdict(cost)
            record.write_text(json.dumps(known, indent=1), encoding="utf-8")
            print(
                f"{count:8} {step.name:28} {cost.seconds:8.1f} s {cost.cpu:8.1f} CPU s "
                f"{cost.own:6.2f} GB, {cost.peak:6.2f} with files {cost.disk:9.1f} MB",
                flush=True,
            )
    print_table(options.counts, known)


def print_table(counts: list[int], known: dict[str, dict[str, float]]) -> None:
    """Print the cost of every step for the largest collection, with exponents."""
    print(f"\nof {counts[-1]} images; exponents over all collections, and of the last two")
    columns = "".join(f"{name:>8} {'exponents':>12}" for name in ("wall s", "CPU s", "own GB"))
    print(f"{'step':28}{columns} {'disk MB':>9}")
    for step in STEPS:
        costs = [known[name] for n in counts if (name := f"{step.name} {n}") in known]
        if len(costs) < len(counts):
            print(f"{step.name:28} was not run for all")
            continue
        cells = ""
        for column, form in (("seconds", "8.1f"), ("cpu", "8.1f"), ("own", "8.2f")):
            values = [cost[column] for cost in costs]
            cells += f"{values[-1]:{form}} {exponents(counts, values)}"
        over = " over" if costs[-1]["own"] > LIMIT_GB else ""
        print(f"{step.name:28}{cells} {costs[-1]['disk']:9.1f}{over}")


if __name__ == "__main__":
    main()
