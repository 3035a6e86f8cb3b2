"""Inputs of both sides: photos, unusual files, sources of datasets, params.yaml."""

import shutil
from pathlib import Path

import yaml

from bench.endurance.inputs import clip_sources, features_of_others, image_sources
from tests.images.odd_files import photo, write_all

_COCO = Path(__file__).resolve().parents[3] / "shared" / "data" / "coco-sample" / "images"
_PHOTOS = 6

_FISHER = {"encoder": "fv-hglmm", "components": 2, "sample": 300, "pca": 12}
_MULTISCALE = {"encoder": "bow+mean-w2vv+token-ids-w2vv", "vectors": "word2vec-100d"}
_PARAMS = {
    "dataset": "scenes",
    "datasets": {"scenes": {"kind": "scenes", "num-images": 6, "seed": 1}},
    "seed": 0,
    "size": "tiny",
    "max_epochs": 2,
    "word_vectors": {
        "word2vec-100d": {"train": "word2vec", "dim": 100, "epochs": 2, "min_count": 1}
    },
    "caption_features": {
        "fv-hglmm-pca1000": _FISHER,
        "tfidf+fv-hglmm": {"encoder": "tfidf+fv-hglmm", "components": 2, "sample": 300},
        "w2vv-multiscale": _MULTISCALE,
    },
    "experiments": {
        "of-clips": {
            "preset": "dong2018-video-multiscale-sound",
            "images": "efficientnet-lite0-pool@even:2+mfcc-bow-16",
            "captions": "w2vv-multiscale",
        },
        "zero-shot": {"images": "open-clip:ViT-S-32-alt", "captions": "open-clip"},
    },
    "ensembles": {"ours": {}},
}


def make_inputs(folder: Path, photos: int = _PHOTOS) -> None:
    """Write the inputs to a new folder, with real photos where the machine has them."""
    inputs = folder / "inputs"
    _photos(inputs, photos)
    image_sources(inputs / "sources")
    clip_sources(inputs / "sources")
    features_of_others(inputs / "others")
    clips = ["whole", "image", "text", "missing"]
    lines = [f"{name}.mp4,a clip named {name},train" for name in clips]
    (inputs / "clips.csv").write_text("\n".join(["path,caption,split", *lines]) + "\n")
    (folder / "params.yaml").write_text(yaml.safe_dump(_PARAMS, sort_keys=False))


def _photos(folder: Path, real: int) -> None:
    """Write image files of every kind, and two tables of their captions."""
    odd = write_all(folder / "photos")
    names = [name for name in odd if not (folder / "photos" / name).is_dir()]
    photo(7, 90, 70).save(folder / "changed.jpg", quality=90)
    for path in sorted(_COCO.glob("*.jpg"))[:real]:
        shutil.copyfile(path, folder / "photos" / path.name)
        names.append(path.name)
    for number in range(3):
        photo(number, 80, 80).save(folder / "photos" / f"more-{number}.png")
    for table, more in (("photos.csv", 0), ("more-photos.csv", 3)):
        listed = [*names, *(f"more-{number}.png" for number in range(more))]
        lines = [
            f"{name},a picture of number {number},{('train', 'train', 'val', 'test')[number % 4]}"
            for number, name in enumerate(listed)
        ]
        (folder / table).write_text("\n".join(["path,caption,split", *lines]) + "\n")
