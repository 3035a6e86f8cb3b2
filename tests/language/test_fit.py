"""Training a language model: killed and continued, read back, and captions of images."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from pipeline import write_features
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.experiments.layout import Layout
from pipeline.heads.fit import fit
from pipeline.heads.head_types import CaptionFeatures, Experiment
from pipeline.heads.trained_head import load_head
from pipeline.heads.training.training_options import TrainingOptions
from pipeline.language import LanguageError
from pipeline.language.captioning.captioner import LanguageCaptioner, Writing
from pipeline.language.captioning.captioners import is_language_model, open_language_model
from pipeline.language.captioning.captions_file import read_provenance
from pipeline.language.captioning.describe import describe_split
from pipeline.language.data import LanguageInputs
from pipeline.language.embed_by_likelihood import embed_by_likelihood
from pipeline.language.model_types import LanguageExperiment
from pipeline.language.ngram import require_words
from pipeline.language.score_captions import evaluate_captions
from pipeline.language.train_language_model import fit_language_model
from pipeline.language.trained_model import (
    LANGUAGE_FILE,
    TrainedLanguageModel,
    load_language_model,
)
from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import FailedRows
from pipeline.text.encode import encode, encoder_folder
from pipeline.text.encoders.token_ids import END
from pipeline.text.fitted import load_encoder
from tests.pretended_card import pretended_card
from tests.project import Recorder, contents

pytest.importorskip("textblob")

COLOURS, THINGS = ("red", "blue", "green"), ("ball", "dog", "star", "boat")
SETTINGS = {"dim": 12, "factors": 8, "word_dim": 8, "context": 2, "forward": 1, "batch_size": 8}


def captions_of(k: int) -> tuple[str, ...]:
    colour, thing = COLOURS[k % 3], THINGS[k % 4]
    return (f"a {colour} {thing} .", f"there is a {colour} {thing} .", f"the {thing} is {colour} .")


def grid_of(seen: np.ndarray) -> np.ndarray:
    """Return rows of features as grids of 2 x 2 cells, two of them empty."""
    grid = np.zeros((len(seen), 2, 2, 7), np.float32)
    grid[:, 0, 1, :3], grid[:, 1, 0, 3:] = seen[:, :3], seen[:, 3:]
    return grid


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 images whose features say what is on them, their captions as features, and a head."""
    root = tmp_path_factory.mktemp("language")
    splits = ["train"] * 16 + ["val"] * 8
    entries = tuple(
        ImageEntry(f"{k}", f"{k}.png", split, captions_of(k)) for k, split in enumerate(splits)
    )
    Manifest("made", root, entries, "none", "test", {}).write(root / "data")
    seen = np.zeros((24, 7), np.float32)
    for k in range(24):
        seen[k, [k % 3, 3 + k % 4]] = 1
    write_features(root / "images", [f"{k}" for k in range(24)], seen, recipe={"name": "seen"})
    # The same as a grid: one cell has the colour, another the thing.
    write_features(
        root / "grids", [f"{k}" for k in range(24)], grid_of(seen), recipe={"name": "cells"}
    )
    words: dict[str, Any] = {"vocabulary": "all", "tokenizer": "vsepp"}
    for name, options in (("token-ids", words), ("tags", {}), ("bow", words)):
        encode(root / "data", root / name, encoder=name, **options)
    settings = {
        "dim": 16, "cell": "none", "similarity": "cosine", "l2_normalise": "both",
        "loss": "info_nce", "learning_rate": 0.02, "epochs": 60, "batch_size": 16,
    }  # fmt: skip
    fit(
        root / "data",
        root / "head",
        experiment=Experiment("space", "vse", settings),
        images=root / "images",
        captions=root / "bow",
    )
    return root


def captioner_of(
    data: Path, folder: Path, writing: Writing | None = None, device: str = "cpu"
) -> LanguageCaptioner:
    """Return a captioner of a trained model, with the head and the encoder of its space."""
    trained = load_language_model(folder, device)
    if trained.head is None:
        return LanguageCaptioner(trained, None, None, writing)
    return LanguageCaptioner(trained, load_head(data / "head", device), encoder_of(data), writing)


def encoder_of(data: Path) -> Any:
    read: Callable[[Path], Any] = load_encoder
    return read(encoder_folder(data / "bow"))


