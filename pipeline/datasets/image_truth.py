"""Optional knowledge about a dataset's images beyond their captions.

Generated captions are checked against it, images of a word are counted, and embeddings are probed.
A dataset may implement any of these interfaces: drawn scenes have all, a file of annotated
attributes makes an `ImageWords`. Families of the library register them as `TRUTH`.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.datasets.manifest import Manifest
from pipeline.store.families import all_added


@dataclass(frozen=True)
class WordKind:
    """Words that can replace each other in a query, such as the colours."""

    name: str
    words: Mapping[str, frozenset[str]]
    """The forms that captions or an `ImageWords` use, by query word."""
    keeps: str
    """Name of the kind of which a hit should share a word with the image."""

    @staticmethod
    def of(name: str, keeps: str, words: str) -> "WordKind":
        """Parse words separated by blanks, each followed by its other forms after commas."""
        forms = [word.split(",") for word in words.split()]
        by_word = {first: frozenset((first, *others)) for first, *others in forms}
        return WordKind(name, by_word, keeps)


class CaptionTruth(Protocol):
    """Reference for checking captions of a dataset's images."""

    @property
    def facets(self) -> Sequence[str]:
        """What is checked, such as "colour", in the order of the tables."""
        ...

    def judge(self, image: str, caption: str) -> Mapping[str, bool] | None:
        """Return whether a caption is correct for each facet that it mentions.

        None if the caption cannot be parsed, or the image is unknown.
        """
        ...


class ImageWords(Protocol):
    """Words that are true of a dataset's images, whether or not captions mention them."""

    @property
    def kinds(self) -> Sequence[WordKind]:
        """The words, by kind."""
        ...

    def words(self, image: str) -> Mapping[str, Set[str]]:
        """Return the word forms that are true of an image, by kind name."""
        ...


@dataclass(frozen=True)
class Exchange:
    """Phrases that can replace each other in a caption, such as the colours."""

    name: str
    meanings: tuple[tuple[tuple[str, ...], ...], ...]
    """Synonyms by meaning and form. A phrase is replaced by one of another meaning in the same
    form: `((("dog",), ("dogs",)), (("man", "guy"), ("men", "guys")))`."""

    @staticmethod
    def of(name: str, words: str) -> "Exchange":
        """Parse an exchange from words separated by blanks; forms of one are joined by "/"."""
        return Exchange(
            name, tuple(tuple((form,) for form in word.split("/")) for word in words.split())
        )


class ProbeTruth(CaptionTruth, Protocol):
    """Reference for checking an image embedding or a changed caption."""

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """Exchangeable phrases of this dataset's captions."""
        ...

    def facts(self, image: str) -> Mapping[tuple[str, str], str]:
        """Return an image's answers by (kind, question), without unanswerable questions."""
        ...


def truth_of(manifest: Manifest) -> Any:
    """Return what is known of a dataset's images; None if only captions are known.

    The value implements `CaptionTruth`, `ImageWords` and `ProbeTruth`, or those that it can.
    """
    truths = (truth(manifest) for truth in all_added("TRUTH"))
    return next((truth for truth in truths if truth is not None), None)
