"""Readers of vectors, encoders, heads, shards, embeddings, weights and external features.

Each reads everything in its own folder, which it may modify. Damaged shards go the way of those of
others, through `pull`, `verify` or `index`, and are opened if they pass the other process there.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np


def vectors(folder: Path) -> object:
    from pipeline.text.vectors import load_vectors

    for path in sorted(folder.iterdir()):
        load_vectors(str(path), {"dog", "a", "réd", "unheard"})
    return None


def all_vectors(folder: Path) -> object:
    from pipeline.text.vectors import load_vectors

    for path in sorted(folder.iterdir()):
        load_vectors(str(path))
    return None


def embeddings(folder: Path) -> object:
    from pipeline.retrieval.evaluate import evaluate

    return evaluate(folder / "e.h5", folder / "table")


def head(folder: Path) -> object:
    from pipeline.heads.trained_head import load_head

    head = load_head(folder)
    return head.embed_images(np.zeros((2, 1280), np.float32))


def encoder(folder: Path) -> object:
    from pipeline.text.fitted import load_encoder

    texts = ["a red ball on grass", "zzz"]
    return [load_encoder(path).encode(texts) for path in sorted(folder.iterdir())]


def tagger(folder: Path) -> object:
    from pipeline.text.taggers import tagger_called

    return tagger_called(f"perceptron:{folder / 'tagger.json'}").tag(["a", "dog"])


def features(folder: Path) -> object:
    from pipeline.store.shards.feature_set import read_features

    features = read_features(folder)
    return features.read(features.ids[:3])


def unbroken_features(folder: Path) -> object:
    """Read a set that passes the other process of `verify`, whatever faults it has besides."""
    _require_unbroken(folder)
    return features(folder)


def _require_unbroken(folder: Path) -> None:
    from pipeline.store.shards.sandbox import require_unbroken

    require_unbroken(sorted(folder.glob("*.h5")), features=True)


def pulled(folder: Path) -> object:
    """Pull a set that its publisher has damaged, then read it."""
    from pipeline.store.share.pull import pull

    pull(folder, folder / "pulled")
    return features(folder / "pulled")


def side_by_side(folder: Path) -> object:
    return features(folder / "both")


def verified(folder: Path) -> object:
    from pipeline.store.shards.verify import verify

    found = verify(folder)
    if not found.faults:  # then every shard is the one that the index names
        for entry in json.loads((folder / "index.json").read_bytes())["shards"]:
            data = (folder / entry["file"]).read_bytes()
            if hashlib.sha256(data).hexdigest() != entry["sha256"]:
                raise ValueError(f"damage of {entry['file']} was not found")
    return found


def rebuilt_index(folder: Path) -> object:
    from pipeline.store.shards.index import rebuild_index

    (folder / "index.json").unlink(missing_ok=True)
    return rebuild_index(folder)


def card(folder: Path) -> object:
    from pipeline.store.shards.describe import describe
    from pipeline.store.share.cards.card import write_card

    _require_unbroken(folder)
    return describe(folder), write_card(folder)


def weights(folder: Path) -> object:
    from pipeline.images.backbones.caffemodel import read_caffemodel
    from pipeline.images.networks.checkpoints import read_checkpoint

    for path in sorted(folder.iterdir()):
        (read_caffemodel if path.suffix == ".caffemodel" else read_checkpoint)(path)
    return None


def imported(file: str, layout: str, ids: bool = False) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from pipeline.store.convert.importers.import_features import import_features

        names = folder / "ids.txt" if ids else None
        return import_features(folder / file, folder / "out", layout=layout, dataset="x", ids=names)

    return read


def boxes(folder: Path) -> object:
    from pipeline.store.convert.importers.boxes import read_boxes

    return [read_boxes(path) for path in sorted(folder.iterdir())]


def localized(folder: Path) -> object:
    from pipeline.regions.localization.evaluate_localization import evaluate_localized

    return evaluate_localized(folder / "x.h5", folder / "table")
