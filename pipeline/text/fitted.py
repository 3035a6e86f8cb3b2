"""Fitted encoders, loaded from their folders."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.store.errors import UnknownName
from pipeline.store.one_or_many import texts_of
from pipeline.store.schema import SchemaError, decode_format
from pipeline.text import EncoderError, FittedFileError
from pipeline.text.encoders.base import CaptionEncoder, VocabularyReport
from pipeline.text.encoders.options import EncoderOptions
from pipeline.text.encoders.plan_json import options_of
from pipeline.text.encoders.registry import class_of

ENCODER_FILE = "encoder.json"
FORMAT, FORMAT_VERSION = "pipeline-encoder", 1


def load_encoder(folder: str | Path, texts: Sequence[str] | None = None) -> "LoadedEncoder":
    """Load a fitted encoder.

    Parameters
    ----------
    folder : str or Path. Folder that `pipeline text` saved next to its shards, `<out>.encoder`.
    texts : sequence of str or None. Captions to encode, if known: word vectors are then loaded
        once, for their words only. None: vectors are loaded whenever captions have new words,
        which is fast with the packaged vectors and those of `pipeline vectors`, and otherwise a
        pass over the file.

    Returns
    -------
    LoadedEncoder
        Its `encode` accepts one caption and returns (dim,) float32, or several and returns
        (captions, dim).

    Raises
    ------
    EncoderError
        The folder has no encoder of this format version, or a fitted file is missing or damaged.
    VectorsError
        The word vectors are missing or damaged.

    Examples
    --------
    >>> encoder = pipeline.load_encoder("data/text/mine/mean-glove-6b-50d.encoder")
    >>> encoder.encode("a dog runs").shape, encoder.encode(["a dog runs", "a cat"]).shape
    ((50,), (2, 50))
    """
    captions = None if texts is None else texts_of(texts, "caption")[0]
    return LoadedEncoder(Path(folder), captions)


def load_options(folder: Path) -> EncoderOptions:
    """Load the options of a fitted encoder."""
    description = read_description(folder)
    try:
        return options_of(description.get("plan"))
    except (EncoderError, UnknownName, SchemaError) as error:
        raise FittedFileError(
            f"{folder / ENCODER_FILE}: its plan: {error}; fit it again"
        ) from error


def read_description(folder: Path) -> dict[str, Any]:
    """Load `encoder.json`: the plan, and the captions that it was fitted on."""
    path = folder / ENCODER_FILE
    try:
        return decode_format(path.read_bytes(), dict[str, Any], FORMAT, FORMAT_VERSION)
    except OSError as error:
        raise FittedFileError(
            f"{path} cannot be read ({error.strerror}): {folder} has no fitted encoder; `pipeline "
            "text` writes one next to its features. Features of other programs have none: search "
            "with the id of an image, or in Python with a function as encoder"
        ) from error
    except SchemaError as error:
        raise FittedFileError(
            f"{path} is damaged or of another kind ({error}); fit the encoder again"
        ) from error


def load_fitted(folder: Path, options: EncoderOptions, words: Collection[str]) -> CaptionEncoder:
    """Return the encoder of a folder for texts of which it looks up these words."""
    return class_of(options).load(options, folder, words)


class LoadedEncoder:
    """A fitted encoder for one caption or several, from `load_encoder`; a `CaptionEncoder`."""

    def __init__(self, folder: Path, texts: Sequence[str] | None) -> None:
        self._folder, self._options = folder, load_options(folder)
        # All vectors of a source may not fit into memory, and a fastText model has vectors for any
        # word: if the captions are unknown, the vectors of all words so far are loaded, and loaded
        # again when there are new words.
        self._words: set[str] | None = set() if texts is None else None
        self._encoder = load_fitted(folder, self._options, self._options.words_of(texts or ()))
        self.name, self.dim = self._encoder.name, self._encoder.dim
        self.weights, self.trained_on = self._encoder.weights, self._encoder.trained_on
        self.memory, self.plugin = self._encoder.memory, getattr(self._encoder, "plugin", "")

    def recipe(self) -> dict[str, Any]:
        return self._encoder.recipe()

    def encode(self, texts: str | Iterable[str]) -> npt.NDArray[np.float32]:
        """Encode one caption, or several; a row depends on its text alone, bit for bit.

        Parameters
        ----------
        texts : str or iterable of str. One caption, or several.

        Returns
        -------
        (dim,) float32 of a single caption, (n, dim) float32 of several; all finite.
        """
        captions, alone = texts_of(texts, "caption")
        rows = self._for(captions).encode(captions)
        return rows[0] if alone else rows

    def reports(self, texts: str | Iterable[str]) -> dict[str, VocabularyReport]:
        """Return the report on out-of-vocabulary words of each part, by name."""
        captions, _ = texts_of(texts, "caption")
        return self._for(captions).reports(captions)

    def _for(self, texts: Sequence[str]) -> CaptionEncoder:
        if self._words is not None:
            words = self._options.words_of(texts)
            if not words <= self._words:
                self._words |= words
                self._encoder = load_fitted(self._folder, self._options, self._words)
        return self._encoder
