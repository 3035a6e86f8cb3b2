"""Caption features: what a sentence encoder gives, as shards of the same format as images'."""

from collections.abc import Callable, Sequence

import numpy as np

from pipeline.shards.build import ShardBuild
from pipeline.shards.format import FeatureHeader, RowBlock
from pipeline.shards.index import FeatureIndex
from pipeline.software import created_by
from pipeline.text.encoders import Caption, CaptionEncoder
from pipeline.text.vectors import WordVectors

_ROWS_AT_ONCE = 8192


def caption_header(encoder: CaptionEncoder, vectors: WordVectors, dataset: str) -> FeatureHeader:
    """Return what the shards of these caption features will say of themselves.

    Parameters
    ----------
    encoder : its recipe is carried along.
    vectors : the word vectors that the encoder was made from, which are its weights.
    dataset : name of the dataset.
    """
    return FeatureHeader(
        recipe=encoder.recipe(),
        weights=vectors.name,
        weights_sha256=vectors.sha256,
        axes="row, dimension",
        dataset=dataset,
        row_shape=(encoder.dim,),
        dtype="float32",
        created_by=created_by("numpy", "h5py", "nltk"),
    )


def encode_captions(
    build: ShardBuild,
    encoder: CaptionEncoder,
    captions: Sequence[Caption],
    progress: Callable[[int, int, int], None] = lambda done, total, failed: None,
) -> FeatureIndex:
    """Encode the pending rows of a caption feature set and publish it.

    Parameters
    ----------
    build : an entered `ShardBuild` with one row a caption.
    captions : all captions, in row order.
    progress : called with rows done, rows in all, and 0.
    """
    progress(build.rows_done, len(captions), 0)
    for span in build.pending():
        for rows in span.batches(_ROWS_AT_ONCE):
            features = encoder.encode(captions[rows.start : rows.stop])
            status = np.zeros(len(rows), np.uint8)
            build.append(rows.start, RowBlock(features, status, ("",) * len(rows)))
            progress(rows.stop, len(captions), 0)
    return build.publish()
