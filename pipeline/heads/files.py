"""A trained head on disk: `head.safetensors` and `head.json`, no pickle."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save

from pipeline.canonical import appearing_whole, sha256_of_file, write_json
from pipeline.datasets.manifest import ImageEntry
from pipeline.heads.catalogue import make_head
from pipeline.heads.interface import Head, History
from pipeline.heads.pairs import HeadError, join_pairs
from pipeline.retrieval.embeddings import Embeddings
from pipeline.shards.read import FeatureSet

TENSORS_FILE, HEAD_FILE = "head.safetensors", "head.json"


@dataclass(frozen=True)
class FeatureIdentity:
    """Which features a head was fitted on, and so may be given."""

    recipe: str
    recipe_hash: str
    weights: str
    row_shape: tuple[int, ...]

    @classmethod
    def of(cls, features: FeatureSet) -> "FeatureIdentity":
        """Return the identity of a feature folder."""
        header = features.index.header
        return cls(
            str(header.recipe.get("name", "")), header.recipe_hash, header.weights, header.row_shape
        )

    def require(self, features: FeatureSet, side: str) -> None:
        """Check that a folder holds the same features.

        Raises
        ------
        HeadError
        """
        found = FeatureIdentity.of(features)
        if found.recipe_hash != self.recipe_hash:
            raise HeadError(
                f"{features.folder} holds {side} features {found.recipe!r} with weights "
                f"{found.weights!r} (hash {found.recipe_hash}), but the head was fitted on "
                f"{self.recipe!r} with {self.weights!r} (hash {self.recipe_hash}); give the "
                "features that it was fitted on, or train again"
            )


@dataclass(frozen=True)
class TrainedHead:
    """A fitted head with what made it.

    Attributes
    ----------
    experiment, kind : the experiment's name and the head's.
    settings : what differs from the head's defaults. seed : of everything random.
    dataset, train_split, validation_split : what it was fitted on and chosen by.
    images, captions : the features of both sides.
    history : one entry an epoch.
    created_by : software and versions.
    head : the fitted head itself.
    """

    experiment: str
    kind: str
    settings: Mapping[str, Any]
    seed: int
    dataset: str
    train_split: str
    validation_split: str
    images: FeatureIdentity
    captions: FeatureIdentity
    history: History
    created_by: str
    head: Head

    def save(self, folder: Path) -> None:
        """Write `head.safetensors`, then `head.json`, into `folder`."""
        path = folder / TENSORS_FILE
        with appearing_whole(path) as part:
            tensors = {n: t.detach().cpu().contiguous() for n, t in self.head.tensors().items()}
            # Not save_file: it writes through a private file of its own, with its own mode.
            part.write_bytes(save(tensors))
        facts = {name: value for name, value in vars(self).items() if name != "head"}
        facts |= {
            "settings": dict(self.settings),
            "images": asdict(self.images),
            "captions": asdict(self.captions),
            "similarity": self.head.similarity,
            "tensors_sha256": sha256_of_file(path),
        }
        write_json(folder / HEAD_FILE, facts)


def load_head(folder: Path) -> TrainedHead:
    """Load what `TrainedHead.save` wrote.

    Raises
    ------
    HeadError
        A file is missing or damaged, or the two do not belong together.
    """
    described, path = folder / HEAD_FILE, folder / TENSORS_FILE
    for needed in (described, path):
        if not needed.is_file():
            raise HeadError(
                f"{needed} not found: {folder} holds no trained head; run `pipeline train`"
            )
    try:
        facts = json.loads(described.read_text(encoding="utf-8"))
        if sha256_of_file(path) != facts.pop("tensors_sha256"):
            raise HeadError(
                f"{path} is not the file that {described} describes; run `pipeline train` again"
            )
        del facts["similarity"]
        for side in ("images", "captions"):
            values = facts[side]
            facts[side] = FeatureIdentity(**{**values, "row_shape": tuple(values["row_shape"])})
        head = make_head(
            facts["kind"], facts["settings"], facts["images"].row_shape, facts["captions"].row_shape
        )
        head.restore(load_file(path))
        return TrainedHead(head=head, **facts)
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise HeadError(
            f"{described} or {path} is damaged ({error}); run `pipeline train` again"
        ) from error


def embed_split(
    trained: TrainedHead,
    entries: Sequence[ImageEntry],
    images: FeatureSet,
    captions: FeatureSet,
    provenance: Mapping[str, Any],
) -> Embeddings:
    """Embed images and their captions with a trained head.

    Parameters
    ----------
    entries : the images, in the order of the result.
    images, captions : features of the recipes that the head was fitted on.
    provenance : further facts to keep in the embedding file, such as dataset and split.

    Raises
    ------
    HeadError
        Features of other recipes or weights.
    MissingRows, FailedRows
        An image or caption has no features.
    """
    trained.images.require(images, "image")
    trained.captions.require(captions, "caption")
    pairs = join_pairs(entries, images, captions)
    return Embeddings(
        pairs.image_ids,
        trained.head.embed_images(pairs.images),
        pairs.caption_ids,
        pairs.caption_image_ids,
        trained.head.embed_captions(pairs.captions),
        trained.head.similarity,
        {
            "experiment": trained.experiment,
            "head": trained.kind,
            "settings": dict(trained.settings),
            "seed": trained.seed,
            "trained_on": f"{trained.dataset}/{trained.train_split}",
            "chosen_on": f"{trained.dataset}/{trained.validation_split}",
            "images": asdict(trained.images),
            "captions": asdict(trained.captions),
            "software": trained.created_by,
            **provenance,
        },
    )
