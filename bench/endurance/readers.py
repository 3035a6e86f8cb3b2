"""All readers of external files, with the files that are damaged for each.

`inputs` creates a folder of small valid files for each reader; `dataset_readers` and
`feature_readers` read them.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.endurance.dataset_readers import (
    captions,
    clips,
    coco,
    entities,
    flickr8k,
    folder_table,
    karpathy,
    manifest,
    msrvtt,
    msvd,
    params,
    pictures,
    region_table,
    report,
    sounds,
    trecvid,
    uploaded_form,
)
from bench.endurance.feature_readers import (
    all_vectors,
    boxes,
    card,
    embeddings,
    encoder,
    features,
    head,
    imported,
    localized,
    pulled,
    rebuilt_index,
    side_by_side,
    tagger,
    unbroken_features,
    vectors,
    verified,
    weights,
)


@dataclass(frozen=True)
class Reader:
    """A reader with the files that are damaged for it.

    Attributes
    ----------
    name : name in tables and of its folder.
    files : patterns of the files to damage, relative to the folder.
    read : reads everything in a folder, which it may modify.
    share : how often it is tested, relative to the others.
    seal : recomputes checksums after the damage; called in most trials.
    """

    name: str
    files: tuple[str, ...]
    read: Callable[[Path], object]
    share: float = 1.0
    seal: Callable[[Path], None] | None = None


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _seal(described: str, guarded: dict[str, str]) -> Callable[[Path], None]:
    """Return a function that updates the checksums in a JSON file of the files next to it."""

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


def _seal_shards(folder: Path) -> None:
    """Update the checksums of the shards in their index, as the publisher of a set can."""
    path = folder / "index.json"
    try:
        values = json.loads(path.read_text())
        for entry in values["shards"]:
            entry["sha256"] = _sha256(folder / entry["file"])
        path.write_text(json.dumps(values))
    except (ValueError, TypeError, LookupError, RecursionError, OSError):
        return  # the JSON itself was damaged


READERS: tuple[Reader, ...] = (
    Reader("pictures", ("*",), pictures, 8),
    Reader(
        "manifest", ("manifest.jsonl", "regions.jsonl", "dataset.json"), manifest, 4,
        _seal(
            "dataset.json",
            {"manifest_sha256": "manifest.jsonl", "regions_sha256": "regions.jsonl"},
        ),
    ),
    Reader("karpathy", ("dataset_x.json",), karpathy, 2),
    Reader("coco", ("*.json",), coco, 2),
    Reader("flickr8k", ("annotations/*", "splits/*"), flickr8k, 1.5),
    Reader("folder csv", ("c.csv",), folder_table("c.csv")),
    Reader("folder jsonl", ("c.jsonl",), folder_table("c.jsonl")),
    Reader("regions csv", ("r.csv",), region_table("r.csv")),
    Reader("regions jsonl", ("r.jsonl",), region_table("r.jsonl")),
    Reader("entities", ("e/*/*", "e/*.txt", "e/UNRELATED*", "images/*"), entities("e"), 3),
    Reader("entities zip", ("e.zip",), entities("e.zip")),
    Reader("entities tar", ("e.tar",), entities("e.tar")),
    Reader("msvd", ("*.txt",), msvd),
    Reader("msrvtt", ("msrvtt.json",), msrvtt),
    Reader("trecvid", ("texts/*",), trecvid),
    Reader("vectors text", ("*",), vectors, 1.5),
    Reader("vectors text, all", ("*",), all_vectors),
    Reader("vectors binary", ("*",), vectors, 1.5),
    Reader("vectors fasttext", ("*",), vectors, 2),
    Reader("vectors store", ("*",), vectors, 2),
    Reader("embeddings", ("e.h5",), embeddings, 4),
    Reader(
        "head", ("head.*",), head, 3, _seal("head.json", {"tensors_sha256": "head.safetensors"})
    ),
    Reader("encoder", ("*/*",), encoder, 0.7),
    Reader("index.json", ("index.json",), features, 2),
    Reader("shards, read", ("*.h5",), unbroken_features, 4),
    Reader("shards, pull", ("*",), pulled, 2, _seal_shards),
    Reader("shards, verify", ("*",), verified, 1),
    Reader("shards, index", ("*.h5",), rebuilt_index, 0.3),
    Reader("shards, card", ("*",), card, 0.3),
    Reader("side by side", ("both/index.json", "a/index.json"), side_by_side),
    Reader("weights", ("*",), weights, 3),
    Reader("import npy", ("x.npy", "ids.txt"), imported("x.npy", "npy", ids=True), 1.5),
    Reader("import mat", ("x.mat",), imported("x.mat", "mat", ids=True), 0.4),
    Reader("import tsv", ("x.tsv",), imported("x.tsv", "bottom-up"), 2),
    Reader("import npz", ("npz/*",), imported("npz", "bottom-up"), 1.5),
    Reader("import hdf5", ("x.h5",), imported("x.h5", "groups"), 2),
    Reader("boxes", ("*",), boxes, 3),
    Reader("captions", ("c.*",), captions, 1.5),
    Reader("tagger", ("tagger.json",), tagger),
    Reader("upload form", ("form",), uploaded_form, 2),
    Reader("params.yaml", ("params.yaml",), params, 2),
    Reader("localized", ("x.h5",), localized, 2),
    Reader(
        "report",
        ("data/evaluations/*/*/*", "data/heads/*/*/head.json", "data/scenes/*.json*",
         "params.yaml"),
        report, 1,
    ),
    Reader("clips", ("*",), clips, 2),
    Reader("sounds", ("*",), sounds, 2),
)  # fmt: skip
