"""Language models: rates of training and generation, cost of captioning by part, tagging accuracy.

    python -m bench.language speed [--model sc-nlm] [--small]
    python -m bench.language captions ours-sc-nlm --dataset data/flickr8k [--split dev] [--limit N]
    python -m bench.language tags --treebank en_ewt-ud-test.conllu.gz [--tagger NAME]...

speed : CPU time of one thread, for random sentences of 8 to 15 words and a vocabulary of 2,656
    token ids, as for Flickr8k. Training: forward pass, backward pass and optimiser; an end mark
    counts as a token. Generation: greedy under tag sequences (sc-nlm), otherwise beam search of
    width 3; 256 conditions in one batch against one at a time, with equal sentences.
captions : CPU seconds per 1,000 images captioned by a model of `pipeline run`, by part, on one
    thread, with features in memory.
tags : share of words with the Penn tag of column 5 of a CoNLL-U file (UD English EWT), for words as
    written and in lower case, as captions are tagged. Tags that only EWT has are mapped:
    HYPH and NFP to ":", -LRB- and -RRB- to brackets, ADD and GW to NN, AFX to JJ, XX to FW.
"""

import argparse
import gzip
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.datasets.manifest import read_manifest
from pipeline.experiments.layout import Layout
from pipeline.heads.base import settings_from
from pipeline.heads.experiments import experiment_finder
from pipeline.heads.inputs.batches import Batch
from pipeline.language.captioning import captioner as captioner_module
from pipeline.language.captioning.captioner import LanguageCaptioner
from pipeline.language.captioning.captioners import open_language_model
from pipeline.language.captioning.generation import beam_search, most_probable_words
from pipeline.language.language_task import SENTENCE, Sizes, language_task
from pipeline.language.model_types import MODELS, LanguageSettings, condition_of
from pipeline.language.ngram import NGramModel
from pipeline.language.presets import LANGUAGE_PRESETS, resolve_language_experiment
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.text.encoders.token_ids import END, FIRST_WORD, START
from pipeline.text.fitted import LoadedEncoder
from pipeline.text.taggers import LATER_PENN, UNIVERSAL, tagger_called

VOCABULARY, LENGTH, TAGS = 2656, 40, 49

# Tags of UD English EWT that the Penn Treebank's set lacks.
EWT = {**LATER_PENN, "GW": "NN"}


def batch(
    number: int, rng: np.random.Generator, sizes: Sizes, cells: tuple[int, ...] = ()
) -> Batch:
    """Return random sentences followed by tags, with one condition each."""
    rows = np.zeros((number, 2 * LENGTH - 1), np.float32)
    for row, length in zip(rows, rng.integers(8, 16, number), strict=True):
        row[0], row[length + 1], row[LENGTH + length] = START, END, END
        row[1 : length + 1] = rng.integers(FIRST_WORD, VOCABULARY, length)
        row[LENGTH : LENGTH + length] = rng.integers(FIRST_WORD, TAGS, length)
    given = rng.standard_normal((number, *cells, sizes.condition_dim)).astype(np.float32)
    return Batch(torch.from_numpy(given), torch.from_numpy(rows), torch.arange(number))


def speed(model: str, settings: LanguageSettings) -> None:
    """Print rates of training and of generation of one model."""
    dims = {"nothing": 1, "sentence": 300, "image": 1280}
    sizes = Sizes(VOCABULARY, LENGTH, TAGS if model == "sc-nlm" else 0, dims[condition_of(model)])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng, generator = np.random.default_rng(0), torch.Generator()
    task = language_task(model, settings, sizes)
    net = task.build(None)
    optimiser = task.optimiser(net)
    cells = (49,) if model == "attention-decoder" else ()
    batches = [batch(settings.batch_size, rng, sizes, cells) for _ in range(12)]
    tokens = [int((b.captions[:, 1:LENGTH] != 0).sum()) for b in batches]

    def steps(some: list[Batch]) -> None:
        for one in some:
            optimiser.zero_grad()
            task.loss(net, one, 0, generator).backward()
            optimiser.step()

    steps(batches[:2])
    started = time.process_time()
    steps(batches[2:])
    seconds = time.process_time() - started
    print(f"{model}: {sum(tokens[2:]) / seconds:,.0f} training tokens/s")
    if not net[SENTENCE].condition_dim:
        return
    module, asked = net.eval()[SENTENCE], batch(256, rng, sizes, cells)
    tags = asked.captions[:, LENGTH:].long() if sizes.num_tags else None

    def search(rows: slice) -> list[list[int]]:
        model: Any = module
        if tags is not None:
            found = most_probable_words(model, asked.images[rows], tags[rows])
        else:
            found = beam_search(model, asked.images[rows], width=3).sentences[:, 0]
        return [[word for word in sentence if word] for sentence in found.tolist()]

    search(slice(0, 8))
    started = time.process_time()
    together = search(slice(0, 256))
    batched = 256 / (time.process_time() - started)
    started = time.process_time()
    alone = [search(slice(k, k + 1))[0] for k in range(256)]
    single = 256 / (time.process_time() - started)
    same = sum(a == b for a, b in zip(together, alone, strict=True))
    print(
        f"{model}: {batched:,.0f} sentences/s in a batch of 256, {single:,.0f} one by one "
        f"({batched / single:.1f} times), {same} of 256 the same"
    )


