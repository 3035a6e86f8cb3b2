"""Captions by a trained language model: generate candidates under conditions, keep the best.

Kiros et al. 2014, section 5.2: the score is the cosine between a candidate's embedding and the
image's, times a penalty for repeated content words, plus a weighted log-probability under a trigram
model. Deviations: the log-probability is the mean over words, so that long candidates are not
penalised; tag sequences are sampled once for all images, and used under every condition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pipeline.heads.inputs.feature_rows import ArrayRows, Features
from pipeline.heads.trained_head import TrainedHead
from pipeline.language import LanguageError
from pipeline.language.captioning.captions import Caption
from pipeline.language.captioning.generation import (
    Generated,
    beam_search,
    most_probable_words,
    sample,
)
from pipeline.language.data import embed_captions, of_unit_length
from pipeline.language.trained_model import TrainedLanguageModel
from pipeline.store.wording import counted
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.token_ids import FIRST_WORD, PADDING
from pipeline.text.tokenizers.word_lists import STOP_WORDS

_ROWS = 8192  # candidates per batch
_IMAGES = 64  # images per search
_EMBEDDED = 512  # sentences per embedding call


@dataclass(frozen=True)
class Writing:
    """Options for generating and ranking captions.

    Attributes
    ----------
    sequences : int. Number of tag sequences per condition, for models with tags.
    shortest, longest : int. Minimum and maximum number of words of a sampled tag sequence.
    templates : tuple of str. Tag sequences instead of sampled ones, tags separated by spaces.
    concepts : int. Number of nearest words and sentences whose mean is a second condition; 0: only
        the image's embedding.
    width : int or None. Beam width; 0 samples `samples` sentences per condition instead. None: 1
        with tags, whose sequences provide enough candidates, 5 without.
    samples : int. Number of samples, see `width`.
    temperature : float. Softmax temperature of sampling.
    trigram_weight : float. Weight of the mean log-probability of a candidate's words in the trigram
        model.
    repeat_penalty : float. Factor on the cosine per repetition of a content word.
    length_power : float. Without a head, log-probabilities are divided by this power of the number
        of words, including the end mark.

    Raises
    ------
    LanguageError
        A number is out of range, or a template has no tag.

    References
    ----------
    Kiros, Salakhutdinov & Zemel 2014, section 5.2: `sequences`, `concepts`, the trigram model and
    the penalty for repetitions.

    Examples
    --------
    >>> writing = pipeline.Writing(width=10, trigram_weight=0.5)
    >>> pipeline.caption(
    ...     "photo.jpg", "data/mine", experiment="kiros2014-sc-nlm", writing=writing
    ... ).text  # doctest: +SKIP
    'a dog runs on the grass'
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
            raise LanguageError(f"temperature is {self.temperature}; set a number above 0")
        if not all(template.split() for template in self.templates):
            raise LanguageError("a template of tags is empty; name a tag for each word")


