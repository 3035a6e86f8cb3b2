"""Damaged files of every format end as an image or a stated failure: no crash, hang or surprise.

`python -m bench.endurance files` does thousands, of every format.
"""

from pipeline.images.decoding.decode import decode
from tests.images.fuzz import damaged_files, fuzz, sound_files


def test_damaged_files_end_as_an_image_or_a_stated_failure() -> None:
    endings, _ = fuzz(300, seed=0)
    assert [ending for ending in endings if not ending.sound] == []
    assert len(endings) == 300
    assert {ending.outcome for ending in endings} - {"refused"} == {"ok", "unreadable"}


def test_the_files_are_sound_before_the_damage_and_the_damage_comes_from_the_seed() -> None:
    for data in sound_files().values():
        assert decode(data).mode == "RGB"
    assert list(damaged_files(40, seed=1)) == list(damaged_files(40, seed=1))


def test_a_decoder_that_does_not_come_back_is_seen() -> None:
    (ending,), _ = fuzz(1, seed=0, seconds_a_file=0.0)
    assert (ending.outcome, ending.sound) == ("hang", False)
