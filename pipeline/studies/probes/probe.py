"""Both probes of a trained space: linear questions about images, and foils of captions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.image_truth import Exchange, ProbeTruth
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.splits import USUAL_NAMES, split_for
from pipeline.retrieval.query.searcher import Searcher
from pipeline.retrieval.similarity import unit_rows
from pipeline.store.errors import PipelineError
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.wording import counted
from pipeline.studies.probes.foils import PHOTOGRAPHS, foils_of, kinds_of, meanings_in
from pipeline.studies.probes.linear import Probed, linear_probes
from pipeline.studies.probes.robustness import Robustness, robustness
from pipeline.studies.regularities import PHOTOS, words_of_images

if TYPE_CHECKING:
    from pipeline.retrieval.query.ensemble_models import EnsembleModels
    from pipeline.retrieval.query.query_models import QueryModels

    Models = QueryModels | EnsembleModels

_SEED = 0

_AT_ONCE = 1024


class ProbeError(PipelineError):
    """A space cannot be probed, or a file is not a probe result."""


@dataclass(frozen=True)
class Probes:
    """Probe results of an embedding space.

    Attributes
    ----------
    questions : list of Probed. Linear probes; empty if only one split is embedded.
    foils : mapping of str to Robustness. Robustness by kind of foil.
    train, test : str. Split for fitting linear probes, and split for all measurements.
    truth : str. "exact", if the dataset knows its images, or "captions".
    provenance : dict. Provenance of the embeddings.
    """

    questions: tuple[Probed, ...]
    foils: Mapping[str, Robustness]
    train: str
    test: str
    truth: str
    provenance: Mapping[str, Any] = field(default_factory=dict)


def probe(
    searcher: Searcher,
    truth: ProbeTruth | None = None,
    *,
    split: str | None = None,
    monitor: Monitor = QUIET,
) -> Probes:
    """Probe a space for what its dataset knows about the images.

    Parameters
    ----------
    searcher : Searcher. Of an embedding file with its head and encoder; linear probes need the
        split "train" in the file.
    truth : ProbeTruth or None. Facts about the images; None: words in two captions of an image are
        true of it, and a word in none of its captions makes a foil.
    split : str or None. Split to measure; None: the dataset's test split.
    monitor : Monitor. Receives log lines on skipped items.

    Raises
    ------
    DatasetError
        The dataset has no such split.
    ProbeError
        The file has no captioned image of that split, or no caption has a foil.
    SearchError, PipelineError
        The head or the encoder is missing, or does not match the file.
    """
    space, manifest = searcher.embedded.space, searcher.embedded.manifest
    test = split_for("test", manifest, split)
    train = next((name for name in USUAL_NAMES["train"] if name in manifest.counts), test)
    rows = {name: _rows_of(space.image_ids, manifest, name) for name in (train, test)}
    if not len(rows[test]) or not len(np.intersect1d(rows[test], space.captioned)):
        raise ProbeError(
            f"{searcher.embedded.file} has no captioned image of the split {test!r}; embed it "
            "(`pipeline embed --split all`), or name another one by `split=...`"
        )
    questions: list[Probed] = []
    if train == test or not len(rows[train]):
        monitor.log(
            f"{searcher.embedded.file} has no training images apart from {test!r}, so there are no "
            "linear probes; `pipeline embed --split all` embeds all splits"
        )
    else:
        facts = _facts(manifest, space.image_ids, truth)
        points = _points(space.image_embeddings)
        own, others = rows[train], rows[test]
        questions = linear_probes(
            points[own], [facts[r] for r in own], points[others], [facts[r] for r in others]
        )
        asked = {question for row in own for question in facts[row]}
        if (left_out := len(asked) - len(questions)) > 0:
            monitor.log(
                f"{counted(left_out, 'question is', 'questions are')} left out: fewer than two "
                "answers have enough images in both splits"
            )
    foils = _robustness(searcher, truth, rows[test], monitor)
    return Probes(
        tuple(questions), foils, train, test, "captions" if truth is None else "exact",
        dict(space.provenance),
    )  # fmt: skip


def _rows_of(ids: Sequence[str], manifest: Manifest, split: str) -> npt.NDArray[np.int64]:
    wanted = {*manifest.select(split).ids}
    return np.array([row for row, image in enumerate(ids) if image in wanted], np.int64)


def _points(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return (images, dim) of length 1; for sets of vectors the mean of the present ones."""
    if rows.ndim == 3:
        there = rows.any(axis=2).sum(axis=1)
        rows = rows.sum(axis=1) / np.maximum(there, 1)[:, None]
    return unit_rows(rows)


