"""What a dataset may know of its images beyond their captions.

`pipeline.language` and `pipeline.report` check captions against it, `pipeline.search` counts by it
which images have a word, and `pipeline.probes` asks what embeddings hold of it. A dataset may have
any of them: drawn scenes have all, annotated attributes in a file make an `ImageWords`.
`pipeline.experiments.known_truth` looks them up.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class WordKind:
    """Words that can replace each other in a query, such as the colours.

    Attributes
    ----------
    name : such as "colours".
    words : the word that is queried, to the forms of it that captions or an `ImageWords` use.
    keeps : name of the kind of which a hit should share a word with the image.
    """

    name: str
    words: Mapping[str, frozenset[str]]
    keeps: str

    @staticmethod
    def of(name: str, keeps: str, words: str) -> "WordKind":
        """Return a kind of words separated by blanks; further forms of one follow after commas."""
        forms = [word.split(",") for word in words.split()]
        by_word = {first: frozenset((first, *others)) for first, *others in forms}
        return WordKind(name, by_word, keeps)


class CaptionTruth(Protocol):
    """What captions of a dataset's images can be checked against."""

    @property
    def facets(self) -> Sequence[str]:
        """What captions are checked for, such as "colour", in the order of the tables."""
        ...

    def judge(self, image: str, caption: str) -> Mapping[str, bool] | None:
        """Return whether a caption is right in each facet that it mentions.

        None if the caption is not understood, or nothing is known of the image.
        """
        ...


class ImageWords(Protocol):
    """Words that are true of a dataset's images, whether or not their captions have them."""

    @property
    def kinds(self) -> Sequence[WordKind]:
        """The words, by kind."""
        ...

    def words(self, image: str) -> Mapping[str, Set[str]]:
        """Return the forms of words that are true of an image, by the name of their kind."""
        ...


@dataclass(frozen=True)
class Exchange:
    """Phrases that can take each other's place in a caption, such as the colours.

    Attributes
    ----------
    name : such as "colour".
    meanings : by meaning and form, the synonyms. A phrase is replaced by one of another meaning in
        the same form: `((("dog",), ("dogs",)), (("man", "guy"), ("men", "guys")))`.
    """

    name: str
    meanings: tuple[tuple[tuple[str, ...], ...], ...]

    @staticmethod
    def of(name: str, words: str) -> "Exchange":
        """Return an exchange of words separated by blanks; forms of one are joined by "/"."""
        return Exchange(
            name, tuple(tuple((form,) for form in word.split("/")) for word in words.split())
        )


class ProbeTruth(CaptionTruth, Protocol):
    """What an embedding of an image, or a changed caption, is checked against."""

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """What can be exchanged in the captions of this dataset."""
        ...

    def facts(self, image: str) -> Mapping[tuple[str, str], str]:
        """Return the answers that an image has to questions, by their (kind, question).

        A question that an image has no answer to is left out.
        """
        ...
