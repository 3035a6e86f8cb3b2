"""Every reader of files from elsewhere, with sound inputs for it, small and made here.

`inputs` makes a folder for each; the files in it are damaged one at a time.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Reader:
    """A reader, and what is damaged for it.

    Attributes
    ----------
    name : in tables, and of its folder.
    files : patterns of the files that are damaged, relative to the folder.
    read : reads everything, given the folder; it may change the folder.
    share : how often it is tried, relative to the others. seals : puts checksums right first.
    """

    name: str
    files: tuple[str, ...]
    read: Callable[[Path], object]
    share: float = 1.0
    seal: Callable[[Path], None] | None = None


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _seal(described: str, guarded: dict[str, str]) -> Callable[[Path], None]:
    """Return a function that makes a JSON file vouch for the files beside it, as they are."""

    def seal(folder: Path) -> None:
        path = folder / described
        try:
            values = json.loads(path.read_text())
            for key, file in guarded.items():
                values[key] = _sha256(folder / file)
            path.write_text(json.dumps(values))
        except (ValueError, TypeError, RecursionError):
            return  # the JSON itself was damaged

    return seal


def _pictures(folder: Path) -> object:
    from pipeline.images.decode import UnusableImage, decode
    from pipeline.images.transforms import resize_image
    from pipeline.recipes import Resize

    for path in sorted(folder.iterdir()):
        try:
            resize_image(decode(path.read_bytes()), Resize("squash", 32))
        except UnusableImage as fault:
            text = str(fault)
            if not text.isprintable() or not 0 < len(text) <= 300:
                raise ValueError(f"a reason of {len(text)} characters: {text[:400]!r}") from None
    return None


def _manifest(folder: Path) -> object:
    from pipeline.datasets.manifest import read_manifest
    from pipeline.datasets.regions import has_phrases, read_phrases

    manifest = read_manifest(folder)
    return manifest.captions(), has_phrases(folder) and read_phrases(folder)


def _written(manifest: Any, folder: Path) -> object:
    from pipeline.datasets.manifest import read_manifest

    manifest.write(folder / "out")
    return read_manifest(folder / "out")


def _karpathy(folder: Path) -> object:
    from pipeline.datasets.karpathy import read_karpathy

    return _written(read_karpathy(folder / "images", folder / "dataset_x.json"), folder)


def _coco(folder: Path) -> object:
    from pipeline.datasets.coco import read_coco

    captions = [("train", folder / "captions.json")]
    return _written(read_coco(folder / "images", captions, boxes=[folder / "boxes.json"]), folder)


def _flickr8k(folder: Path) -> object:
    from pipeline.datasets.flickr8k import read_flickr8k

    return _written(read_flickr8k(folder, captions_per_image=2), folder)


def _folder(file: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from pipeline.datasets.folder import read_folder

        return _written(read_folder(folder / "images", folder / file, name="x"), folder)

    return read


def _regions(file: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from pipeline.datasets.region_table import read_regions

        return _written(read_regions(folder / "images", folder / file, name="x"), folder)

    return read


def _entities(source: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from pipeline.datasets.entities import read_entities

        return _written(read_entities(folder / source, folder / "images"), folder)

    return read


def _msvd(folder: Path) -> object:
    from pipeline.datasets.msvd import read_msvd

    clips, captions, mapping = (folder / name for name in ("clips", "all.txt", "map.txt"))
    return _written(read_msvd(clips, captions, mapping=mapping, subset=True), folder)


def _msrvtt(folder: Path) -> object:
    from pipeline.datasets.msrvtt import read_msrvtt

    found = read_msrvtt(folder / "clips", [folder / "msrvtt.json"], subset=True)
    return _written(found, folder)


def _trecvid(folder: Path) -> object:
    from pipeline.datasets.trecvid_vtt import read_trecvid_vtt

    return _written(read_trecvid_vtt(folder / "clips", folder / "texts", subset=True), folder)


def _vectors(folder: Path) -> object:
    from pipeline.text.vectors import load_vectors

    for path in sorted(folder.iterdir()):
        load_vectors(str(path), {"dog", "a", "réd", "unheard"})
    return None


def _all_vectors(folder: Path) -> object:
    from pipeline.text.vectors import load_vectors

    for path in sorted(folder.iterdir()):
        load_vectors(str(path))
    return None


def _embeddings(folder: Path) -> object:
    from pipeline.retrieval.evaluate import evaluate

    return evaluate(folder / "e.h5", folder / "table")


def _head(folder: Path) -> object:
    from pipeline.heads.trained_head import load_head

    head = load_head(folder)
    return head.embed_images(np.zeros((2, 1280), np.float32))


def _encoder(folder: Path) -> object:
    from pipeline.text.fitted import load_encoder

    texts = ["a red ball on grass", "zzz"]
    return [load_encoder(path).encode(texts) for path in sorted(folder.iterdir())]


def _features(folder: Path) -> object:
    from pipeline.shards.feature_set import read_features

    features = read_features(folder)
    return features.read(features.ids[:3])


def _view(folder: Path) -> object:
    return _features(folder / "both")


def _verify(folder: Path) -> object:
    from pipeline.shards.tools.verify import verify

    return verify(folder)


def _rebuild(folder: Path) -> object:
    from pipeline.shards.index import rebuild_index

    (folder / "index.json").unlink(missing_ok=True)
    return rebuild_index(folder)


def _describe(folder: Path) -> object:
    from pipeline.shards.tools.dataset_card import write_card
    from pipeline.shards.tools.describe import describe

    return describe(folder), write_card(folder)


def _state_dict(folder: Path) -> object:
    from pipeline.images.caffemodel import read_caffemodel
    from pipeline.networks.state_dicts import read_tensors

    for path in sorted(folder.iterdir()):
        (read_caffemodel if path.suffix == ".caffemodel" else read_tensors)(path)
    return None


def _imported(file: str, layout: str, ids: bool = False) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from pipeline.shards.tools.importers.catalogue import import_features

        names = folder / "ids.txt" if ids else None
        return import_features(folder / file, folder / "out", layout=layout, dataset="x", ids=names)

    return read


def _boxes(folder: Path) -> object:
    from pipeline.shards.tools.importers.boxes import read_boxes

    return [read_boxes(path) for path in sorted(folder.iterdir())]


def _captions(folder: Path) -> object:
    from pipeline.language.captions_file import read_captions, read_provenance

    return [(read_captions(folder / f), read_provenance(folder / f)) for f in ("c.json", "c.jsonl")]


def _tagger(folder: Path) -> object:
    from pipeline.text.taggers import tagger_called

    return tagger_called(f"perceptron:{folder / 'tagger.json'}").tag(["a", "dog"])


def _params(folder: Path) -> object:
    from stages.params import extract_defaults, load_params

    os.chdir(folder)
    extract_defaults()
    params = load_params()
    return [params.entry(name) for name in params.experiments]


def _localized(folder: Path) -> object:
    from pipeline.localization.evaluate import evaluate_localized

    return evaluate_localized(folder / "x.h5", folder / "table")


def _report(folder: Path) -> object:
    _call(folder, "report", "--html", "html")
    return None


def _call(folder: Path, *arguments: str) -> None:
    """Run a command in this process; raise if it ends in another way than commands may."""
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


def _clip(folder: Path) -> object:
    from pipeline.clips.clip_file import open_clip
    from pipeline.clips.frames import taken_frames
    from pipeline.clips.sampling import Sampling
    from pipeline.images.decode import UnusableImage

    for path in sorted(folder.iterdir()):
        try:
            with open_clip(path, []) as clip:
                list(taken_frames(clip, [Sampling("every:0.5")]))
        except UnusableImage:
            pass
    return None


READERS: tuple[Reader, ...] = (
    Reader("pictures", ("*",), _pictures, 8),
    Reader(
        "manifest", ("manifest.jsonl", "regions.jsonl", "dataset.json"), _manifest, 4,
        _seal(
            "dataset.json",
            {"manifest_sha256": "manifest.jsonl", "regions_sha256": "regions.jsonl"},
        ),
    ),
    Reader("karpathy", ("dataset_x.json",), _karpathy, 2),
    Reader("coco", ("*.json",), _coco, 2),
    Reader("flickr8k", ("annotations/*", "splits/*"), _flickr8k, 1.5),
    Reader("folder csv", ("c.csv",), _folder("c.csv")),
    Reader("folder jsonl", ("c.jsonl",), _folder("c.jsonl")),
    Reader("regions csv", ("r.csv",), _regions("r.csv")),
    Reader("regions jsonl", ("r.jsonl",), _regions("r.jsonl")),
    Reader("entities", ("e/*/*", "e/*.txt", "e/UNRELATED*", "images/*"), _entities("e"), 3),
    Reader("entities zip", ("e.zip",), _entities("e.zip")),
    Reader("entities tar", ("e.tar.gz", "e.tar"), _entities("e.tar")),
    Reader("msvd", ("*.txt",), _msvd),
    Reader("msrvtt", ("msrvtt.json",), _msrvtt),
    Reader("trecvid", ("texts/*",), _trecvid),
    Reader("vectors text", ("*",), _vectors, 1.5),
    Reader("vectors text, all", ("*",), _all_vectors),
    Reader("vectors binary", ("*",), _vectors, 1.5),
    Reader("vectors fasttext", ("*",), _vectors, 2),
    Reader("vectors store", ("*",), _vectors, 2),
    Reader("embeddings", ("e.h5",), _embeddings, 4),
    Reader(
        "head", ("head.*",), _head, 3, _seal("head.json", {"tensors_sha256": "head.safetensors"})
    ),
    Reader("encoder", ("*/*",), _encoder, 0.7),
    Reader("index.json", ("index.json",), _features, 2),
    Reader("shards, read", ("*.h5",), _features, 4),
    Reader("shards, verify", ("*",), _verify, 0.3),
    Reader("shards, index", ("*.h5",), _rebuild, 0.3),
    Reader("shards, card", ("*",), _describe, 0.3),
    Reader("side by side", ("both/index.json", "a/index.json"), _view),
    Reader("weights", ("*",), _state_dict, 3),
    Reader("import npy", ("x.npy", "ids.txt"), _imported("x.npy", "npy", ids=True), 1.5),
    Reader("import mat", ("x.mat",), _imported("x.mat", "mat", ids=True), 0.4),
    Reader("import tsv", ("x.tsv",), _imported("x.tsv", "bottom-up"), 2),
    Reader("import npz", ("npz/*",), _imported("npz", "bottom-up"), 1.5),
    Reader("import hdf5", ("x.h5",), _imported("x.h5", "groups"), 2),
    Reader("boxes", ("*",), _boxes, 3),
    Reader("captions", ("c.*",), _captions, 1.5),
    Reader("tagger", ("tagger.json",), _tagger),
    Reader("params.yaml", ("params.yaml",), _params, 2),
    Reader("localized", ("x.h5",), _localized, 2),
    Reader(
        "report",
        ("data/evaluations/*/*/*", "data/heads/*/*/head.json", "data/scenes/*.json*",
         "params.yaml"),
        _report, 1,
    ),
    Reader("clips", ("*",), _clip, 2),
)  # fmt: skip