def _facts(
    manifest: Manifest, images: Sequence[str], truth: ProbeTruth | None
) -> list[Mapping[tuple[str, str], str]]:
    if truth is not None:
        return [truth.facts(image) for image in images]
    has = words_of_images(manifest, images, PHOTOS)
    return [
        {
            (f"presence of {kind}", word): "yes" if flags[row] else "no"
            for kind, words in has.items()
            for word, flags in words.items()
        }
        for row in range(len(images))
    ]


def _robustness(
    searcher: Searcher,
    truth: ProbeTruth | None,
    rows: npt.NDArray[np.int64],
    monitor: Monitor,
) -> dict[str, Robustness]:
    """Return the robustness to each kind of foil; `rows` are those of the images."""
    space, manifest = searcher.embedded.space, searcher.embedded.manifest
    exchanges = PHOTOGRAPHS if truth is None else truth.exchanges
    images = [manifest.by_id[space.image_ids[row]] for row in rows.tolist()]
    texts = [text for image in images for text in image.captions]
    of_text = np.repeat(np.arange(len(images)), [len(image.captions) for image in images])
    foils = [
        (at, foil)
        for at, text in enumerate(texts)
        for foil in foils_of(
            text,
            exchanges,
            np.random.default_rng((_SEED, at)),
            _judge(images[int(of_text[at])], text, exchanges, truth),
        )
    ]
    models = searcher.models
    models.keep_encoder([*texts, *(foil.text for _, foil in foils)])
    _log_unknown(models, exchanges, monitor)
    known = _known(models, texts, "caption", monitor)
    place = {at: row for row, at in enumerate(known)}
    foils = [(at, foil) for at, foil in foils if at in place]
    known_foils = _known(models, [foil.text for _, foil in foils], "foil", monitor)
    if not known_foils:
        raise ProbeError(
            f"no caption of {len(images)} images has a word that could be exchanged, or the "
            "encoder knows none of them; its captions should be English sentences"
        )
    captions = _embedded(models, [texts[at] for at in known])
    found = {}
    for kind in kinds_of(exchanges):
        made = [foils[n] for n in known_foils if foils[n][1].kind == kind]
        if made:
            found[kind] = robustness(
                space.image_embeddings[rows],
                captions,
                of_text[known],
                _embedded(models, [foil.text for _, foil in made]),
                np.array([place[at] for at, _ in made], np.int64),
                space.similarity,
            )
    return found


def _judge(
    image: ImageEntry, text: str, exchanges: Sequence[Exchange], truth: ProbeTruth | None
) -> Callable[[str], bool]:
    """Return a function that decides whether a changed caption of an image is wrong.

    Without a truth it is wrong if none of its new words is in another caption of the image.
    """
    if truth is not None:
        known = truth

        def is_wrong(changed: str) -> bool:
            judged = known.judge(image.id, changed)
            return judged is not None and not all(judged.values())

        return is_wrong
    said = {e.name: {m for t in image.captions for m in meanings_in(t, e)} for e in exchanges}
    return lambda changed: (
        changed not in image.captions
        and not any(
            (meanings_in(changed, e) - meanings_in(text, e)) & said[e.name] for e in exchanges
        )
    )


def _log_unknown(models: "Models", exchanges: Sequence[Exchange], monitor: Monitor) -> None:
    phrases = sorted({p for e in exchanges for forms in e.meanings for ps in forms for p in ps})
    if unknown := models.without_known_word(phrases):
        named = ", ".join(phrases[at] for at in sorted(unknown)[:10])
        words = counted(len(unknown), "word")
        monitor.log(f"{words} of foils unknown to the encoder, such as {named}")


def _known(models: "Models", texts: Sequence[str], what: str, monitor: Monitor) -> list[int]:
    """Return the positions of the texts with a known word; log the number of others."""
    unknown = models.without_known_word(texts) if texts else set()
    if unknown:
        monitor.log(f"{counted(len(unknown), what)} without a known word left out")
    return [at for at in range(len(texts)) if at not in unknown]


def _embedded(models: "Models", texts: Sequence[str]) -> npt.NDArray[np.float32]:
    starts = range(0, len(texts), _AT_ONCE)
    return np.concatenate(
        [models.embed_sentences(texts[s : s + _AT_ONCE], QUIET.log) for s in starts]
    )
