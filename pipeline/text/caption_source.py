"""Captions as rows of a feature set, encoded in blocks, in this process or on workers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.datasets.entries import Captions
from pipeline.datasets.regions import read_phrases
from pipeline.store.files import created_by
from pipeline.store.jobs.feature_source import FeatureSource
from pipeline.store.jobs.origins import Texts, text_crc32
from pipeline.store.progress import FORWARD, Stopwatch
from pipeline.store.shards.format import FeatureHeader, RowBlock, ShardError, names_in
from pipeline.store.shards.plan import Span
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.workers.shipping import Ship, Shipped
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.fitted import load_fitted, load_options

# Bytes of rows per block: the system would map larger blocks afresh each time.
_BYTES_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class CaptionSource:
    """Captions, or phrases, as a `pipeline.store.jobs.feature_source.FeatureSource`."""

    header: FeatureHeader
    ids: Sequence[str]
    texts: Sequence[str]
    encoder: CaptionEncoder
    fitted: Path  # folder of the encoder's fitted files, from which workers load it
    unit: str = "caption"
    gpu: bool = False

    @property
    def origin(self) -> Texts:
        return Texts(self.texts)

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Encode the captions of some spans."""
        at_once = max(1, _BYTES_AT_ONCE // (4 * self.encoder.dim))
        for rows in (rows for span in spans for rows in span.batches(at_once)):
            chosen = self.texts[rows.start : rows.stop]
            # One thread of BLAS: with more, the last bits may differ, and the bytes of a set would
            # depend on the number of cores and workers.
            with watch.timing(FORWARD), threadpool_limits(limits=1):
                features = self.encoder.encode(chosen)
            status = np.zeros(len(rows), np.uint8)
            yield rows.start, RowBlock(features, status, ("",) * len(rows), text_crc32(chosen))

    def part(
        self, rows: RowNumbers, threads: int | None, ship: Ship
    ) -> Callable[[], FeatureSource]:
        """Return the source of some captions on a worker."""
        texts = [self.texts[row] for row in rows.tolist()]
        ids = [self.ids[row] for row in rows.tolist()]
        fitted, folder = ship(self.fitted), str(Path.cwd())
        return partial(_part, fitted, folder, self._words, self.header.dataset, ids, texts)

    @cached_property
    def _words(self) -> tuple[str, ...]:
        """All words of the captions, so that a worker loads their vectors once."""
        return tuple(sorted(load_options(self.fitted).words_of(self.texts)))


def _part(
    shipped: Shipped,
    folder: str,
    words: tuple[str, ...],
    dataset: str,
    ids: Sequence[str],
    texts: Sequence[str],
) -> CaptionSource:
    """Build the source of some captions on a worker."""
    fitted = shipped.here()
    encoder = _encoder(fitted, folder, words)
    return CaptionSource(caption_header(encoder, dataset), ids, texts, encoder, fitted)


def caption_header(
    encoder: CaptionEncoder, dataset: str, trained_on: str | None = None
) -> FeatureHeader:
    """Return a header of caption features; `trained_on`, "NAME, NAME", overrides the encoder's."""
    weights, weights_sha256 = encoder.weights
    plugin = getattr(encoder, "plugin", "")
    return FeatureHeader(
        recipe=encoder.recipe() | ({"plugin": plugin} if plugin else {}),
        weights=weights,
        weights_sha256=weights_sha256,
        axes="row, dimension",
        dataset=dataset,
        row_shape=(encoder.dim,),
        dtype="float32",
        created_by=created_by("numpy", "h5py", "nltk"),
        trained_on=encoder.trained_on if trained_on is None else names_in(trained_on),
    )


def unique_phrases(dataset: str | Path, split: str | None = None) -> Captions:
    """Return the distinct phrases of a dataset or split by row id, in order of occurrence."""
    texts: dict[str, str] = {}
    for phrase in read_phrases(dataset, split):
        texts.setdefault(phrase.key, phrase.plain)
    return Captions([*texts], [*texts.values()])


@lru_cache(maxsize=1)
def _encoder(fitted: Path, folder: str, words: tuple[str, ...]) -> CaptionEncoder:
    """Load an encoder for captions with these words, once per process."""
    try:
        # The plan may name word vectors by a path relative to the command's working directory.
        with chdir(folder):
            return load_fitted(fitted, load_options(fitted), words)
    except OSError as error:
        raise ShardError(
            f"a worker cannot access {folder}, the working directory of the command "
            f"({error.strerror}); paths of word vectors may be relative to it: share it under the "
            "same path"
        ) from error
