"""What every language model offers: a state of sentences that have begun, and a step of a word.

Sentences are token ids (`pipeline.text.encoders.token_ids`): a sentence begins after the mark
`START` and is over at `END`. `PADDING` and `START` have no probability.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class State:
    """What a model knows of some sentences that have begun.

    Attributes
    ----------
    shared : tensors by name with one row per condition or tag sequence, for all their sentences.
    own : tensors by name with one row per sentence, among them the row numbers in `shared`.
    """

    shared: dict[str, Tensor]
    own: dict[str, Tensor]

    def of(self, rows: Tensor | slice) -> "State":
        """Return the state of some of the sentences, in that order, with repeats."""
        return State(self.shared, {name: values[rows] for name, values in self.own.items()})


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

    def start(
        self, conditions: Tensor, tags: Tensor | None = None, pairs: Tensor | None = None
    ) -> State:
        """Return the state of sentences that have no word yet.

        Parameters
        ----------
        conditions : (conditions, condition_dim) float32; (conditions, cells, condition_dim) of
            models that attend to cells.
        tags : (sequences, length) int64, a tag for each word and for the end, `PADDING` behind;
            of models that take tags, and only of them.
        pairs : (sentences, 2) int64, the rows of `conditions` and of `tags` of each sentence;
            None: the sentence at k has the rows at k.
        """

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        """Read a word of each sentence and return the scores of the next word.

        Parameters
        ----------
        state : of `start`, or of the step before.
        words : (sentences,) int64; of the first step `START`.

        Returns
        -------
        scores : (sentences, vocab_size) float32, whose `log_softmax` is the logarithm of the
            probabilities; -inf of `PADDING` and `START`.
        state : after these words.
        """


def rows_of_pairs(conditions: Tensor, pairs: Tensor | None) -> dict[str, Tensor]:
    """Return the rows "condition" and "tags" of each sentence; see `SentenceModel.start`."""
    if pairs is None:
        pairs = torch.arange(len(conditions), device=conditions.device)[:, None].expand(-1, 2)
    return {"condition": pairs[:, 0], "tags": pairs[:, 1]}


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
        scores, state = model.step(state, words)
    return scores.log_softmax(dim=1)
