"""Damaged files of every format end as an image or a stated failure: no crash, hang or surprise.

`python -m bench.endurance files` does thousands, of every format, in processes of their own.
"""

from pipeline.images.decoding.decode import UnusableImage, decode
from pipeline.images.recipes import Resize
from pipeline.images.transforms import resize_image
from pipeline.store.shards.format import STATUS_NAMES
from tests.images.fuzz import damaged_files, sound_files


def outcome(data: bytes) -> str:
    try:
        image = decode(data)
        canvas = resize_image(image, Resize("squash", 32))
    except UnusableImage as error:
        reason = str(error)
        assert reason
        assert reason.isprintable()
        assert len(reason) <= 300
        return STATUS_NAMES[error.status]
    assert (image.mode, canvas.shape) == ("RGB", (32, 32, 3))
    return "ok"


def test_damaged_files_end_as_an_image_or_a_stated_failure() -> None:
    outcomes = {outcome(data) for _, data in damaged_files(300, seed=0)}
    assert outcomes - {"refused"} == {"ok", "unreadable"}


def test_the_files_are_sound_before_the_damage_and_the_damage_comes_from_the_seed() -> None:
    assert {outcome(data) for data in sound_files().values()} == {"ok"}
    assert list(damaged_files(40, seed=1)) == list(damaged_files(40, seed=1))
