"""Language models with a fixed context: LBL, additive, multiplicative and tensor LBL, and SC-NLM.

Kiros, Salakhutdinov & Zemel 2014, sections 2.3 to 2.5. Deviations: training is not described there,
so dropout on the output vector is an option here; contexts before the first word are padded with
the start mark; with the unfactored tensor, for which no E is defined, E is a table of its own.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pipeline.language import LanguageError
from pipeline.language.layers.contexts import Factored, LogBilinear
from pipeline.language.layers.gates import ContentGate, ContentItself, StructureGate
from pipeline.language.layers.output import Output, TensorOutput
from pipeline.language.model import State, rows_of_pairs
from pipeline.text.encoders.token_ids import PADDING, START

MOST_NUMBERS = 1 << 26
"""Maximum size of a `TensorModel`'s tensor: 256 MiB, of which training holds four."""


@dataclass(frozen=True)
class Positions:
    """The words of some sentences, including end marks, with their contexts."""

    targets: Tensor  # (positions,) int64 token ids, sentence after sentence
    contexts: Tensor  # (positions, words) int64, the nearest word last, padded with `START`
    sentences: Tensor  # (positions,) int64
    places: Tensor  # (positions,) int64, from 0 in each sentence


def positions_of(sentences: Tensor, context: int) -> Positions:
    """Return all positions of sentences (n, length) int64: `START`, words, `END`, `PADDING`."""
    before = sentences.new_full((len(sentences), context - 1), START)
    windows = torch.cat([before, sentences[:, :-1]], dim=1).unfold(1, context, 1)
    rows, places = (sentences[:, 1:] != PADDING).nonzero(as_tuple=True)
    return Positions(sentences[rows, places + 1], windows[rows, places], rows, places)


class ContextModel(nn.Module):
    """A context vector, modified by an optional gate and compared with all words.

    Without a gate it is the log-bilinear model (eq. 8), with a `ContentGate` the multiplicative or
    additive one, with a `StructureGate` the structure-content model.
    """

    def __init__(
        self,
        context: LogBilinear | Factored,
        gate: ContentGate | ContentItself | StructureGate | None = None,
        condition_dim: int = 0,
        dropout: float = 0.0,
    ) -> None:
        """Compose a model of its parts."""
        super().__init__()
        self.context, self.gate = context, gate
        self.vocab_size, self.condition_dim = len(context.words), condition_dim
        self.takes_tags: bool = isinstance(gate, StructureGate)
        self.output = Output(self.vocab_size)
        self.dropout = nn.Dropout(dropout)

    def vectors(
        self, sentences: Tensor, conditions: Tensor, tags: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the output vector (positions, dim) and the word at every position.

        Sentences are (n, length) token ids, `START` first; conditions (n, condition_dim) float32;
        positions follow sentence after sentence.
        """
        at = positions_of(sentences, len(self.context.contexts))
        vectors = self.context(at.contexts)
        if self.gate is not None:
            vectors = self.gate.join(vectors, self.gate(conditions, tags, at.sentences, at.places))
        return self.dropout(vectors), at.targets

    @property
    def words(self) -> Tensor:
        """Output word vectors, (vocab_size, dim)."""
        return self.context.words

    def start(
        self, conditions: Tensor, tags: Tensor | None = None, pairs: Tensor | None = None
    ) -> State:
        """See `SentenceModel.start`."""
        rows = rows_of_pairs(conditions, pairs)
        number, device = len(rows["condition"]), self.words.device
        rows["context"] = torch.full((number, len(self.context.contexts)), START, device=device)
        rows["place"] = torch.zeros(number, dtype=torch.int64, device=device)
        return State({} if self.gate is None else self.gate.begin(conditions, tags), rows)

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        """See `SentenceModel.step`."""
        rows = state.rows
        context = torch.cat([rows["context"][:, 1:], words[:, None]], dim=1)
        vectors = self.context(context)
        if self.gate is not None:
            vectors = self.gate.join(vectors, self.gate.at(state.shared, rows))
        after = {**rows, "context": context, "place": rows["place"] + 1}
        return self.output.scores(vectors, self.words), State(state.shared, after)


class TensorModel(ContextModel):
    """The unfactored multiplicative model: scores T^u r + b, with r = sum of C_i E(w_i).

    Section 2.4, before eq. (9). It equals the model with a `ContentGate` if T and E are built from
    its factors.
    """

    def __init__(
        self, vocab_size: int, dim: int, context: int, condition_dim: int, dropout: float = 0.0
    ) -> None:
        """Initialise the weights from torch's global generator; raise above `MOST_NUMBERS`."""
        numbers = vocab_size * dim * condition_dim
        if numbers > MOST_NUMBERS:
            raise LanguageError(
                f"the tensor of {vocab_size} words x {dim} x {condition_dim} has {numbers:,} "
                f"numbers, at most {MOST_NUMBERS:,} are supported; lower `dim`, or use the "
                "factored model multiplicative-lbl"
            )
        words = LogBilinear(vocab_size, dim, context)
        super().__init__(words, ContentItself(), condition_dim, dropout)
        # T of eq. (9), (vocab_size, dim, condition_dim).
        self.tensor = nn.Parameter(torch.randn(vocab_size, dim, condition_dim) * dim**-0.5)
        self.output = TensorOutput(vocab_size)

    def vectors(
        self, sentences: Tensor, conditions: Tensor, tags: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """See `ContextModel.vectors`; (positions, dim + condition_dim), with dropout on r only."""
        at = positions_of(sentences, len(self.context.contexts))
        vectors = self.dropout(self.context(at.contexts))
        return torch.cat([vectors, conditions[at.sentences]], dim=1), at.targets

    @property
    def words(self) -> Tensor:
        """The tensor; see `TensorOutput`."""
        return self.tensor
