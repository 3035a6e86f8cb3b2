"""Settings of word vector training, with defaults and memory."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from pipeline.store.extras import require_installed
from pipeline.store.option_fields import documented, option
from pipeline.text.vectors.table import MAX_DIM, VectorsError

# The defaults of both programs, stated so that they stay. Only fastText's subsampling differs: its
# 1e-4 would drop most tokens of captions, which use few words.
FIXED: dict[str, dict[str, Any]] = {
    "word2vec": {"learning_rate": 0.025, "subsampling": 1e-3},
    "fasttext": {"learning_rate": 0.05, "subsampling": 1e-3, "ngrams": [3, 6]},
}


@documented
@dataclass(frozen=True)
class Training:
    """Settings of word vector training.

    Skip-gram and 500 dimensions are those of Dong et al. 2018 (Word2VisualVec), III-A, who train
    word2vec on the tags of 30 million Flickr images. Other defaults are those of the programs
    word2vec and fastText, except for `buckets` and fastText's subsampling, which is word2vec's,
    1e-3.
    """

    trainer: Literal["word2vec", "fasttext"]
    algorithm: Literal["skip-gram", "cbow"] = option("skip-gram", help="Training: algorithm.")
    dim: int = option(500, least=1, help="Training: dimension of the vectors.")
    window: int = option(5, least=1, help="Training: maximum distance of context words.")
    min_count: int = option(5, least=1, help="Training: minimum number of occurrences of a word.")
    epochs: int = option(5, least=1, help="Training: number of passes over the corpus.")
    negative: int = option(5, least=1, help="Training: number of negative samples per word.")
    seed: int = option(0, least=0, help="Training: seed of all random numbers.")
    # fastText's default of 2,000,000 needs 4 GB at 500 dimensions.
    buckets: int = option(200_000, least=1, help="Training: number of n-gram vectors of fastText.")

    def __post_init__(self) -> None:
        for name in ("dim", "window", "min_count", "epochs", "negative", "buckets"):
            if getattr(self, name) < 1:
                raise VectorsError(f"{name} is {getattr(self, name)}, expected 1 or more")
        if self.dim > MAX_DIM:
            raise VectorsError(f"dim is {self.dim}, expected {MAX_DIM} at most")
        if not 0 <= self.seed < 2**31 - 1:
            raise VectorsError(f"seed is {self.seed}, expected 0 to {2**31 - 2}")

    @property
    def name(self) -> str:
        return f"{self.trainer}-{self.algorithm}-{self.dim}d"

    def require(self) -> None:
        """Raise if fastText is to be trained and not installed."""
        if self.trainer == "fasttext":
            require_installed("fasttext_pybind", "fastText training needs", ", or train word2vec")

    def for_words(self, counts: Mapping[str, int]) -> "Training":
        """Return the settings for a corpus: the minimum count is 1 if no word reaches it."""
        if max(counts.values(), default=self.min_count) >= self.min_count:
            return self
        return replace(self, min_count=1)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the corpus that determines the vectors, as JSON values."""
        settings = {**asdict(self), **FIXED[self.trainer], "software": _software(self.trainer)}
        if self.trainer != "fasttext":
            del settings["buckets"]
        return settings

    def memory(self, words: int) -> int:
        """Return the memory of a model's two matrices for a number of words, in bytes."""
        inputs = words + (self.buckets if self.trainer == "fasttext" else 0)
        return 4 * self.dim * (inputs + words)


def _software(trainer: str) -> str:
    names = {"word2vec": ["gensim"], "fasttext": ["fasttext-wheel", "fasttext"]}[trainer]
    for name in names:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return trainer
