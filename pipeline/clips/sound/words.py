"""Sound words: a codebook of audio windows, and bags of its words."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from pipeline.clips.sound.mfcc import Mfcc
from pipeline.clips.sound.recipes import BagRecipe, RowMaker
from pipeline.images.networks import WeightsError
from pipeline.store.files import created_by
from pipeline.store.hashing import canonical_json
from pipeline.store.own_files import reading
from pipeline.store.tensor_file import read_metadata, read_tensors, write_tensors

SAMPLE = 100_000
"""Number of windows to fit a codebook on, evenly distributed over the clips."""
NEAREST = 4
"""Number of words per window with soft assignment."""

_KEY = "codebook"
_ITERATIONS = 50
_WINDOWS_AT_ONCE = 4096


@dataclass(frozen=True)
class SoundWordsMetadata:
    """Data and outcome of a codebook's fit."""

    dataset: str
    split: str
    clips: int  # with sound
    windows: int  # in the sample
    clips_sha256: str  # of ids and sizes in bytes of all clips of the split
    seed: int  # of the sample and of k-means
    mfcc: dict[str, int]
    inertia: float  # mean squared distance of a window to its word, in standard deviations
    iterations: int  # of k-means, at most `_ITERATIONS`
    created_by: str
    # Number of words, also if there were fewer distinct windows; older files omit it if all exist.
    requested: int | None = None


@dataclass(frozen=True, eq=False)
class SoundWords:
    """A codebook of sound words."""

    metadata: SoundWordsMetadata
    mean: npt.NDArray[np.float32]  # (dim,), with `scale` for standardising windows
    scale: npt.NDArray[np.float32]
    words: npt.NDArray[np.float32]  # (words, dim), centroids of standardised windows

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of its numbers and of the windows' parameters."""
        digest = hashlib.sha256(canonical_json(self.metadata.mfcc).encode())
        for array in (self.mean, self.scale, self.words):
            digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    def nearest(self, windows: npt.NDArray[np.float32], number: int) -> npt.NDArray[np.int64]:
        """Return the nearest words of each window, (windows, number), nearest first."""
        standard = ((windows - self.mean) / self.scale).astype(np.float64)
        words = self.words.astype(np.float64)
        # |w - x|^2 - |x|^2, which orders the words of a window as their distances do.
        lengths = (words**2).sum(1)
        nearest = np.empty((len(windows), number), np.int64)
        # One thread: another order of sums could change the nearest word.
        with threadpool_limits(limits=1):
            for start in range(0, len(windows), _WINDOWS_AT_ONCE):
                part = slice(start, start + _WINDOWS_AT_ONCE)
                distances = lengths - 2 * (standard[part] @ words.T)
                if number == 1:
                    nearest[part] = distances.argmin(1)[:, None]
                    continue
                # Sorted by index first: the stable sort by distance then leaves ties to the lower.
                near = np.sort(np.argpartition(distances, number - 1, axis=1)[:, :number], axis=1)
                order = np.take_along_axis(distances, near, 1).argsort(axis=1, kind="stable")
                nearest[part] = np.take_along_axis(near, order, 1)
        return nearest

    def bag(self, windows: npt.NDArray[np.float32], recipe: BagRecipe) -> npt.NDArray[np.float32]:
        """Return the row of the windows (windows, dim) of one sound, in order."""
        middle = (len(windows) + 1) // 2
        parts = [windows[:middle], windows[middle:]] if recipe.halves else [windows]
        bags = [_normalised(self._counts(part, recipe), recipe.norm) for part in parts]
        return np.concatenate(bags).astype(np.float32)

    def _counts(
        self, windows: npt.NDArray[np.float32], recipe: BagRecipe
    ) -> npt.NDArray[np.float64]:
        # Words of the recipe that were not fitted, for lack of windows, count 0.
        number = min(NEAREST, len(self.words)) if recipe.soft else 1
        share = 0.5 ** np.arange(number)
        weights = np.broadcast_to(share / share.sum(), (len(windows), number))
        nearest = self.nearest(windows, number)
        counts = np.bincount(nearest.ravel(), weights.ravel(), minlength=recipe.words)
        return counts.astype(np.float64)

    def require(self, recipe: BagRecipe, what: str) -> None:
        """Raise if the codebook does not have a recipe's words and windows."""
        requested = self.metadata.requested or len(self.words)
        if (requested, self.metadata.mfcc) != (recipe.words, asdict(recipe.mfcc)):
            raise WeightsError(
                f"{what} has {requested} words of windows {self.metadata.mfcc}; "
                f"{recipe.name} needs {recipe.words} of {asdict(recipe.mfcc)}: set another "
                "`codebook=...`, or use a recipe with these words"
            )

    def save(self, path: Path) -> None:
        """Write one `.safetensors` file atomically; equal codebooks have equal bytes."""
        tensors = {"mean": self.mean, "scale": self.scale, "words": self.words}
        write_tensors(path, tensors, _KEY, asdict(self.metadata))


