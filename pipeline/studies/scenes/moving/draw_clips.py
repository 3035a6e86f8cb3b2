"""A dataset of moving scenes with sound and captions, generated from a seed."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import DATASET_FILE, Manifest
from pipeline.store.progress import Progress, no_progress
from pipeline.studies.scenes.draw_scenes import SPLITS
from pipeline.studies.scenes.moving.encode_clip import ClipFormat, require_encoder, write_clip
from pipeline.studies.scenes.moving.event_captions import captions_of
from pipeline.studies.scenes.moving.events import SIZE, sample_moving_scene
from pipeline.studies.scenes.moving.film import (
    FPS,
    FRAMES,
    RATE,
    background_of,
    frames_of,
    sound_of,
)

_FEWEST, _MOST = 6, 100_000
_OWN_FILE = re.compile(r"moving-[0-9]{5}\.(mp4|gif)(\.[0-9a-f]{12}\.part)?")


def draw_moving_scenes(
    folder: str | Path,
    num_clips: int,
    seed: int,
    form: ClipFormat = "mp4",
    progress: Progress = no_progress,
) -> Manifest:
    """Draw moving scenes into `folder`/clips and return their manifest, five captions per clip.

    Clips 2k and 2k + 1 are twins: the same two events in either order. They have the same frames in
    another order, and captions with the same words except for the order of the events; both belong
    to split k mod 6 of `pipeline.studies.scenes.draw_scenes.SPLITS`. Twins depend only on the seed
    and k. The `dataset.json` of an existing dataset in `folder` is removed first.

    Parameters
    ----------
    folder : str or Path. The dataset's folder; created if it is missing.
    num_clips : int. An even number from 6 to 100,000.
    seed : int. 0 or more.
    form : str. File format; GIF has no sound.
    progress : callable. Called with (clips done, total, 0) after each pair.

    Raises
    ------
    DatasetError
        A number is out of its range, or there is no encoder.

    Examples
    --------
    >>> clips = pipeline.draw_moving_scenes("data/moving", 6, seed=0, form="gif")
    >>> clips.write("data/moving")
    >>> len(clips), len(clips[0].captions)
    (6, 5)
    """
    if not _FEWEST <= num_clips <= _MOST or num_clips % 2:
        raise DatasetError(
            f"{num_clips} clips were requested, expected an even number from {_FEWEST} (a pair for "
            f"each of train, val and test) to {_MOST}"
        )
    if seed < 0:
        raise DatasetError(f"the seed is {seed}, expected a whole number from 0 on")
    require_encoder(form)
    folder = Path(folder)
    clips = folder / "clips"
    clips.mkdir(parents=True, exist_ok=True)
    (folder / DATASET_FILE).unlink(missing_ok=True)
    expected = {_file(index, form) for index in range(num_clips)}
    for path in clips.iterdir():
        if path.name not in expected and _OWN_FILE.fullmatch(path.name):
            path.unlink()
    entries: list[ImageEntry] = []
    with ThreadPoolExecutor(thread_name_prefix="draw") as pool:
        try:
            for twins in pool.map(partial(_draw_twins, clips, seed, form), range(num_clips // 2)):
                entries += twins
                progress(len(entries), num_clips, 0)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return Manifest(
        name="moving-scenes",
        image_root=clips,
        entries=tuple(entries),
        licence="MIT, as the program that draws them",
        source=f"drawn by `pipeline prepare moving-scenes` from seed {seed}",
        notes={
            "seed": seed,
            "frame_size": [SIZE, SIZE],
            "frames": 2 * FRAMES,
            "frames_per_second": FPS,
            "samples_per_second": RATE if form == "mp4" else 0,
        },
        media="clips",
    )


def twin_of(clip_id: str) -> str:
    """Return the id of the clip with the same events in the other order."""
    number = int(clip_id.removeprefix("moving-"))
    return _name(number ^ 1)


def _draw_twins(clips: Path, seed: int, form: ClipFormat, pair: int) -> list[ImageEntry]:
    rng = np.random.Generator(np.random.PCG64((seed, pair)))
    scene = sample_moving_scene(rng)
    captions = captions_of(scene, rng)
    background = background_of(scene.background, rng)
    hidden = tuple(event.actor for event in scene.events if event.kind == "appear")
    frames = [frames_of(event, background, hidden) for event in scene.events]
    sounds = [sound_of(event, rng) for event in scene.events]
    entries = []
    for index, (one, two) in enumerate(((0, 1), (1, 0)), 2 * pair):
        sound = np.concatenate([sounds[one], sounds[two]])
        write_clip(clips / _file(index, form), frames[one] + frames[two], sound)
        split, texts = SPLITS[pair % len(SPLITS)], captions[one]
        entries.append(ImageEntry(_name(index), _file(index, form), split, texts))
    return entries


def _name(index: int) -> str:
    return f"moving-{index:05d}"


def _file(index: int, form: ClipFormat) -> str:
    return f"{_name(index)}.{form}"