class LanguageCaptioner:
    """Generates captions; a `Captioner`."""

    def __init__(
        self,
        trained: TrainedLanguageModel,
        head: TrainedHead | None,
        encoder: CaptionEncoder | None,
        writing: Writing | None = None,
    ) -> None:
        """Store a model, with its head and the head's caption encoder if it has one."""
        self.trained: TrainedLanguageModel = trained
        self.head: TrainedHead | None = head
        self._encoder = encoder
        self._tags: dict[int, npt.NDArray[np.int64] | None] = {}  # for the last seed
        writing = writing or Writing()
        if writing.width is None:
            writing = replace(writing, width=1 if trained.module.takes_tags else 5)
        self.writing: Writing = writing
        if not trained.module.condition_dim:
            raise LanguageError(
                f"the language model {trained.model!r} of {trained.experiment!r} is unconditional, "
                "so it cannot describe an image; use sc-nlm or another conditional model"
            )
        if trained.head is None:
            return
        if head is None or encoder is None:
            raise LanguageError(
                f"{trained.experiment!r} generates in the space of {trained.head['experiment']!r}; "
                "pass that head and the encoder of its captions"
            )
        if head.tensors_sha256 != trained.head["tensors_sha256"]:
            raise LanguageError(
                f"{trained.experiment!r} was trained with another head of "
                f"{trained.head['experiment']!r} (SHA-256 "
                f"{trained.head['tensors_sha256'][:16]}…, found {str(head.tensors_sha256)[:16]}…); "
                "train the language model again"
            )

    @property
    def device(self) -> torch.device:
        """Device of the language model."""
        return next(self.trained.module.parameters()).device

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Provenance of the model, and the generation options."""
        return {**self.trained.provenance, "writing": asdict(self.writing)}

    def describe(
        self, images: Features, *, count: int = 5, seed: int = 0
    ) -> Sequence[Sequence[Caption]]:
        """See `Captioner.describe`."""
        _require_at_least(1, "count", count)
        rows = np.asarray(images)
        finite = np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
        if broken := np.flatnonzero(~finite).tolist():
            raise LanguageError(
                f"{counted(len(broken), 'row')} of image features have NaN or infinite values, "
                f"first rows {broken[:5]}; extract them again"
            )
        if self.head is None:
            return self._by_probability(images, count, seed)
        points = self.conditions(images)
        conditions = points[:, None]
        if self.writing.concepts:
            conditions = np.stack([points, self._concept_means(points)], axis=1)
        if seed not in self._tags:
            self._tags = {seed: self._tag_sequences(seed)}
        tags = self._tags[seed]
        step = max(1, _ROWS // (conditions.shape[1] * (1 if tags is None else len(tags))))
        described: list[Sequence[Caption]] = []
        for start in range(0, len(points), step):
            here = slice(start, start + step)
            candidates = self._write(conditions[here], tags, seed)
            described += self._ranked(candidates, points[here], count)
        return described

    def conditions(self, images: Features) -> Features:
        """Return the conditions of the model; see `SentenceModel.start`."""
        if self.head is None:
            return np.asarray(images, np.float32)
        return of_unit_length(self.head.embed_images(images))

    def _write(
        self, conditions: Features, tags: npt.NDArray[np.int64] | None, seed: int
    ) -> npt.NDArray[np.int64]:
        """Return candidates (images, n, length) for conditions (images, k, dim) and all tags."""
        images, k, dim = conditions.shape
        sequences = 1 if tags is None else len(tags)
        device = self.device
        pairs = torch.cartesian_prod(
            torch.arange(images * k, device=device), torch.arange(sequences, device=device)
        )
        given = torch.from_numpy(conditions.reshape(-1, dim)).to(device)
        ids = None if tags is None else torch.from_numpy(np.ascontiguousarray(tags)).to(device)
        if ids is not None and self.writing.width == 1:
            generated = most_probable_words(self.trained.module, given, ids, pairs)
        else:
            generated = self._generate(given, ids, pairs, k * sequences, seed).sentences
        sentences: npt.NDArray[np.int64] = generated.cpu().numpy()
        return sentences.reshape(images, -1, sentences.shape[-1])

    def _generate(
        self,
        conditions: torch.Tensor,
        tags: torch.Tensor | None,
        pairs: torch.Tensor,
        each: int,
        seed: int,
    ) -> Generated:
        """Run beam search or sampling; every image, with `each` pairs, gets the same draws."""
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
        """Return captions of a model conditioned on features, ranked by probability."""
        power, captions = self.writing.length_power, []
        for start in range(0, len(images), _IMAGES):
            rows = images[start : start + _IMAGES]
            pairs = torch.arange(len(rows), device=self.device)[:, None].expand(-1, 2)
            conditions = torch.from_numpy(self.conditions(rows)).to(self.device)
            generated = self._generate(conditions, None, pairs, 1, seed)
            width = generated.sentences.shape[1] * len(generated.sentences) // len(rows)
            sentences = generated.sentences.cpu().numpy().reshape(len(rows), width, -1)
            totals = generated.log_probabilities.cpu().numpy().reshape(len(rows), width)
            for candidates, log_p in zip(sentences, totals, strict=True):
                # At least 1, since the beam may have empty slots.
                lengths = (candidates != PADDING).sum(axis=1).clip(1)
                scores = log_p / lengths**power
                parts = [{"log_probability": float(p)} for p in log_p]
                captions.append(self._best(candidates, scores, parts, count))
        return captions

    def _ranked(
        self, candidates: npt.NDArray[np.int64], points: Features, count: int
    ) -> list[Sequence[Caption]]:
        """Return the best of the candidates (images, n, length) at points (images, dim)."""
        w, images = self.writing, len(candidates)
        every = candidates.reshape(-1, candidates.shape[2])
        spoken = np.flatnonzero((every >= FIRST_WORD).any(axis=1))
        if not spoken.size:
            return [[]] * images
        # Big-endian bytes sort like the ids, and much faster than rows.
        keys = every[spoken].astype(">u4").view(f"S{4 * every.shape[1]}")[:, 0]
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        # A sentence is embedded and scored once for all images; -1: it has no word.
        distinct, row_of = every[spoken[first]], np.full(len(every), -1)
        row_of[spoken] = inverse
        texts = [self.trained.text(ids) for ids in distinct]
        embedded = self._embedded(texts)
        words = (distinct != PADDING).sum(axis=1)
        trigrams = self.trained.ngrams.sentence_log_probabilities(distinct).sum(axis=1) / words
        repeats = self._repeats(distinct)
        described = []
        for candidate_rows, point in zip(row_of.reshape(images, -1), points, strict=True):
            rows = np.unique(candidate_rows[candidate_rows >= 0])
            cosines = embedded[rows] @ point
            # A factor below 1 would raise a negative cosine.
            penalised = np.where(cosines > 0, cosines * w.repeat_penalty ** repeats[rows], cosines)
            scores = penalised + w.trigram_weight * trigrams[rows]
            parts = [
                {"cosine": float(c), "trigram": float(t), "repeats": float(r)}
                for c, t, r in zip(cosines, trigrams[rows], repeats[rows], strict=True)
            ]
            described.append(self._best(distinct[rows], scores, parts, count))
        return described

    def _embedded(self, texts: Sequence[str]) -> Features:
        """Return the embeddings (texts, dim) of sentences."""
        assert self.head is not None
        blocks = [texts[at : at + _EMBEDDED] for at in range(0, len(texts), _EMBEDDED)]
        rows = [embed_captions(self.head, ArrayRows(self._prepared.encode(b))) for b in blocks]
        return np.concatenate(rows)

    @cached_property
    def _prepared(self) -> CaptionEncoder:
        """The sentence encoder, with the vectors of all candidate words loaded at once."""
        assert self._encoder is not None
        self._encoder.encode([" ".join(self.trained.vocabulary.words)])
        return self._encoder

    def _repeats(self, sentences: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of repeated content words in each sentence (n, length)."""
        ids = np.sort(np.where(self._content[sentences], sentences, PADDING), axis=1)
        return np.asarray(((ids[:, 1:] == ids[:, :-1]) & (ids[:, 1:] != PADDING)).sum(axis=1))

    def _best(
        self,
        sentences: npt.NDArray[np.int64],
        scores: npt.NDArray[np.float64],
        parts: Sequence[Mapping[str, float]],
        count: int,
    ) -> Sequence[Caption]:
        """Return the `count` best distinct sentences with a word; the first one wins ties."""
        captions: dict[str, Caption] = {}
        for at in np.argsort(-scores, kind="stable").tolist():
            text = self.trained.text(sentences[at])
            if text and np.isfinite(scores[at]) and text not in captions:
                captions[text] = Caption(text, float(scores[at]), parts[at])
            if len(captions) == count:
                break
        return list(captions.values())

    def _concept_means(self, points: Features) -> Features:
        """Return the L2-normalised mean of the nearest words and sentences of each point."""
        near = []
        content = self.trained.concepts.words[self._content]
        for concepts in (content, self.trained.concepts.sentences):
            most = min(self.writing.concepts, len(concepts))
            near.append(concepts[_greatest(points @ concepts.T, most)])
        return of_unit_length(np.concatenate(near, axis=1).mean(axis=1))

    @cached_property
    def _content(self) -> npt.NDArray[np.bool_]:
        """Mask of the token ids (vocab_size,) that are content words."""
        return np.array([False] * FIRST_WORD + [*map(_is_content, self.trained.vocabulary.words)])

    def _tag_sequences(self, seed: int) -> npt.NDArray[np.int64] | None:
        """Return distinct tag sequences of training captions, sampled by frequency."""
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


def _require_at_least(least: int, name: str, value: int) -> None:
    if value < least:
        raise LanguageError(f"{name} is {value}; set at least {least}")


def _is_content(word: str) -> bool:
    return word.isalpha() and word not in STOP_WORDS["english-function"]


def _greatest(values: Features, most: int) -> npt.NDArray[np.int64]:
    """Return the indices (rows, most) of the largest numbers of each row; the first wins ties."""
    # A stable sort of the negated rows is the same, but several times as slow.
    last = np.partition(values, -most, axis=1)[:, -most]
    greatest = np.empty((len(values), most), np.int64)
    for row, (numbers, least) in enumerate(zip(values, last, strict=True)):
        indices = np.flatnonzero(numbers >= least)
        greatest[row] = indices[np.argsort(-numbers[indices], kind="stable")[:most]]
    return greatest
