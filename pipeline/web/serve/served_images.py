"""Thumbnails of the dataset's images by id, and limits for uploaded images."""

import os
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from PIL import Image

from pipeline.datasets.links import LINKS_FOLLOWED, is_below, own_folders
from pipeline.datasets.manifest import Manifest
from pipeline.images.decoding.decode import UnusableImage, decode, read_bytes
from pipeline.images.shown_image import shown_image
from pipeline.store.inner_files import outer_file
from pipeline.store.objects.urls import url_of
from pipeline.store.packed import TextIndex
from pipeline.store.shards.format import MISSING
from pipeline.web.pages.rendering import jpeg_of

MAX_PIXELS = 40_000_000
"""Maximum number of pixels of an uploaded image: 120 MB decoded, one image at a time."""

SIDE = 320  # maximum width and height of a thumbnail in pixels
_QUALITY, _KEPT = 82, 1024


class Pictures:
    """Thumbnails of a dataset's images by id, re-encoded from pixels without metadata."""

    def __init__(self, manifest: Manifest, ids: Sequence[str]) -> None:
        """Allow access to some images of a dataset, and to no other file."""
        self._root, self._media = manifest.image_root, manifest.media
        self._follow = LINKS_FOLLOWED in manifest.notes
        self._shown, self._paths = TextIndex(ids), manifest.path_by_id
        self._decoding = threading.Lock()
        self._copy = lru_cache(_KEPT)(self._thumbnail)

    def small_copy(self, image_id: str) -> bytes:
        """Return an image as JPEG, at most `SIDE` wide and high, without metadata."""
        if self._shown.row_of(image_id) < 0:
            raise UnusableImage("there is no image with this id", MISSING)
        with self._decoding:  # one at a time, so that memory is that of one image
            return self._copy(image_id)

    def _thumbnail(self, image_id: str) -> bytes:
        small = self._decoded(below(self._root, self._paths[image_id], self._follow))
        small.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC)
        return jpeg_of(small, _QUALITY)

    def _decoded(self, path: Path) -> Image.Image:
        if self._media == "images":
            return decode(read_bytes(path), MAX_PIXELS)
        shown = shown_image(path, self._media)
        if shown.image is None:
            raise UnusableImage(shown.reason)
        return shown.image


def below(root: Path, file: Path, follow_links: bool = False) -> Path:
    """Return the path of a file, links resolved; raise if one leaves the dataset's own data."""
    outer = outer_file(file)
    if url_of(root) is not None:
        return file
    try:
        path = os.path.realpath(outer, strict=True)
    except OSError as error:
        raise UnusableImage("no such file", MISSING) from error
    if not (follow_links or is_below(Path(path), own_folders(root))):
        raise UnusableImage(
            "a link that leaves the image root and its project; prepare the dataset with "
            "--follow-links"
        )
    return Path(path + str(file).removeprefix(outer))
