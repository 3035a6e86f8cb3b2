"""Caption features: tokenizers, word vectors and sentence encoders.

Read `encode` first, the job of `pipeline text`: `encoder_plans` plans an encoder by name, `fitting`
fits it on the training captions, and `caption_source` has captions as rows of a feature set.
`fitted` loads an encoder for new sentences. No module here knows images or heads.
"""

from pipeline.store.errors import PipelineError


class EncoderError(PipelineError):
    """An encoder or its options are invalid, or it cannot be fitted, loaded or used."""


class FittedFileError(EncoderError):
    """A fitted file is missing or damaged, or belongs to other inputs; `update` fits it again."""

    def __init__(self, text: str, differences: str = "", of_captions: bool = False) -> None:
        super().__init__(text)
        self.differences = differences  # keys in which its valid record differs; "": damaged
        self.of_captions = of_captions  # whether the captions differ, not only the plan
