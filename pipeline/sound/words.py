"""Sound words: a codebook of windows of sound, and the bags of its words."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from threadpoolctl import threadpool_limits

from pipeline.errors import PipelineError
from pipeline.files import created_by
from pipeline.hashing import canonical_json
from pipeline.networks.tensor_file import read_metadata, read_tensors, write_tensors
from pipeline.sound.mfcc import Mfcc
from pipeline.sound.recipes import BagRecipe

SAMPLE = 100_000
"""Windows that a codebook is fitted to, spread evenly over the clips."""
NEAREST = 4
"""Words that a window counts for where the assignment is soft."""

_KEY = "codebook"
_ITERATIONS = 50
_WINDOWS_AT_ONCE = 4096


class SoundWordsError(PipelineError):
    """A codebook of sound words cannot be fitted or read, or is of other windows."""


@dataclass(frozen=True)
class SoundWordsMetadata:
    """What a codebook was fitted to.

    Attributes
    ----------
    dataset, split : whose clips.
    clips, windows : with sound, and of them in the sample.
    clips_sha256 : of the ids and sizes in bytes of all clips of the split.
    seed : of the sample and of k-means.
    mfcc : of the windows.
    inertia : mean squared distance of a window to its word, in standard deviations.
    iterations : of k-means; `_ITERATIONS` at most.
    created_by : software and versions.
    requested : how many words were requested, where there were fewer different windows; None where
        all of them were fitted.
    """

    dataset: str
    split: str
    clips: int
    windows: int
    clips_sha256: str
    seed: int
    mfcc: dict[str, int]
    inertia: float
    iterations: int
    created_by: str
    requested: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; `requested` only where fewer were fitted."""
        value = asdict(self)
        if self.requested is None:
            del value["requested"]
        return value


@dataclass(frozen=True, eq=False)
class SoundWords:
    """A codebook.

    Attributes
    ----------
    metadata : what it was fitted to.
    mean, scale : (dim,) float32; a window is taken less the mean and divided by the scale.
    words : (words, dim) float32, of windows so treated.
    """

    metadata: SoundWordsMetadata
    mean: npt.NDArray[np.float32]
    scale: npt.NDArray[np.float32]
    words: npt.NDArray[np.float32]

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of its numbers and of the windows' settings."""
        digest = hashlib.sha256(canonical_json(self.metadata.mfcc).encode())
        for array in (self.mean, self.scale, self.words):
            digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    def nearest(self, windows: npt.NDArray[np.float32], number: int) -> npt.NDArray[np.int64]:
        """Return the nearest words of each window, (windows, number), nearest first.

        Of words equally near the first comes first.
        """
        standard = ((windows - self.mean) / self.scale).astype(np.float64)
        words = self.words.astype(np.float64)
        lengths = (words**2).sum(1)
        found = np.empty((len(windows), number), np.int64)
        # On one thread: sums in another order might make another word the nearest.
        with threadpool_limits(limits=1):
            for start in range(0, len(windows), _WINDOWS_AT_ONCE):
                part = slice(start, start + _WINDOWS_AT_ONCE)
                distances = lengths - 2 * (standard[part] @ words.T)
                if number == 1:
                    found[part] = distances.argmin(1)[:, None]
                    continue
                near = np.sort(np.argpartition(distances, number - 1, axis=1)[:, :number], axis=1)
                order = np.take_along_axis(distances, near, 1).argsort(axis=1, kind="stable")
                found[part] = np.take_along_axis(near, order, 1)
        return found

    def bag(self, windows: npt.NDArray[np.float32], recipe: BagRecipe) -> npt.NDArray[np.float32]:
        """Return the row of the windows of one sound.

        Parameters
        ----------
        windows : (windows, dim) float32, in their order.
        recipe : with as many words as were requested of this codebook; words that could not be
            fitted count 0.
        """
        middle = (len(windows) + 1) // 2
        parts = [windows[:middle], windows[middle:]] if recipe.halves else [windows]
        bags = [_normalised(self._counts(part, recipe), recipe.norm) for part in parts]
        return np.concatenate(bags).astype(np.float32)

    def _counts(
        self, windows: npt.NDArray[np.float32], recipe: BagRecipe
    ) -> npt.NDArray[np.float64]:
        number = min(NEAREST, len(self.words)) if recipe.soft else 1
        share = 0.5 ** np.arange(number)
        weights = np.broadcast_to(share / share.sum(), (len(windows), number))
        nearest = self.nearest(windows, number)
        counts = np.bincount(nearest.ravel(), weights.ravel(), minlength=recipe.words)
        return counts.astype(np.float64)

    def require(self, recipe: BagRecipe, what: str) -> None:
        """Check that it is of a recipe's words and windows.

        Raises
        ------
        SoundWordsError
        """
        requested = self.metadata.requested or len(self.words)
        if (requested, self.metadata.mfcc) != (recipe.words, asdict(recipe.mfcc)):
            raise SoundWordsError(
                f"{what} has {requested} words of windows {self.metadata.mfcc}; "
                f"{recipe.name} needs {recipe.words} of {asdict(recipe.mfcc)}: give another "
                "`codebook=...`, or a recipe of these words"
            )

    def save(self, path: Path) -> None:
        """Write one `.safetensors` file, whole or not at all; equal codebooks give equal bytes."""
        tensors = {"mean": self.mean, "scale": self.scale, "words": self.words}
        write_tensors(path, tensors, _KEY, self.metadata.to_json())


