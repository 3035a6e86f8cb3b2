"""Coverage of the intervals of `pipeline compare`, by simulation.

Run as `python -m bench.comparing [--trials N]`; two minutes on one core. Two systems rank the
queries of images from a synthetic population. The difficulty of an image is shared by both systems,
that of a query (the image and its five captions) is not. The ranks resemble those of a weak, a
medium and a strong system; the second system is equal to the first, or better. A trial draws n
images and checks whether the 95 % interval of the difference excludes the difference of the
population, which should happen in 5 of 100 trials. Prints one row per n, for the paired bootstrap
over images that `pipeline compare` uses from `FEWEST_IMAGES` on, and for the sign flips that it
uses below: the mean over the six pairs of systems, and the worst pair.

With `--trainings`, two equal systems have 1,000 images, one to three trainings each, and each
training adds a normal effect to the `rsum` of all images; its standard deviation is the spread of
`rsum` over trainings on the same images. Prints how often the bootstrap over images and trainings
finds a difference, for three pairs of systems and the half width of their intervals over images.
"""

import argparse

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.measures import CUTOFFS
from pipeline.retrieval.ranking.bootstrap import LEVEL
from pipeline.retrieval.ranking.small_galleries import FEWEST_IMAGES
from pipeline.studies.significance.sign_flips import sign_flip_interval

CAPTIONS, POPULATION = 5, 50_000
SIZES = (6, 10, 15, 20, 30, 50, 75, 100, 200, 300)
SYSTEMS = {"weak": 3.0, "middling": 1.0, "strong": -1.5}
GAINS = (0.0, 0.25)
SIDES = ((1, 1), (3, 1), (3, 3))
"""Trainings of the two systems."""
SPREADS = (0.0, 2.0, 3.0, 4.0)
IMAGES = 1000
_RESAMPLES = 1000

Doubles = npt.NDArray[np.float64]


def scores(hardness: Doubles, level: float, rng: np.random.Generator) -> Doubles:
    """Return the contribution of each image to `rsum`, 0 to 600, for a system of some strength."""
    noise = rng.normal(size=(len(hardness), 1 + CAPTIONS))
    ranks = np.exp(level + 1.2 * hardness[:, None] + 1.2 * noise)
    ranks[:, 0] = ranks[:, :1].min(axis=1) / 2  # an image has five captions to find
    hits = 100.0 * np.sum([ranks < k for k in CUTOFFS], axis=0)
    found: Doubles = hits[:, 0] + hits[:, 1:].mean(axis=1)
    return found


def bootstrap_bounds(drawn: Doubles, rng: np.random.Generator) -> Doubles:
    """Return (2, trials), percentile intervals of the means of `drawn`, (trials, images)."""
    images = drawn.shape[1]
    times = rng.multinomial(images, np.full(images, 1 / images), size=_RESAMPLES)
    means = times.astype(np.float64) @ drawn.T / images
    bounds: Doubles = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return bounds


def flip_bounds(drawn: Doubles) -> Doubles:
    """Return (2, trials), the interval by sign flips of each trial."""
    return np.array([sign_flip_interval(row) for row in drawn]).T


def missed(bounds: Doubles, value: float) -> float:
    """Return the percentage of trials whose interval excludes a value."""
    return 100 * float(np.mean((bounds[0] > value) | (bounds[1] < value)))


def trained_bounds(
    margins: Doubles, spread: float, sides: tuple[int, int], rng: np.random.Generator
) -> Doubles:
    """Return (2, trials), percentile intervals over images and trainings.

    Parameters
    ----------
    margins : (resamples, trials). The difference of the systems in each resample of the images,
        without the effects of trainings.
    spread : standard deviation of the effects.
    sides : number of trainings of each system.
    """
    resamples, trials = margins.shape
    drawn = margins
    for sign, count in zip((1, -1), sides, strict=True):
        effects = rng.normal(scale=spread, size=(count, trials))
        # As in `paired.margins`, each resample draws as many trainings as there are.
        chosen = rng.multinomial(count, np.full(count, 1 / count), size=resamples)
        drawn = drawn + sign * (chosen @ effects / count)
    bounds: Doubles = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return bounds


def image_margins(level: float, trials: int, rng: np.random.Generator) -> Doubles:
    """Return (resamples, trials), the difference of two equal systems in each resample."""
    times = rng.multinomial(IMAGES, np.full(IMAGES, 1 / IMAGES), size=_RESAMPLES)
    differences = np.empty((IMAGES, trials))
    for trial in range(trials):
        hardness = rng.normal(size=IMAGES)
        differences[:, trial] = scores(hardness, level, rng) - scores(hardness, level, rng)
    return times.astype(np.float64) @ differences / IMAGES


def print_trainings(trials: int) -> None:
    """Print how often equal systems differ, by the number and the spread of trainings."""
    rng = np.random.default_rng(0)
    margins = {name: image_margins(level, trials, rng) for name, level in SYSTEMS.items()}
    widths = [np.ptp(trained_bounds(of, 0.0, (1, 1), rng), axis=0) for of in margins.values()]
    heads = [f"{name}, +-{w.mean() / 2:.1f}" for name, w in zip(margins, widths, strict=True)]
    print(f"| trainings | spread | {' | '.join(heads)} |\n|---|---:|{'---:|' * len(heads)}")
    for sides in SIDES:
        for spread in SPREADS:
            bounds = [trained_bounds(of, spread, sides, rng) for of in margins.values()]
            cells = " | ".join(f"{missed(found, 0.0):.1f} %" for found in bounds)
            print(f"| {sides[0]} and {sides[1]} | {spread:g} | {cells} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--trainings", action="store_true")
    given = parser.parse_args()
    trials = given.trials
    if given.trainings:
        print_trainings(trials)
        return
    rng = np.random.default_rng(0)
    hardness = rng.normal(size=POPULATION)
    cases = [
        (name, gain, scores(hardness, level - gain, rng) - scores(hardness, level, rng))
        for name, level in SYSTEMS.items()
        for gain in GAINS
    ]
    for name, gain, difference in cases:
        print(f"{name}, gain {gain}: margin {difference.mean():+.1f}")
    print("\n| images | bootstrap misses | worst pair | sign flips miss | worst pair |")
    print("|---:|---:|---:|---:|---:|")
    for size in SIZES:
        found = []
        for _, _, difference in cases:
            drawn = difference[rng.integers(POPULATION, size=(trials, size))]
            value = float(difference.mean())
            misses = [missed(bootstrap_bounds(drawn, rng), value)]
            if size < FEWEST_IMAGES:
                misses.append(missed(flip_bounds(drawn[: trials // 4]), value))
            found.append(misses)
        cells = [
            f"{share:.1f} %"
            for of_method in zip(*found, strict=True)
            for share in (np.mean(of_method), max(of_method))
        ]
        print(f"| {size} | {' | '.join([*cells, '-', '-'][:4])} |", flush=True)


if __name__ == "__main__":
    main()
