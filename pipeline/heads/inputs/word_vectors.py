"""Word vectors by token id, to initialise heads that read words."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.heads import HeadError
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.inputs.feature_spec import CaptionBlock, FeatureSpec, caption_blocks
from pipeline.text.encoders.token_ids import FIRST_WORD, TokenIdsOptions
from pipeline.text.fitted import load_options
from pipeline.text.vectors import WordVectors, load_vectors
from pipeline.text.vocabulary import load_vocabulary


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """Word vectors by token id."""

    rows: Features  # (vocab_size, d), NaN for marks and for words without a vector
    origin: Mapping[str, Any]  # name, SHA-256 and, if known, training data of the vectors
    missing: tuple[str, ...]  # words of the vocabulary without a vector, in its order


def require_token_ids(captions: FeatureSpec) -> CaptionBlock:
    """Return the first block of token ids, whose words have vectors; HeadError if there is none."""
    for part in caption_blocks(captions):
        if part.kind == "sequence":
            return part
    raise HeadError(
        f"word vectors are set, but {captions.name!r} has no token ids; leave the "
        "vectors out, or use caption features of the encoder token-ids"
    )


def token_vectors(captions: FeatureSpec, encoder: Path, source: str) -> TokenVectors:
    """Look up the vectors of the words that an encoder's token ids in caption features mean."""
    recipe = require_token_ids(captions).recipe
    numbered = [part for part in load_options(encoder).parts if isinstance(part, TokenIdsOptions)]
    if not numbered:
        raise HeadError(f"{encoder} is not the encoder of {captions.name!r}; run `pipeline text`")
    vocabulary = load_vocabulary(encoder / numbered[0].vocabulary_file)
    vocab_size = FIRST_WORD + len(vocabulary.words)
    if (recipe["vocabulary"], recipe["num_ids"]) != (vocabulary.name, vocab_size):
        raise HeadError(
            f"{encoder} has the vocabulary {vocabulary.name!r} of {vocab_size} ids, but the "
            f"caption features have {recipe['vocabulary']!r} of {recipe['num_ids']}; run "
            "`pipeline text` again"
        )
    vectors = load_vectors(source, vocabulary.words)
    rows = np.full((vocab_size, vectors.dim), np.nan, np.float32)
    with_vector = [at for at, word in enumerate(vocabulary.words) if word in vectors.index]
    of = [vectors.index[vocabulary.words[at]] for at in with_vector]
    rows[np.array(with_vector, np.int64) + FIRST_WORD] = vectors.matrix[np.array(of, np.int64)]
    missing = tuple(word for word in vocabulary.words if word not in vectors.index)
    return TokenVectors(rows, origin_of(vectors), missing)


def origin_of(vectors: WordVectors) -> dict[str, Any]:
    """Return name, SHA-256 and, if known, training data of word vectors."""
    known_of = {"trained_on": list(vectors.trained_on)} if vectors.trained_on else {}
    return {"name": vectors.name, "sha256": vectors.sha256, **known_of}
