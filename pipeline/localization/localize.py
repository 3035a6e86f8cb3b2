"""The job of `pipeline localize`: heads of regions and phrases, and what they find in a split."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.datasets.regions import read_phrases
from pipeline.datasets.splits import split_for
from pipeline.files import parse_json, require_folder
from pipeline.hashing import sha256_of_file
from pipeline.heads.head_types import Experiment, with_epochs_at_most
from pipeline.heads.inputs.feature_rows import FeatureRows
from pipeline.heads.trained_head import HEAD_FILE, TENSORS_FILE, TrainedHead, load_head
from pipeline.localization import LocalizationError
from pipeline.localization.localized import Localized, write_localized
from pipeline.localization.pairs import frame, phrase_keys, region_ids
from pipeline.localization.train_localizer import OpenSources, Sources, fit_to_phrases
from pipeline.progress import QUIET, Monitor
from pipeline.text.encode import encoder_folder
from pipeline.text.encoders.base import unknown_to_all
from pipeline.text.fitted import load_encoder

_SHOWN = 5


def localize(
    sources: Sources,
    out: str | Path,
    *,
    head: str | Path,
    encoder: str | Path | None = None,
    split: str | None = None,
    monitor: Monitor = QUIET,
) -> Localized:
    """Embed the proposals and phrases of a split and write them as a localization file.

    Parameters
    ----------
    sources : the data; `truth` is not needed beyond its recipe.
    out : the localization file.
    head : folder of the trained head.
    encoder : folder of the phrases' fitted encoder, which says which phrases have no known word;
        None: the one beside the phrases, if there is one.
    split : of the dataset; None: "test", or by its other usual names.
    monitor : gets log lines.

    Raises
    ------
    LocalizationError
        The split has no phrase with a box.
    HeadError
        There is no head, or it was fitted on other features.
    MissingRows, FailedRows
        A region or phrase has no features.
    """
    out = Path(out)
    require_folder(out.parent)
    started = time.monotonic()
    opened = OpenSources(sources)
    trained = load_head(head)
    trained.inputs.images.require(opened.regions, "region")
    trained.inputs.captions.require(opened.texts, "phrase")
    split = split_for("test", opened.manifest, split)
    phrases = read_phrases(sources.dataset, split)
    if not phrases:
        raise LocalizationError(
            f"split {split!r} of {sources.dataset} has no phrase with a box; nothing can be asked"
        )
    entries = opened.manifest.select(split)
    found = frame(opened.manifest, entries, phrases, opened.proposals, opened.most)
    regions = np.zeros((0, 1), np.float32)
    if len(found.boxes):
        regions = trained.head.embed_images(FeatureRows(opened.regions, region_ids(found)))
    texts = trained.head.embed_captions(FeatureRows(opened.texts, phrase_keys(found)))
    localized = replace(
        found,
        regions=regions,
        phrases=texts,
        known=_known(found, Path(encoder or encoder_folder(sources.phrases)), monitor),
        similarity=trained.head.similarity,
        provenance={
            **trained.provenance,
            "dataset": opened.manifest.name,
            "split": split,
            "proposals": dict(opened.proposals.header.recipe),
            "most": opened.most,
            **opened.made_from,
        },
    )
    write_localized(out, localized)
    monitor.log(
        f"{out}: {len(found.query_ids)} queries of {len(entries)} images, "
        f"{len(found.boxes)} proposals, {time.monotonic() - started:.1f} s"
    )
    return localized


def localize_experiment(
    experiment: Experiment,
    sources: Sources,
    *,
    heads: Callable[[str], Path],
    out: Path,
    base: Experiment | None = None,
    split: str | None = None,
    monitor: Monitor = QUIET,
    **training: Any,
) -> Localized:
    """Train an experiment's head, and the one that it goes on from, if need be; then localize.

    A head is trained again if it was fitted with other settings, or on other data, than now.

    Parameters
    ----------
    experiment : of regions and phrases.
    sources : the data.
    heads : from the name of an experiment to the folder of its head.
    out : the localization file.
    base : the experiment that it goes on from.
    split : that is localized; see `localize`.
    monitor : gets log lines and progress.
    training : options of `fit_to_phrases`.

    Raises
    ------
    As `fit_to_phrases` and `localize`.
    """
    if not experiment.of_phrases:
        raise LocalizationError(
            f"{experiment.name!r} is fitted on images and captions, not on regions and phrases; "
            "the presets wang2016-phrases-* are, and `pipeline run` makes the others"
        )
    start = None
    if experiment.goes_on_from is not None:
        if base is None:
            raise LocalizationError(
                f"{experiment.name!r} goes on from the head of {experiment.goes_on_from!r}, which "
                "was not given"
            )
        start = heads(base.name)
        _trained(base, sources, start, None, monitor, training)
    _trained(experiment, sources, heads(experiment.name), start, monitor, training)
    return localize(sources, out, head=heads(experiment.name), split=split, monitor=monitor)


def _trained(
    experiment: Experiment,
    sources: Sources,
    out: Path,
    start: Path | None,
    monitor: Monitor,
    training: Mapping[str, Any],
) -> None:
    """Train a head unless the one that is there was made from the same."""
    if not (fault := _fault(experiment, sources, out, start, training)):
        monitor.log(f"train {experiment.name}: up to date")
        return
    monitor.log(f"train {experiment.name}: {fault} -> {out}")
    trained: TrainedHead = fit_to_phrases(
        sources, out, experiment=experiment, start=start, monitor=monitor, **training
    )
    monitor.log(", ".join(f"{k} {v:g}" for k, v in trained.chosen.items() if k != "best"))


def _fault(
    experiment: Experiment,
    sources: Sources,
    out: Path,
    start: Path | None,
    training: Mapping[str, Any],
) -> str:
    """Return why a head has to be trained; "" if it need not."""
    try:
        values = parse_json((out / HEAD_FILE).read_text(encoding="utf-8"))
    except OSError:
        return "missing"
    except ValueError:
        return f"{out / HEAD_FILE} is damaged"
    settings = with_epochs_at_most(experiment.head, experiment.settings, training.get("max_epochs"))
    opened = OpenSources(sources)
    chosen_by = str(training.get("validation_images") or "all")
    made_from = {**opened.made_from, "validation_images": chosen_by}
    if start is not None:
        made_from["start_sha256"] = sha256_of_file(start / TENSORS_FILE)
    wanted = {
        "kind": experiment.head,
        "settings": json.loads(json.dumps(dict(settings))),
        "seed": training.get("seed", 0),
        "train_split": split_for("train", opened.manifest, training.get("train_split")),
        "validation_split": split_for(
            "validation", opened.manifest, training.get("validation_split")
        ),
        "made_from": made_from,
    }
    unlike = [key for key, value in wanted.items() if values.get(key) != value]
    return f"made with other {', '.join(unlike)}" if unlike else ""


def _known(found: Localized, encoder: Path, monitor: Monitor) -> np.ndarray:
    """Return which phrases have a known word; log how many have none, with the first of them."""
    known = np.ones(len(found.phrase_texts), bool)
    if not encoder.is_dir():
        monitor.log(f"{encoder} is not there: it is not known which phrases have no known word")
        return known
    reports = load_encoder(encoder, found.phrase_texts).reports(found.phrase_texts)
    unknown = sorted(unknown_to_all(reports.values()))
    known[unknown] = False
    if unknown:
        first = ", ".join(found.phrase_texts[row] for row in unknown[:_SHOWN])
        monitor.log(f"{len(unknown)} phrases have no known word, first {first}")
    return known
