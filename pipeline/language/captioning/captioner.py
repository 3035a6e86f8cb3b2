"""Captions that a trained language model writes: many candidates under conditions, the best kept.

Kiros et al. 2014, section 5.2: a candidate's score is the cosine of its point and the image's,
times a penalty for content words that repeat, plus a weight times its log-probability under the
trigram model. Deviations: that is the mean over the candidate's words, so that long ones are not
the worse; all images get the same tag sequences, drawn once; each condition gets each of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pipeline.heads.inputs.feature_rows import ArrayRows, Features
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.language import LanguageError
from pipeline.language.captioning.captions import Caption
from pipeline.language.captioning.generation import (
    Found,
    beam_search,
    most_probable_words,
    sample,
)
from pipeline.language.data import embed_captions
from pipeline.language.trained_model import TrainedLanguageModel, load_language_model
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.token_ids import FIRST_WORD, PADDING
from pipeline.text.fitted import load_encoder
from pipeline.text.tokenizers.stop_words import STOP_WORDS
from pipeline.wording import counted

_ROWS = 8192  # candidates that are computed together
_IMAGES = 64  # whose captions are searched together
_EMBEDDED = 512  # sentences that are embedded together


@dataclass(frozen=True)
class Writing:
    """How captions are written and chosen.

    Attributes
    ----------
    sequences : tag sequences under each condition, of models that take tags.
    shortest, longest : words of a drawn tag sequence.
    templates : tag sequences in place of drawn ones, each the tags with a space between.
    concepts : nearest words, and nearest sentences, whose mean is a second condition; 0: the
        image's point is the only one.
    width : of the beam; 0 draws instead, `samples` sentences under each condition. None: 1 with
        tags, whose sequences give enough candidates, 5 without.
    samples : see `width`.
    temperature : of drawing.
    trigram_weight : of the mean log-probability of a candidate's words under the trigram model.
    repeat_penalty : factor on the cosine for each time that a content word is repeated.
    length_power : without a head, log-probabilities are divided by this power of the number of
        words, the end among them.

    Raises
    ------
    LanguageError
        A number is out of its range, or a template has no tag.
    """

    sequences: int = 50
    shortest: int = 4
    longest: int = 12
    templates: tuple[str, ...] = ()
    concepts: int = 5
    width: int | None = None
    samples: int = 20
    temperature: float = 1.0
    trigram_weight: float = 0.05
    repeat_penalty: float = 0.8
    length_power: float = 0.7

    def __post_init__(self) -> None:
        for name in ("sequences", "samples", "shortest"):
            _require_at_least(1, name, getattr(self, name))
        _require_at_least(self.shortest, "longest", self.longest)
        for name in ("concepts", "width"):
            _require_at_least(0, name, getattr(self, name) or 0)
        if not self.temperature > 0:
            raise LanguageError(f"temperature is {self.temperature}; give a number above 0")
        if not all(template.split() for template in self.templates):
            raise LanguageError("a template of tags is empty; name a tag for each word")


class LanguageCaptioner:
    """Writes captions of images; see `pipeline.language.captioning.captions.Captioner`."""

    def __init__(
        self,
        trained: TrainedLanguageModel,
        head: TrainedHead | None,
        encoder: CaptionEncoder | None,
        writing: Writing | None = None,
    ) -> None:
        """Take a model and, where its conditions are in a head's space, that head.

        Parameters
        ----------
        trained : the model.
        head : that it was trained with.
        encoder : of the captions that the head embeds.
        writing : None takes the defaults.

        Raises
        ------
        LanguageError
            The model takes no condition, or was trained with another head.
        """
        self.trained, self.head, self._encoder = trained, head, encoder
        self._tags: dict[int, npt.NDArray[np.int64] | None] = {}  # of the last seed
        writing = writing or Writing()
        if writing.width is None:
            writing = replace(writing, width=1 if trained.module.takes_tags else 5)
        self.writing = writing
        if not trained.module.condition_dim:
            raise LanguageError(
                f"the language model {trained.model!r} of {trained.experiment!r} takes no "
                "condition, so it cannot describe an image; take sc-nlm or another that does"
            )
        if trained.head is None:
            return
        if head is None or encoder is None:
            raise LanguageError(
                f"{trained.experiment!r} writes in the space of {trained.head['experiment']!r}; "
                "give that head and the encoder of its captions"
            )
        if head.tensors_sha256 != trained.head["tensors_sha256"]:
            raise LanguageError(
                f"{trained.experiment!r} was trained with another head of "
                f"{trained.head['experiment']!r} (SHA-256 "
                f"{trained.head['tensors_sha256'][:16]}…, found {str(head.tensors_sha256)[:16]}…); "
                "train the language model again"
            )

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The model's, and how captions are written."""
        return {**self.trained.provenance, "writing": asdict(self.writing)}

    def describe(
        self, images: Features, *, count: int = 5, seed: int = 0
    ) -> Sequence[Sequence[Caption]]:
        """See `Captioner.describe`.

        Raises
        ------
        LanguageError
            `count` is below 1, or a row of features has NaN or infinite numbers.
        """
        _require_at_least(1, "count", count)
        rows = np.asarray(images)
        finite = np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
        if broken := np.flatnonzero(~finite).tolist():
            raise LanguageError(
                f"{counted(len(broken), 'row')} of image features have NaN or infinite numbers, "
                f"first rows {broken[:5]}; extract them again"
            )
        if self.head is None:
            return self._by_probability(images, count, seed)
        points = _unit(self.head.embed_images(images))
        conditions = points[:, None]
        if self.writing.concepts:
            conditions = np.stack([points, self._concept_means(points)], axis=1)
        if seed not in self._tags:
            self._tags = {seed: self._tag_sequences(seed)}
        tags = self._tags[seed]
        step = max(1, _ROWS // (conditions.shape[1] * (1 if tags is None else len(tags))))
        found: list[Sequence[Caption]] = []
        for start in range(0, len(points), step):
            here = slice(start, start + step)
            found += self._ranked(self._write(conditions[here], tags, seed), points[here], count)
        return found

    def conditions(self, images: Features) -> Features:
        """Return what the model is conditioned on; see `SentenceModel.start`."""
        if self.head is None:
            return np.asarray(images, np.float32)
        return _unit(self.head.embed_images(images))

    def _write(
        self, conditions: Features, tags: npt.NDArray[np.int64] | None, seed: int
    ) -> npt.NDArray[np.int64]:
        """Return candidates (images, n, length) under conditions (images, k, dim) and all tags."""
        images, k, dim = conditions.shape
        sequences = 1 if tags is None else len(tags)
        pairs = torch.cartesian_prod(torch.arange(images * k), torch.arange(sequences))
        given = torch.from_numpy(conditions.reshape(-1, dim))
        ids = None if tags is None else torch.from_numpy(np.ascontiguousarray(tags))
        if ids is not None and self.writing.width == 1:
            found = most_probable_words(self.trained.module, given, ids, pairs)
        else:
            found = self._found(given, ids, pairs, k * sequences, seed).sentences
        sentences: npt.NDArray[np.int64] = found.numpy().reshape(images, -1, found.shape[-1])
        return sentences

    def _found(
        self,
        conditions: torch.Tensor,
        tags: torch.Tensor | None,
        pairs: torch.Tensor,
        each: int,
        seed: int,
    ) -> Found:
        """Search, or draw: every image, of `each` pairs, with the same random numbers."""
        w, module = self.writing, self.trained.module
        if w.width:
            return beam_search(module, conditions, tags, pairs, width=w.width)
        times = w.samples
        draws = np.random.default_rng(seed).random((each * times, self.trained.sizes.length))
        return sample(
            module,
            conditions,
            torch.from_numpy(np.tile(draws, (len(pairs) // each, 1))),
            tags,
            pairs.repeat_interleave(times, dim=0),
            temperature=w.temperature,
        )

    def _by_probability(
        self, images: Features, count: int, seed: int
    ) -> Sequence[Sequence[Caption]]:
        """Return the captions of a model that is conditioned on features, by their probability."""
        power, captions = self.writing.length_power, []
        for start in range(0, len(images), _IMAGES):
            rows = images[start : start + _IMAGES]
            pairs = torch.arange(len(rows))[:, None].expand(-1, 2)
            found = self._found(torch.from_numpy(self.conditions(rows)), None, pairs, 1, seed)
            width = found.sentences.shape[1] * len(found.sentences) // len(rows)
            sentences = found.sentences.numpy().reshape(len(rows), width, -1)
            totals = found.log_probabilities.numpy().reshape(len(rows), width)
            for own, log_p in zip(sentences, totals, strict=True):
                lengths = (own != PADDING).sum(axis=1).clip(1)  # a place of the beam may be empty
                scores = log_p / lengths**power
                parts = [{"log_probability": float(p)} for p in log_p]
                captions.append(self._best(own, scores, parts, count))
        return captions

    def _ranked(
        self, candidates: npt.NDArray[np.int64], points: Features, count: int
    ) -> list[Sequence[Caption]]:
        """Return the best of each image's candidates (images, n, length), points (images, dim).

        A sentence is embedded and scored once, however many images have it.
        """
        w, images = self.writing, len(candidates)
        every = candidates.reshape(-1, candidates.shape[2])
        spoken = np.flatnonzero((every >= FIRST_WORD).any(axis=1))
        if not spoken.size:
            return [[]] * images
        # Big-endian bytes compare as the ids do, and far faster than rows.
        keys = every[spoken].astype(">u4").view(f"S{4 * every.shape[1]}")[:, 0]
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        distinct, place = every[spoken[first]], np.full(len(every), -1)
        place[spoken] = inverse
        texts = [self.trained.text(ids) for ids in distinct]
        embedded = self._embedded(texts)
        words = (distinct != PADDING).sum(axis=1)
        trigrams = self.trained.ngrams.sentence_log_probabilities(distinct).sum(axis=1) / words
        repeats = self._repeats(distinct)
        found = []
        for own, point in zip(place.reshape(images, -1), points, strict=True):
            rows = np.unique(own[own >= 0])
            cosines = embedded[rows] @ point
            penalised = np.where(cosines > 0, cosines * w.repeat_penalty ** repeats[rows], cosines)
            scores = penalised + w.trigram_weight * trigrams[rows]
            parts = [
                {"cosine": float(c), "trigram": float(t), "repeats": float(r)}
                for c, t, r in zip(cosines, trigrams[rows], repeats[rows], strict=True)
            ]
            found.append(self._best(distinct[rows], scores, parts, count))
        return found

    def _embedded(self, texts: Sequence[str]) -> Features:
        """Return the points (texts, dim) of sentences."""
        assert self.head is not None
        blocks = [texts[at : at + _EMBEDDED] for at in range(0, len(texts), _EMBEDDED)]
        rows = [embed_captions(self.head, ArrayRows(self._prepared.encode(b))) for b in blocks]
        return np.concatenate(rows)

    @cached_property
    def _prepared(self) -> CaptionEncoder:
        """The sentence encoder after it has read the vectors of all words of candidates at once."""
        assert self._encoder is not None
        self._encoder.encode([" ".join(self.trained.vocabulary.words)])
        return self._encoder

    def _repeats(self, sentences: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how often a content word is repeated in each sentence (n, length)."""
        ids = np.sort(np.where(self._content[sentences], sentences, PADDING), axis=1)
        return np.asarray(((ids[:, 1:] == ids[:, :-1]) & (ids[:, 1:] != PADDING)).sum(axis=1))

    def _best(
        self,
        sentences: npt.NDArray[np.int64],
        scores: npt.NDArray[np.float64],
        parts: Sequence[Mapping[str, float]],
        count: int,
    ) -> Sequence[Caption]:
        """Return the `count` distinct sentences with the greatest scores; the first of equals.

        Sentences without a word are no captions.
        """
        captions: dict[str, Caption] = {}
        for at in np.argsort(-scores, kind="stable").tolist():
            text = self.trained.text(sentences[at])
            if text and np.isfinite(scores[at]) and text not in captions:
                captions[text] = Caption(text, float(scores[at]), parts[at])
            if len(captions) == count:
                break
        return list(captions.values())

    def _concept_means(self, points: Features) -> Features:
        """Return the mean of the nearest words and sentences of each point, of unit length."""
        near = []
        content = self.trained.concepts.words[self._content]
        for concepts in (content, self.trained.concepts.sentences):
            most = min(self.writing.concepts, len(concepts))
            near.append(concepts[_greatest(points @ concepts.T, most)])
        return _unit(np.concatenate(near, axis=1).mean(axis=1))

    @cached_property
    def _content(self) -> npt.NDArray[np.bool_]:
        """Which token ids (vocab_size,) are words that are not stop words."""
        return np.array([False] * FIRST_WORD + [*map(_is_content, self.trained.vocabulary.words)])

    def _tag_sequences(self, seed: int) -> npt.NDArray[np.int64] | None:
        """Return distinct tag sequences of training captions, drawn as often as they occur."""
        if not self.trained.module.takes_tags:
            return None
        w = self.writing
        if w.templates:
            ids = [self.trained.tag_ids(template) for template in w.templates]
            return np.array(list(zip_longest(*ids, fillvalue=PADDING))).T
        tags = self.trained.concepts.tags
        words = (tags != PADDING).sum(axis=1) - 1
        fitting = np.flatnonzero((w.shortest <= words) & (words <= w.longest))
        if not fitting.size:
            raise LanguageError(
                f"no training caption of {self.trained.experiment!r} has {w.shortest} to "
                f"{w.longest} words, so there is no tag sequence; allow other lengths"
            )
        order = np.random.default_rng(seed).permutation(fitting)
        _, first = np.unique(tags[order], axis=0, return_index=True)
        chosen = tags[order[np.sort(first)[: w.sequences]]]
        return chosen[:, : int((chosen != PADDING).sum(axis=1).max())]


def load_captioner(
    folder: str | Path,
    head: str | Path | None = None,
    encoder: str | Path | None = None,
    writing: Writing | None = None,
) -> LanguageCaptioner:
    """Load a language model with all that it needs to describe images.

    Parameters
    ----------
    folder : of the model.
    head : folder of the head that it was trained with, where it was with one.
    encoder : folder of the fitted encoder of the captions that the head embeds.
    writing : how captions are written; None takes the defaults.

    Raises
    ------
    LanguageError, HeadError, EncoderError
        A folder is missing or damaged, or they do not belong together.
    """
    trained = load_language_model(folder)
    if trained.head is None:
        return LanguageCaptioner(trained, None, None, writing)
    loaded = None if head is None else load_head(head)
    return LanguageCaptioner(
        trained, loaded, None if encoder is None else load_encoder(encoder), writing
    )


def _require_at_least(least: int, name: str, value: int) -> None:
    if value < least:
        raise LanguageError(f"{name} is {value}; give at least {least}")


def _unit(points: Features) -> Features:
    norms = np.linalg.norm(points, axis=-1, keepdims=True)
    return np.asarray(points / np.where(norms > 0, norms, 1), np.float32)


def _is_content(word: str) -> bool:
    return word.isalpha() and word not in STOP_WORDS["english-function"]


def _greatest(values: Features, most: int) -> npt.NDArray[np.int64]:
    """Return the places (rows, most) of the greatest numbers of each row; the first of equals.

    As a stable sort of the negated rows, but several times as fast.
    """
    last = np.partition(values, -most, axis=1)[:, -most]
    found = np.empty((len(values), most), np.int64)
    for row, (own, least) in enumerate(zip(values, last, strict=True)):
        places = np.flatnonzero(own >= least)
        found[row] = places[np.argsort(-own[places], kind="stable")[:most]]
    return found
