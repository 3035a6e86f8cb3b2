"""Sentences of a language model: the most probable ones by beam search, or drawn ones."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.language.model import SentenceModel, State, rows_of
from pipeline.text.encoders.token_ids import END, PADDING, START, UNKNOWN

LONGEST = 20
"""Words of a sentence at most, where tags do not say how many."""


@dataclass(frozen=True)
class Found:
    """Sentences that a model has written.

    Attributes
    ----------
    sentences : (n, width, length) int64 token ids without `START`, `END` last, `PADDING` behind.
    log_probabilities : (n, width) float32 of whole sentences, ends included; -inf where there are
        fewer.
    """

    sentences: Tensor
    log_probabilities: Tensor


@torch.inference_mode()
def beam_search(
    model: SentenceModel,
    conditions: Tensor,
    tags: Tensor | None = None,
    *,
    width: int = 1,
    longest: int = LONGEST,
) -> Found:
    """Return the most probable sentences that a beam finds under each condition, the best first.

    After each word the `width` most probable beginnings go on; those that are over stay among them.
    `UNKNOWN` is not written. With tags a sentence has a word for each tag, and is over where they
    say.

    Parameters
    ----------
    model : in evaluation mode.
    conditions : (n, condition_dim) float32.
    tags : (n, length) int64, `END` last, `PADDING` behind; of models that take tags.
    width : 1 or more; 1 takes the most probable word each time.
    longest : words of a sentence at most, without tags.
    """
    number, device = len(conditions), conditions.device
    ends = _ends(tags, number, longest).to(device)
    state = model.start(conditions, tags)
    words = torch.full((number, 1), START, device=device)
    totals = torch.zeros(number, 1, device=device)
    over = torch.zeros(number, 1, dtype=torch.bool, device=device)
    written = torch.empty(number, 1, 0, dtype=torch.int64, device=device)
    for place in range(int(ends.max()) + 1):
        log_p, state = model.step(state, words.flatten())
        beams = words.shape[1]
        log_p = _allowed(log_p.view(number, beams, -1), ends == place, tags is not None)
        log_p[over] = -torch.inf
        log_p[:, :, PADDING] = torch.where(over, 0.0, -torch.inf)
        every = (totals[:, :, None] + log_p).flatten(1)
        totals, best = every.topk(min(width, every.shape[1]), dim=1)
        beam, words = best // log_p.shape[2], best % log_p.shape[2]
        rows = (torch.arange(number, device=device)[:, None] * beams + beam).flatten()
        state = rows_of(state, rows)
        before = written.flatten(0, 1)[rows].view(*words.shape, place)
        written = torch.cat([before, words[:, :, None]], dim=2)
        over = over.gather(1, beam) | (words == END)
        if bool(over.all()):
            break
    return Found(written, totals)


@torch.inference_mode()
def sample(
    model: SentenceModel,
    conditions: Tensor,
    draws: Tensor,
    tags: Tensor | None = None,
    *,
    temperature: float = 1.0,
) -> Found:
    """Return a sentence drawn under each condition.

    A sentence depends on its own condition, tags and draws alone.

    Parameters
    ----------
    model, conditions, tags : see `beam_search`.
    draws : (n, longest + 1) float64 in [0, 1): the word at a place is the first whose cumulative
        probability, by token id, is above the draw of this place.
    temperature : log-probabilities are divided by it; above 0.
    """
    number, device = len(conditions), conditions.device
    ends = _ends(tags, number, draws.shape[1] - 1).to(device)
    state: State = model.start(conditions, tags)
    words = torch.full((number,), START, device=device)
    totals = torch.zeros(number, device=device)
    over = torch.zeros(number, dtype=torch.bool, device=device)
    written = []
    for place in range(int(ends.max()) + 1):
        log_p, state = model.step(state, words)
        log_p = _allowed(log_p[:, None], ends == place, tags is not None)[:, 0]
        cumulative = (log_p.double() / temperature).softmax(dim=1).cumsum(dim=1)
        drawn = draws[:, place, None].to(device) * cumulative[:, -1:]
        words = torch.searchsorted(cumulative, drawn, right=True)[:, 0].clamp_max(
            log_p.shape[1] - 1
        )
        words = words.masked_fill(over, PADDING)
        totals = totals + log_p.gather(1, words[:, None])[:, 0].masked_fill(over, 0.0)
        over = over | (words == END)
        written.append(words)
        if bool(over.all()):
            break
    return Found(torch.stack(written, dim=1)[:, None], totals[:, None])


def _ends(tags: Tensor | None, number: int, longest: int) -> Tensor:
    """Return the place (n,) at which each sentence is over at the latest."""
    if tags is None:
        return torch.full((number,), longest)
    return (tags != PADDING).sum(dim=1) - 1


def _allowed(log_p: Tensor, must_end: Tensor, by_tags: bool) -> Tensor:
    """Return log-probabilities (n, beams, words) without the words that may not follow."""
    log_p = log_p.clone()
    log_p[:, :, UNKNOWN] = -torch.inf
    if by_tags:
        log_p[~must_end, :, END] = -torch.inf
    end = log_p[must_end, :, END]
    log_p[must_end] = -torch.inf
    log_p[must_end, :, END] = end
    return log_p
