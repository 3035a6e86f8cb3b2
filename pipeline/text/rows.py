"""The rows of caption features: encoded block by block into shards of the images' format."""

import zlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.files import created_by
from pipeline.progress import FORWARD, WRITE, Progress, Stopwatch, no_progress
from pipeline.shards.format import FeatureHeader, RowBlock, names_in
from pipeline.shards.index import FeatureIndex
from pipeline.shards.plan import Span
from pipeline.shards.resume.feature_build import ShardBuild
from pipeline.text.encoders.base import CaptionEncoder

# Bytes of rows that are encoded together: for more, memory would be mapped afresh each time.
_BYTES_AT_ONCE = 1 << 24


def caption_header(
    encoder: CaptionEncoder, dataset: str, trained_on: str | None = None
) -> FeatureHeader:
    """Return the header of the shards of these caption features.

    Parameters
    ----------
    encoder : the header carries its recipe and the identity of its weights.
    dataset : name of the dataset.
    trained_on : names separated by commas; None: as the encoder says.
    """
    weights, weights_sha256 = encoder.weights
    return FeatureHeader(
        recipe=encoder.recipe(),
        weights=weights,
        weights_sha256=weights_sha256,
        axes="row, dimension",
        dataset=dataset,
        row_shape=(encoder.dim,),
        dtype="float32",
        created_by=created_by("numpy", "h5py", "nltk"),
        trained_on=encoder.trained_on if trained_on is None else names_in(trained_on),
    )


def text_crc32(texts: Sequence[str]) -> np.ndarray:
    """Return the CRC-32 of each caption's UTF-8 text, (captions,) uint32."""
    return np.array([zlib.crc32(text.encode()) for text in texts], np.uint32)


def changed_rows(build: ShardBuild, texts: Sequence[str]) -> list[int]:
    """Return the finished rows of an entered build whose captions have another text now."""
    changed: list[int] = []
    for span, _, known in build.finished():
        now = text_crc32(texts[span.start : span.stop])
        changed += (span.start + np.flatnonzero((known != now) & (known != 0))).tolist()
    return changed


def encode_captions(
    build: ShardBuild,
    encoder: CaptionEncoder,
    texts: Sequence[str],
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> FeatureIndex:
    """Encode the pending rows of a caption feature set and publish it.

    Parameters
    ----------
    build : an entered `ShardBuild` with one row a caption.
    texts : all captions, in row order.
    progress : called with rows done, rows in all, and 0.
    watch : gets the seconds by stage.

    Returns
    -------
    FeatureIndex
        Of the published set.

    Raises
    ------
    ShardError
        No room for the rows, or they cannot be published; see `ShardBuild`.
    """
    watch = watch or Stopwatch()
    done = build.rows_done
    progress(done, len(texts), 0)
    for first_row, block in encoded_rows(build.pending(), encoder, texts, watch):
        with watch.timing(WRITE):
            build.append(first_row, block)
        done += len(block)
        progress(done, len(texts), 0)
    with watch.timing(WRITE):
        return build.publish()


def encoded_rows(
    spans: Iterable[Span], encoder: CaptionEncoder, texts: Sequence[str], watch: Stopwatch
) -> Iterator[tuple[int, RowBlock]]:
    """Yield the rows of some spans in order, each block with the number of its first row.

    BLAS computes on one thread: on more threads the last bits may differ, and the bytes of a set
    would depend on the number of cores and of workers.
    """
    at_once = max(1, _BYTES_AT_ONCE // (4 * encoder.dim))
    for span in spans:
        for rows in span.batches(at_once):
            chosen = texts[rows.start : rows.stop]
            with watch.timing(FORWARD), threadpool_limits(limits=1):
                features = encoder.encode(chosen)
            status = np.zeros(len(rows), np.uint8)
            source = text_crc32(chosen)
            yield rows.start, RowBlock(features, status, ("",) * len(rows), source)
