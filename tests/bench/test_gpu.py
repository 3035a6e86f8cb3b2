"""The benchmark of a GPU runs without one, at a tiny size."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image

from bench.gpu import shared_card
from pipeline.store.workers.place import _gpus
from tests.project import PROJECT


def test_workers_share_the_first_visible_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    with patch.dict(os.environ, shared_card(2)):
        assert _gpus() == ["3", "3"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert shared_card(1) == {"CUDA_VISIBLE_DEVICES": "0"}


@pytest.mark.slow
def test_the_measurements_run_on_a_processor(tmp_path: Path) -> None:
    """All parts but `workers` and `tests`, whose work other tests of the suite do."""
    rng = np.random.default_rng(0)
    for number in range(8):
        pixels = rng.integers(0, 256, (120, 160, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.jpg")
    tiny = ["--recipes", "timm:test_resnet", "timm:test_vit", "--finetune", "timm:test_resnet"]
    small = ["--count", "4", "--batch-size", "2", "--seconds", "0.01", "--images", str(tmp_path)]
    small += ["--ranked", "30"]
    parts = ["extract", "train", "rank", "caption"]
    command = [sys.executable, "-m", "bench.gpu", *parts, "--device", "cpu", *tiny, *small]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = run.stdout.splitlines()
    for recipe in ("timm:test_resnet", "timm:test_vit"):
        precisions = [line.split()[1] for line in lines if line.startswith(f"{recipe} ")]
        assert precisions == ["float32", "tf32", "bf16", "fp16"]
    assert sum(line.startswith("two-branch head") for line in lines) == 2
    assert sum(line.startswith("fine-tuning") for line in lines) == 2
    assert "ranks the same on the 30 images" in lines
    assert sum(line.endswith(" sentences are the same") for line in lines) == 3
