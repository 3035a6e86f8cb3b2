"""Features on a scale: statistics, unit vectors and standardised ones against numpy."""

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.heads.inputs.feature_rows import ArrayRows
from pipeline.heads.layers.scaling import (
    Standardised,
    UnitLength,
    UnitRows,
    mean_and_scale,
    signed_roots,
)
from tests.heads.factories import all_of


def test_statistics_in_blocks_equal_those_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.heads.inputs.feature_rows._BLOCK_BYTES", 10_000)
    array = (1000 + np.random.default_rng(0).standard_normal((70, 3, 4, 6))).astype(np.float32)
    array[::7] *= 3
    mean, scale = mean_and_scale(ArrayRows(array))
    wide = array.astype(np.float64)
    expected = wide.mean(axis=(0, 1, 2))
    np.testing.assert_allclose(mean, expected, rtol=1e-13)
    assert scale == pytest.approx(np.sqrt(np.square(wide - expected).mean()), rel=1e-12)
    assert mean_and_scale(ArrayRows(array[:1, 0, 0]))[1] == 0.0


def test_a_grid_has_one_mean_vector_and_a_deviation_of_one() -> None:
    normal = np.random.default_rng(0).standard_normal
    grid = (normal((30, 4, 5)) + 5 * normal((4, 5))).astype(np.float32)
    scaled = Standardised(5)
    scaled.fit(ArrayRows(grid))
    seen = scaled(torch.from_numpy(grid))
    torch.testing.assert_close(seen.mean(dim=(0, 1)), torch.zeros(5), atol=1e-5, rtol=0)
    assert float(seen.square().mean()) == pytest.approx(1.0, rel=1e-4)


def test_unit_rows_are_those_that_were_changed_before() -> None:
    array = np.random.default_rng(0).standard_normal((9, 5)).astype(np.float32)
    array[4] = 0.0
    centre = np.arange(5) / 7
    for change, changed in (
        (signed_roots, np.sign(array) * np.sqrt(np.abs(array))),
        (lambda rows: rows - centre, array - centre),
        (lambda rows: rows, array),
    ):
        norms = np.linalg.norm(changed, axis=1, keepdims=True)
        expected = changed / np.where(norms > 0, norms, 1)
        rows = UnitRows(ArrayRows(array), change)
        assert (len(rows), rows.row_shape) == (9, (5,))
        np.testing.assert_allclose(all_of(rows), expected, rtol=1e-6, atol=1e-7)
        asked = rows.take(np.array([8, 0, 8]))
        assert asked.dtype == np.float32
        np.testing.assert_array_equal(asked, all_of(rows)[[8, 0, 8]])
        assert rows.digest() == ArrayRows(all_of(rows)).digest()


def test_a_network_is_given_features_as_they_are_until_they_are_standardised() -> None:
    rows = ArrayRows((5 + 3 * np.random.default_rng(0).standard_normal((40, 6))).astype(np.float32))
    x = torch.from_numpy(all_of(rows))
    plain, unit = Standardised(6), Standardised(6, nn.Linear(6, 4), UnitLength())
    assert torch.equal(plain(x), x)
    assert sorted(plain.state_dict()) == ["mean", "scale"]
    torch.testing.assert_close(unit(x).norm(dim=1), torch.ones(40))
    plain.fit(rows)
    seen = plain(x)
    torch.testing.assert_close(seen.mean(dim=0), torch.zeros(6), atol=1e-5, rtol=0)
    assert float(seen.square().mean()) == pytest.approx(1.0, rel=1e-4)
    same = Standardised(6)
    same.fit(ArrayRows(np.ones((3, 6), np.float32)))
    assert not same(torch.ones(2, 6)).any(), "features that never vary are divided by 1"
