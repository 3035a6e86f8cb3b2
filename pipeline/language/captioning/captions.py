"""Generated captions: the protocol of a captioner and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.heads.inputs.feature_rows import Features


@dataclass(frozen=True)
class Caption:
    """A generated caption."""

    text: str  # words separated by spaces, as tokenized for the vocabulary
    score: float  # ranks the captions of one image; higher is better
    parts: Mapping[str, float] = field(default_factory=dict)  # terms of the score, such as "cosine"


class Captioner(Protocol):
    """Describes images from the features of one image recipe.

    Protocol of `LanguageCaptioner`, `NearestCaption` and `MostFrequentCaption`; the jobs over files
    and datasets use nothing else of them.

    Examples
    --------
    >>> for captions in captioner.describe(features, count=3):  # doctest: +SKIP
    ...     print(captions[0].text, captions[0].score)
    """

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Names, settings and file hashes, as JSON values."""

    def describe(
        self, images: Features, *, count: int = 5, seed: int = 0
    ) -> Sequence[Sequence[Caption]]:
        """Return distinct captions of each image, the best first.

        An image's captions do not depend on the other images of the call, up to the order of sums,
        and are deterministic for a seed.

        Parameters
        ----------
        images : (images, *row_shape) float32 features of the captioner's recipe.
        count : int. Maximum number of captions per image, at least 1; an image has none if the
            model generates no sentence with a word.
        seed : int. Seed of all random numbers.
        """
