"""Rates of training, exact ranks and captioning on a card and on the CPU: parts of `bench.gpu`."""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bench.finetuning import step_of
from bench.train import CAPTIONS, write
from pipeline.datasets.entries import ImageEntry
from pipeline.heads.architectures import two_branch
from pipeline.heads.base import settings_from
from pipeline.heads.finetuning.network import LearningNetwork
from pipeline.heads.head_types import PRECISIONS
from pipeline.heads.inputs.batches import BatchLoader, PairDataset
from pipeline.heads.inputs.feature_spec import HeadInputs
from pipeline.heads.inputs.pairs import join_pairs
from pipeline.heads.layers.products import products_in
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.recipes import resolve_recipe
from pipeline.images.weights import load_weights
from pipeline.language.captioning.generation import beam_search, most_probable_words
from pipeline.language.language_task import Sizes, build_model
from pipeline.language.model import SentenceModel
from pipeline.language.model_types import LanguageSettings
from pipeline.language.presets import resolve_language_experiment
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.on_device import rank_on
from pipeline.retrieval.ranking.ranks import Ranker, Ranks, rank_both_ways
from pipeline.store.devices import usable_device
from pipeline.text.encoders.token_ids import END, FIRST_WORD, PADDING

DIM = 1024
RANKED_ON_THE_CPU = 5000
# Published decoders, each with the shape of a condition.
CAPTIONERS = {
    "kiros2014-sc-nlm": (300,),
    "kiros2014-lstm-decoder": (4096,),
    "xu2015-soft-attention": (196, 2048),
}
VOCABULARY, TAGS, LENGTH, SEQUENCES, BEAM = 8000, 40, 12, 50, 5
TOGETHER = 50
"""Images that `pipeline caption` describes at once."""


def training(options: argparse.Namespace) -> None:
    """Print captions per second of a head, and images per second of fine-tuning."""
    print()
    for device in _devices(options):
        precisions = (
            PRECISIONS if device.type == torch.device(options.device).type else PRECISIONS[:1]
        )
        with tempfile.TemporaryDirectory() as folder:
            head = head_step(Path(folder), min(4000, options.count), device)
            for precision in precisions:
                size = head(precision)
                seconds = seconds_of(partial(head, precision), device, options.seconds)
                print(
                    f"two-branch head, 4096 and 300 numbers, {precision}, {device.type}: "
                    f"{size / seconds:.0f} captions/s",
                    flush=True,
                )
        recipe = resolve_recipe(options.finetune)
        backbone = backbone_named(recipe.backbone)
        state = load_weights(recipe, "random:0").state
        size = options.batch_size or (128 if device.type == "cuda" else 32)
        windows = torch.rand(size, recipe.crop.size, recipe.crop.size, 3).to(device) * 255
        for precision in precisions:
            network = LearningNetwork(recipe, backbone, state, "", precision).to(device).train()
            seconds = seconds_of(step_of(network, windows), device, options.seconds)
            print(
                f"fine-tuning {options.finetune}, all layers, {precision}, {device.type}: "
                f"{size / seconds:.1f} images/s",
                flush=True,
            )


def head_step(folder: Path, images: int, device: torch.device) -> Callable[[str], int]:
    """Return a training step of a two-branch head in a precision, which returns its captions."""
    rng = np.random.default_rng(0)
    entries = [ImageEntry(f"{i:06d}", "x.jpg", "train", ("a",) * CAPTIONS) for i in range(images)]
    caption_ids = [caption_id for entry in entries for caption_id in entry.caption_ids]
    rows = rng.standard_normal((images, 4096), np.float32)
    seen = write(Path(folder, "i"), [entry.id for entry in entries], rows)
    rows = rng.standard_normal((len(caption_ids), 300), np.float32)
    said = write(Path(folder, "m"), caption_ids, rows, encoder="mean")
    task = two_branch.task(two_branch.TwoBranchSettings(), HeadInputs.of(seen, said))
    net = task.build(None).to(device).train()
    optimiser, generator = task.optimiser(net), torch.Generator()
    pairs = join_pairs(entries, seen, said)
    loader = BatchLoader(
        PairDataset(pairs),
        lambda: ((0, rows) for rows in task.batches(pairs.image_of_caption, rng)),
        0,
        device,
    )
    batches = chain.from_iterable(repeat(loader))

    def step(precision: str) -> int:
        batch = next(batches)
        optimiser.zero_grad()
        with products_in(precision):
            loss = task.loss(net, batch, 0, generator)
        loss.backward()
        optimiser.step()
        return len(batch.captions)

    return step


