"""The jobs of `pipeline caption`: given images, or every image of a split, in one file."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pipeline.datasets.manifest import MANIFEST_FILE, read_manifest
from pipeline.datasets.splits import split_for
from pipeline.heads.inputs.feature_spec import FeatureSpec
from pipeline.images.decoding.decode import UnusableImage
from pipeline.images.given_pictures import GivenPicture, picture_of
from pipeline.language.captioning.captions import Caption, Captioner
from pipeline.language.captioning.captions_file import (
    Described,
    as_json,
    from_json,
    require_captions_file,
    write_captions,
)
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.query.picture_features import PictureFeatures
from pipeline.store.files import parse_json
from pipeline.store.hashing import canonical_json, sha256_of_file, sha256_of_json
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OK

_IMAGES = 50
"""Images per batch; the work file is written after each."""


def describe_split(
    captioner: Captioner,
    dataset: str | Path,
    out: str | Path,
    *,
    images: str | Path,
    inputs: FeatureSpec | None = None,
    split: str | None = None,
    limit: int | None = None,
    count: int = 5,
    seed: int = 0,
    monitor: Monitor = QUIET,
) -> list[Described]:
    """Describe every image of a split from features of the recipe `inputs`, and write the captions.

    A work file next to `out` keeps finished images until the file is written; the same call resumes
    from it and yields the same bytes. An image with failed features has their error.
    """
    folder, out = Path(dataset), Path(out)
    require_captions_file(out)
    started = time.monotonic()
    manifest = read_manifest(folder)
    split = split_for("test", manifest, split)
    features = FeatureSet(Path(images))
    if inputs is not None:
        inputs.require(features, "image")
    ids = [entry.id for entry in manifest.select(split)[:limit]]
    provenance = {
        "dataset": manifest.name,
        "split": split,
        "manifest_sha256": sha256_of_file(folder / MANIFEST_FILE),
        "image_features": {
            "recipe": FeatureSpec.of(features).name,
            "recipe_hash": features.recipe_hash,
        },
        "limit": limit,
        "count": count,
        "seed": seed,
        **captioner.provenance,
    }
    work = _WorkFile(out, provenance)
    described = work.done
    with monitor.progress("caption", "image") as progress:
        while len(described) < len(ids):
            some = ids[len(described) : len(described) + _IMAGES]
            described += work.keep(_describe(captioner, features, some, count, seed))
            progress(len(described), len(ids), sum(not d.captions for d in described))
    write_captions(out, described, provenance)
    work.remove()
    failed = [d for d in described if not d.captions]
    if failed:
        reasons = "; ".join(f"{d.image}: {d.error}" for d in failed[:5])
        monitor.log(f"{len(failed)} of {len(described)} images have no caption, first {reasons}")
    seconds = time.monotonic() - started
    monitor.log(f"{out}: {len(described)} images of split {split} in {seconds:.1f} s")
    return described


def _describe(
    captioner: Captioner, features: FeatureSet, ids: Sequence[str], count: int, seed: int
) -> list[Described]:
    rows = features.rows_of(ids)
    sound = [at for at, row in enumerate(rows) if features.status[row] == OK]
    captions: dict[int, Sequence[Caption]] = {}
    if sound:
        images = features.read([ids[at] for at in sound]).astype(np.float32, copy=False)
        described = captioner.describe(images, count=count, seed=seed)
        captions = dict(zip(sound, described, strict=True))
    return [
        Described(image, tuple(captions[at]))
        if captions.get(at)
        else Described(image, error=features.errors[int(rows[at])] or "no caption was found")
        for at, image in enumerate(ids)
    ]


def describe_picture(
    captioner: Captioner,
    network: PictureFeatures,
    image: Path | Image.Image,
    *,
    count: int = 5,
    seed: int = 0,
) -> tuple[Caption, ...]:
    """Return captions of one image, given as a path or decoded, best first."""
    (captions,) = captioner.describe(network.of(image), count=count, seed=seed)
    return tuple(captions)


def describe_pictures(
    captioner: Captioner,
    network: PictureFeatures,
    images: Sequence[GivenPicture],
    *,
    count: int = 5,
    seed: int = 0,
    monitor: Monitor = QUIET,
) -> list[Described]:
    """Caption several images; an unreadable one has an error instead of captions."""
    described = []
    with monitor.progress("caption", "image") as progress:
        for number, image in enumerate(images):
            name = str(image) if isinstance(image, str | Path) else f"image {number}"
            try:
                opened = picture_of(image)
                captions = describe_picture(captioner, network, opened, count=count, seed=seed)
                reason = "" if captions else "no caption was found"
                described.append(Described(name, captions, reason))
            except (EmbeddingsError, UnusableImage) as error:
                described.append(Described(name, error=str(error)))
            progress(number + 1, len(images), sum(not d.captions for d in described))
    return described


class _WorkFile:
    """The lines of an unfinished file of captions, after a header line with their inputs."""

    def __init__(self, out: Path, provenance: Mapping[str, Any]) -> None:
        self._path = out.with_name(f"{out.name}.work")
        self._head = sha256_of_json(provenance)
        self.done = self._read()
        if not self.done:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(f"{self._head}\n", encoding="utf-8")

    def keep(self, described: Sequence[Described]) -> list[Described]:
        """Append the captions of some images; return them as a resumed run would read them."""
        lines = [canonical_json(as_json(d)) for d in described]
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write("".join(f"{line}\n" for line in lines))
        return [from_json(parse_json(line)) for line in lines]

    def remove(self) -> None:
        """Delete the work file."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> list[Described]:
        """Return the images of complete blocks, if the inputs match."""
        try:
            # After the last newline is at most a line that was cut off by a kill.
            head, *lines = self._path.read_text(encoding="utf-8").split("\n")[:-1]
        except (OSError, ValueError):
            return []
        if head != self._head:
            return []
        # Whole batches only: a caption may depend in its last bits on the images of its batch, and
        # the resumed batches must be those of an uninterrupted run.
        whole = len(lines) - len(lines) % _IMAGES
        if whole < len(lines):
            text = "".join(f"{line}\n" for line in [head, *lines[:whole]])
            self._path.write_text(text, encoding="utf-8")
        return [from_json(parse_json(line)) for line in lines[:whole]]
