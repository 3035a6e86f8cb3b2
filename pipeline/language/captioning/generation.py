"""Generation of sentences: beam search or sampling."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.language.model import SentenceModel, State
from pipeline.text.encoders.token_ids import END, PADDING, START, UNKNOWN

LONGEST = 20
"""Maximum number of words of a sentence, if there are no tags."""

_ROWS = 1024  # sentences per batch: the scores of a step fit into the caches


@dataclass(frozen=True)
class Generated:
    """Generated sentences."""

    # (n, width, length) int64 token ids without `START`, followed by `END` and `PADDING`.
    sentences: Tensor
    # (n, width) float32 of whole sentences with end mark; -inf for empty slots.
    log_probabilities: Tensor


@torch.inference_mode()
def most_probable_words(
    model: SentenceModel, conditions: Tensor, tags: Tensor, pairs: Tensor | None = None
) -> Tensor:
    """Return greedy sentences (n, length): the most probable word at each tag, one after another.

    Equivalent to `beam_search` with width 1, but without probabilities: neither the words after the
    last tag nor a `log_softmax` is computed. Ids are those of `Generated.sentences`.
    """
    if pairs is None:
        pairs = torch.arange(len(conditions), device=conditions.device)[:, None].expand(-1, 2)
    ends = _ends(tags, 0)[pairs[:, 1]]
    sentences = torch.full((len(pairs), int(ends.max()) + 1), PADDING, device=tags.device)
    # The longest first, so that the unfinished sentences of each step are a slice.
    order = ends.argsort(descending=True, stable=True)
    for rows in order.split(_ROWS):
        lengths = ends[rows]
        state = model.start(conditions, tags, pairs[rows])
        words = torch.full((len(rows),), START, device=tags.device)
        written = sentences.new_full((len(rows), int(lengths[0]) + 1), PADDING)
        for position in range(int(lengths[0])):
            live = slice(int((lengths > position).sum()))
            scores, state = model.step(state.of(live), words[live])
            scores[:, UNKNOWN] = scores[:, END] = -torch.inf
            words = _argmax(scores)
            written[live, position] = words
        written.scatter_(1, lengths[:, None], END)
        sentences[rows, : written.shape[1]] = written
    return sentences


@torch.inference_mode()
def beam_search(
    model: SentenceModel,
    conditions: Tensor,
    tags: Tensor | None = None,
    pairs: Tensor | None = None,
    *,
    width: int = 1,
    longest: int = LONGEST,
) -> Generated:
    """Return the most probable sentences by beam search, the best first.

    Keeps the `width` best hypotheses after each word; 1 is greedy. With tags a sentence has one
    word per tag; otherwise at most `longest` words. Conditions, tags and pairs are those of
    `SentenceModel.start`; tags are followed by `END` and `PADDING`.
    """
    number, device = len(conditions if pairs is None else pairs), conditions.device
    ends = _ends(tags, longest).to(device)
    ends = ends[pairs[:, 1]] if tags is not None and pairs is not None else ends.expand(number)
    state = model.start(conditions, tags, pairs)
    words = torch.full((number, 1), START, device=device)
    totals = conditions.new_zeros(number, 1)
    written = torch.empty(number, 1, 0, dtype=torch.int64, device=device)
    over = torch.zeros(number, dtype=torch.bool, device=device)
    live = torch.arange(number, device=device)
    for position in range(int(ends.max()) + 1):
        beams = words.shape[1]
        scores, state = model.step(state, words.flatten()[live])
        must_end = ends[live // beams] == position
        log_p = _allowed(scores.log_softmax(dim=1), must_end, tags is not None)
        # The best words of each hypothesis, and "no word" for a finished one, which thus competes
        # with its unchanged total. `live` are the rows of the unfinished ones.
        top = min(width, log_p.shape[1])
        log_p, best_words = log_p.topk(top, dim=1)
        every = totals.new_full((number * beams, top + 1), -torch.inf)
        every[live, :top] = totals.flatten()[live, None] + log_p
        every[:, top] = totals.flatten().masked_fill(~over, -torch.inf)
        choices = torch.full_like(every, PADDING, dtype=torch.int64)
        choices[live, :top] = best_words
        every, choices = every.view(number, -1), choices.view(number, -1)
        totals, best = every.topk(min(width, every.shape[1]), dim=1)
        words = choices.gather(1, best)
        beam = best // (top + 1)
        before = written.gather(1, beam[:, :, None].expand(-1, -1, position))
        written = torch.cat([before, words[:, :, None]], dim=2)
        rows = (torch.arange(number, device=device)[:, None] * beams + beam).flatten()
        # An empty slot (-inf) is over as well: it must not be extended.
        over = over[rows] | ((words == END) | totals.isneginf()).flatten()
        # State rows belong to the hypotheses that were unfinished before this word.
        row_of = torch.empty(number * beams, dtype=torch.int64, device=device)
        row_of[live] = torch.arange(len(live), device=device)
        live = (~over).nonzero()[:, 0]
        if not len(live):
            break
        state = state.of(row_of[rows[live]])
    return Generated(written, totals)


@torch.inference_mode()
def sample(
    model: SentenceModel,
    conditions: Tensor,
    draws: Tensor,
    tags: Tensor | None = None,
    pairs: Tensor | None = None,
    *,
    temperature: float = 1.0,
) -> Generated:
    """Return one sampled sentence per condition.

    It depends only on its own condition, tags and draws (n, longest + 1), float64 in [0, 1): a word
    is the first, by token id, whose cumulative probability exceeds the draw of its position.
    """
    number, device = len(draws), conditions.device
    ends = _ends(tags, draws.shape[1] - 1).to(device)
    ends = ends[pairs[:, 1]] if tags is not None and pairs is not None else ends.expand(number)
    state: State = model.start(conditions, tags, pairs)
    words = torch.full((number,), START, device=device)
    totals = torch.zeros(number, device=device)
    over = torch.zeros(number, dtype=torch.bool, device=device)
    written = []
    for position in range(int(ends.max()) + 1):
        scores, state = model.step(state, words)
        log_p = _allowed(scores.log_softmax(dim=1), ends == position, tags is not None)
        cumulative = (log_p.double() / temperature).softmax(dim=1).cumsum(dim=1)
        # The last cumulative probability is 1 only up to rounding.
        drawn = draws[:, position, None].to(device) * cumulative[:, -1:]
        words = torch.searchsorted(cumulative, drawn, right=True)[:, 0].clamp_max(
            log_p.shape[1] - 1
        )
        words = words.masked_fill(over, PADDING)
        totals = totals + log_p.gather(1, words[:, None])[:, 0].masked_fill(over, 0.0)
        over = over | (words == END)
        written.append(words)
        if bool(over.all()):
            break
    return Generated(torch.stack(written, dim=1)[:, None], totals[:, None])


def _ends(tags: Tensor | None, longest: int) -> Tensor:
    """Return the end position of each tag sequence, (sequences,), or the last position, ()."""
    if tags is None:
        return torch.tensor(longest)
    return (tags != PADDING).sum(dim=1) - 1


def _allowed(log_p: Tensor, must_end: Tensor, by_tags: bool) -> Tensor:
    """Return log-probabilities (n, words) with -inf for disallowed words."""
    log_p[:, UNKNOWN] = -torch.inf
    if by_tags:
        log_p[~must_end, END] = -torch.inf
    end = log_p[must_end, END]
    log_p[must_end] = -torch.inf
    log_p[must_end, END] = end
    return log_p


def _argmax(scores: Tensor) -> Tensor:
    """Return the index of the largest number of each row; the first one wins ties."""
    if scores.device.type == "cpu":  # NumPy's is several times as fast
        return torch.from_numpy(scores.numpy().argmax(axis=1))
    return scores.argmax(dim=1)
