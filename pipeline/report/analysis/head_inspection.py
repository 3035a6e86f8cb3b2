"""What a head reads and says: closeness of its sentences before it, single words after it."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import PipelineError
from pipeline.heads.data.feature_spec import FeatureSpec, caption_blocks
from pipeline.heads.trained_head import TrainedHead
from pipeline.report.analysis.breakdowns import chosen, images_of, telling_words
from pipeline.report.analysis.retrievals import SEED
from pipeline.report.analysis.spaces import Place, as_compared
from pipeline.report.data.provenance import dataset_of
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.geometry import Closeness, closeness, common_plane
from pipeline.search.query_embedding import embed_sentences
from pipeline.search.query_models import head_of, open_encoder
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.format import ShardError
from pipeline.shards.index import INDEX_FILE, read_index
from pipeline.text.encoders.base import CaptionEncoder, unknown_to_all

WORDS, IMAGES_OF_A_WORD = 8, 3
"""Words in a plane, and images of each."""

WORDS_PER_CENT = 3
"""Of the images, at least, have a sentence with a word that is shown."""

MEASURED = 1000
"""Images, at most, whose sentences' features are read to measure how close they lie."""


@dataclass(frozen=True)
class WordPlane:
    """Single words and images in the plane of their first two principal components.

    Attributes
    ----------
    words : word to its place, embedded as a sentence of that one word.
    images : word to image id to place, of images whose sentences have the word.
    shares : of the variance in the plane's two directions, 0-1.
    """

    words: Mapping[str, Place]
    images: Mapping[str, Mapping[str, Place]]
    shares: tuple[float, float]


class Insides:
    """Asks the heads and features of one experiment after the other; what they share, once.

    What is not there adds a sentence to the `gaps` it is given.
    """

    def __init__(self, heads: Path, text: Path) -> None:
        """Take the folders `<experiment>/` of heads and `<dataset>/<name>` of caption features."""
        self._heads, self._text = heads, text
        self._folder_with = cache(_folder_with)
        self._closeness = cache(_closeness)
        self._spoken_of = cache(_spoken_of)

    def input_closeness(
        self, facts: Mapping[str, Any], owner_of: Mapping[str, str], gaps: list[str]
    ) -> Closeness | str:
        """Measure how close sentences lie in the features that a head reads.

        Parameters
        ----------
        facts : the `provenance.json` of its table.
        owner_of : caption id to image id. Of more than `MEASURED` images so many are drawn.

        Returns
        -------
        Closeness or str
            In a few words why there is none, such as of token ids, which lie nowhere.
        """
        try:
            side = FeatureSpec.from_json(facts["provenance"]["inputs"]["captions"])
            if any(part.kind == "sequence" for part in caption_blocks(side)):
                return "token ids"
            folder = self._folder_with(self._text / dataset_of(facts), side.recipe_hash)
            return self._closeness(folder, tuple(owner_of.items())) or "no pairs of sentences"
        except (KeyError, TypeError):
            gaps.append("Its caption features are not said: no closeness of sentences in them.")
            return "features not said"
        except PipelineError as error:
            text = " ".join(str(error).split())
            gaps.append(f"No closeness of sentences before the head: {text}")
            return "features not to be read"

    def spoken_of(
        self, texts: Mapping[str, str], owner_of: Mapping[str, str]
    ) -> dict[str, tuple[str, ...]]:
        """Return the words to show in planes, each with the ids of the images that speak of it.

        Parameters
        ----------
        texts, owner_of : of the sentences that were ranked: caption id to sentence and image id.
        """
        return self._spoken_of(tuple((owner_of[one], text) for one, text in texts.items()))

    def word_plane(
        self,
        experiment: str,
        path: Path,
        embeddings: Embeddings,
        spoken_of: Mapping[str, Sequence[str]],
        gaps: list[str],
    ) -> WordPlane | None:
        """Place words and images in one plane; None for sets of vectors, and without words.

        Parameters
        ----------
        path, embeddings : the experiment's embedding file.
        spoken_of : see the method of that name.
        """
        if embeddings.caption_embeddings.ndim != 2 or not spoken_of:
            return None
        try:
            trained = head_of(embeddings, path, self._heads / experiment)
            dataset = str(embeddings.provenance.get("dataset", ""))
            side = trained.inputs.captions
            features = self._folder_with(self._text / dataset, side.recipe_hash)
            encoder = features.with_name(f"{features.name}.encoder")
            fitted = open_encoder(trained, encoder, list(spoken_of))
            known = _known(fitted, spoken_of, gaps)
            if known:
                return _word_plane(embeddings, trained, fitted, known, gaps.append)
        except PipelineError as error:
            gaps.append(f"No plane of words and images: {' '.join(str(error).split())}")
        return None