_PARTS = {
    "most_probable_words": captioner_module,
    "beam_search": captioner_module,
    "embed_captions": captioner_module,
    "_concept_means": LanguageCaptioner,
    "encode": LoadedEncoder,
    "sentence_log_probabilities": NGramModel,
}


def captions(name: str, dataset: Path, split: str, limit: int | None) -> None:
    """Print the CPU seconds of captioning a split, by part."""
    torch.set_num_threads(1)
    opened = open_language_model(name, Layout(dataset), experiment_finder())
    entries = read_manifest(dataset).select(split)[:limit]
    rows = FeatureSet(opened.images).read(list(entries.ids)).astype(np.float32)
    seconds: dict[str, float] = defaultdict(float)
    inner = [0.0]

    def timed(function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            started = time.process_time()
            inner.append(0.0)
            try:
                return function(*args, **options)
            finally:
                took = time.process_time() - started
                seconds[part] += took - inner.pop()
                inner[-1] += took

        return call

    for part, owner in _PARTS.items():
        setattr(owner, part, timed(getattr(owner, part), part))
    describe = timed(opened.captioner.describe, "the rest")
    for start in range(0, len(rows), 50):
        describe(rows[start : start + 50])
    each = 1000 / len(rows)
    total = each * sum(seconds.values())
    print(f"{name}: {total:.1f} CPU s per 1,000 images ({len(rows)} described)")
    for part, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        print(f"  {part:26s} {each * spent:6.2f}")


def tagged_sentences(path: Path) -> Iterator[list[tuple[str, str]]]:
    """Yield the words of each sentence with their Penn tags."""
    sentence: list[tuple[str, str]] = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            if len(fields) > 4 and fields[0].isdigit():
                sentence.append((fields[1], EWT.get(fields[4], fields[4])))
            elif not line.strip() and sentence:
                yield sentence
                sentence = []


def accuracy(tagger: str, sentences: list[list[tuple[str, str]]]) -> None:
    """Print the share of correct tags for both tag sets, and words per second."""
    tag = tagger_called(tagger).tag
    tag(["a"])
    for lower in (False, True):
        right = universal = words = 0
        started = time.process_time()
        for sentence in sentences:
            written = [word.lower() if lower else word for word, _ in sentence]
            for found, (_, true) in zip(tag(written), sentence, strict=True):
                right += found == true
                universal += UNIVERSAL.get(found) == UNIVERSAL.get(true, true)
                words += 1
        seconds = time.process_time() - started
        print(
            f"{tagger}, {'lower case' if lower else 'as written'}: {100 * right / words:.1f} % of "
            f"{words} Penn tags, {100 * universal / words:.1f} % universal, "
            f"{words / seconds:,.0f} words per CPU second"
        )


def main() -> None:
    """Run one of the three benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    rates = kinds.add_parser("speed")
    rates.add_argument("--model", action="append", choices=list(MODELS))
    rates.add_argument("--small", action="store_true", help="at the small size, not the paper's")
    tags = kinds.add_parser("tags")
    tags.add_argument("--treebank", type=Path, required=True)
    tags.add_argument("--tagger", action="append")
    parts = kinds.add_parser("captions")
    parts.add_argument("experiment")
    parts.add_argument("--dataset", type=Path, required=True)
    parts.add_argument("--split", default="dev")
    parts.add_argument("--limit", type=int)
    asked = parser.parse_args()
    if asked.kind == "captions":
        captions(asked.experiment, asked.dataset, asked.split, asked.limit)
        return
    if asked.kind == "tags":
        sentences = list(tagged_sentences(asked.treebank))
        for tagger in asked.tagger or ["textblob"]:
            accuracy(tagger, sentences)
        return
    for name in LANGUAGE_PRESETS:
        made = resolve_language_experiment(name, size="small" if asked.small else "paper")
        if not name.startswith("ours") and made.model in (asked.model or MODELS):
            speed(made.model, settings_from(LanguageSettings, made.settings, made.model))


if __name__ == "__main__":
    main()
