"""The output layer: word probabilities, exact or over a sample of words."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, log_softmax

from pipeline.text.encoders.token_ids import PADDING, START


class Output(nn.Module):
    """P(word) ~ exp(vector . word + b) over all token ids but `PADDING` and `START`."""

    impossible: Tensor

    def __init__(self, vocab_size: int) -> None:
        """Initialise the bias to zero."""
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        impossible = torch.zeros(vocab_size)
        impossible[[PADDING, START]] = -torch.inf
        self.register_buffer("impossible", impossible, persistent=False)

    def scores(self, vectors: Tensor, words: Tensor) -> Tensor:
        """Return unnormalised scores vector . word + b (n, vocab_size)."""
        return torch.addmm(self.bias + self.impossible, vectors, words.T)

    def log_probabilities(self, vectors: Tensor, words: Tensor) -> Tensor:
        """Return log P (n, vocab_size) for vectors (n, dim) and words (vocab_size, dim)."""
        return log_softmax(self.scores(vectors, words), dim=1)

    def loss(self, vectors: Tensor, words: Tensor, targets: Tensor) -> Tensor:
        """Return the mean of -log P(target), the cross-entropy over all words."""
        log_p = self.log_probabilities(vectors, words)
        return -log_p.gather(1, targets[:, None]).mean()

    def sampled_loss(
        self,
        vectors: Tensor,
        words: Tensor,
        targets: Tensor,
        number: int,
        generator: torch.Generator,
    ) -> Tensor:
        """Return the mean loss with sampled words in place of all (Bengio & Senécal 2003).

        Importance sampling estimates the sum over the other words without bias. Samples of the
        target, of `targets` (n,) int64, are dropped. The generator is on the CPU.
        """
        # Drawn once per batch, with replacement, with P(id) = log((id + 2) / (id + 1)) / log(size +
        # 1): ids are ordered by frequency, and this distribution has an inverse in closed form.
        size = len(words)
        uniform = torch.rand(number, generator=generator, dtype=torch.float64)
        drawn = ((size + 1.0) ** uniform - 1).long().clamp_max(size - 1).to(targets.device)
        scores = (vectors * embedding(targets, words)).sum(dim=1) + self.bias[targets]
        bias = (self.bias + self.impossible)[drawn] - _log_expected(drawn, size, number)
        others = torch.addmm(bias, vectors, embedding(drawn, words).T)
        others = others.masked_fill(drawn == targets[:, None], -torch.inf)
        return (torch.cat([scores[:, None], others], dim=1).logsumexp(dim=1) - scores).mean()


class TensorOutput(Output):
    """P(word) ~ exp(T^u r + b) with T^u = sum of u_g T^(g) (Kiros et al. 2014, section 2.4).

    A vector is r followed by its condition u; `words` is the tensor T (vocab_size, dim, G).
    """

    def scores(self, vectors: Tensor, words: Tensor) -> Tensor:
        """Return the scores (n, vocab_size) of `Output.scores` with T^u as the words."""
        dim = words.shape[1]
        # T^u once for consecutive vectors of one condition: it is as large as all words.
        conditions, number = torch.unique_consecutive(
            vectors[:, dim:].detach(), dim=0, return_counts=True
        )
        of_words = (conditions @ words.flatten(0, 1).T).unflatten(1, words.shape[:2])
        parts = zip(torch.split(vectors[:, :dim], number.tolist()), of_words, strict=True)
        return torch.cat([part @ table.T for part, table in parts]) + self.bias + self.impossible


def _log_expected(ids: Tensor, size: int, number: int) -> Tensor:
    """Return the log of the expected number of samples of each id."""
    share = torch.log1p(1 / (ids.double() + 1)) / math.log(size + 1)
    return (share * number).log().float()
