"""Coverage of the intervals of `pipeline compare` for n images, by simulation.

Run as `python -m bench.comparing [--trials N]`; two minutes on one core. Two systems rank the
queries of images from a synthetic population. The difficulty of an image is shared by both systems,
that of a query (the image and its five captions) is not. The ranks resemble those of a weak, a
medium and a strong system; the second system is equal to the first, or better. A trial draws n
images and checks whether the 95 % interval of the difference excludes the difference of the
population, which should happen in 5 of 100 trials. Prints one row per n, for the paired bootstrap
over images that `pipeline compare` uses from `FEWEST_IMAGES` on, and for the sign flips that it
uses below: the mean over the six pairs of systems, and the worst pair.
"""

import argparse

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.recall import CUTOFFS
from pipeline.retrieval.significance.bootstrap import LEVEL
from pipeline.retrieval.significance.sign_flips import sign_flip_interval
from pipeline.retrieval.significance.small_galleries import FEWEST_IMAGES

CAPTIONS, POPULATION = 5, 50_000
SIZES = (6, 10, 15, 20, 30, 50, 75, 100, 200, 300)
SYSTEMS = {"weak": 3.0, "middling": 1.0, "strong": -1.5}
GAINS = (0.0, 0.25)
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    trials = parser.parse_args().trials
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
