"""Readers of images, clips, datasets in the layouts of their sources, captions and parameters.

Each reads everything in its own folder, which it may modify.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def pictures(folder: Path) -> object:
    from pipeline.images.decoding.decode import UnusableImage, decode
    from pipeline.images.recipes import Resize
    from pipeline.images.transforms import resize_image

    for path in sorted(folder.iterdir()):
        try:
            resize_image(decode(path.read_bytes()), Resize("squash", 32))
        except UnusableImage as fault:
            text = str(fault)
            if not text.isprintable() or not 0 < len(text) <= 300:
                raise ValueError(f"a reason of {len(text)} characters: {text[:400]!r}") from None
    return None


def clips(folder: Path) -> object:
    from pipeline.clips.clip_file import open_clip
    from pipeline.clips.frames import sampled_frames
    from pipeline.clips.sampling import Sampling
    from pipeline.images.decoding.decode import UnusableImage

    for path in sorted(folder.iterdir()):
        try:
            with open_clip(path, []) as clip:
                list(sampled_frames(clip, [Sampling("every:0.5")]))
        except UnusableImage:
            pass
    return None


def sounds(folder: Path) -> object:
    from pipeline.clips.sound.read_sound import read_sound

    return [read_sound(path, 16_000).status for path in sorted(folder.iterdir())]


def manifest(folder: Path) -> object:
    from pipeline.datasets.manifest import read_manifest
    from pipeline.datasets.regions import has_phrases, read_phrases

    manifest = read_manifest(folder)
    return manifest.captions(), has_phrases(folder) and read_phrases(folder)


def _written(manifest: Any, folder: Path) -> object:
    from pipeline.datasets.manifest import read_manifest

    manifest.write(folder / "out")
    return read_manifest(folder / "out")


def karpathy(folder: Path) -> object:
    from pipeline.datasets.readers.karpathy import read_karpathy

    return _written(read_karpathy(folder / "images", folder / "dataset_x.json"), folder)


def coco(folder: Path) -> object:
    from pipeline.datasets.readers.coco import read_coco

    captions = [("train", folder / "captions.json")]
    return _written(read_coco(folder / "images", captions, boxes=[folder / "boxes.json"]), folder)


def flickr8k(folder: Path) -> object:
    from pipeline.datasets.readers.flickr8k import read_flickr8k

    return _written(read_flickr8k(folder, captions_per_image=2), folder)


def folder_table(file: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from pipeline.datasets.readers.folder import read_folder

        return _written(read_folder(folder / "images", folder / file, name="x"), folder)

    return read


def region_table(file: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from pipeline.datasets.readers.region_table import read_regions

        return _written(read_regions(folder / "images", folder / file, name="x"), folder)

    return read


def entities(source: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from pipeline.datasets.readers.entities import read_entities

        return _written(read_entities(folder / source, folder / "images"), folder)

    return read


def msvd(folder: Path) -> object:
    from pipeline.datasets.readers.msvd import read_msvd

    clips, captions, mapping = (folder / name for name in ("clips", "all.txt", "map.txt"))
    return _written(read_msvd(clips, captions, mapping=mapping, subset=True), folder)


def msrvtt(folder: Path) -> object:
    from pipeline.datasets.readers.msrvtt import read_msrvtt

    found = read_msrvtt(folder / "clips", [folder / "msrvtt.json"], subset=True)
    return _written(found, folder)


def trecvid(folder: Path) -> object:
    from pipeline.datasets.readers.trecvid_vtt import read_trecvid_vtt

    return _written(read_trecvid_vtt(folder / "clips", folder / "texts", subset=True), folder)


def captions(folder: Path) -> object:
    from pipeline.language.captioning.captions_file import read_captions, read_provenance

    return [(read_captions(folder / f), read_provenance(folder / f)) for f in ("c.json", "c.jsonl")]


def params(folder: Path) -> object:
    from stages.params import extract_defaults, load_params

    os.chdir(folder)
    extract_defaults()
    params = load_params()
    return [params.entry(name) for name in params.experiments]


def uploaded_form(folder: Path) -> object:
    """Read a form like an upload of `pipeline serve`; its first line is the content type."""
    import asyncio

    from starlette.exceptions import HTTPException
    from starlette.requests import Request

    from pipeline.store.errors import PipelineError
    from pipeline.web.serve.app import _form

    kind, _, body = (folder / "form").read_bytes().partition(b"\n")
    parts = [body[start : start + 1000] for start in range(0, len(body), 1000)]

    async def receive() -> dict[str, object]:
        part = parts.pop(0) if parts else b""
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    try:
        return asyncio.run(_form(Request({"type": "http", "headers": headers}, receive)))
    except HTTPException as error:
        if error.status_code >= 500:
            raise
        raise PipelineError(error.detail) from error


def report(folder: Path) -> object:
    _call(folder, "report", "--html", "html")
    return None


def _call(folder: Path, *arguments: str) -> None:
    """Run a command in this process; raise if it exits in an unexpected way."""
    from stages.cli import main

    os.chdir(folder)
    with open("said.txt", "w") as said:  # noqa: PTH123
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    sys.argv = ["pipeline", *arguments]
    try:
        main()
    except SystemExit as ended:
        said_text = Path("said.txt").read_text(errors="replace")
        if ended.code not in (None, 0, 1, 2, 3) or "Traceback" in said_text:
            raise ValueError(f"status {ended.code}: {said_text[-500:]}") from None
