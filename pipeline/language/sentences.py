"""Sentences of a batch as positions: each word to predict, with its context."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.text.encoders.token_ids import PADDING, START


@dataclass(frozen=True)
class Positions:
    """The words of some sentences, including end marks, with their contexts.

    Attributes
    ----------
    targets : (positions,) int64 token ids, sentence after sentence.
    contexts : (positions, words) int64, the previous words, the nearest last, padded with `START`.
    sentences, places : (positions,) int64, sentence of each position and place in it, from 0.
    """

    targets: Tensor
    contexts: Tensor
    sentences: Tensor
    places: Tensor


def positions_of(sentences: Tensor, context: int) -> Positions:
    """Return all positions of sentences.

    Parameters
    ----------
    sentences : (sentences, length) int64: `START`, words, `END`, `PADDING`.
    context : int. Number of words before each position, at least 1.
    """
    before = sentences.new_full((len(sentences), context - 1), START)
    windows = torch.cat([before, sentences[:, :-1]], dim=1).unfold(1, context, 1)
    rows, places = (sentences[:, 1:] != PADDING).nonzero(as_tuple=True)
    return Positions(sentences[rows, places + 1], windows[rows, places], rows, places)


def forward_tags(tags: Tensor, forward: int) -> Tensor:
    """Return the tag at each place and the following ones.

    Parameters
    ----------
    tags : (sentences, length) int64.
    forward : int. Number of following tags, padded with `PADDING`.

    Returns
    -------
    (sentences, length, forward + 1) int64
    """
    return torch.nn.functional.pad(tags, (0, forward), value=PADDING).unfold(1, forward + 1, 1)
