"""Two systems compared: the paired bootstrap over images and seeds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.bootstrap import RankedGallery
from pipeline.retrieval.ranking.protocols import Protocol, resolve_protocol
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.studies.claims.compare import compare
from pipeline.studies.significance.compare import RankedEmbeddings, read_ranked, rsum_of
from pipeline.studies.significance.paired import compare_trainings, figure, margins, mean_of
from pipeline.studies.significance.sign_flips import LEAST_SAMPLED_P
from tests.retrieval.factories import noisy, written


@pytest.mark.parametrize(("trainings", "folds"), [(3, 1), (1, 2)])
def test_margins_draw_images_and_seeds(trainings: int, folds: int) -> None:
    """Against a loop that draws the images of each fold once for both systems."""
    rng = np.random.default_rng(1)

    def training() -> list[RankedGallery]:
        rows = np.repeat(np.arange(7), 2)
        return [
            RankedGallery(rng.integers(15, size=7), rng.integers(15, size=14), rows)
            for _ in range(folds)
        ]

    def rsum(of: RankedGallery, draw: np.ndarray) -> float:
        captions = [c for image in draw for c in np.flatnonzero(of.image_rows == image)]
        return sum(
            100.0 * float(np.mean(ranks < k))
            for ranks in (of.image_to_text[draw], of.text_to_image[captions])
            for k in (1, 5, 10)
        )

    first, second = [training() for _ in range(trainings)], [training()]
    drawing, seeds = np.random.default_rng(7), np.random.default_rng([7, 1])
    # All draws of the first fold come before those of the second.
    draws = [[drawing.integers(7, size=7) for _ in range(50)] for _ in range(folds)]
    drawn = seeds.integers(trainings, size=(50, trainings))

    def mean(of: list[RankedGallery], at: int) -> float:
        return float(np.mean([rsum(g, draws[k][at]) for k, g in enumerate(of)]))

    expected = [
        np.mean([mean(first[k], at) for k in of]) - mean(second[0], at)
        for at, of in enumerate(drawn)
    ]
    ours, theirs = ([[rsum_of(g) for g in of] for of in side] for side in (first, second))
    np.testing.assert_allclose(margins(ours, theirs, 50, 7), expected, rtol=1e-12, atol=1e-9)
    assert not margins(theirs, theirs, 20).any()
    if folds > 1:
        with pytest.raises(ValueError, match=r"\[7\] and \[7, 7\] images"):
            margins(ours, [theirs[0][:1]], 20)


def test_a_difference_is_decided_where_it_is_beyond_the_draws(tmp_path: Path) -> None:
    good = [written(tmp_path, f"good{k}", noisy(120, 0.5, k)) for k in (1, 2, 3)]
    near = [written(tmp_path, f"near{k}", noisy(120, 0.52, 10 + k)) for k in (1, 2, 3)]
    poor = [written(tmp_path, "poor", noisy(120, 1.5, 4))]

    found = compare(good, poor, resamples=2000)
    assert found.decided
    assert (found.p, found.p_is_bound) == (2 / 2001, True)
    assert found.low < found.margin < found.high
    assert found.first[1] == pytest.approx(recall_table(noisy(120, 0.5, 2))["rsum"])
    assert found.num_images == 120
    other_way = compare(poor, good, resamples=2000)
    assert (other_way.margin, other_way.low) == (-found.margin, pytest.approx(-found.high, abs=9))
    close = compare(good, near, resamples=2000)
    assert (close.decided, close.p_is_bound) == (False, False)
    same = compare(poor, poor, resamples=500)
    assert (same.margin, same.low, same.high, same.p) == (0.0, 0.0, 0.0, 1.0)


def test_few_images_decide_nothing(tmp_path: Path) -> None:
    """An exact interval and p stand beside the verdict, however far apart the two are."""
    good, poor = noisy(40, 0.1, 1), noisy(40, 9.0, 2)
    files = written(tmp_path, "good", good), written(tmp_path, "poor", poor)
    found = compare([files[0]], [files[1]])
    assert found.margin == pytest.approx(
        recall_table(good)["rsum"] - recall_table(poor)["rsum"], abs=1e-9
    )
    assert found.p == LEAST_SAMPLED_P
    assert found.p_is_bound
    assert 0 < found.low < found.margin < found.high
    assert (found.decided, found.verdict) == (False, "too few images to decide")
    assert found.num_images == 40
    same = compare([files[0]], [files[0]])
    assert (same.low, same.high, same.p, same.verdict) == (0.0, 0.0, 1.0, "equal on every image")
    two = [written(tmp_path, f"two{noise}", noisy(2, noise, 1)) for noise in (0.1, 9.0)]
    assert compare(two[:1], two[1:]).verdict in ("too few images to decide", "equal on every image")


@pytest.mark.parametrize(
    ("swapped", "differing", "verdict"),
    [(4, 4, "too few images to decide, as 4 of them differ"), (9, 8, "decided")],
)
def test_few_differences_decide_nothing(
    swapped: int, differing: int, verdict: str, tmp_path: Path
) -> None:
    """Four differences of one sign are common by chance, and a bootstrap leaves 0 out."""
    e = noisy(200, 0.01, 1)
    rows = e.caption_embeddings.copy()
    rows[: 2 * swapped] = rows[: 2 * swapped][::-1]
    files = [
        written(tmp_path, name, replace(e, caption_embeddings=of))
        for name, of in (("right", e.caption_embeddings), ("swapped", rows))
    ]
    found = compare(files[:1], files[1:])
    assert (found.differing, found.verdict) == (differing, verdict)
    assert found.low > 0
    assert found.p < 0.05


def test_the_interval_leaves_out_0_just_where_p_is_below_5_percent() -> None:
    """Differences of 60 images, shifted until their mean is barely above 0 or barely not."""
    noise = np.random.default_rng(3).normal(size=60)
    noise -= noise.mean()
    everything = np.arange(60)
    decided = set()
    for shift in np.linspace(0.2, 0.32, 25):
        one = [[mean_of(noise + shift, everything, 60)]]
        found = compare_trainings("any", one, [[mean_of(np.zeros(60), everything, 60)]], 999)
        assert (found.low > 0 or found.high < 0) == (found.p < 0.05)
        decided.add(found.decided)
    assert decided == {True, False}


def _ranked(e: Embeddings, folder: Path, protocol: Protocol | None = None) -> RankedEmbeddings:
    return read_ranked(
        written(folder, "e", e), protocol or Protocol("all", captions_per_image=None)
    )


def test_sets_of_captions_are_drawn_with_their_images(tmp_path: Path) -> None:
    ranked = _ranked(noisy(30, 0.5, 1), tmp_path, Protocol("two", captions_per_image=2, sets=2))
    (part,) = ranked.parts("image_to_text_r1")
    times = np.zeros((1, 30))
    times[0, [3, 3, 8]] = 1, 1, 1
    times[0, 3] = 2
    hits = [100.0 * (g.ranked.image_to_text < 1) for g in ranked.galleries]
    assert part.figures(times)[0] == pytest.approx(
        np.mean([(2 * of[3] + of[8]) / 3 for of in hits])
    )


def test_long_captions_against_short_ones(tmp_path: Path) -> None:
    e = noisy(60, 0.8, 1)
    lengths = {c: 5 + (k % 3 == 0) * 4 for k, c in enumerate(e.caption_ids)}
    ranked = replace(_ranked(e, tmp_path), lengths=lambda: lengths)
    ranks = ranked.galleries[0].ranked.text_to_image
    long = np.array([lengths[c] == 9 for c in e.caption_ids])
    expected = 100 * np.mean(ranks[long] < 10) - 100 * np.mean(ranks[~long] < 10)
    measure = "text_to_image_r10_long_less_short"
    assert figure(ranked.parts(measure)) == pytest.approx(expected)
    with pytest.raises(EmbeddingsError, match="pass `dataset="):
        _ranked(e, tmp_path).parts(measure)
    with pytest.raises(EmbeddingsError, match="captions that the dataset lacks, first 'im0#0'"):
        replace(ranked, lengths=lambda: {"x": 1}).parts(measure)
    with pytest.raises(EmbeddingsError, match="no caption has more words"):
        replace(ranked, lengths=lambda: dict.fromkeys(lengths, 3)).parts(measure)


def test_folds_are_compared_fold_by_fold(tmp_path: Path) -> None:
    protocol = replace(resolve_protocol("all", 2), name="folds", images=60, folds=2)
    ranked = _ranked(noisy(120, 0.5, 1), tmp_path, protocol)
    assert [part.each.shape[1] for part in ranked.parts("rsum")] == [60, 60]
