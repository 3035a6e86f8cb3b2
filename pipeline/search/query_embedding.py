"""Queries for an embedding file: the head that made it embeds sentences and picture files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from pipeline.datasets.manifest import check_caption
from pipeline.hashing import canonical_json
from pipeline.heads.data.pairs import ArrayRows, Features
from pipeline.heads.trained_head import HEAD_FILE, TrainedHead, load_head
from pipeline.images.extract import feature_header
from pipeline.images.network import RecipeNetwork
from pipeline.images.transforms import cut_crops, read_sample, resize_image
from pipeline.images.weights import load_weights
from pipeline.recipes import RECIPES, is_timm_model, resolve_recipe
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.search import SearchError
from pipeline.shards.format import STATUS_NAMES
from pipeline.text.encoders.base import CaptionEncoder, unknown_to_all
from pipeline.text.fitted import load_encoder
from pipeline.text.rows import caption_header


def head_of(embeddings: Embeddings, path: Path, folder: Path) -> TrainedHead:
    """Load the head that made an embedding file, and no other.

    Parameters
    ----------
    embeddings, path : the file's contents, and where it is.
    folder : of the head.

    Raises
    ------
    SearchError
        The file is an ensemble, says nothing of its head, or was made by another head, which the
        same one trained again is; what differs is named.
    HeadError
        The folder holds no head.
    """
    said = embeddings.provenance
    if "ensemble" in said:
        raise SearchError(
            f"{path} is an ensemble, for which no single head can embed a query; ask with the id "
            "of one of its images, or search the embedding file of one of its members"
        )
    trained = load_head(folder)
    again = (
        f"make it again with `pipeline embed --experiment {trained.experiment}`, or give the head "
        "and the embedding file that belong together"
    )
    made = trained.provenance
    if not said.keys() & made.keys():
        raise SearchError(
            f"{path} does not say which head made it (its attribute 'provenance' names none), so "
            f"queries that {folder} embeds may lie in another space; {again}"
        )
    # As JSON, where a tuple is a list.
    if different := [
        _difference(name, said.get(name), value)
        for name, value in made.items()
        if canonical_json(said.get(name)) != canonical_json(value)
    ]:
        raise SearchError(
            f"{path} was not made by the head that {folder / HEAD_FILE} describes now: it differs "
            f"in {', '.join(different)}; {again}"
        )
    return trained


def read_sentences(path: Path) -> list[str]:
    """Read sentences to ask with, one a line of UTF-8; an empty line is an error.

    Raises
    ------
    SearchError
    """
    try:
        texts = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise SearchError(f"{path} is not UTF-8 text ({error}); save it as UTF-8") from error
    require_lines(texts, f"{path}: line")
    return texts


def open_encoder(trained: TrainedHead, folder: Path, texts: Sequence[str]) -> CaptionEncoder:
    """Load the sentence encoder that a head was fitted on, and no other.

    Parameters
    ----------
    trained : the head.
    folder : of the fitted encoder.
    texts : word vectors are read for their words only.

    Raises
    ------
    SearchError
        It is not the one that the head was fitted on.
    EncoderError, VocabularyError, CodebookError, VectorsError, PcaError, LemmatizerError
        The folder is missing or damaged.
    """
    fitted = load_encoder(folder, texts)
    side = trained.inputs.captions
    if (found := caption_header(fitted, "").recipe_hash) != side.recipe_hash:
        raise SearchError(
            f"{folder} holds the encoder {fitted.name!r} (recipe hash {found}), but the head of "
            f"{trained.experiment!r} was fitted on {side.name!r} (recipe hash {side.recipe_hash}); "
            "give the folder that `pipeline text` left beside its caption features, or train "
            "again on those of this encoder"
        )
    return fitted


def embed_encoded(
    trained: TrainedHead,
    encoder: CaptionEncoder,
    texts: Sequence[str],
    tell: Callable[[str], None],
) -> Features:
    """Embed sentences, or words, as captions of the features that a head was fitted on.

    Parameters
    ----------
    trained : the head.
    encoder : the one that made those features; see `open_encoder`.
    texts : at least one line of text, as `require_lines` takes it; each is embedded on its own.
    tell : called with one line for each part of the encoder that does not know some words, and
        for each text whose last words are cut off.

    Returns
    -------
    (texts, dim) or (texts, parts, dim) float32, as the head's caption embeddings.

    Raises
    ------
    SearchError
        A text has no known word.
    """
    _report(encoder, texts, tell)
    return trained.head.embed_captions(ArrayRows(encoder.encode(texts)))


def embed_seen(
    trained: TrainedHead, network: RecipeNetwork, pictures: Sequence[Path | Image.Image]
) -> Features:
    """Embed pictures by way of the image recipe that a head was fitted on.

    Parameters
    ----------
    trained : the head.
    network : of that recipe; see `open_network`.
    pictures : at least one, a file or decoded; each goes through the network on its own.

    Returns
    -------
    (pictures, dim) or (pictures, parts, dim) float32, as the head's image embeddings; equal to
    those of extracted features within the rounding of another batch size.

    Raises
    ------
    SearchError
        A file is missing, unreadable or refused.
    UnusableImage
        A decoded picture cannot be resized.
    """
    recipe = network.recipe
    rows = np.empty((len(pictures), *recipe.shape), np.float32)
    for row, picture in zip(rows, pictures, strict=True):
        windows = torch.from_numpy(_windows(network, picture)[None])
        # Rounded as the shards hold it.
        row[:] = network(windows).numpy()[0].astype(recipe.storage)
    return trained.head.embed_images(ArrayRows(rows))


def require_lines(texts: Sequence[str], what: str = "sentence or word") -> None:
    """Check that each text is one line with a word in it.

    Raises
    ------
    SearchError
    """
    for number, text in enumerate(texts, 1):
        if fault := check_caption(text):
            raise SearchError(
                f"{what} {number} of {len(texts)}, {text!r}, {fault}; each is asked as one line of "
                "text with a word in it"
            )


def open_network(trained: TrainedHead, weights: str | None = None) -> RecipeNetwork:
    """Load the network that made a head's image features, with its weights.

    Parameters
    ----------
    trained : the head.
    weights : as `load_weights` takes them. None: those that the head names, which say where they
        are unless they are of a file.

    Raises
    ------
    SearchError
        No recipe here made them, or the weights are others or not known.
    RecipeError, WeightsError
        The recipe needs a package that is not installed, or its weights cannot be had.
    """
    head, side = f"the head of {trained.experiment!r}", trained.inputs.images
    if side.name not in RECIPES and not is_timm_model(side.name):
        raise SearchError(
            f"{head} was fitted on {side.name!r}, features that no recipe of `pipeline recipes` "
            "makes, so picture files cannot be embedded; ask with the id of an image that is "
            "embedded already"
        )
    recipe = resolve_recipe(
        side.name, *(str(side.recipe.get(name)) for name in ("precision", "storage"))
    )
    source = weights or ("imagenet" if side.weights == recipe.weights else side.weights)
    if source.startswith("file:"):
        raise SearchError(
            f"{head} was fitted on features of the weights file {side.weights[5:]!r}, and where "
            "that file lies is not recorded; give its path as the weights"
        )
    loaded = load_weights(recipe, source)
    found = feature_header(recipe, loaded, "").recipe_hash
    if found != side.recipe_hash:
        raise SearchError(
            f"the recipe {recipe.name!r} with the weights {loaded.name!r} (recipe hash {found}) "
            f"is not the one that {head} was fitted on: weights {side.weights!r}, recipe hash "
            f"{side.recipe_hash}; give those weights, or ask with the id of an image that is "
            "embedded already"
        )
    return RecipeNetwork(recipe, loaded.state)


def _windows(network: RecipeNetwork, picture: Path | Image.Image) -> npt.NDArray[np.uint8]:
    """Return (windows, h, w, 3), what the network sees of a picture."""
    resize = network.recipe.resize
    if isinstance(picture, Image.Image):
        return cut_crops(resize_image(picture, resize), network.window)
    sample = read_sample(picture, resize, network.window)
    if sample.windows is None:
        raise SearchError(
            f"{picture} is {STATUS_NAMES[sample.status]}: {sample.error}; give a picture that can "
            "be decoded"
        )
    return sample.windows


def _difference(name: str, said: Any, made: Any) -> str:
    """Name a fact that differs, with both values unless they are long."""
    if isinstance(said, dict) or isinstance(made, dict):
        return name
    values = ["nothing" if value is None else str(value)[:40] for value in (said, made)]
    return f"{name} ({values[0]} in the file, {values[1]} in the head)"


def _report(fitted: CaptionEncoder, texts: Sequence[str], tell: Callable[[str], None]) -> None:
    """Tell what of the texts the encoder does not know; refuse a text of which it knows nothing."""
    reports = fitted.reports(texts)
    # A part that knows a word is enough: the row is not that of an unknown sentence.
    if unknown := unknown_to_all(reports.values()):
        first = [texts[at] for at in sorted(unknown)[:5]]
        raise SearchError(
            f"the encoder {fitted.name!r} knows no word of {len(unknown)} of "
            f"{len(texts)} queries, first {first}, which would all be one and the same query; use "
            "words of the captions that it was fitted to"
        )
    for name, report in reports.items():
        if report.oov_words:
            words = ", ".join(word for word, _ in report.oov_words[:10])
            tell(f"{name} does not know: {words}")
        for at in report.cut[:5]:
            tell(f"{name}: too long, its last words are cut off: {texts[at]}")
