"""Sentences out: language models, what they are conditioned on, and captions that they write.

Read `model` first (what every language model offers: a state and a step). `architectures` has the
models, `ngram` the model without a network, `train_language_model` trains one, `captioning` writes
captions with it, and `score_captions` scores them. Tags and token ids are `pipeline.text`'s, heads
and the training loop `pipeline.heads`'; no path convention lives here.
"""

from pipeline.errors import PipelineError


class LanguageError(PipelineError):
    """A language model cannot take these inputs, or its files are not what they should be."""
