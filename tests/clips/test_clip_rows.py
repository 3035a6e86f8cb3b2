"""Rows of clips: against a naive loop, whatever is decoded and computed at once."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from pipeline.clips.clip_batches import View, clip_rows
from pipeline.clips.recipes import ClipRecipe, named_with, resolve_clip_recipe
from pipeline.images.recipes import RecipeError
from pipeline.store.errors import UnknownName, WrongUsage
from pipeline.store.progress import Stopwatch
from pipeline.store.shards.format import MISSING, OK, UNREADABLE
from tests.clips.moving import number_of, write_clip

FRAMES = 10


def seen(image: Image.Image) -> np.ndarray:
    """Return the number of the frame, as all that a network sees of it."""
    return np.array([number_of(np.asarray(image), FRAMES)], np.uint8)


class Recording:
    """A network whose output is its input, or the sum over a run; it notes its batches."""

    def __init__(self, run: int) -> None:
        self.run, self.sizes = run, list[int]()

    def __call__(self, batch: Tensor) -> Tensor:
        self.sizes.append(len(batch))
        numbers = batch.float().flatten(1).sum(1, keepdim=True)
        return numbers.expand(-1, 1280).clone()


def view(name: str, run: int = 1, batch_size: int = 4) -> View:
    recipe: ClipRecipe = resolve_clip_recipe(name)
    return View(recipe, run, seen, Recording(run), batch_size)


@pytest.fixture
def clips(tmp_path: Path) -> list[Path]:
    """Return three whole clips of 10 frames and three that fail."""
    paths = [write_clip(tmp_path / f"{k}.mp4", FRAMES) for k in range(4)]
    (tmp_path / "text.mp4").write_text("no clip")
    return [paths[0], tmp_path / "gone.mp4", *paths[1:3], tmp_path / "text.mp4", paths[3]]


def computed(
    clips: list[Path], *views: View, threads: int = 2, readers: int = 2
) -> dict[tuple[int, int], tuple[int, float, float]]:
    """Return status, first and last number of each row, by clip and view."""
    wanted = [frozenset(range(len(views)))] * len(clips)
    found = {}
    for number, blocks in clip_rows(clips, wanted, views, threads, readers, Stopwatch()):
        for k, block in blocks.items():
            row = block.features[0]
            found[number, k] = int(block.status[0]), float(row[0]), float(row[-1])
    assert [n for n, k in found if k == 0] == list(range(len(clips)))
    return found


@pytest.mark.parametrize(("threads", "readers", "size"), [(1, 1, 1), (2, 3, 4), (3, 2, 64)])
def test_against_a_naive_loop(clips: list[Path], threads: int, readers: int, size: int) -> None:
    """Means, maxima and halves of frames, and runs of them, whatever is done at once."""
    views = [
        view("efficientnet-lite0-pool@all", batch_size=size),
        view("efficientnet-lite0-pool@every:0.3-max", batch_size=size),
        view("efficientnet-lite0-pool@fps:10-halves", batch_size=size),
        view("efficientnet-lite0-pool@all-max", run=4, batch_size=size),
        view("efficientnet-lite0-pool@even:3", run=4, batch_size=size),
    ]
    found = computed(clips, *views, threads=threads, readers=readers)
    nan = (np.nan, np.nan)
    for number, status in enumerate((OK, MISSING, OK, OK, UNREADABLE, OK)):
        expected = [
            (4.5, 4.5),  # 0 ... 9
            (9.0, 9.0),  # 0, 3, 6, 9
            (2.0, 7.0),
            (30.0, 30.0),  # the last run is 6 ... 9
            (1 + 5 + 8 + 8, 1 + 5 + 8 + 8),
        ]
        for k, numbers in enumerate(expected):
            np.testing.assert_equal(found[number, k], (status, *(nan if status else numbers)))
    assert {n for v in views for n in v.network.sizes} == {size}  # type: ignore[attr-defined]


def test_frames_of_several_clips_share_batches(clips: list[Path]) -> None:
    shared = view("efficientnet-lite0-pool@even:2", batch_size=4)
    computed(clips, shared)
    assert shared.network.sizes == [4, 4]  # type: ignore[attr-defined]


def test_only_what_is_wanted(clips: list[Path]) -> None:
    views = [view("efficientnet-lite0-pool@even:1"), view("efficientnet-lite0-pool@all")]
    wanted = [frozenset({1}), frozenset[int](), frozenset({0, 1}), *[frozenset[int]()] * 3]
    found = [(n, set(b)) for n, b in clip_rows(clips, wanted, views, 1, 1, Stopwatch())]
    assert found == [(0, {1}), (2, {0, 1})]


def test_a_halved_clip_of_one_frame_repeats_it(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "a.mp4", 1)
    found = computed([clip], view("efficientnet-lite0-pool@all-halves"))
    assert found[0, 0] == (OK, 0.0, 0.0)


def test_names() -> None:
    recipe = resolve_clip_recipe("efficientnet-lite0")
    assert (recipe.name, recipe.frames, recipe.over) == (
        "efficientnet-lite0-pool", "every:0.5", "mean",
    )  # fmt: skip
    recipe = resolve_clip_recipe("r3d_18@even:32-halves")
    assert (recipe.name, recipe.frames, recipe.over, recipe.shape) == (
        "r3d_18-pool@even:32-halves", "even:32", "halves", (1024,),
    )  # fmt: skip
    assert recipe.to_json()["clip"]["frames"] == "even:32"
    assert named_with("c3d-fc6", None, None) == "c3d-fc6"
    assert named_with("c3d-fc6", None, "max") == "c3d-fc6@all-max"
    assert named_with("r3d_18", "all", "mean") == "r3d_18@all"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: named_with("r3d_18@all", "all", None), WrongUsage, "already names its frames"),
        (lambda: resolve_clip_recipe("r3d_19"), UnknownName, "did you mean r3d_18-pool"),
        (lambda: resolve_clip_recipe("r3d_18@often"), RecipeError, "expected every:SECONDS"),
        (lambda: resolve_clip_recipe("r3d_18@all-sum"), RecipeError, "-max or -halves"),
        (lambda: resolve_clip_recipe("r3d_18", "int8"), RecipeError, "precision 'int8'"),
    ],
)
def test_wrong_names(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_memory_does_not_grow_with_a_clip(tmp_path: Path) -> None:
    """No more pieces are on their way than those of a few batches."""
    clip = write_clip(tmp_path / "a.gif", 300, codec="gif", size=(16, 16))
    alive, most = 0, 0

    class Counted(np.ndarray):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def cut(image: Image.Image) -> np.ndarray:
        nonlocal alive, most
        alive += 1
        most = max(most, alive)
        return np.zeros((4, 4), np.uint8).view(Counted)

    slow = torch.nn.Identity()
    recipe = resolve_clip_recipe("efficientnet-lite0-pool@all")
    views = [View(recipe, 1, cut, lambda x: slow(x).float().mean((1, 2))[:, None], 4)]
    list(clip_rows([clip], [frozenset({0})], views, 1, 1, Stopwatch()))
    assert most < 60
