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
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.wording import counted
from pipeline.studies import StudyError
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


@dataclass(frozen=True)
class Probes:
    """Probe results of an embedding space."""

    questions: tuple[Probed, ...]  # linear probes; empty if only one split is embedded
    foils: Mapping[str, Robustness]
    train: str  # split that linear probes are fitted on; `test` is measured
    test: str
    truth: str  # "exact", if the dataset knows its images, or "captions"
    provenance: Mapping[str, Any] = field(default_factory=dict)


def probe(
    searcher: Searcher,
    truth: ProbeTruth | None = None,
    *,
    split: str | None = None,
    monitor: Monitor = QUIET,
) -> Probes:
    """Probe a space with linear questions about its images, and with foils of their captions."""
    space, manifest = searcher.embedded.space, searcher.embedded.manifest
    test = split_for("test", manifest, split)
    train = next((name for name in USUAL_NAMES["train"] if name in manifest.counts), test)
    rows = {name: _rows_of(space.image_ids, manifest, name) for name in (train, test)}
    if not len(rows[test]) or not len(np.intersect1d(rows[test], space.captioned)):
        raise StudyError(
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
        train_rows, test_rows = rows[train], rows[test]
        questions = linear_probes(
            points[train_rows],
            [facts[r] for r in train_rows],
            points[test_rows],
            [facts[r] for r in test_rows],
        )
        possible = {question for row in train_rows for question in facts[row]}
        if (left_out := len(possible) - len(questions)) > 0:
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
    ids_of_split = {*manifest.select(split).ids}
    return np.array([row for row, image in enumerate(ids) if image in ids_of_split], np.int64)


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
    searcher: Searcher, truth: ProbeTruth | None, rows: npt.NDArray[np.int64], monitor: Monitor
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
    usable = _known(models, texts, "caption", monitor)
    row_of = {at: row for row, at in enumerate(usable)}
    foils = [(at, foil) for at, foil in foils if at in row_of]
    known_foils = _known(models, [foil.text for _, foil in foils], "foil", monitor)
    if not known_foils:
        raise StudyError(
            f"no caption of {len(images)} images has a word that could be exchanged, or the "
            "encoder knows none of them; its captions should be English sentences"
        )
    captions = _embedded(models, [texts[at] for at in usable])
    results = {}
    for kind in kinds_of(exchanges):
        of_kind = [foils[n] for n in known_foils if foils[n][1].kind == kind]
        if of_kind:
            results[kind] = robustness(
                space.image_embeddings[rows],
                captions,
                of_text[usable],
                _embedded(models, [foil.text for _, foil in of_kind]),
                np.array([row_of[at] for at, _ in of_kind], np.int64),
                space.similarity,
            )
    return results


def _judge(
    image: ImageEntry, text: str, exchanges: Sequence[Exchange], truth: ProbeTruth | None
) -> Callable[[str], bool]:
    """Return the test of changed captions: against the truth, or else the other captions."""
    if truth is not None:
        facts = truth

        def is_wrong(changed: str) -> bool:
            judged = facts.judge(image.id, changed)
            return judged is not None and not all(judged.values())

        return is_wrong
    mentioned = {e.name: {m for t in image.captions for m in meanings_in(t, e)} for e in exchanges}
    return lambda changed: (
        changed not in image.captions
        and not any(
            (meanings_in(changed, e) - meanings_in(text, e)) & mentioned[e.name] for e in exchanges
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
