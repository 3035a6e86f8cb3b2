"""The small project of the campaign, and the commands that are tested in it.

24 drawn scenes, and networks that train for three epochs, so that a command takes a second or two,
and a thousand of them an hour. The inputs of every command exist in the project; each command
writes its own output.
"""

import hashlib
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.endurance.running import PROJECT, start

LITE = "efficientnet-lite0-pool"
NETWORK, CCA = "wang2016-nonlinear-bidirectional-structure", "wang2016-cca"
MEAN = "mean-glove-6b-50d"


@dataclass(frozen=True)
class Command:
    """A command of the campaign.

    Attributes
    ----------
    name : name in tables.
    arguments : arguments of `pipeline`.
    makes : files and folders that it writes.
    share : how often it is tested, relative to the others.
    other : arguments that produce an output which it replaces.
    """

    name: str
    arguments: tuple[str, ...]
    makes: tuple[str, ...]
    share: float = 1.0
    other: tuple[str, ...] = ()


def _command(name: str, text: str, *makes: str, share: float = 1.0, other: str = "") -> Command:
    return Command(name, tuple(text.split()), makes, share, tuple(other.split()))


_EXTRACT = (
    f"extract --recipe {LITE} --dataset data/scenes --weights random:0 --limit 12 --out made/pool "
    "--rows-per-shard 5 --batch-size 2 --threads 1 --readers 2"
)
_TEXT = "text --dataset data/scenes --encoder"

COMMANDS = (
    _command(
        "prepare scenes", "prepare scenes --num-images 24 --seed 1 --out made/drawn", "made/drawn",
        other="--seed 2",
    ),
    _command(
        "prepare folder",
        "prepare folder --root data/scenes/images --captions captions.csv --out made/mine",
        "made/mine",
    ),
    _command("extract", _EXTRACT, "made/pool", share=2),
    _command("extract, float16, gzip", f"{_EXTRACT} --storage float16 --compress", "made/pool"),
    _command("extract --workers 2", f"{_EXTRACT} --workers 2", "made/pool", share=0.2),
    _command("text mean", f"{_TEXT} mean --out made/text --rows-per-shard 50", "made/text"),
    _command("text bow", f"{_TEXT} bow --out made/text", "made/text"),
    _command("text token-ids", f"{_TEXT} token-ids --out made/text", "made/text"),
    _command(
        "text fisher, pca",
        f"{_TEXT} fv-hglmm --components 2 --sample 300 --pca 8 --out made/text --rows-per-shard 50",
        "made/text",
        share=2,
    ),
    _command(
        "text --workers 2", f"{_TEXT} mean --out made/text --workers 2", "made/text", share=0.15
    ),
    _command(
        "vectors word2vec",
        "vectors --train word2vec --dim 8 --epochs 3 --min-count 1 --dataset data/scenes "
        "--out made/w2v.safetensors",
        "made/w2v.safetensors",
        other="--seed 3",
    ),
    _command(
        "vectors fasttext",
        "vectors --train fasttext --dim 8 --epochs 3 --min-count 1 --buckets 2000 "
        "--dataset data/scenes --out made/fasttext.safetensors",
        "made/fasttext.safetensors",
        other="--dim 4",
    ),
    _command(
        "train network", f"train --experiment {NETWORK} --out made/head", "made/head", share=2,
        other="--seed 5",
    ),
    _command("train cca", f"train --experiment {CCA} --out made/head", "made/head"),
    _command("embed", f"embed --experiment {NETWORK} --out made/embedding.h5", "made/embedding.h5"),
    _command(
        "embed --workers 2",
        f"embed --experiment {NETWORK} --out made/embedding.h5 --workers 2",
        "made/embedding.h5",
        share=0.15,
    ),
    _command(
        "evaluate", f"evaluate data/embeddings/scenes/{NETWORK}.h5 --out made/table", "made/table"
    ),
    _command("report", "report --out made/report --html made/html", "made/report", "made/html"),
    _command("shards merge", "shards merge data/parts/a data/parts/b --out made/all", "made/all"),
    _command(
        "shards export",
        f"shards export data/features/scenes/{LITE} --to npy --out made/npy/x_ims.npy",
        "made/npy",
    ),
    _command("shards index", "shards index data/unindexed", "data/unindexed/index.json"),
    _command(
        "run",
        f"run {CCA} --dataset data/scenes --max-epochs 2 --size tiny",
        "data/text/scenes", "data/heads/scenes", "data/embeddings/scenes",
        "data/evaluations/scenes", "data/report",
    ),
)  # fmt: skip

_STEPS = (
    "prepare scenes --num-images 24 --seed 0 --out data/scenes",
    f"extract --recipe {LITE} --dataset data/scenes --out data/features/scenes/{LITE} "
    "--rows-per-shard 10",
    f"{_TEXT} mean --out data/text/scenes/{MEAN}",
    f"extract --recipe {LITE} --dataset data/scenes --split val --out data/parts/a",
    f"extract --recipe {LITE} --dataset data/scenes --split test --out data/parts/b",
    f"train --experiment {NETWORK}",
    f"embed --experiment {NETWORK}",
    f"evaluate data/embeddings/scenes/{NETWORK}.h5 --out data/evaluations/scenes/{NETWORK}",
)


def make_project(folder: Path) -> None:
    """Write the inputs of all commands to a new folder."""
    part = folder.with_name("part")
    shutil.rmtree(part, ignore_errors=True)
    (part / "made").mkdir(parents=True)
    params = yaml.safe_load((PROJECT / "params.yaml").read_text())
    sizes = {"hidden": 16, "dim": 8, "epochs": 3, "batch_size": 20}
    params |= {
        "experiments": {
            NETWORK: {"images": LITE, "captions": MEAN, "settings": sizes},
            CCA: {"images": LITE, "captions": MEAN},
        },
        "caption_features": {MEAN: {"encoder": "mean"}},
        "image_features": [LITE],
        "word_vectors": {},
        "ensembles": {},
    }
    (part / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    for step in _STEPS:
        undisturbed(step.split(), part)
    pictures = sorted(path.name for path in (part / "data/scenes/images").iterdir())
    lines = [f"{name},picture number {number}" for number, name in enumerate(pictures)]
    (part / "captions.csv").write_text("\n".join(["path,caption", *lines]) + "\n")
    shutil.copytree(part / f"data/features/scenes/{LITE}", part / "data/unindexed")
    (part / "data/unindexed/index.json").unlink()
    part.rename(folder)


def undisturbed(arguments: Sequence[str], folder: Path) -> float:
    """Run a command that must succeed; return its seconds."""
    started = time.monotonic()
    running = start(arguments, folder, folder.with_name("said.txt"))
    if status := running.finish(300):
        raise RuntimeError(f"{' '.join(arguments)} ended with {status}: {running.text()}")
    return time.monotonic() - started


def remove(folder: Path, paths: Sequence[str]) -> None:
    """Remove files and folders below a project folder."""
    for path in paths:
        if (folder / path).is_dir():
            shutil.rmtree(folder / path)
        else:
            (folder / path).unlink(missing_ok=True)


def contents(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by relative path.

    Records of finished sets are excluded, since they depend on inodes and file times, and with them
    the `.gitignore` of their folder, which may have nothing else.
    """
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".finished" and path.name != ".gitignore"
    }
