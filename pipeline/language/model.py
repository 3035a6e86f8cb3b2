"""What every language model offers: a state of sentences that have begun, and a step of a word.

Sentences are token ids (`pipeline.text.encoders.token_ids`): a sentence begins after the mark
`START` and is over at `END`. `PADDING` and `START` have no probability.
"""

from typing import Protocol

import torch
from torch import Tensor

State = dict[str, Tensor]
"""What a model knows of some sentences that have begun: each tensor has a row a sentence, so that
rows can be chosen, repeated and reordered."""


class SentenceModel(Protocol):
    """A language model: the probability of the next word of sentences, under a condition each.

    Attributes
    ----------
    vocab_size : number of token ids, marks included.
    condition_dim : length of a condition; 0: the model takes none.
    takes_tags : whether a sentence has a sequence of tags, known before its words.
    """

    vocab_size: int
    condition_dim: int
    takes_tags: bool

    def start(self, conditions: Tensor, tags: Tensor | None = None) -> State:
        """Return the state of sentences that have no word yet.

        Parameters
        ----------
        conditions : (sentences, condition_dim) float32.
        tags : (sentences, length) int64, a tag for each word and for the end, `PADDING` behind;
            of models that take tags, and only of them.
        """

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        """Read a word of each sentence and return the next word's probabilities.

        Parameters
        ----------
        state : of `start`, or of the step before.
        words : (sentences,) int64; of the first step `START`.

        Returns
        -------
        log_probabilities : (sentences, vocab_size) float32, natural logarithms; their exponentials
            sum to 1, and are 0 of `PADDING` and `START`.
        state : after these words.
        """


def rows_of(state: State, rows: Tensor) -> State:
    """Return the state of some of its sentences, (n,) int64 with repeats, in that order."""
    return {name: values[rows] for name, values in state.items()}


@torch.inference_mode()
def log_probabilities(
    model: SentenceModel, prefixes: Tensor, conditions: Tensor, tags: Tensor | None = None
) -> Tensor:
    """Return the probabilities of the word after some prefixes of one length.

    Parameters
    ----------
    model : any.
    prefixes : (sentences, words) int64, 1 word or more, `START` first.
    conditions, tags : see `SentenceModel.start`.

    Returns
    -------
    (sentences, vocab_size) float32, natural logarithms.
    """
    state = model.start(conditions, tags)
    for words in prefixes.unbind(dim=1):
        found, state = model.step(state, words)
    return found
