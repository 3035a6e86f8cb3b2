"""A dataset of scenes, drawn and captioned from a seed, as a substitute for photographs."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import DATASET_FILE, Manifest
from pipeline.datasets.phrases import RegionPhrase
from pipeline.store.files import appearing_whole
from pipeline.store.progress import Progress, no_progress
from pipeline.studies.scenes.grammar import captions_of
from pipeline.studies.scenes.painter import paint
from pipeline.studies.scenes.sample import sample_scene
from pipeline.studies.scenes.world import SIZE, Scene

SPLITS = ("train", "val", "test", "train", "train", "train")
"""Image i belongs to split i mod 6: 400, 100 and 100 of 600 images."""

_FEWEST = 3
_MOST = 100_000
_OWN_ID = re.compile(r"scene-([0-9]{5})")
_OWN_FILE = re.compile(r"scene-[0-9]{5}\.png(\.[0-9a-f]{12}\.part)?")


def draw_scenes(
    folder: str | Path, num_images: int, seed: int, progress: Progress = no_progress
) -> Manifest:
    """Draw scenes into `folder`/images and return their manifest, with five captions per image.

    Its phrases are the captions' noun phrases; each has one bounding box around its painted object
    or objects, and the shape as type.

    Image i depends only on the seed and i, not on the number of images. The `dataset.json` of an
    existing dataset in `folder` is removed first, so that the dataset is invalid until the new
    manifest is written; scenes of an earlier, larger run are removed.

    Parameters
    ----------
    folder : str or Path. The dataset's folder; created if it is missing.
    num_images : int. 3 to 100,000.
    seed : int. 0 or more.
    progress : callable. Called with (images done, total, 0) after each image.

    Raises
    ------
    DatasetError
        A number is out of its range.

    Examples
    --------
    >>> scenes = pipeline.draw_scenes("data/drawn", 6, seed=1)
    >>> scenes.write("data/drawn")
    >>> len(scenes), len(scenes[0].captions)
    (6, 5)
    """
    if not _FEWEST <= num_images <= _MOST:
        raise DatasetError(
            f"{num_images} scenes were requested, expected {_FEWEST} (one for each of train, val "
            f"and test) to {_MOST}"
        )
    if seed < 0:
        raise DatasetError(f"the seed is {seed}, expected a whole number from 0 on")
    folder = Path(folder)
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    (folder / DATASET_FILE).unlink(missing_ok=True)
    # Removed before drawing, to free space on a full disk.
    expected = {f"{_name(index)}.png" for index in range(num_images)}
    for path in images.iterdir():
        if path.name not in expected and _OWN_FILE.fullmatch(path.name):
            path.unlink()
    entries: list[ImageEntry] = []
    phrases: list[RegionPhrase] = []
    # Threads suffice, since Pillow's encoder and the disk do most of the work.
    with ThreadPoolExecutor(thread_name_prefix="draw") as pool:
        try:
            drawn = pool.map(partial(_draw, images, seed), range(num_images))
            for entry, named in drawn:
                entries.append(entry)
                phrases += named
                progress(len(entries), num_images, 0)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return Manifest(
        name="scenes",
        image_root=images,
        entries=tuple(entries),
        licence="MIT, as the program that draws them",
        source=f"drawn by `pipeline prepare scenes` from seed {seed}",
        notes={"seed": seed, "image_size": [SIZE, SIZE]},
        phrases=tuple(phrases),
    )


def scene_of(image_id: str, seed: int) -> Scene | None:
    """Return the scene of an image id of `draw_scenes` with this seed; None for another id."""
    match = _OWN_ID.fullmatch(image_id)
    return sample_scene(_generator(seed, int(match[1]))) if match else None


def _generator(seed: int, index: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64((seed, index)))


def _draw(images: Path, seed: int, index: int) -> tuple[ImageEntry, list[RegionPhrase]]:
    # One generator, in this order: other draws would alter the images of every seed.
    rng = _generator(seed, index)
    scene = sample_scene(rng)
    captions = captions_of(scene, rng)
    image, boxes = paint(scene, rng)
    name = _name(index)
    with appearing_whole(images / f"{name}.png") as part:
        image.save(part, format="PNG")
    texts = tuple(caption.text for caption in captions)
    entry = ImageEntry(name, f"{name}.png", SPLITS[index % len(SPLITS)], texts)
    phrases: list[RegionPhrase] = []
    for caption_id, caption in zip(entry.caption_ids, captions, strict=True):
        for phrase, group in caption.phrases:
            number = scene.groups.index(group)
            phrases.append(
                RegionPhrase(
                    id=f"{name}#p{len(phrases)}",
                    image=name,
                    phrase=phrase,
                    types=(group.shape,),
                    chain=str(number),
                    caption=caption_id,
                    boxes=(boxes[number],),
                    size=(SIZE, SIZE),
                )
            )
    return entry, phrases


def _name(index: int) -> str:
    return f"scene-{index:05d}"
