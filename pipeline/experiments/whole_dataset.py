"""The embedding file of all splits, for search, computed when it is first needed.

It is not the file of the test split, on which the tables are based.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from pipeline.datasets.manifest import read_description
from pipeline.datasets.splits import ALL
from pipeline.experiments.layout import Layout, NotMade, unseeded
from pipeline.heads.embed import Stored, embed, require_head_of
from pipeline.heads.head_types import Experiment
from pipeline.heads.inputs.pairs import made_from
from pipeline.heads.trained_head import HEAD_FILE, TENSORS_FILE
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import embeddings_record, read_provenance
from pipeline.retrieval.ensemble import ensemble
from pipeline.retrieval.quantised.codes import StoreError
from pipeline.store.current.record import Record, stale
from pipeline.store.errors import PipelineError
from pipeline.store.hashing import sha256_of_file
from pipeline.store.jobs.options import Selection
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import read_set_index
from pipeline.store.shards.index import INDEX_FILE, read_index
from pipeline.store.shards.side_by_side import is_view


def searched_embeddings(
    name: str,
    layout: Layout,
    experiment_named: Callable[[str], Experiment],
    *,
    remedy: str,
    head: Path | None = None,
    split: str | None = None,
    monitor: Monitor = QUIET,
) -> Path:
    """Return the up-to-date embedding file of all splits of an experiment or ensemble.

    If it cannot be computed, the existing file of the test split is returned and the reason logged.
    `remedy` is the command that writes missing files, for messages; `head` overrides the head's
    folder; if the experiment's own file is of the requested `split`, it is returned as it is.
    """
    joined = layout.ensemble(name)
    of_test = joined if joined.is_file() else layout.embeddings(name)
    if split is not None and of_test.is_file() and read_provenance(of_test).get("split") == split:
        return of_test
    whole = _Whole(layout, experiment_named, remedy, monitor)
    try:
        return whole.ensemble(name, joined) if of_test == joined else whole.experiment(name, head)
    # For example a read-only folder, or features of the test split only.
    except (PipelineError, OSError) as error:
        if not of_test.is_file():
            raise
        monitor.log(f"only {of_test} is searched, not the whole dataset: {error}")
        return of_test


def _stored_before(file: Path) -> Stored:
    """Return the storage format of a file's vectors; the default if it is unreadable."""
    with suppress(EmbeddingsError):
        if record := embeddings_record(file):
            return Stored(record["store"], record["dim"], record["csls"] is not None)
    return Stored()


class _Whole:
    """Computes the embedding files of all splits of a dataset."""

    def __init__(
        self,
        layout: Layout,
        experiment_named: Callable[[str], Experiment],
        remedy: str,
        monitor: Monitor,
    ) -> None:
        self._layout, self._named = layout, experiment_named
        self._remedy, self._monitor = remedy, monitor

    def experiment(self, name: str, given: Path | None = None) -> Path:
        """Return the file of an experiment; `given` overrides the folder of its head."""
        layout, experiment = self._layout, self._named(unseeded(name))
        head, out = given or layout.head(name), layout.searched(name)
        images = layout.features(experiment.embedded_images)
        captions = layout.text(experiment.captions.name)
        described = read_description(layout.dataset)
        if not (head / HEAD_FILE).is_file():
            raise NotMade(f"{name!r} has no trained head: {head} not found; run {self._remedy}")
        if not (is_view(images) or (images / INDEX_FILE).is_file()):
            extracted = (
                f"`pipeline extract --recipe {experiment.images} --dataset {layout.dataset} "
                f"--out {images}`"
            )
            raise NotMade(f"{images} not found; run {extracted if given else self._remedy}")
        if described.captions and not (captions / INDEX_FILE).is_file():
            raise NotMade(f"{captions} not found; run {self._remedy}")

        def expected() -> Record:
            return {
                "tensors_sha256": sha256_of_file(head / TENSORS_FILE),
                "split": ALL,
                **made_from(
                    layout.dataset,
                    read_set_index(images),
                    read_index(captions) if described.captions else None,
                ),
            }

        def make() -> object:
            require_head_of(head, name)
            make_stored = partial(
                embed, layout.dataset, out, head=head, images=images, captions=captions,
                select=Selection(ALL, leave_out_failed=True), monitor=self._monitor,
            )  # fmt: skip
            stored = _stored_before(out)  # a user may have shortened the file
            try:
                return make_stored(stored=stored)
            except StoreError as error:  # the head has another similarity or fewer dimensions
                if stored == Stored():
                    raise
                self._monitor.log(f"{out}: stored as float32 in full, since {error}")
                return make_stored()

        count = described.images or described.clips
        size = f"{count} {described.media} and {described.captions} captions"
        return self._up_to_date(out, expected, make, size)

    def ensemble(self, name: str, joined: Path) -> Path:
        """Return the file of an ensemble, whose members are named in its test-split file."""
        stored = read_provenance(joined)
        members = [str(member["experiment"]) for member in stored["ensemble"]]
        weights: Mapping[str, float] = dict(zip(members, stored["weights"], strict=True))
        files = {member: self.experiment(member) for member in members}
        out = self._layout.searched(name)

        def expected() -> Record:
            hashes = {m: {"embeddings_sha256": sha256_of_file(f)} for m, f in files.items()}
            return {"members": hashes, "weights": stored["weights"]}

        def make() -> object:
            return ensemble(files, out, name=name, weights=weights)

        return self._up_to_date(out, expected, make, f"{len(files)} members")

    def _up_to_date(
        self, out: Path, expected: Callable[[], Record], make: Callable[[], object], size: str
    ) -> Path:
        """Return a file, computed first if it is stale."""
        if reason := stale(out, embeddings_record, expected):
            self._monitor.log(f"{out}: {reason}; the whole dataset is embedded once ({size})")
            started = time.monotonic()
            make()
            seconds = time.monotonic() - started
            self._monitor.log(f"{out}: {out.stat().st_size / 1e6:.1f} MB in {seconds:.1f} s")
        return out
