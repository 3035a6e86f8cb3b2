"""A training step of recurrent networks: ours against torch's own, and a loop for peepholes.

    python -m bench.recurrence [--steps 20] [--threads 1]

For the sizes of the presets, prints the milliseconds of a forward and a backward pass over a batch
of captions of 6 to 17 words for both programs, run alternately, their ratio, and the maximum
difference of their gradients relative to the largest gradient. Times are CPU times, which other
programs affect less.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from pipeline.heads.layers.recurrence import run_recurrent
from pipeline.heads.layers.rnn import PeepholeLSTM

Program = Callable[[PackedSequence], tuple[PackedSequence, object]]
"""Packed words to packed states, and the last ones."""

# Captions in a batch, word and state size: those of the small size and of the papers.
SIZES = ((128, 50, 256), (128, 300, 1024))
PEEPHOLES = ((40, 50, 300), (40, 300, 300))


def main() -> None:
    """Time each network, step by step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("| network | captions | words | state | other, ms | ours, ms | ratio | difference |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for kind in (nn.GRU, nn.LSTM):
        for size in SIZES:
            rnn = kind(*size[1:])
            ours = partial(run_recurrent, rnn)
            compare(f"{kind.__name__}, torch", size, rnn, rnn, ours, options.steps)
    for size in PEEPHOLES:
        lstm = PeepholeLSTM(*size[1:])
        compare("peephole LSTM, loop", size, lstm, looped(lstm), lstm, options.steps)


def compare(
    name: str,
    size: tuple[int, int, int],
    net: nn.Module,
    other: Program,
    ours: Program,
    steps: int,
) -> None:
    """Print a row of the table."""
    captions, words, state = size
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(6, 18, (captions,), generator=generator)
    padded = torch.randn(captions, int(lengths.max()), words, generator=generator)
    sequence = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
    weights = torch.randn(int(lengths.sum()), state, generator=generator)
    data = sequence.data.requires_grad_()

    def gradients(states: PackedSequence) -> list[Tensor]:
        return [*torch.autograd.grad((states.data * weights).sum(), [data, *net.parameters()])]

    programs = {
        "other": lambda: gradients(other(sequence)[0]),
        "ours": lambda: gradients(ours(sequence)[0]),
    }
    found = {program: run() for program, run in programs.items()}
    seconds: dict[str, list[float]] = {program: [] for program in programs}
    for _ in range(steps):
        for program, run in programs.items():
            started = time.process_time()
            run()
            seconds[program].append(time.process_time() - started)
    theirs, mine = (1000 * statistics.median(times) for times in seconds.values())
    print(
        f"| {name} | {captions} | {words} | {state} | {theirs:.1f} | {mine:.1f} | "
        f"{theirs / mine:.2f} | {difference(found['ours'], found['other']):.0e} |",
        flush=True,
    )


def difference(one: Iterable[Tensor], other: Iterable[Tensor]) -> float:
    """Return the maximum difference of two lists of tensors, relative to each tensor's maximum."""
    pairs = zip(one, other, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def looped(net: PeepholeLSTM) -> Program:
    """Return the network as a loop over words, differentiated by autograd."""

    def run(sequence: PackedSequence) -> tuple[PackedSequence, object]:
        words = net.word(sequence.data).split(sequence.batch_sizes.tolist())
        state = cell = words[0].new_zeros(len(words[0]), net.peepholes.shape[1])
        to_input, to_forget, to_output = net.peepholes
        states = []
        for word in words:
            state, cell = state[: len(word)], cell[: len(word)]
            i, f, new, o = (word + net.state(state)).chunk(4, dim=1)
            kept = torch.sigmoid(f + to_forget * cell) * cell
            cell = kept + torch.sigmoid(i + to_input * cell) * torch.tanh(new)
            state = torch.sigmoid(o + to_output * cell) * torch.tanh(cell)
            states.append(state)
        return sequence._replace(data=torch.cat(states)), None

    return run


if __name__ == "__main__":
    main()