def ranking(options: argparse.Namespace) -> None:
    """Print the seconds of exact ranks, and pairs per second on the CPU, whose ranks are equal."""
    device = torch.device(options.device)
    every = embeddings(options.ranked, device)
    some = first_of(every, min(options.ranked, RANKED_ON_THE_CPU))
    rank = rank_on(options.device)
    found, _ = timed(rank, some)
    expected, on_cpu = timed(rank_both_ways, some)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    _, seconds = timed(rank, every)
    pairs = [len(e.image_ids) * len(e.caption_ids) for e in (every, some)]
    print(f"\nexact ranks, cosine of {DIM} numbers, both directions")
    for where, e, took, number in (
        (device.type, every, seconds, pairs[0]),
        ("cpu, by numpy", some, on_cpu, pairs[1]),
    ):
        size = f"{len(e.image_ids):,} images, {len(e.caption_ids):,} captions"
        all_of_them = f"{took * pairs[0] / number:.0f} s for all"
        print(f"{where}: {size}: {took:.2f} s, {number / took:.2e} pairs/s, {all_of_them}")
    if device.type == "cuda":
        print(f"peak GPU memory {torch.cuda.max_memory_allocated() / 1e9:.1f} GB")
    equal = all(map(np.array_equal, found, expected))
    print(f"ranks {'the same' if equal else 'DIFFER'} on the {len(some.image_ids):,} images")
    if not equal:
        raise ValueError("ranks of both differ")


def embeddings(images: int, device: torch.device) -> Embeddings:
    """Return random embeddings with five captions near each image; every tenth image is equal."""
    generator = torch.Generator(device).manual_seed(0)
    points = torch.randn(images, DIM, device=device, generator=generator)
    # Ties: only the order of the ids ranks these.
    points[::10] = points[0]
    said = torch.randn(images * CAPTIONS, DIM, device=device, generator=generator)
    said = said.mul_(3.0).add_(points.repeat_interleave(CAPTIONS, dim=0))
    names = tuple(f"{number:06d}" for number in range(images))
    owners = tuple(name for name in names for _ in range(CAPTIONS))
    captions = tuple(f"{owner}#{at % CAPTIONS}" for at, owner in enumerate(owners))
    return Embeddings(
        names, points.cpu().numpy(), captions, owners, said.cpu().numpy(), "cosine", {}
    )


def first_of(e: Embeddings, images: int) -> Embeddings:
    """Return the first images with their captions."""
    captions = images * CAPTIONS
    return Embeddings(
        e.image_ids[:images], e.image_embeddings[:images], e.caption_ids[:captions],
        e.caption_image_ids[:captions], e.caption_embeddings[:captions], e.similarity, {},
    )  # fmt: skip


def timed(rank: Ranker, e: Embeddings) -> tuple[tuple[Ranks, Ranks], float]:
    """Return the ranks of embeddings, and the seconds that they took."""
    started = time.perf_counter()
    return rank(e), time.perf_counter() - started


def captioning(options: argparse.Namespace) -> None:
    """Print generated sentences per second of published decoders, with random weights."""
    images = min(options.count, TOGETHER)
    print(
        f"\nsentences/s of {images} images at once: beam search of width {BEAM}, and greedy for "
        f"{SEQUENCES} tag sequences of sc-nlm"
    )
    tags = torch.randint(FIRST_WORD, TAGS, (SEQUENCES, LENGTH))
    tags[:, -1] = END
    pairs = torch.cartesian_prod(torch.arange(images), torch.arange(SEQUENCES))

    def sentences(model: SentenceModel, given: Tensor, device: torch.device) -> Tensor:
        if model.takes_tags:
            inputs = (rows.to(device) for rows in (given, tags, pairs))
            return most_probable_words(model, *inputs).cpu()
        return beam_search(model, given.to(device), width=BEAM).sentences[:, 0].cpu()

    for name, condition in CAPTIONERS.items():
        experiment = resolve_language_experiment(name, size="paper")
        settings = settings_from(LanguageSettings, experiment.settings, experiment.model)
        sizes = Sizes(VOCABULARY, LENGTH, TAGS, condition[-1])
        torch.manual_seed(0)
        model = build_model(experiment.model, settings, sizes).eval()
        given = torch.randn(images, *condition)
        written = []
        for device in _devices(options):
            write_all = partial(sentences, model.to(device), given, device)
            seconds = seconds_of(write_all, device, options.seconds)
            written.append([[w for w in row if w != PADDING] for row in write_all().tolist()])
            print(f"{name}, {device.type}: {len(written[-1]) / seconds:,.0f}", flush=True)
        same = sum(map(list.__eq__, written[0], written[-1]))
        print(f"{name}: {same} of {len(written[0])} sentences are the same")


def _devices(options: argparse.Namespace) -> list[torch.device]:
    return [*dict.fromkeys([usable_device(options.device), torch.device("cpu")])]


def seconds_of(step: Callable[[], object], device: torch.device, most: float) -> float:
    """Return the mean seconds of a step over about `most` seconds, after warm-up steps."""

    def run(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.perf_counter() - started) / count

    run(2)
    seconds = run(2)
    return run(count) if (count := int(most / seconds)) > 2 else seconds
