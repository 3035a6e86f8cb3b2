"""Training: the same weights however it is interrupted, whoever reads the batches."""

import multiprocessing
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from pipeline.heads.base import FitOptions, Head, History
from pipeline.heads.head_types import make_head
from pipeline.heads.inputs.batches import WorkerEnded
from pipeline.heads.inputs.pairs import Pairs, join_pairs
from pipeline.heads.training.checkpoints import CHECKPOINT_FILE
from pipeline.heads.training.task import (
    TrainingTask,
    milestones,
    overall,
    per_tensor,
    plateau,
    steps,
)
from pipeline.heads.training.trainer import NetworkHead
from pipeline.store.shards.feature_set import FeatureSet
from tests.forks import exit_of, require_training_forks
from tests.heads import factories as made
from tests.heads.factories import entries_of, pairs, small_task, write_features

State = dict[str, torch.Tensor]


def trained(
    epochs: int,
    options: FitOptions,
    train: Pairs | None = None,
    identity: object = "small",
    patience: int | None = None,
) -> tuple[State, History]:
    head = NetworkHead(small_task(epochs, patience=patience), identity)
    history = head.fit(train or pairs(40), pairs(15, seed=1), options)
    return head.tensors(), history


def require_same(found: tuple[State, History], wanted: tuple[State, History]) -> None:
    assert found[1] == wanted[1]
    assert found[0].keys() == wanted[0].keys()
    for name, value in wanted[0].items():
        assert torch.equal(found[0][name], value), name


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each of `made.MOMENTS` with what a training left that was killed there."""
    require_training_forks()
    folder = tmp_path_factory.mktemp("killed")
    for moment in made.MOMENTS:
        (folder / moment).mkdir()
        assert exit_of(made.train_until, moment, folder / moment, 4) == -signal.SIGKILL, moment
    return folder


@pytest.mark.parametrize("moment", made.MOMENTS)
def test_a_killed_training_goes_on_bit_for_bit(killed: Path, moment: str) -> None:
    work = killed / moment
    assert len(list(work.iterdir())) == (2 if moment == "saving" else 1)
    epochs: list[int] = []
    options = FitOptions(0, lambda done, total, failed: epochs.append(done), work)
    require_same(trained(4, options), trained(4, FitOptions(0)))
    assert epochs == [2, 3, 4]
    assert [path.name for path in work.iterdir()] == [CHECKPOINT_FILE]


def test_only_the_same_work_is_continued(tmp_path: Path) -> None:
    def first_epoch(epochs: int, seed: int = 0, images: int = 12, identity: object = "s") -> int:
        seen: list[int] = []
        options = FitOptions(seed, lambda done, total, failed: seen.append(done), tmp_path)
        found = trained(epochs, options, pairs(images), identity)
        require_same(found, trained(epochs, FitOptions(seed), pairs(images), identity))
        return seen[0]

    assert first_epoch(2) == 0
    assert first_epoch(2) == 2
    assert first_epoch(4) == 2, "more epochs"
    assert first_epoch(3) == 0, "fewer epochs: the weights of then are gone"
    assert first_epoch(3, seed=1) == 0
    assert first_epoch(3, seed=1, images=11) == 0
    assert first_epoch(3, seed=1, images=11, identity=["s", {"margin": 0.2}]) == 0
    (tmp_path / CHECKPOINT_FILE).write_bytes(b"damaged")
    assert first_epoch(3, seed=1, images=11, identity=["s", {"margin": 0.2}]) == 0


def test_a_checkpoint_without_one_of_its_tensors_is_not_continued(tmp_path: Path) -> None:
    few, file = pairs(12), tmp_path / CHECKPOINT_FILE
    wanted = trained(2, FitOptions(0), few)
    trained(1, FitOptions(0, work=tmp_path), few)
    tensors = load_file(file)
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata()
    for name in tensors:
        seen: list[int] = []
        save_file({n: t for n, t in tensors.items() if n != name}, file, metadata)
        options = FitOptions(0, lambda done, total, failed: seen.append(done), tmp_path)  # noqa: B023
        require_same(trained(2, options, few), wanted)
        assert seen[0] == 0, name


def test_a_state_of_another_network_is_not_continued(tmp_path: Path) -> None:
    def build(words: object) -> nn.ModuleDict:
        return nn.ModuleDict({**small_task(1).build(None), "more": nn.Linear(2, 2)})

    def epochs(task: TrainingTask) -> list[int]:
        seen: list[int] = []
        options = FitOptions(0, lambda done, total, failed: seen.append(done), tmp_path)
        NetworkHead(task, "same").fit(pairs(20), pairs(10, seed=1), options)
        return seen

    assert epochs(small_task(1)) == [0, 1]
    assert epochs(small_task(1)) == [1]
    assert epochs(replace(small_task(1), build=build)) == [0, 1]


@pytest.fixture
def start_method(request: pytest.FixtureRequest) -> Iterator[None]:
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(request.param, force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.fixture
def on_disk(tmp_path: Path) -> Pairs:
    """The pairs of `pairs(40)`, read as they are needed."""
    source = pairs(40)
    write_features(tmp_path / "images", source.image_ids, made.all_of(source.images))
    write_features(tmp_path / "captions", source.caption_ids, made.all_of(source.captions))
    sets = FeatureSet(tmp_path / "images"), FeatureSet(tmp_path / "captions")
    return join_pairs(entries_of(source), *sets, in_memory=0)


@pytest.mark.parametrize(
    ("workers", "start_method"), [(0, "fork"), (2, "fork"), (1, "spawn")], indirect=["start_method"]
)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_weights_do_not_depend_on_workers_or_on_where_rows_lie(
    workers: int, start_method: None, on_disk: Pairs
) -> None:
    require_same(trained(3, FitOptions(0, workers=workers), on_disk), trained(3, FitOptions(0)))


def test_a_worker_that_is_killed_between_batches_is_named() -> None:
    """Its end reaches this process wherever it is, for torch raises in a handler of signals."""

    def loss(*arguments: object) -> torch.Tensor:
        for worker in multiprocessing.active_children():
            worker.kill()
        time.sleep(30)
        pytest.fail("no signal came")

    with pytest.raises(WorkerEnded, match=r"loads batches ended \(DataLoader worker .* Killed"):
        NetworkHead(replace(small_task(1), loss=loss), "small").fit(
            pairs(40), pairs(15, seed=1), FitOptions(0, workers=1)
        )


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_error_in_a_worker_stays_one_paragraph(on_disk: Pairs, tmp_path: Path) -> None:
    path = tmp_path / "images" / "shard-00000-of-00002.h5"
    data = bytearray(path.read_bytes())
    row = made.all_of(on_disk.images)[3].tobytes()
    data[data.index(row)] ^= 1
    path.write_bytes(data)
    captions = FeatureSet(tmp_path / "captions")
    changed = join_pairs(
        entries_of(pairs(40)), FeatureSet(tmp_path / "images"), captions, in_memory=0
    )
    head = NetworkHead(replace(small_task(1), prepare=None))
    with pytest.raises(Exception, match=r"0-3.*CRC-32") as caught:
        head.fit(changed, pairs(15, seed=1), FitOptions(0, workers=1))
    assert "Traceback" not in str(caught.value)


def test_patience_counts_epochs_without_a_better_score() -> None:
    few = pairs(12)
    history = trained(60, FitOptions(0), few, patience=2)[1]
    best = max(entry["rsum"] for entry in history)
    at = [entry["rsum"] for entry in history].index(best)
    assert [entry["best"] for entry in history].index(1.0) == at
    assert len(history) == at + 4 < 60
    longer = trained(60, FitOptions(0), few, patience=4)[1]
    assert [e["loss"] for e in longer[: len(history)]] == [e["loss"] for e in history]
    assert len(trained(60, FitOptions(0), few, patience=0)[1]) < len(history)


def test_the_last_epoch_has_the_weights_after_all_steps(tmp_path: Path) -> None:
    """Those in the checkpoint of a training that keeps another epoch; it never stops early."""
    work = tmp_path / "best"
    work.mkdir()
    best, history = trained(8, FitOptions(0, work=work))
    head = NetworkHead(replace(small_task(8, patience=0), last_epoch=True))
    last = head.fit(pairs(40), pairs(15, seed=1), FitOptions(0))
    assert [entry["best"] for entry in last] == [0.0] * 7 + [1.0] != [e["best"] for e in history]
    assert [{**entry, "best": 0} for entry in last] == [{**entry, "best": 0} for entry in history]
    saved = load_file(work / CHECKPOINT_FILE)
    for name, value in head.tensors().items():
        assert torch.equal(value, saved[f"net.{name}"]), name
    assert any(not torch.equal(value, best[name]) for name, value in head.tensors().items())


def test_an_epoch_selected_by_mean_average_precision(tmp_path: Path) -> None:
    settings = {"cell": "none", "dim": 4, "batch_size": 20, "epochs": 8, "similarity": "cosine"}
    held_out = pairs(15, seed=1)

    def fitted(**more: str) -> tuple[Head, History]:
        head = make_head("vse", {**settings, **more}, made.inputs())
        return head, head.fit(pairs(40), held_out, FitOptions(0))

    (head, history), (_, by_rsum) = fitted(selection="map"), fitted()
    found = [entry.pop("map") for entry in history]
    assert [entry["best"] for entry in history] == [float(m == max(found)) for m in found]
    assert [{**e, "best": 0} for e in history] == [{**e, "best": 0} for e in by_rsum]
    images, captions = head.embed_images(held_out.images), head.embed_captions(held_out.captions)
    assert held_out.figures(images, captions, "cosine", with_map=True)["map"] == max(found)


def test_tied_weights_are_kept(tmp_path: Path) -> None:
    def build(words: object) -> nn.ModuleDict:
        net = small_task(2).build(None)
        net.get_submodule("caption.layers.1").weight = net.get_parameter("image.layers.1.weight")
        return net

    head = NetworkHead(replace(small_task(2), build=build))
    head.fit(pairs(20), pairs(10, seed=1), FitOptions(0, work=tmp_path))
    again = NetworkHead(replace(small_task(2), build=build))
    again.restore(head.tensors())
    rows = pairs(5, seed=2).captions
    np.testing.assert_array_equal(again.embed_captions(rows), head.embed_captions(rows))


def test_schedules() -> None:
    assert [steps(2, 0.5)(e, []) for e in range(5)] == [1, 1, 0.5, 0.5, 0.25]
    assert [milestones({3: 0.1, 1: 0.5})(e, []) for e in range(5)] == [1, 0.5, 0.5, 0.1, 0.1]
    scores = [1.0, 2.0, 2.0, 1.0, 3.0, 0.0, 0.0]
    #  better  +  +  -  -  +  -  -  : a rate that was used for two epochs goes down after a "-".
    assert [plateau(0.5, 2)(e, scores) for e in range(8)] == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]
    assert [plateau(0.5, 1)(e, scores) for e in range(6)] == [1, 1, 1, 0.5, 0.25, 0.25]
    consecutive = plateau(0.5, 2, consecutive=True)  # an improvement starts the count anew
    assert [consecutive(e, scores) for e in range(8)] == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25]


def test_clipping_by_tensor_and_overall() -> None:
    def gradients() -> list[nn.Parameter]:
        parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
        for parameter, values in zip(parameters, ([3.0, 4.0], [0.5]), strict=True):
            parameter.grad = torch.tensor(values)
        return parameters

    norms = []
    for clip in (per_tensor(1.0), overall(1.0), overall(6.0)):
        parameters = gradients()
        clip(parameters)
        norms.append([float(p.grad.norm()) for p in parameters if p.grad is not None])
    assert norms[0] == pytest.approx([1.0, 0.5], rel=1e-5)
    assert np.linalg.norm(norms[1]) == pytest.approx(1.0, rel=1e-5)
    assert norms[1][0] / norms[1][1] == pytest.approx(10, rel=1e-5)
    assert norms[2] == pytest.approx([5.0, 0.5])
