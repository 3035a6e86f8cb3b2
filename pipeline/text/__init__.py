"""Caption features: tokenizers, word vectors and sentence encoders.

Read `encode` first, the job of `pipeline text`: `encoders.registry` finds an encoder by its name,
`fitting` fits it on the training captions, and `caption_source` has captions as rows of a feature
set. `fitted` loads an encoder for new sentences. No module here knows images or heads.
"""

from pipeline.store.errors import PipelineError


class EncoderError(PipelineError):
    """An encoder or its options are invalid, or it cannot be fitted, loaded or used."""


class FittedFileError(EncoderError):
    """A fitted file is missing or damaged, or belongs to other inputs; `update` fits it again."""
