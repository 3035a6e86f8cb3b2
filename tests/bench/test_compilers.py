"""The comparison with compilers skips those that are not installed."""

import sys
from pathlib import Path

import pytest

from bench.compilers import main


def test_missing_compilers_are_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    small = ["--networks", "timm:test_resnet", "--precisions", "bf16", "--batches", "1"]
    options = [*small, "--compilers", "OpenVINO", "--turns", "1", "--images", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["compilers", *options])
    main()
    _, _, _, skipped, *rows = capsys.readouterr().out.splitlines()
    assert skipped.split()[:3] == ["OpenVINO", "skipped:", "ModuleNotFoundError:"]
    assert [(row.split()[0], row.split()[2]) for row in rows][1] == ("ours", "1.00")
    differences = [float(row.split()[3]) for row in rows]
    assert all(0 < difference < 2e-2 for difference in differences)
