"""The job of `pipeline localize`: localize the phrases of a split with a trained head."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipeline.datasets.splits import split_for
from pipeline.heads.trained_head import load_head
from pipeline.regions import RegionError
from pipeline.regions.localization.localized import Localized, write_localized
from pipeline.regions.localization.queries import Queries
from pipeline.regions.localization.sources import Sources
from pipeline.store.files import require_folder
from pipeline.store.progress import QUIET, Monitor
from pipeline.text.encoders.base import unknown_to_all
from pipeline.text.fitted import load_encoder

_SHOWN = 5


def localize(
    sources: Sources,
    out: str | Path,
    *,
    head: str | Path,
    split: str | None = None,
    leave_out_failed: bool = False,
    monitor: Monitor = QUIET,
) -> Localized:
    """Embed the proposals and phrases of a split and write them to a localization file."""
    out = Path(out)
    require_folder(out.parent)
    started = time.monotonic()
    opened = sources.opened
    trained = load_head(head)
    trained.inputs.images.require(opened.regions, "region")
    trained.inputs.captions.require(opened.texts, "phrase")
    split = split_for("test", opened.manifest, split)
    left_out = opened.left_out(leave_out_failed, monitor)
    queries = Queries.of(opened, split, left_out=left_out)
    if not queries.frame.query_ids:
        raise RegionError(
            f"split {split!r} of {sources.dataset} has no phrase with a box; choose another split"
        )
    embedded = queries.embedded(trained.head)
    localized = replace(
        embedded,
        known=_known_phrases(embedded, sources.encoder, monitor),
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
        f"{out}: {len(embedded.query_ids)} queries of {len(embedded.image_ids)} images, "
        f"{len(embedded.boxes)} proposals, {time.monotonic() - started:.1f} s"
    )
    return localized


def _known_phrases(localized: Localized, encoder: Path, monitor: Monitor) -> np.ndarray:
    """Return which phrases have a known word; log the number of others, with the first of them."""
    mask = np.ones(len(localized.phrase_texts), bool)
    if not encoder.is_dir():
        monitor.log(f"{encoder} not found: phrases without a known word are not detected")
        return mask
    reports = load_encoder(encoder, localized.phrase_texts).reports(localized.phrase_texts)
    unknown = sorted(unknown_to_all(reports.values()))
    mask[unknown] = False
    if unknown:
        first = ", ".join(localized.phrase_texts[row] for row in unknown[:_SHOWN])
        monitor.log(f"{len(unknown)} phrases have no known word, first {first}")
    return mask
