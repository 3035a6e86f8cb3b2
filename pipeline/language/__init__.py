"""Language models, their conditions, and the captions that they generate.

Read `model` first (the protocol of a language model: a state and a step). `architectures` has the
trained models, `ngram` the n-gram model; `train_language_model` trains, `captioning` generates
captions, `score_captions` scores them. Tags and token ids are in `pipeline.text`, heads and the
training loop in `pipeline.heads`. No module here knows path conventions.
"""

from pipeline.store.errors import PipelineError


class LanguageError(PipelineError):
    """A language model does not support these inputs, or its files are damaged."""
