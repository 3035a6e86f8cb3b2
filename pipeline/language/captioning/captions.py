"""Captions of images that have none: what describes images, and what it returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.heads.inputs.feature_rows import Features


@dataclass(frozen=True)
class Caption:
    """A sentence on an image.

    Attributes
    ----------
    text : its words with a space between, as the tokenizer of its vocabulary splits sentences.
    score : captions of one image are ranked by it; greater is better.
    parts : what the score is made of, by name, such as "cosine" and "trigram".
    """

    text: str
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)


class Captioner(Protocol):
    """Describes images, by way of the features of one image recipe."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What it is made of, as JSON values: names, settings, hashes of files."""

    def describe(
        self, images: Features, *, count: int = 5, seed: int = 0
    ) -> Sequence[Sequence[Caption]]:
        """Return captions of each image, distinct, the best first.

        An image's captions do not depend on the other images of the call, but for the order of
        sums; the same seed gives the same.

        Parameters
        ----------
        images : (images, *row_shape) float32 features of the recipe that it was made for.
        count : how many captions an image gets at most, 1 or more; an image gets none where a model
            writes no sentence with a word.
        seed : of everything that is drawn.
        """
