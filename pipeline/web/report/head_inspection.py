"""Inspection of a head: closeness of sentences in its inputs, and single words in its outputs."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.heads.inputs.feature_spec import FeatureSpec, caption_blocks
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.similarity import unit_rows
from pipeline.store.errors import PipelineError
from pipeline.store.hashing import chosen
from pipeline.store.schema import SchemaError, convert
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import ShardError
from pipeline.store.shards.index import INDEX_FILE, read_index
from pipeline.studies.embedding_map.plane import (
    Closeness,
    Point,
    Projection,
    closeness,
    common_plane,
)
from pipeline.studies.embedding_map.typical_words import words_of
from pipeline.web.report.retrievals import (
    SEED,
    SentencePlane,
    as_compared,
    sentence_plane,
    sentences_to_place,
)

WORDS, IMAGES_OF_A_WORD = 8, 3  # number of words in a plane, and of images per word
WORDS_PER_CENT = 3  # minimum percentage of images that have a sentence with a displayed word
MEASURED = 1000  # maximum number of images whose sentence features are read to measure closeness


@dataclass(frozen=True)
class WordPlane:
    """Single words and images in the plane of their first two principal components."""

    words: Mapping[str, Point]  # point of each word, embedded as a sentence of that one word
    images: Mapping[str, Mapping[str, Point]]
    """By word, the points of images whose sentences contain it."""
    shares: tuple[float, float]  # explained variance of both components, 0-1


class HeadInspection:
    """Reads heads and features, caches what they share, and appends what is missing to `gaps`."""

    def __init__(self, heads: Path, text: Path) -> None:
        self._heads, self._text = heads, text
        self._folder_with = cache(_folder_with)
        self._closeness = cache(_closeness)
        self._input_plane = cache(_input_plane)
        self._words_to_show = cache(_words_to_show)

    def input_closeness(
        self, metadata: Mapping[str, Any], image_of: Mapping[str, str], gaps: list[str]
    ) -> Closeness | str:
        """Return the closeness of sentences in the input features of a head, or a reason."""
        try:
            spec = convert(metadata["provenance"]["inputs"]["captions"], FeatureSpec)
            if any(block.kind == "sequence" for block in caption_blocks(spec)):
                return "token ids"
            folder = self._folder_with(self._text, metadata["provenance"]["captions_sha256"])
            return self._closeness(folder, tuple(image_of.items())) or "no pairs of sentences"
        except (KeyError, TypeError, SchemaError):
            gaps.append("Its caption features are not recorded: no closeness of sentences in them.")
            return "features unknown"
        except PipelineError as error:
            text = " ".join(str(error).split())
            gaps.append(f"No closeness of sentences before the head: {text}")
            return "features not to be read"

    def input_plane(
        self, metadata: Mapping[str, Any], image_of: Mapping[str, str], projection: Projection
    ) -> SentencePlane:
        """Return sentences in the plane of the input features of a head, which have a closeness."""
        folder = self._folder_with(self._text, metadata["provenance"]["captions_sha256"])
        return self._input_plane(folder, tuple(image_of.items()), projection)

    def words_to_show(
        self, texts: Mapping[str, str], image_of: Mapping[str, str]
    ) -> dict[str, tuple[str, ...]]:
        """Return the words to display, with the ids of images whose sentences have them."""
        return self._words_to_show(tuple((image_of[c], text) for c, text in texts.items()))

    def word_plane(
        self,
        experiment: str,
        path: Path,
        embeddings: Embeddings,
        images_of_words: Mapping[str, Sequence[str]],
        gaps: list[str],
    ) -> WordPlane | None:
        """Return words and images in one plane; None for sets of vectors, and without words."""
        if embeddings.caption_embeddings.ndim != 2 or not images_of_words:
            return None
        # Here, since heads import torch, which the joint tables do not need.
        from pipeline.retrieval.query.query_embedding import embed_sentences
        from pipeline.retrieval.query.query_models import head_of, open_encoder
        from pipeline.text.encoders.base import unknown_to_all

        words = list(images_of_words)
        try:
            trained = head_of(embeddings, path, self._heads / experiment)
            content_sha256 = str(embeddings.provenance.get("captions_sha256", ""))
            features = self._folder_with(self._text, content_sha256)
            folder = features.with_name(f"{features.name}.encoder")
            encoder = open_encoder(trained, folder, words)
            unknown = {words[at] for at in unknown_to_all(encoder.reports(words).values())}
            if unknown:
                missing = ", ".join(sorted(unknown))
                gaps.append(
                    f"Not in the plane of words, since its encoder does not know them: {missing}."
                )
            known_words = {w: images for w, images in images_of_words.items() if w not in unknown}
            if known_words:
                rows = embed_sentences(trained, encoder, list(known_words), gaps.append)
                return _word_plane(embeddings, known_words, rows)
        except PipelineError as error:
            gaps.append(f"No plane of words and images: {' '.join(str(error).split())}")
        return None


def telling_words(
    captions: Mapping[str, Sequence[str]], least: int, number: int
) -> tuple[str, ...]:
    """Return words that the captions of an image share, but not those of others."""
    # Fleiss' kappa of "the caption has the word" (Fleiss 1971, for one category), with the captions
    # of an image as raters: (p' - p) / (1 - p). p is the share of captions with the word, p' that
    # among the other captions of an image one of whose captions has it. No stop words or tagger are
    # needed.
    have: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    agreeing: Counter[str] = Counter()
    images: Counter[str] = Counter()
    several = [texts for texts in captions.values() if len(texts) > 1]
    for texts in several:
        counts = Counter(word for text in texts for word in set(words_of(text)))
        images.update(counts.keys())
        for word, count in counts.items():
            have[word] += count
            pairs[word] += count * (len(texts) - 1)
            agreeing[word] += count * (count - 1)
    everything = sum(map(len, several))
    kappas = {}
    for word, count in have.items():
        share = count / everything
        if images[word] >= least and share < 1:
            kappas[word] = (agreeing[word] / pairs[word] - share) / (1 - share)
    # Of "dog" and "dogs" only the more frequent one.
    distinct: set[str] = set()
    for word in sorted(kappas, key=lambda word: (-have[word], word)):
        shorter = [word.removesuffix(end) for end in ("s", "es") if word.endswith(end)]
        if distinct.isdisjoint((word + "s", word + "es", *shorter)):
            distinct.add(word)
    return tuple(sorted(distinct, key=lambda word: (-kappas[word], word))[:number])


def images_of(
    words: Sequence[str], captions: Mapping[str, Sequence[str]], number: int
) -> dict[str, tuple[str, ...]]:
    """Return for each word the images, used once, with the largest share of its captions."""
    taken: set[str] = set()
    images: dict[str, tuple[str, ...]] = {}
    for word in words:
        shares = {
            image: sum(word in words_of(text) for text in texts) / len(texts)
            for image, texts in captions.items()
            if image not in taken and texts
        }
        most = sorted((i for i in shares if shares[i]), key=lambda i: (-shares[i], i))[:number]
        taken.update(most)
        images[word] = tuple(most)
    return images


def _folder_with(folder: Path, content_sha256: str) -> Path:
    for index in sorted(folder.glob(f"*/{INDEX_FILE}")):
        if read_index(index.parent).content_sha256 == content_sha256:
            return index.parent
    raise ShardError(
        f"no folder of {folder} holds the caption features that the embeddings were made from "
        f"(SHA-256 of their rows {content_sha256[:16] or 'unknown'}…); recompute them with "
        "`pipeline text`"
    )


def _closeness(folder: Path, image_of: tuple[tuple[str, str], ...]) -> Closeness | None:
    drawn = chosen(sorted({image for _, image in image_of}), MEASURED, SEED)
    row_of = {image: row for row, image in enumerate(drawn)}
    captions = [(caption, row_of[image]) for caption, image in image_of if image in row_of]
    features = FeatureSet(folder).read([caption for caption, _ in captions])
    return closeness(features, np.array([row for _, row in captions], np.int64))


def _input_plane(
    folder: Path, image_of: tuple[tuple[str, str], ...], projection: Projection
) -> SentencePlane:
    sentences = sentences_to_place(dict(image_of), projection)
    rows = FeatureSet(folder).read([*chain(*sentences.values())])
    return sentence_plane(unit_rows(rows), sentences, projection)


def _words_to_show(sentences: tuple[tuple[str, str], ...]) -> dict[str, tuple[str, ...]]:
    captions: dict[str, list[str]] = defaultdict(list)
    for image, text in sentences:
        captions[image].append(text)
    least = max(3, len(captions) * WORDS_PER_CENT // 100)
    return images_of(telling_words(captions, least, WORDS), captions, IMAGES_OF_A_WORD)


def _word_plane(
    embeddings: Embeddings,
    images_of_words: Mapping[str, Sequence[str]],
    word_rows: npt.NDArray[np.float32],
) -> WordPlane:
    """Return words and images as figure 5 of Kiros et al. 2014, each centred on its mean."""
    row_of = {image: row for row, image in enumerate(embeddings.image_ids)}
    pairs = [(word, image) for word, images in images_of_words.items() for image in images]
    image_rows = embeddings.image_embeddings[[row_of[image] for _, image in pairs]]
    of_words, of_images, shares = common_plane(
        as_compared(word_rows, embeddings.similarity),
        as_compared(image_rows, embeddings.similarity),
    )
    words = {w: (x, y) for w, (x, y) in zip(images_of_words, of_words.tolist(), strict=True)}
    images: dict[str, dict[str, Point]] = {word: {} for word in images_of_words}
    for (word, image), (x, y) in zip(pairs, of_images.tolist(), strict=True):
        images[word][image] = (x, y)
    return WordPlane(words, images, shares)
