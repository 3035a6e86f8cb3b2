"""What every head promises, and made pairs on which it learns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

from pipeline.heads.base import FitOptions, Head, History
from pipeline.heads.head_types import head_kind, make_head
from pipeline.heads.inputs.feature_rows import ArrayRows, Features, Rows
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs
from pipeline.heads.inputs.pairs import Pairs

IMAGE_DIM, CAPTION_DIM = 12, 8


def inputs(
    images: tuple[int, ...] = (IMAGE_DIM,), captions: tuple[int, ...] = (CAPTION_DIM,)
) -> HeadInputs:
    """Return specs of features of these shapes."""
    return HeadInputs(
        FeatureSpec(images, {"name": "i"}, "0" * 16, "none"),
        FeatureSpec(captions, {"name": "c", "encoder": "mean"}, "1" * 16, "none"),
    )


def pairs(images: int, seed: int = 0, captions: int = 3, noise: float = 0.3) -> Pairs:
    """Return pairs with image features (n, 12) and caption features (c, 8)."""
    world = np.random.default_rng(99)
    to_image = world.standard_normal((6, IMAGE_DIM))
    to_caption = world.standard_normal((6, CAPTION_DIM))
    rng = np.random.default_rng(seed)
    meaning = rng.standard_normal((images, 6))
    image_of_caption = np.repeat(np.arange(images), captions)
    said = meaning[image_of_caption] + noise * rng.standard_normal((len(image_of_caption), 6))
    return Pairs(
        tuple(f"{seed}-{i}" for i in range(images)),
        tuple(f"{seed}-{i}#{k}" for i in range(images) for k in range(captions)),
        image_of_caption,
        ArrayRows((meaning @ to_image).astype(np.float32)),
        ArrayRows((said @ to_caption).astype(np.float32)),
    )


def all_of(rows: Rows) -> Features:
    """Return all rows."""
    return rows.take(np.arange(len(rows)))


@dataclass(frozen=True)
class HeadCase:
    """A head with settings, and pairs on which it learns."""

    kind: str  # name of the head
    settings: Mapping[str, Any] = field(default_factory=dict)
    pairs: Callable[..., Pairs] = pairs  # makes pairs of a number of images and a seed
    inputs: HeadInputs = field(default_factory=inputs)
    least: float = 350  # sum of recalls on pairs that it has not seen; 40 images have 90 by chance
    images: int = 60  # that it is fitted on

    def head(self, **more: Any) -> Head:
        """Return an unfitted head with further settings."""
        return make_head(self.kind, {**self.settings, **more}, self.inputs)

    @property
    def is_trained(self) -> bool:
        """Whether it has epochs; otherwise it is solved in closed form."""
        return hasattr(head_kind(self.kind).settings, "epochs")

    @cached_property
    def fitted(self) -> tuple[Head, History]:
        """The head fitted once for all tests, which leave it as it is."""
        head = self.head()
        return head, head.fit(self.pairs(self.images), self.pairs(30, seed=1), FitOptions(0))


class HeadSuite:
    """Tests of a head; its fixture `case` is a `HeadCase`."""

    def test_it_learns_what_can_be_learnt(self, case: HeadCase) -> None:
        (head, history), test = case.fitted, case.pairs(40, seed=2)
        sides = head.embed_images(test.images), head.embed_captions(test.captions)
        assert test.figures(*sides, head.similarity)["rsum"] >= case.least
        assert [entry["epoch"] for entry in history] == [*range(1, len(history) + 1)]

    def test_a_fit_is_repeated_by_its_seed_also_after_an_interruption(
        self, case: HeadCase, tmp_path: Path
    ) -> None:
        settings = {"epochs": 3} if case.is_trained else {}
        train, validation = case.pairs(25), case.pairs(12, seed=1)

        def fit(seed: int = 0, work: Path | None = None, stop: int = 99) -> tuple[bytes, History]:
            def progress(done: int, total: int, failed: int) -> None:
                if done == stop:
                    raise KeyboardInterrupt

            head = case.head(**settings)
            history = head.fit(train, validation, FitOptions(seed, progress, work))
            return save({name: tensor.clone() for name, tensor in head.tensors().items()}), history

        state = torch.get_rng_state()
        whole = fit()
        if case.is_trained:
            with pytest.raises(KeyboardInterrupt):
                fit(work=tmp_path, stop=2)
        assert fit(work=tmp_path) == whole
        assert (fit(seed=1)[0] != whole[0]) == case.is_trained
        assert torch.equal(torch.get_rng_state(), state)

    def test_a_row_alone_or_elsewhere_is_embedded_alike(self, case: HeadCase) -> None:
        for embed, rows in _sides(case, case.fitted[0]):
            together, order = embed(rows), np.random.default_rng(0).permutation(len(rows))
            assert together.dtype == np.float32
            assert np.isfinite(together).all()
            alone = [embed(ArrayRows(row[None])) for row in all_of(rows)]
            np.testing.assert_allclose(np.concatenate(alone), together, atol=1e-5)
            moved = embed(ArrayRows(all_of(rows)[order]))
            np.testing.assert_allclose(moved, together[order], atol=1e-5)

    def test_restored_from_its_tensors_it_embeds_the_same(self, case: HeadCase) -> None:
        head, again = case.fitted[0], case.head()
        again.restore(head.tensors())
        for (embed, rows), (other, _) in zip(_sides(case, head), _sides(case, again), strict=True):
            np.testing.assert_array_equal(embed(rows), other(rows))


def _sides(case: HeadCase, head: Head) -> list[tuple[Any, Any]]:
    """Return the functions that embed images and captions, with rows that it has not seen."""
    made = case.pairs(9, seed=4)
    return [(head.embed_images, made.images), (head.embed_captions, made.captions)]
