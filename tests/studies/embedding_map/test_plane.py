"""Closeness against loops over all pairs, planes against scikit-learn's PCA."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from pipeline.studies.embedding_map.plane import closeness, common_plane, placed, principal_plane


@pytest.mark.parametrize("counts", [(1, 2), (3, 3), (5, 1, 4, 2)])
def test_closeness_is_the_mean_over_pairs(counts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(counts))
    image_of_caption = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    rows = rng.normal(size=(len(image_of_caption), 7)).astype(np.float32)
    rows[0] = 0
    found: dict[bool, list[float]] = {True: [], False: []}
    for i, a in enumerate(rows.astype(float)):
        for j, b in enumerate(rows.astype(float)):
            if i != j:
                size = np.linalg.norm(a) * np.linalg.norm(b)
                found[image_of_caption[i] == image_of_caption[j]].append(
                    a @ b / size if size else 0.0
                )
    measured = closeness(rows, image_of_caption)
    assert measured is not None
    assert measured.within == pytest.approx(np.mean(found[True]))
    assert measured.between == pytest.approx(np.mean(found[False]))


def test_no_pairs_no_closeness() -> None:
    rows = np.ones((3, 2), np.float32)
    assert closeness(rows, np.array([0, 1, 2])) is None
    assert closeness(rows, np.array([0, 0, 0])) is None


@pytest.mark.parametrize(("number", "dim"), [(40, 9), (5, 30), (1, 4), (6, 1)])
def test_the_plane_is_that_of_principal_components(number: int, dim: int) -> None:
    rows = np.random.default_rng(dim).normal(size=(number, dim)).astype(np.float32)
    places, shares = principal_plane(rows)
    kept = min(2, number - 1, dim)
    assert places.shape == (number, 2)
    assert not places[:, kept:].round(6).any()
    if kept:
        peer = PCA(kept).fit(rows.astype(float))
        expected = peer.transform(rows.astype(float))
        assert np.abs(places[:, :kept]) == pytest.approx(np.abs(expected), abs=1e-6)
        assert shares[:kept] == pytest.approx(peer.explained_variance_ratio_)
    again, _ = principal_plane(rows)
    assert (again == places).all()


def test_rows_without_two_principal_components_have_no_tsne() -> None:
    # scikit-learn's crashes, for equal rows, or raises.
    for rows in (np.full((40, 12), 0.3), np.zeros((40, 12)), np.arange(40.0)[:, None]):
        places, shares = placed(rows, "tsne")
        assert np.isfinite(places).all()
        assert shares is not None


def test_a_common_plane_is_that_of_sides_around_their_means() -> None:
    rng = np.random.default_rng(3)
    one, other = rng.normal(size=(5, 6)) + 50, rng.normal(size=(7, 6)) - 9
    first, second, shares = common_plane(one.astype(np.float32), other.astype(np.float32))
    rows = np.concatenate([one - one.mean(axis=0), other - other.mean(axis=0)])
    peer = PCA(2).fit(rows)
    assert np.abs(np.concatenate([first, second])) == pytest.approx(
        np.abs(peer.transform(rows)), abs=1e-4
    )
    assert shares == pytest.approx(tuple(peer.explained_variance_ratio_), abs=1e-5)
    assert first.mean(axis=0) == pytest.approx(0, abs=1e-9)