def bags(recipe: BagRecipe, words: SoundWords) -> RowMaker:
    """Return what computes the rows of a recipe of bags; the clips of the codebook are recorded."""
    whose = {"dataset": words.metadata.dataset, "split": words.metadata.split}
    return RowMaker(
        recipe,
        {**recipe.to_json(), "codebook": whose},
        recipe.mfcc.rate,
        f"codebook of {len(words.words)} sound words",
        words.sha256,
        lambda sound: words.bag(recipe.mfcc(sound), recipe),
    )


def load_sound_words(path: Path) -> SoundWords:
    """Load a codebook that `SoundWords.save` wrote."""
    remedy = "delete it to have one fitted, or pass another"
    with reading(path, "a codebook of sound words", remedy, WeightsError):
        metadata = SoundWordsMetadata(**read_metadata(path, _KEY))
        arrays = read_tensors(path, ["mean", "scale", "words"])
        mean, scale, words = arrays["mean"], arrays["scale"], arrays["words"]
        dim = Mfcc(**metadata.mfcc).dim
        finite = all(np.isfinite(a).all() and a.dtype == np.float32 for a in arrays.values())
        if words.ndim != 2 or {*mean.shape, *scale.shape, words.shape[1]} != {dim} or not finite:
            raise ValueError(f"its arrays are not a codebook of windows of {dim} numbers")
        if not (scale > 0).all() or not len(words):
            raise ValueError("it has no words, or a scale that is not positive")
    return SoundWords(metadata, mean, scale, words)


def sample_of(
    windows: npt.NDArray[np.float32], clip: int, clips: int, seed: int, sample: int
) -> npt.NDArray[np.float32]:
    """Return a random sample of the windows (windows, dim) of one clip.

    Its size is the clip's share of `sample`, the total: divided by `clips`, rounded up.
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
    """Fit a codebook on audio windows (windows, dim) by k-means.

    Windows are standardised in each dimension; k-means++ initialises (scikit-learn's, one start, at
    most 50 iterations of Lloyd's algorithm). Deterministic for the same windows and seed. Fewer
    distinct windows than `number` are as many words; the metadata record `number`.
    """
    # Imported here: scikit-learn takes a second to import, and codebooks are mostly loaded.
    from sklearn.cluster import KMeans

    chosen = [part for part in parts if len(part)]
    windows = np.concatenate([np.zeros((0, mfcc.dim), np.float32), *chosen])
    different = len(np.unique(windows, axis=0))
    if not different:
        raise WeightsError(
            f"split {split!r} of {dataset} has no window of sound, but a codebook needs at least "
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
        requested=requested,
    )
    return SoundWords(metadata, mean, scale, model.cluster_centers_.astype(np.float32))


def _normalised(counts: npt.NDArray[np.float64], norm: str) -> npt.NDArray[np.float64]:
    size = np.linalg.norm(counts) if norm == "l2" else counts.sum()
    if norm == "counts" or not size:
        return counts
    return np.asarray(np.sqrt(counts / size) if norm == "root" else counts / size)
