"""Clips of the dataset by id, in formats that browsers play."""

import hashlib
import shutil
import tempfile
import threading
import weakref
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from pipeline.datasets.links import LINKS_FOLLOWED
from pipeline.datasets.manifest import Manifest
from pipeline.images.decoding.decode import UnusableImage
from pipeline.store.errors import MissingPackage
from pipeline.store.packed import TextIndex
from pipeline.store.shards.format import MISSING
from pipeline.web.serve.served_images import below

_KEPT = 32


class Clips:
    """Clip files by id, unchanged or remuxed to MP4 in a temporary folder."""

    def __init__(self, manifest: Manifest, ids: Sequence[str]) -> None:
        """Allow access to some clips of a dataset, and to no other file."""
        shown = ids if manifest.media == "clips" else ()
        self._root, self._paths = manifest.image_root, manifest.path_by_id
        self._follow = LINKS_FOLLOWED in manifest.notes
        self._shown = TextIndex(shown)
        self._remuxing = threading.Lock()
        self._folder = Path(tempfile.mkdtemp(prefix="clips-")) if shown else Path()
        if shown:
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._kind = lru_cache(4096)(self._media_type)
        self._remuxed: dict[str, Path] = {}

    def kind(self, clip_id: str) -> str:
        """Return how to show a clip: as "video", as "image" (GIF), or "" if it is not playable."""
        try:
            media, _ = self._kind(clip_id)
        except (UnusableImage, MissingPackage):
            return ""
        return {"": "", "image/gif": "image"}.get(media, "video")

    def file(self, clip_id: str) -> tuple[Path, str]:
        """Return the file of a clip to send, and its media type; raise if it is not playable."""
        from pipeline.clips.playable import write_mp4

        media, other_container = self._kind(clip_id)
        if not media:
            raise UnusableImage("browsers do not play its codec")
        path = below(self._root, self._paths[clip_id], self._follow)
        if not other_container:
            return path, media
        with self._remuxing:  # once per clip, and the oldest file is removed by one thread only
            if clip_id not in self._remuxed:
                if len(self._remuxed) == _KEPT:
                    self._remuxed.pop(next(iter(self._remuxed))).unlink()
                name = hashlib.sha256(clip_id.encode()).hexdigest()[:20]
                out = self._folder / f"{name}.mp4"
                write_mp4(path, out)
                self._remuxed[clip_id] = out
            return self._remuxed[clip_id], media

    def _media_type(self, clip_id: str) -> tuple[str, bool]:
        if self._shown.row_of(clip_id) < 0:
            raise UnusableImage("there is no clip of this id", MISSING)
        from pipeline.clips.playable import media_type

        return media_type(below(self._root, self._paths[clip_id], self._follow))
