"""What every caption encoder promises."""

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from pipeline.store.hashing import canonical_json
from pipeline.store.workers.shipping import shared
from pipeline.text.caption_source import CaptionSource, caption_header
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.options import EncoderOptions
from pipeline.text.encoders.plan_json import options_of, plan_of
from pipeline.text.encoders.registry import encoder_options
from pipeline.text.fitted import load_encoder
from pipeline.text.fitting import Fitting, fit_encoder

_SUBJECTS = ("a man", "two dogs", "the little girl", "some children", "A Woman in red")
_ACTIONS = ("running on", "sitting near", "jumping over", "looks at", "plays with")
_PLACES = ("the green grass.", "a wooden bench", "the ocean", "snow!", "a dirt road , far away")
CAPTIONS = [f"{s} {a} {p}" for s in _SUBJECTS for a in _ACTIONS for p in _PLACES]
UNKNOWN = ["", "xqzzy", "a zebra dances on the moon", "the the the man's dog-like wolf"]
TEXTS = [*CAPTIONS[::7], *UNKNOWN]


@dataclass(frozen=True)
class EncoderCase:
    """An encoder that is fitted in a folder, on `CAPTIONS`."""

    options: EncoderOptions
    folder: Path
    encoder: CaptionEncoder

    @classmethod
    def fitted(cls, name: str, folder: Path, **options: Any) -> Self:
        """Fit the encoder of a name, with options as in `pipeline.encode`."""
        chosen = encoder_options(name, **options)
        fitting = Fitting(CAPTIONS, "made", "train")
        return cls(chosen, folder, fit_encoder(chosen, folder, fitting, TEXTS))


class EncoderSuite:
    """Tests of a caption encoder; its fixture `case` is an `EncoderCase`."""

    def test_it_is_loaded_bit_for_bit(self, case: EncoderCase) -> None:
        rows = case.encoder.encode(TEXTS)
        assert (rows.shape, rows.dtype) == ((len(TEXTS), case.encoder.dim), np.float32)
        assert np.isfinite(rows).all()
        assert rows[: -len(UNKNOWN)].any(axis=1).all()
        for loaded in (load_encoder(case.folder, TEXTS), load_encoder(str(case.folder))):
            np.testing.assert_array_equal(loaded.encode(TEXTS[:2]), rows[:2])
            np.testing.assert_array_equal(loaded.encode(TEXTS), rows)
            np.testing.assert_array_equal(loaded.encode(TEXTS[0]), rows[0])
            assert loaded.encode([]).shape == (0, loaded.dim)
            assert loaded.reports(TEXTS) == case.encoder.reports(TEXTS)
            for name in ("name", "dim", "weights", "trained_on"):
                assert getattr(loaded, name) == getattr(case.encoder, name)
            assert loaded.recipe() == case.encoder.recipe()

    def test_a_row_depends_on_its_text_alone(self, case: EncoderCase) -> None:
        rows = case.encoder.encode(TEXTS)
        np.testing.assert_array_equal(case.encoder.encode(TEXTS[::-1]), rows[::-1])
        np.testing.assert_array_equal([case.encoder.encode([text])[0] for text in TEXTS], rows)

    def test_a_worker_computes_the_same_rows(self, case: EncoderCase) -> None:
        header, ids = caption_header(case.encoder, "made"), [str(at) for at in range(len(TEXTS))]
        source = CaptionSource(header, ids, TEXTS, case.encoder, case.folder)
        rows = np.array([2, 0, len(TEXTS) - 1])
        part: Any = pickle.loads(pickle.dumps(source.part(rows, 1, shared)))()
        assert (part.ids, part.header) == ([ids[row] for row in rows], header)
        expected = case.encoder.encode(TEXTS)[rows]
        np.testing.assert_array_equal(part.encoder.encode(part.texts), expected)

    def test_recipe_and_plan_are_json(self, case: EncoderCase) -> None:
        recipe = case.encoder.recipe()
        assert canonical_json(recipe)
        assert (recipe["name"], recipe["dim"]) == (case.encoder.name, case.encoder.dim)
        plan = plan_of(case.options)
        assert options_of(plan) == case.options