def _folder_with(folder: Path, recipe_hash: str) -> Path:
    """Return the folder of caption features with that recipe hash."""
    for index in sorted(folder.glob(f"*/{INDEX_FILE}")):
        if read_index(index.parent).header.recipe_hash == recipe_hash:
            return index.parent
    raise ShardError(
        f"no folder of {folder} has caption features of the recipe hash {recipe_hash}; make them "
        "with `pipeline text`"
    )


def _closeness(folder: Path, owners: tuple[tuple[str, str], ...]) -> Closeness | None:
    drawn = chosen(sorted({image for _, image in owners}), MEASURED, SEED)
    row_of = {image: row for row, image in enumerate(drawn)}
    kept = [(caption, row_of[image]) for caption, image in owners if image in row_of]
    features = FeatureSet(folder).read([caption for caption, _ in kept])
    return closeness(features, np.array([row for _, row in kept], np.int64))


def _spoken_of(sentences: tuple[tuple[str, str], ...]) -> dict[str, tuple[str, ...]]:
    captions: dict[str, list[str]] = defaultdict(list)
    for image, text in sentences:
        captions[image].append(text)
    least = max(3, len(captions) * WORDS_PER_CENT // 100)
    return images_of(telling_words(captions, least, WORDS), captions, IMAGES_OF_A_WORD)


def _known(
    encoder: CaptionEncoder, spoken_of: Mapping[str, Sequence[str]], gaps: list[str]
) -> dict[str, Sequence[str]]:
    """Return what is spoken of in words that some part of an encoder knows."""
    words = list(spoken_of)
    unknown = {words[at] for at in unknown_to_all(encoder.reports(words).values())}
    if unknown:
        missing = ", ".join(sorted(unknown))
        gaps.append(f"Not in the plane of words, since its encoder does not know them: {missing}.")
    return {word: images for word, images in spoken_of.items() if word not in unknown}


def _word_plane(
    embeddings: Embeddings,
    trained: TrainedHead,
    encoder: CaptionEncoder,
    spoken_of: Mapping[str, Sequence[str]],
    tell: Callable[[str], None],
) -> WordPlane:
    """Place words and images as figure 5 of Kiros et al. 2014 does, each kind around its mean."""
    row_of = {one: row for row, one in enumerate(embeddings.image_ids)}
    pairs = [(word, one) for word, images in spoken_of.items() for one in images]
    spoken = embed_sentences(trained, encoder, list(spoken_of), tell)
    seen = embeddings.image_embeddings[[row_of[one] for _, one in pairs]]
    of_words, of_images, shares = common_plane(
        as_compared(spoken, embeddings.similarity), as_compared(seen, embeddings.similarity)
    )
    words = {word: (x, y) for word, (x, y) in zip(spoken_of, of_words.tolist(), strict=True)}
    images: dict[str, dict[str, Place]] = {word: {} for word in spoken_of}
    for (word, one), (x, y) in zip(pairs, of_images.tolist(), strict=True):
        images[word][one] = (x, y)
    return WordPlane(words, images, shares)