def train(
    data: Path,
    out: Path,
    model: str,
    monitor: Monitor = QUIET,
    points: Literal["sentences", "images"] = "sentences",
    **settings: Any,
) -> Any:
    values = {**SETTINGS, "learning_rate": 0.02, "epochs": 4, **settings}
    return fit_language_model(
        data / "data",
        out,
        experiment=LanguageExperiment("mine", model, values, space="space", points=points),
        inputs=LanguageInputs(
            sentences=data / "token-ids",
            tags=data / "tags",
            images=data / ("grids" if model == "attention-decoder" else "images"),
            captions=data / "bow",
            head=data / "head",
        ),
        training=TrainingOptions(monitor=monitor),
    )


@pytest.fixture(scope="module")
def learnt(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Train a model until it has learnt what is on an image, once for all tests."""
    root = tmp_path_factory.mktemp("learnt")

    @cache
    def folder(model: str, points: Literal["sentences", "images"] = "sentences") -> Path:
        out = root / f"{model}-{points}"
        train(data, out, model, points=points, epochs=40, lr_decay=0.9, patience=9)
        return out

    return folder


@pytest.mark.parametrize(
    "model", ["lbl", "multiplicative-lbl", "sc-nlm", "lstm-decoder", "attention-decoder"]
)
def test_a_killed_training_goes_on_to_the_same_bytes(
    model: str, data: Path, tmp_path: Path
) -> None:
    """Of a whole one of the same seed; the model that is read back generates the same."""
    settings: dict[str, Any] = {"dropout": 0.1, "content_noise": 0.2, "sampled_words": 5}
    train(data, tmp_path / "whole", model, **settings)
    monitor = Recorder(interrupt_at=2)
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "killed", model, monitor, **settings)
    work = tmp_path / ".work" / "train-killed"
    assert monitor.lines[-1].startswith(f"interrupted: 2 epochs are kept in {work};")
    assert not (tmp_path / "killed" / LANGUAGE_FILE).exists()
    monitor = Recorder()
    train(data, tmp_path / "killed", model, monitor, **settings)
    assert monitor.lines[-1] == f"resuming from {work} after epoch 2 of 4"
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert sorted(contents(tmp_path / "whole")) == [
        "concepts.safetensors", "history.json", "language.json", "language.safetensors",
        "trigrams.safetensors", "vocabulary.json",
    ]  # fmt: skip
    history = load_language_model(tmp_path / "whole").history
    assert history[-1]["perplexity"] < history[0]["perplexity"]


@pytest.mark.parametrize(
    ("model", "points", "writing"),
    [
        ("sc-nlm", "sentences", Writing(sequences=6, shortest=3)),
        ("sc-nlm", "images", Writing(sequences=6, shortest=3)),
        ("multiplicative-lbl", "sentences", Writing(width=0, samples=6)),
        ("lstm-decoder", "sentences", Writing(width=3)),
        ("attention-decoder", "sentences", Writing(width=3)),
    ],
)
def test_captions_say_what_is_on_an_image(
    model: str, points: str, writing: Writing, data: Path, learnt: Callable[..., Path]
) -> None:
    captioner = captioner_of(data, learnt(model, points), writing)
    images = np.eye(7, dtype=np.float32)[[0, 1, 2, 0]] + np.eye(7, dtype=np.float32)[[3, 4, 5, 6]]
    if model == "attention-decoder":
        images = grid_of(images)
    found = captioner.describe(images, count=3)
    for k, captions in enumerate(found):
        assert THINGS[k] in captions[0].text.split()
        assert COLOURS[k % 3] in captions[0].text.split()
        scores = [caption.score for caption in captions]
        assert scores == sorted(scores, reverse=True)
        assert len({caption.text for caption in captions}) == len(captions) <= 3
    assert captioner_of(data, learnt(model, points), writing).describe(images, count=3) == found
    alone = [captioner.describe(images[k : k + 1], count=3)[0] for k in range(4)]
    for one, among in zip(alone, found, strict=True):
        assert [c.text for c in one] == [c.text for c in among]
        assert [c.score for c in one] == pytest.approx([c.score for c in among], abs=1e-5)


def test_a_template_of_tags_is_followed_and_its_tags_are_known(
    data: Path, learnt: Callable[..., Path]
) -> None:
    def told(*templates: str) -> set[str]:
        writing = Writing(sequences=6, shortest=3, templates=templates)
        captioner = captioner_of(data, learnt("sc-nlm"), writing)
        images = np.array([[1, 0, 0, 1, 0, 0, 0]], np.float32)
        return {caption.text for caption in captioner.describe(images)[0]}

    assert {"the ball is red .", "a red ball ."} <= told("DT NN VBZ JJ .", "DT JJ NN .")
    with pytest.raises(LanguageError, match="'mine' knows no tag 'NX' of the sequence"):
        told("DT NX .")


def test_plain_text_is_trained_on_like_captions(data: Path, tmp_path: Path) -> None:
    """Captions of further images as a text file train the model that those images would."""
    manifest = read_manifest(data / "data")
    entries = [replace(e, split="train" if int(e.id) < 20 else "val") for e in manifest.entries]
    replace(manifest, entries=tuple(entries)).write(tmp_path / "all")
    replace(manifest, entries=tuple(entries[:16] + entries[20:])).write(tmp_path / "fewer")
    corpus, monitor = tmp_path / "text.txt", Recorder()

    def trained(dataset: str, text: str = "", model: str = "sc-nlm") -> TrainedLanguageModel:
        corpus.write_text(text)
        return fit_language_model(
            tmp_path / dataset,
            tmp_path / f"{dataset}-{len(text)}",
            experiment=LanguageExperiment(
                "mine", model, {**SETTINGS, "epochs": 2}, "space", corpus=bool(text)
            ),
            inputs=LanguageInputs(
                data / "token-ids", data / "tags", data / "images", data / "bow", data / "head",
                corpus,
            ),
            training=TrainingOptions(monitor=monitor),
        )  # fmt: skip

    lines = [caption for k in range(16, 20) for caption in captions_of(k)]
    expected, found = trained("all"), trained("fewer", "\n".join(lines))
    wanted = expected.module.state_dict()
    for name, value in found.module.state_dict().items():
        assert torch.allclose(value, wanted[name], atol=1e-5), name
    for both in zip(found.ngrams.log_probabilities, expected.ngrams.log_probabilities, strict=True):
        np.testing.assert_array_equal(*both)
    assert (found.concepts.tags == expected.concepts.tags[:48]).all()
    assert len(found.concepts.sentences) == len(
        {text for k in range(16) for text in captions_of(k)}
    )
    assert found.made_from["corpus_file_sha256"] == sha256_of_file(corpus)
    assert f"{corpus}: 12 sentences, 0 of 60 words are not in the captions' vocabulary" in (
        monitor.lines
    )
    trained("fewer", f"the frog is red .\n\n{captions_of(22)[0].upper()}\r\nA blue ball .")
    assert f"{corpus}: 1 line is a caption of another split, left out" in monitor.lines
    assert f"{corpus}: 2 sentences, 1 of 9 words are not in the captions' vocabulary" in (
        monitor.lines
    )
    with pytest.raises(LanguageError, match="no sentence found in 2 lines; expected one sentence"):
        trained("fewer", "\n \n")
    with pytest.raises(LanguageError, match="conditioned on images cannot be trained on the sent"):
        trained("fewer", "a dog .", "lstm-decoder")


def test_what_cannot_be_trained_or_does_not_belong_together(data: Path, tmp_path: Path) -> None:
    experiment = LanguageExperiment("mine", "sc-nlm", {**SETTINGS, "epochs": 1}, space="space")
    inputs = LanguageInputs(
        data / "token-ids", tags=data / "tags", captions=data / "bow", head=data / "head"
    )

    def refused(message: str, **changes: Any) -> None:
        other = replace(inputs, **changes)
        with pytest.raises(LanguageError, match=message):
            fit_language_model(data / "data", tmp_path / "no", experiment=experiment, inputs=other)

    refused("needs tags; pass", tags=None)
    experiment = replace(experiment, points="images")
    refused("needs images; pass")
    experiment = replace(experiment, points="sentences")
    refused("has bow, not tags", tags=data / "bow")
    encode(data / "data", tmp_path / "kiros", encoder="token-ids-kiros")
    refused("a start mark, an end mark and padding at the end", sentences=tmp_path / "kiros")
    encode(data / "data", tmp_path / "other", encoder="tags", tokenizer="treebank")
    refused("tags for the tokenizer 'treebank'.* 'vsepp'", tags=tmp_path / "other")
    order = Experiment(
        "order", "vse", {"dim": 4, "cell": "none", "similarity": "order", "epochs": 1}
    )
    fit(data / "data", tmp_path / "order", experiment=order, images=data / "images",
        captions=data / "bow")  # fmt: skip
    refused("similarity 'order'.*use a head whose similarity is cosine", head=tmp_path / "order")

    trained = fit_language_model(
        data / "data", tmp_path / "model", experiment=experiment, inputs=inputs
    )
    other = load_head(tmp_path / "order")
    with pytest.raises(LanguageError, match="was trained with another head of 'space'"):
        LanguageCaptioner(trained, other, encoder_of(data))
    with pytest.raises(LanguageError, match="generates in the space of 'space'; pass that head"):
        LanguageCaptioner(load_language_model(tmp_path / "model"), None, None)
    short = replace(trained, concepts=replace(trained.concepts, tags=trained.concepts.tags[:, :2]))
    captioner = LanguageCaptioner(short, load_head(data / "head"), encoder_of(data))
    with pytest.raises(LanguageError, match="no training caption of 'mine' has 4 to 12 words"):
        captioner.describe(np.zeros((1, 7), np.float32))
    train(data, tmp_path / "lbl", "lbl", epochs=1)
    with pytest.raises(LanguageError, match="is unconditional, so it cannot describe"):
        captioner_of(data, tmp_path / "lbl")
    (tmp_path / "lbl" / "vocabulary.json").write_text("{}")
    with pytest.raises(LanguageError, match=r"vocabulary.json is not the file"):
        load_language_model(tmp_path / "lbl")


def test_images_that_failed_are_refused_or_left_out(data: Path, tmp_path: Path) -> None:
    failed = np.arange(24) == 3
    rows = np.where(failed[:, None], np.nan, 1).astype(np.float32) * np.ones((24, 7), np.float32)
    ids, status = [f"{k}" for k in range(24)], failed.astype(np.uint8)
    write_features(tmp_path / "images", ids, rows, recipe={"name": "seen"}, status=status)
    experiment = LanguageExperiment("mine", "lstm-decoder", {**SETTINGS, "epochs": 1})
    inputs = LanguageInputs(data / "token-ids", images=tmp_path / "images")
    given: dict[str, Any] = {"experiment": experiment, "inputs": inputs}
    with pytest.raises(FailedRows):
        fit_language_model(data / "data", tmp_path / "model", **given)
    record = Recorder()
    training = TrainingOptions(leave_out_failed=True, monitor=record)
    fit_language_model(data / "data", tmp_path / "model", training=training, **given)
    assert record.lines[0] == "1 image without features is left out"
    assert record.lines[1].startswith("train: 45 sentences")


@pytest.mark.parametrize("model", ["multiplicative-lbl", "lstm-decoder"])
def test_a_model_that_says_nothing_has_no_caption(model: str, data: Path, tmp_path: Path) -> None:
    """The end of the sentence comes first, whatever the condition; nor does it describe NaN."""
    train(data, tmp_path / "model", model, epochs=1)
    captioner = captioner_of(data, tmp_path / "model", Writing(width=1))
    images = np.eye(7, dtype=np.float32)[:2]
    images[1, 3] = np.inf
    with pytest.raises(LanguageError, match=r"1 row of image features have NaN .*rows \[1\]"):
        captioner.describe(images)
    with pytest.raises(LanguageError, match="count is 0; set at least 1"):
        captioner.describe(images[:1], count=0)
    bias = dict(captioner.trained.module.named_parameters())["output.bias"]
    bias.data[END] = 1e4
    assert [len(found) for found in captioner.describe(np.eye(7, dtype=np.float32)[:2])] == [0, 0]


def test_captions_without_a_word_are_refused_before_training(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(ids: np.ndarray) -> None:
        require_words(np.full_like(ids, END))

    monkeypatch.setattr("pipeline.language.train_language_model.require_words", none)
    monitor = Recorder()
    with pytest.raises(LanguageError, match="none of 48 sentences has a word"):
        train(data, tmp_path / "model", "lbl", monitor)
    assert not any(unit == "epoch" for _, unit, *_ in monitor.steps)


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"temperature": 0}, "temperature is 0; set a number above 0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"sequences": 0}, "sequences is 0; set at least 1"),
        ({"samples": 0}, "samples is 0"),
        ({"width": -1}, "width is -1; set at least 0"),
        ({"concepts": -1}, "concepts is -1"),
        ({"shortest": 5, "longest": 4}, "longest is 4; set at least 5"),
        ({"templates": ("DT NN", " ")}, "a template of tags is empty"),
    ],
)
def test_a_way_of_writing_that_cannot_be_is_refused(wrong: dict[str, Any], fault: str) -> None:
    with pytest.raises(LanguageError, match=fault):
        Writing(**wrong)


def linked(folders: Mapping[Path, Path]) -> None:
    """Put folders where a layout expects them."""
    for link, folder in folders.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)


@pytest.mark.parametrize("model", ["sc-nlm", "lstm-decoder"])
def test_a_trained_model_describes_a_split_by_its_name(
    model: str, data: Path, learnt: Callable[..., Path], tmp_path: Path
) -> None:
    layout = Layout(data / "data", tmp_path / "root")
    linked({
        layout.language("mine-seed1"): learnt(model),
        layout.head("space"): data / "head",
        layout.encoder("bow"): encoder_folder(data / "bow"),
        layout.features("seen"): data / "images",
    })  # fmt: skip

    def named(name: str) -> Experiment:
        return Experiment(name, "vse", images="seen", captions=CaptionFeatures("bow", "bow"))

    assert is_language_model("mine-seed1", layout)
    opened = open_language_model("mine-seed1", layout, named, Writing(sequences=5, shortest=3))
    out = layout.captions(opened.name)
    described = describe_split(
        opened.captioner, layout.dataset, out, images=opened.images, inputs=opened.inputs
    )
    assert [found.image for found in described] == [f"{k}" for k in range(16, 24)]
    assert all(found.captions for found in described)
    assert read_provenance(out)["experiment"] == "mine"
    row = evaluate_captions(out, layout.dataset, tmp_path / "scores")
    assert (row["num_images"], row["num_without_caption"]) == (8, 0)


@pytest.mark.parametrize("model", ["sc-nlm", "lstm-decoder", "attention-decoder"])
def test_captions_of_a_card_are_those_of_the_processor(
    model: str, data: Path, learnt: Callable[..., Path]
) -> None:
    writing = Writing(sequences=5, shortest=3)
    images = np.random.default_rng(0).random((5, 7), np.float32)
    rows = grid_of(images) if model == "attention-decoder" else images
    here = captioner_of(data, learnt(model), writing)
    with pretended_card() as card:
        there = captioner_of(data, learnt(model), writing, card)
        found = there.describe(rows)
    for captions, expected in zip(found, here.describe(rows), strict=True):
        assert [c.text for c in captions] == [c.text for c in expected]
        assert [c.score for c in captions] == pytest.approx([c.score for c in expected], abs=1e-5)


def test_images_and_captions_find_each_other_by_likelihood(
    data: Path, learnt: Callable[..., Path], tmp_path: Path
) -> None:
    """The model has learnt what is on an image, so its captions are likelier than others."""
    layout, name = Layout(data / "data", tmp_path), "kiros2014-lstm-decoder"
    linked({
        layout.text("token-ids"): data / "token-ids",
        layout.text("tags"): data / "tags",
        layout.features("seen"): data / "images",
        layout.language(name): learnt("lstm-decoder"),
        layout.language("other"): learnt("lstm-decoder"),
    })  # fmt: skip

    def unknown(name: str) -> Experiment:
        raise AssertionError(name)

    out = tmp_path / "x.h5"
    found = embed_by_likelihood(name, layout, out, unknown, split="val", limit=6)
    assert (found.image_embeddings.shape, found.caption_embeddings.shape) == ((6, 6), (18, 6))
    assert found.provenance["prior_images"] == 16
    table = recall_table(read_embeddings(out))
    assert table["image_to_text_r1"] == table["text_to_image_r1"] == 100
    with pytest.raises(LanguageError, match="no language model is published as 'other'"):
        embed_by_likelihood("other", layout, out, unknown, split="val")
