"""Options of encoders: their base class, the fields that several encoders have, and their JSON.

Each encoder has a frozen dataclass of its options. A field is declared once: default, choices and
help are also those of the command's option, and `key` is its place in `encoder.json`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Self

from pipeline.store.errors import UnknownName
from pipeline.store.option_fields import option
from pipeline.text import EncoderError
from pipeline.text.tokenizers.by_name import LEMMAS, find_tokenizer
from pipeline.text.tokenizers.tokenizer import TOKENIZERS, Tokenizer
from pipeline.text.vectors import GLOVE_PACKAGE
from pipeline.text.vocabulary import VOCABULARY_RULES, vocabulary_rule


@dataclass(frozen=True)
class EncoderOptions:
    """Everything that determines an encoder except the captions it is fitted on.

    A subclass adds the options of one encoder, made by `encoder_option`. Options are part of an
    encoder's identity: an encoder with others is another one, and is fitted again.

    Attributes
    ----------
    name : str. Name of the encoder, such as "fv-hglmm", or "<kind>:<model>" of a library's model.
    kind : str. Key of its class in `pipeline.text.encoders.registry.KINDS`.

    Examples
    --------
    >>> from pipeline.text.encoders.registry import encoder_options
    >>> encoder_options("bow", vocabulary="min-3").tokenizer
    'w2vv-filterstop'
    """

    name: str
    kind: str

    def __post_init__(self) -> None:
        for each in fields(self):
            _check(each, getattr(self, each.name))

    @property
    def parts(self) -> "tuple[EncoderOptions, ...]":
        """Options of the encoders in it, in column order."""
        return (self,)

    @property
    def model(self) -> str:
        """Model name of a library's model, after the kind; "" for other encoders."""
        return self.name.partition(":")[2]

    @property
    def recorded_name(self) -> str:
        """Name in files, where "token-ids" is "sequence"."""
        return self.name.replace("token-ids", "sequence")

    @property
    def vocabulary_file(self) -> str:
        """Name of the file of its vocabulary, if it has one."""
        return f"vocabulary-{self.recorded_name}.json"

    @property
    def rows_are_ids(self) -> bool:
        """Whether its numbers are ids of words, which cannot be projected."""
        return False

    @property
    def fitted_on_captions(self) -> bool:
        """Whether other training captions make another encoder of the same options."""
        return getattr(self, "vocabulary", None) is not None

    def settled(self) -> Self:
        """Return the options with those that others decide: None if they do not apply."""
        conditional = [each for each in fields(self) if each.metadata.get("applies")]
        none = {each.name: None for each in conditional if not each.metadata["applies"](self)}
        return replace(self, **none)  # type: ignore[arg-type]

    def completed(self, captions: Sequence[str]) -> Self:
        """Return the options with those that the training captions decide."""
        return self

    def words_of(self, texts: Sequence[str]) -> set[str]:
        """Return the words that it looks up to encode texts, if it has vectors of words."""
        return set()


@dataclass(frozen=True)
class OfEncoders(EncoderOptions):
    """Options of an encoder whose rows are computed from those of others."""

    members: tuple[EncoderOptions, ...]

    @property
    def parts(self) -> tuple[EncoderOptions, ...]:
        return tuple(part for member in self.members for part in member.parts)

    @property
    def rows_are_ids(self) -> bool:
        return any(member.rows_are_ids for member in self.members)

    @property
    def fitted_on_captions(self) -> bool:
        return any(member.fitted_on_captions for member in self.members)

    def completed(self, captions: Sequence[str]) -> Self:
        return replace(self, members=tuple(m.completed(captions) for m in self.members))

    def words_of(self, texts: Sequence[str]) -> set[str]:
        return {word for member in self.members for word in member.words_of(texts)}


def encoder_option(
    default: Any,
    *,
    help: str = "",  # "" if a command cannot set it
    key: str | tuple[str, ...] = "",  # in the JSON; "": the field's name
    applies: Callable[[Any], bool] | None = None,  # to options; None: to all
    check: Callable[[Any], object] | None = None,  # raises for a wrong value
    choices: Collection[str] = (),
    least: int | None = None,
) -> Any:
    """Return a field of an encoder's options.

    `key` is one name for a value of its own, and a path in the plan for a value that all encoders
    of a concatenation share.
    """
    made = option(default, help=help, choices=tuple(choices), least=least)
    more = {"key": key, "applies": applies, "check": check}
    return field(default=default, metadata={**made.metadata, **more})


def _check(each: "Field[Any]", value: Any) -> None:
    if value is None:
        return
    choices, least = each.metadata.get("choices"), each.metadata.get("least")
    if choices and value not in choices:
        raise UnknownName(
            f"the {each.name} {value!r} is unknown; expected one of {', '.join(choices)}"
        )
    if least is not None and value < least:
        raise EncoderError(f"{each.name} is {value}, expected {least} or more")
    if check := each.metadata.get("check"):
        check(value)


def tokenizer_option(default: str = "treebank") -> Any:
    """Return the field `tokenizer`."""
    return encoder_option(
        default,
        key="policy",
        choices=(*TOKENIZERS, LEMMAS),
        help="Tokenizer.  [default: that of the encoder]",
    )


@dataclass(frozen=True)
class TowerOptions(EncoderOptions):
    """Options of the text tower of a library's model."""

    weights: str = encoder_option(
        "pretrained",
        help="Models of open_clip and transformers: PATH of a weights file, or random:SEED.  "
        "[default: those in the encoder's name]",
    )


@dataclass(frozen=True)
class WordOptions(EncoderOptions):
    """Options of an encoder of words: their tokenizer."""

    tokenizer: str = tokenizer_option()
    wordnet: str | None = encoder_option(
        None,
        key=("wordnet",),
        applies=lambda options: options.tokenizer == LEMMAS,
        help="Lemmas: folder of a WordNet.  [default: rules and GloVe's words]",
    )

    @property
    def words(self) -> Tokenizer:
        """The tokenizer."""
        return find_tokenizer(self.tokenizer, self.wordnet)


def vocabulary_option(default: str = "all") -> Any:
    """Return the field `vocabulary`."""
    return encoder_option(
        default,
        check=vocabulary_rule,
        help=f"Vocabulary rule: {', '.join(VOCABULARY_RULES)}, min-N or top-N.",
    )


def vectors_option(applies: Callable[[Any], bool] | None = None) -> Any:
    """Return the field `vectors`."""
    return encoder_option(
        GLOVE_PACKAGE,
        key=("vectors",),
        applies=applies,
        help="Word vectors: glove-6b-50d (packaged), a .txt, .vec or .bin, a .safetensors of "
        "`pipeline vectors` or the name of one in data/vectors/DATASET, or "
        "sentence-transformer:MODEL.  [default: glove-6b-50d, if the encoder uses vectors]",
    )
