"""The protocol of language models: a state of partial sentences, and a step by one word.

Sentences are token ids (`pipeline.text.encoders.token_ids`) after the mark `START` and up to `END`.
`PADDING` and `START` have no probability.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class State:
    """State of a model after some partial sentences.

    Attributes
    ----------
    shared : dict of str to Tensor. Tensors by name with one row per condition or tag sequence, for
        all their sentences.
    own : dict of str to Tensor. Tensors by name with one row per sentence, including row numbers in
        `shared`.
    """

    shared: dict[str, Tensor]
    own: dict[str, Tensor]

    def of(self, rows: Tensor | slice) -> "State":
        """Return the state of some of the sentences, in that order, with repetitions."""
        return State(self.shared, {name: values[rows] for name, values in self.own.items()})


class SentenceModel(Protocol):
    """A language model: next-word probabilities of sentences, each under a condition.

    Attributes
    ----------
    vocab_size : int. Number of token ids, including marks.
    condition_dim : int. Dimension of a condition; 0: unconditional.
    takes_tags : bool. Whether a sentence has a sequence of tags, known before its words.
    """

    vocab_size: int
    condition_dim: int
    takes_tags: bool

    def start(
        self, conditions: Tensor, tags: Tensor | None = None, pairs: Tensor | None = None
    ) -> State:
        """Return the state of empty sentences.

        Parameters
        ----------
        conditions : (conditions, condition_dim) float32; (conditions, cells, condition_dim) for
            models that attend to cells.
        tags : (sequences, length) int64, one tag for each word and for the end, then `PADDING`;
            only for models with tags.
        pairs : (sentences, 2) int64, the rows of `conditions` and of `tags` of each sentence;
            None: sentence k has the rows k.
        """

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        """Read one word of each sentence and return the scores of the next word.

        Parameters
        ----------
        state : State. State from `start` or the previous step.
        words : (sentences,) int64; `START` in the first step.

        Returns
        -------
        scores : (sentences, vocab_size) float32, unnormalised log-probabilities; -inf for `PADDING`
            and `START`.
        state : State. State after these words.
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
    """Return the log-probabilities of the word after some prefixes of one length.

    Parameters
    ----------
    model : SentenceModel. Any language model.
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
