"""Generated captions: the protocol of a captioner and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.heads.inputs.feature_rows import Features


@dataclass(frozen=True)
class Caption:
    """A generated caption.

    Attributes
    ----------
    text : str. Words separated by spaces, as tokenized for the vocabulary.
    score : float. Score for ranking the captions of one image; higher is better.
    parts : mapping of str to float. Terms of the score by name, such as "cosine" and "trigram".
    """

    text: str
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)


class Captioner(Protocol):
    """Describes images from the features of one image recipe."""

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
