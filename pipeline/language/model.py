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
    """State of a model after some partial sentences: tensors by name."""

    shared: dict[str, Tensor]  # one row per condition or tag sequence, for all their sentences
    rows: dict[str, Tensor]  # one row per sentence, including its row numbers in `shared`

    def of(self, rows: Tensor | slice) -> "State":
        """Return the state of some of the sentences, in that order, with repetitions."""
        return State(self.shared, {name: values[rows] for name, values in self.rows.items()})


class SentenceModel(Protocol):
    """A language model: next-word probabilities of sentences, each under a condition.

    Protocol of the modules of `pipeline.language.architectures`; generation, likelihoods and
    captioners use nothing else of a model.

    Attributes
    ----------
    vocab_size : int. Number of token ids, including marks.
    condition_dim : int. Dimension of a condition; 0: unconditional.
    takes_tags : bool. Whether a sentence has a sequence of tags, known before its words.

    Examples
    --------
    >>> state = model.start(conditions)  # doctest: +SKIP
    >>> scores, state = model.step(state, torch.tensor([START]))  # doctest: +SKIP
    >>> scores.log_softmax(dim=1).shape  # doctest: +SKIP
    torch.Size([1, 2656])
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
