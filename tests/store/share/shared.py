"""A small feature set for tests of sharing, and how two sets are compared."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.datasets.manifest import ImageEntry, Manifest
from pipeline.store.builder.arrays import write_features
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.share.cards.card import write_card
from tests.project import PROJECT
from tests.store.shards.factories import contents as files_of

ROWS, DIM, ROWS_PER_SHARD = 60, 2048, 20
IDS = [f"bild/é{7 * row % ROWS}.jpg" for row in range(ROWS)]
SHARDS = [f"shard-{number:05d}-of-00003.h5" for number in range(3)]
FAILED = 3


def make(folder: Path, name: str = "made", compress: bool = False, seed: int = 0) -> FeatureSet:
    """Write a set of 60 rows in three shards, one row failed, with a card and an encoder."""
    array = np.random.default_rng(seed).standard_normal((ROWS, DIM)).astype(np.float32)
    array[:, 1::2] = 0
    status = np.zeros(ROWS, int)
    status[FAILED] = 1
    write_features(
        folder, IDS, array, recipe={"name": name}, status=status, dataset="d",
        rows_per_shard=ROWS_PER_SHARD, compress=compress,
    )  # fmt: skip
    write_card(folder, licence="CC0")
    encoder = folder.with_name(f"{folder.name}.encoder")
    encoder.mkdir(exist_ok=True)
    (encoder / "encoder.json").write_text("{}")
    return FeatureSet(folder)


def same_files(folder: Path, source: Path, left: tuple[str, ...] = ()) -> None:
    """Assert that two sets and their encoders are the same bytes."""
    for suffix in ("", ".encoder"):
        there = files_of(folder.with_name(folder.name + suffix))
        assert {n: b for n, b in there.items() if n not in left} == files_of(
            source.with_name(source.name + suffix)
        )


def dataset(folder: Path, splits: dict[str, list[str]], captions: int = 0) -> Path:
    """Write a dataset of these images."""
    texts = tuple("ab"[:captions])
    entries = [ImageEntry(i, i, split, texts) for split, ids in splits.items() for i in ids]
    Manifest("d", folder, tuple(entries), "free", "drawn", {}).write(folder)
    return folder


def pull_command(arguments: list[str], **options: Any) -> "subprocess.Popen[str]":
    """Start `pipeline shards pull`."""
    code = "import sys; sys.argv[0] = 'pipeline'; from stages.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "shards", "pull", *arguments],
        env=os.environ | {"PYTHONPATH": str(PROJECT), "no_proxy": "*"},
        text=True,
        **options,
    )