@dataclass(frozen=True)
class Bags:
    """What makes the rows of a recipe of bags.

    Attributes
    ----------
    recipe : of the bags.
    words : the codebook.
    """

    recipe: BagRecipe
    words: SoundWords

    @property
    def rate(self) -> int:
        """Samples a second of the sounds that it takes."""
        return self.recipe.mfcc.rate

    @property
    def weights(self) -> str:
        """What stands for weights: the codebook."""
        return f"codebook of {len(self.words.words)} sound words"

    @property
    def weights_sha256(self) -> str:
        """Of the codebook."""
        return self.words.sha256

    def recipe_json(self) -> dict[str, Any]:
        """Return what the shards say of the recipe: also whose clips the codebook is of."""
        fitted = self.words.metadata
        whose = {"dataset": fitted.dataset, "split": fitted.split}
        return {**self.recipe.to_json(), "codebook": whose}

    def row(self, sound: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the row of a sound, (samples,) at `rate`."""
        return self.words.bag(self.recipe.mfcc(sound), self.recipe)


def load_sound_words(path: Path) -> SoundWords:
    """Read what `SoundWords.save` wrote.

    Raises
    ------
    SoundWordsError
        It is missing, damaged or something else.
    """
    try:
        metadata = SoundWordsMetadata(**read_metadata(path, _KEY))
        arrays = read_tensors(path, ["mean", "scale", "words"])
        mean, scale, words = arrays["mean"], arrays["scale"], arrays["words"]
        dim = Mfcc(**metadata.mfcc).dim
        finite = all(np.isfinite(a).all() and a.dtype == np.float32 for a in arrays.values())
        if words.ndim != 2 or {*mean.shape, *scale.shape, words.shape[1]} != {dim} or not finite:
            raise ValueError(f"its arrays are no codebook of windows of {dim} numbers")
        if not (scale > 0).all() or not len(words):
            raise ValueError("it has no words, or a scale that is not positive")
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise SoundWordsError(
            f"{path} is no codebook of sound words or is damaged ({error}); remove it to have one "
            "fitted, or give another"
        ) from error
    return SoundWords(metadata, mean, scale, words)


def sample_of(
    windows: npt.NDArray[np.float32], clip: int, clips: int, seed: int, sample: int
) -> npt.NDArray[np.float32]:
    """Return the windows of one clip that go into the sample: its share, drawn at random.

    Parameters
    ----------
    windows : (windows, dim) of the clip.
    clip, clips : its number from 0, and how many there are.
    seed : of the sample.
    sample : windows in all; a clip's share is this over `clips`, rounded up.
    """
    share = -(-sample // clips)
    if len(windows) <= share:
        return windows
    rng = np.random.Generator(np.random.PCG64((seed, clip)))
    return windows[np.sort(rng.choice(len(windows), share, replace=False))]


def fit_sound_words(
    parts: Iterable[npt.NDArray[np.float32]],
    mfcc: Mfcc,
    number: int,
    *,
    seed: int,
    dataset: str,
    split: str,
    clips_sha256: str,
    log: Callable[[str], None] = lambda line: None,
) -> SoundWords:
    """Fit a codebook by k-means to windows of sound.

    Windows are brought to mean 0 and deviation 1 in each number; the words start by k-means++
    (scikit-learn's, one start, at most 50 iterations of Lloyd's). The same windows and seed give
    the same codebook.

    Parameters
    ----------
    parts : windows of each clip, (windows, dim) float32, as `sample_of` draws them.
    mfcc : of the windows.
    number : of words; with fewer different windows, as many words as these, and the metadata then
        have the requested number as well.
    seed, dataset, split, clips_sha256 : for the metadata; the seed is that of k-means, too.
    log : gets a line.

    Raises
    ------
    SoundWordsError
        There is no window.
    """
    # Here, since scikit-learn takes a second to import, and codebooks are mostly read.
    from sklearn.cluster import KMeans

    chosen = [part for part in parts if len(part)]
    windows = np.concatenate([np.zeros((0, mfcc.dim), np.float32), *chosen])
    different = len(np.unique(windows, axis=0))
    if not different:
        raise SoundWordsError(
            f"split {split!r} of {dataset} has no window of sound, and a codebook needs at least "
            "1; add clips with sound, or use a codebook of other clips with `codebook=...`"
        )
    requested, number = number, min(number, different)
    if number < requested:
        log(f"sound words: {number}, not {requested}, from as many different windows")
    log(f"k-means of {len(windows)} windows of {len(chosen)} clips, {number} words")
    mean = windows.mean(0, dtype=np.float64).astype(np.float32)
    deviation = windows.std(0, dtype=np.float64)
    scale = np.where(deviation > 0, deviation, 1).astype(np.float32)
    standard = (windows - mean) / scale
    with threadpool_limits(limits=1):
        model = KMeans(number, n_init=1, max_iter=_ITERATIONS, random_state=seed).fit(standard)
    metadata = SoundWordsMetadata(
        dataset=dataset,
        split=split,
        clips=len(chosen),
        windows=len(windows),
        clips_sha256=clips_sha256,
        seed=seed,
        mfcc=asdict(mfcc),
        inertia=float(model.inertia_ / len(windows)),
        iterations=int(model.n_iter_),
        created_by=created_by("numpy", "scipy", "scikit-learn", "av"),
        requested=requested if number < requested else None,
    )
    return SoundWords(metadata, mean, scale, model.cluster_centers_.astype(np.float32))


def _normalised(counts: npt.NDArray[np.float64], norm: str) -> npt.NDArray[np.float64]:
    size = np.linalg.norm(counts) if norm == "l2" else counts.sum()
    if norm == "counts" or not size:
        return counts
    return np.asarray(np.sqrt(counts / size) if norm == "root" else counts / size)
