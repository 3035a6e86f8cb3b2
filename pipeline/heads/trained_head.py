"""A trained head on disk: `head.safetensors`, `head.json` and `history.json`, no pickle."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save

from pipeline.datasets.manifest import ImageEntry
from pipeline.files import appearing_whole, write_json
from pipeline.hashing import sha256_of_file
from pipeline.heads.base import Head, History
from pipeline.heads.catalogue import make_head
from pipeline.heads.data.feature_spec import Inputs, require_averageable
from pipeline.heads.data.pairs import AveragedRows, Pairs, join_pairs
from pipeline.heads.data.rows import Features, Rows
from pipeline.heads.embed import embed_here
from pipeline.heads.errors import HeadError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.shards.feature_set import FeatureSet

TENSORS_FILE, HEAD_FILE, HISTORY_FILE = "head.safetensors", "head.json", "history.json"


@dataclass(frozen=True)
class TrainedHead:
    """A fitted head with what made it.

    Attributes
    ----------
    experiment, kind : the experiment's name and the head's.
    settings : what differs from the head's defaults. seed : of everything random.
    dataset, train_split, validation_split : what it was fitted on and chosen by.
    inputs : the features of both sides, with their whole recipes.
    word_vectors : name and SHA-256 of the vectors that its words started from, if any.
    history : one entry an epoch.
    created_by : software and versions.
    head : the fitted head itself.
    tensors_sha256 : of the file that it was loaded from; None of a head that is on no disk yet.
    """

    experiment: str
    kind: str
    settings: Mapping[str, Any]
    seed: int
    dataset: str
    train_split: str
    validation_split: str
    inputs: Inputs
    word_vectors: Mapping[str, str] | None
    history: History
    created_by: str
    head: Head
    tensors_sha256: str | None = None

    @property
    def provenance(self) -> dict[str, Any]:
        """What its embeddings say of it, as JSON values: which head, made of what."""
        return {
            "experiment": self.experiment,
            "head": self.kind,
            "settings": dict(self.settings),
            "seed": self.seed,
            "trained_on": f"{self.dataset}/{self.train_split}",
            "chosen_on": f"{self.dataset}/{self.validation_split}",
            "inputs": asdict(self.inputs),
            "word_vectors": None if self.word_vectors is None else dict(self.word_vectors),
            "software": self.created_by,
            "tensors_sha256": self.tensors_sha256,
        }

    def save(self, folder: Path) -> None:
        """Write the head's files into `folder`, `head.json` last.

        `history.json` repeats the history as a plain list, for programs that plot.
        """
        path = folder / TENSORS_FILE
        # Clones: safetensors refuses two names for one memory, as tied weights have.
        tensors = {n: t.detach().cpu().clone() for n, t in self.head.tensors().items()}
        with appearing_whole(path) as part:
            # Not save_file: it writes through a private file of its own, with its own mode.
            part.write_bytes(save(tensors))
        write_json(folder / HISTORY_FILE, self.history)
        facts = {name: value for name, value in vars(self).items() if name != "head"}
        facts |= {
            "settings": dict(self.settings),
            "inputs": asdict(self.inputs),
            "word_vectors": None if self.word_vectors is None else dict(self.word_vectors),
            "similarity": self.head.similarity,
            "tensors_sha256": sha256_of_file(path),
        }
        write_json(folder / HEAD_FILE, facts)


def load_head(folder: Path) -> TrainedHead:
    """Load what `TrainedHead.save` wrote; no features are needed.

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
        if sha256_of_file(path) != facts["tensors_sha256"]:
            raise HeadError(
                f"{path} is not the file that {described} describes; run `pipeline train` again"
            )
        del facts["similarity"]
        facts["inputs"] = Inputs.from_json(facts["inputs"])
        head = _made_again(described, facts)
        head.restore(load_file(path))
        return TrainedHead(head=head, **facts)
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise HeadError(
            f"{described} or {path} is damaged or of an older version ({error}); run `pipeline "
            "train` again"
        ) from error


def _made_again(described: Path, facts: Mapping[str, Any]) -> Head:
    """Return the head that a file describes, without what it learnt."""
    try:
        return make_head(facts["kind"], facts["settings"], facts["inputs"])
    except HeadError as error:
        raise HeadError(f"{described}: {error}; run `pipeline train` again") from error


def embed_split(
    trained: TrainedHead,
    entries: Sequence[ImageEntry],
    images: FeatureSet,
    captions: FeatureSet,
    provenance: Mapping[str, Any],
    average_captions: bool = False,
    embedding: Callable[[Pairs, Rows], tuple[Features, Features]] | None = None,
) -> Embeddings:
    """Embed images and their captions with a trained head.

    Parameters
    ----------
    entries : the images, in the order of the result.
    images, captions : features of the recipes that the head was fitted on.
    provenance : further facts to keep in the embedding file, such as dataset and split.
    average_captions : each caption is embedded as the mean of the features of its image's
        captions; see `AveragedRows`. Rows and ids stay the same.
    embedding : embeds the images of pairs and these captions, as workers do; None: `embed_here`.

    Raises
    ------
    HeadError
        Features of other recipes or weights, or averages of word numbers are asked for.
    MissingRows, FailedRows
        An image or caption has no features.
    """
    trained.inputs.images.require(images, "image")
    trained.inputs.captions.require(captions, "caption")
    if average_captions:
        require_averageable(trained.inputs.captions)
    pairs = join_pairs(entries, images, captions)
    queries = (
        AveragedRows(pairs.captions, pairs.image_of_caption) if average_captions else pairs.captions
    )
    if embedding is None:
        image_rows, caption_rows = embed_here(trained.head, pairs.images, queries)
    else:
        image_rows, caption_rows = embedding(pairs, queries)
    return Embeddings(
        pairs.image_ids,
        image_rows,
        pairs.caption_ids,
        pairs.caption_image_ids,
        caption_rows,
        trained.head.similarity,
        {**trained.provenance, "average_captions": average_captions, **provenance},
    )
