"""Outputs of each experiment on disk, with a sentence for every missing one."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import MANIFEST_FILE, Manifest, read_manifest
from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.retrieval.provenance import (
    Metadata,
    columns_of,
    members_of,
    text_at,
    text_of,
    training_sets,
)
from pipeline.retrieval.ranking.splits import of_split
from pipeline.retrieval.search import Gallery
from pipeline.retrieval.tables import (
    PROVENANCE_FILE,
    RECALL_FILE,
    SEEN,
    read_provenance,
    read_recall,
)
from pipeline.store.hashing import sha256_of_file
from pipeline.store.packed import TextMapping
from pipeline.studies.embedding_map.make_map import EmbeddingMap, make_map
from pipeline.studies.embedding_map.plane import Closeness, Projection
from pipeline.web.report.head_inspection import HeadInspection, WordPlane
from pipeline.web.report.retrievals import Retrieval, SentencePlane, protocol_of, retrieve


@dataclass(frozen=True)
class Folders:
    """Input folders of a report."""

    evaluations: Path  # parent of `<experiment>/recall.json` and `provenance.json`
    embeddings: tuple[Path, ...]
    """Folders of embedding files, which are identified by SHA-256, not by name."""
    heads: Path  # parent of `<experiment>/`, the trained heads with their histories
    dataset: Path  # prepared dataset of the experiments
    text: Path  # parent of `<name>/`, the caption features with their encoders


@dataclass(frozen=True)
class Dataset:
    """Texts and files of a prepared dataset by id."""

    manifest: Manifest
    texts: TextMapping[str]  # sentence by caption id
    files: TextMapping[Path]  # path by image id
    manifest_sha256: str

    def captions_of(self, image_id: str) -> Sequence[str]:
        """Return the captions of an image."""
        return self.manifest.by_id[image_id].captions


@dataclass(frozen=True)
class Result:
    """An experiment with all outputs that were found."""

    name: str
    recall: Mapping[str, float | int]
    metadata: Metadata
    history: tuple[Mapping[str, Any], ...]
    """History of the head that computed the embeddings; () if it is missing."""
    retrieval: Retrieval | None  # analysis of the embedding file; None if it is missing
    input_closeness: Closeness | str
    """Closeness of sentences in the features of the head, or a reason, such as token ids."""
    input_plane: SentencePlane | None  # of the same features; None without a closeness
    word_plane: WordPlane | None
    """None for an ensemble, for sets of vectors, and without the head or its encoder."""
    map: EmbeddingMap | None  # map of the images; None without the embedding file or the dataset
    dataset: Dataset | None  # None if it is another one or lacks a ranked image or caption
    gaps: tuple[str, ...]  # omitted parts, with reasons

    @property
    def columns(self) -> dict[str, str]:
        """Text columns of the joint table."""
        return columns_of(self.metadata)

    @property
    def seen(self) -> str:
        """Part of the dataset that the encoders were trained on; "" for none."""
        return self.columns.get(SEEN, "")

    @property
    def lineage(self) -> dict[str, str]:
        """Features, hashes, seed and software."""
        return lineage_of(self.metadata)

    @property
    def rsum_interval(self) -> tuple[float, float] | None:
        """Bootstrap interval of the table, or else of the embeddings; None if unknown."""
        if "rsum_low" in self.recall:
            return float(self.recall["rsum_low"]), float(self.recall["rsum_high"])
        return self.retrieval.rsum_interval if self.retrieval else None


def collect_results(
    names: Sequence[str],
    folders: Folders,
    on_read: Callable[[int], None],
    projection: Projection = "pca",
) -> tuple[Result, ...]:
    """Read all outputs of some experiments, one embedding file at a time."""
    files = sorted(file for folder in folders.embeddings for file in folder.glob("*.h5"))
    # Tables name their embedding file by content; of equal files the first counts.
    file_of = {sha256_of_file(file): file for file in reversed(files)}
    dataset = _read_dataset(folders.dataset)
    inspection = HeadInspection(folders.heads, folders.text)
    results = []
    for number, name in enumerate(names):
        on_read(number)
        recall = read_recall(folders.evaluations / name / RECALL_FILE)
        metadata = read_provenance(folders.evaluations / name / PROVENANCE_FILE)
        gaps: list[str] = []
        path = _embeddings_file(metadata, file_of, folders.embeddings, gaps)
        split = text_at(metadata["provenance"], "split") or None  # of an ensemble, its members'
        embeddings = of_split(read_embeddings(path), split) if path else None
        retrieval = None
        if embeddings:
            retrieval = retrieve(embeddings, protocol_of(metadata, recall), projection)
        fits, gap = _fits(dataset, metadata, retrieval, folders.dataset)
        data = dataset if fits and isinstance(dataset, Dataset) else None
        gaps += [gap] if gap else []
        # An ensemble has no head of its own, so that nothing is missing.
        alone = members_of(metadata) == [metadata["provenance"]]
        history = _history(folders.heads / name, metadata, gaps) if alone else ()
        close: Closeness | str = "sentences not known" if alone else "an ensemble"
        before = plane = drawn = None
        if alone and path and embeddings and retrieval and data:
            image_of = retrieval.first_gallery
            close = inspection.input_closeness(metadata, image_of, gaps)
            if isinstance(close, Closeness):
                before = inspection.input_plane(metadata, image_of, projection)
            texts = {caption: data.texts[caption] for caption in image_of}
            words = inspection.words_to_show(texts, image_of)
            plane = inspection.word_plane(name, path, embeddings, words, gaps)
        if embeddings and data:
            drawn = make_map(Gallery.of(embeddings, "images"), data.captions_of, projection)
        results.append(Result(
            name, recall, metadata, history, retrieval, close, before, plane, drawn, data,
            tuple(gaps),
        ))  # fmt: skip
    on_read(len(names))
    return tuple(results)


def lineage_of(metadata: Metadata) -> dict[str, str]:
    """Return the lineage of the figures: features, input hashes, seed, software; "" if unknown."""
    members = members_of(metadata)
    columns = columns_of(metadata)
    return {
        "image features": columns.get("image features", ""),
        "their recipe hash": text_of(members, "inputs", "images", "recipe_hash"),
        "weights": columns.get("image weights", ""),
        "caption features": columns.get("caption features", ""),
        "their hash": text_of(members, "inputs", "captions", "recipe_hash"),
        "head": text_of(members, "head"),
        "encoders trained on": training_sets(members, "pretraining"),
        "trained on": text_of(members, "trained_on"),
        "chosen on": text_of(members, "chosen_on"),
        "seed": text_of(members, "seed"),
        "embedding file": str(metadata.get("embeddings_sha256", ""))[:16],
        "software": text_of(members, "software"),
    }


def dataset_of(metadata: Metadata) -> str:
    """Return the name of the dataset; "" if unknown or different between members."""
    names = {text_at(member, "dataset") for member in members_of(metadata)}
    return names.pop() if len(names) == 1 else ""


def flattened(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value of nested JSON, as a dotted name and its text."""
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            yield from flattened(value[key], f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for number, item in enumerate(value):
            yield from flattened(item, f"{name}.{number}")
    elif isinstance(value, list):
        yield name, ", ".join(_plain(item) for item in value)
    else:
        yield name, _plain(value)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _embeddings_file(
    metadata: Metadata, file_of: Mapping[str, Path], folders: Sequence[Path], gaps: list[str]
) -> Path | None:
    """Return the embedding file of a table, found by its SHA-256; otherwise append a gap."""
    digest = str(metadata.get("embeddings_sha256", ""))
    if digest not in file_of:
        gaps.append(
            f"No file of {' or '.join(map(str, folders))} is the embedding file that the table "
            f"was made from (SHA-256 {digest[:16] or 'unknown'}…): no interval, no breakdown, no "
            "queries."
        )
    return file_of.get(digest)


def _read_dataset(folder: Path) -> Dataset | str:
    """Read a dataset, or return the reason why it is unreadable."""
    try:
        manifest = read_manifest(folder)
    except DatasetError as error:
        return f"No breakdown and no queries, since its dataset cannot be read: {error}"
    captions = manifest.captions()
    return Dataset(
        manifest,
        TextMapping(captions.ids, captions.texts),
        manifest.path_by_id,
        sha256_of_file(folder / MANIFEST_FILE),
    )


def _fits(
    dataset: Dataset | str, metadata: Metadata, retrieval: Retrieval | None, folder: Path
) -> tuple[bool, str]:
    """Return whether a dataset has all ranked items, and why not or that it has changed, or ""."""
    name = dataset_of(metadata)
    if not name:
        return False, "Its dataset is not recorded: no breakdown, no queries."
    if isinstance(dataset, str):
        return False, dataset
    if name != dataset.manifest.name:
        return False, (
            f"It is of the dataset {name}, and {folder} is {dataset.manifest.name}: no breakdown, "
            "no queries."
        )
    if any(member.get("average_captions") for member in members_of(metadata)):
        return False, (
            "Its captions are each the mean of those of an image, which no sentence represents: no "
            "breakdown, no queries."
        )
    ranked = (("captions", retrieval.caption_ids, dataset.texts),
              ("images", retrieval.image_ids, dataset.files)) if retrieval else ()  # fmt: skip
    for what, ids, ids_of_dataset in ranked:
        if unknown_ids := ids_of_dataset.lacking(ids):
            return False, (
                f"The dataset {name} lacks {len(unknown_ids)} {what} of the embedding file, first "
                f"{unknown_ids[0]}: no breakdown, no queries."
            )
    made_from = {member.get("manifest_sha256") for member in members_of(metadata)} - {None}
    changed = (
        f"The dataset {name} has changed since its features were made; sentences and images "
        "shown here may differ from those that were ranked."
    )
    return True, changed if made_from - {dataset.manifest_sha256} else ""


def _history(folder: Path, metadata: Metadata, gaps: list[str]) -> tuple[Mapping[str, Any], ...]:
    """Return the history of the head of the embeddings; () and a gap if it is missing."""
    # Here, since heads import torch, which the joint tables do not need.
    from pipeline.heads import HeadError
    from pipeline.heads.trained_head import read_history

    tensors_sha256 = text_at(metadata["provenance"], "tensors_sha256")
    try:
        if not tensors_sha256:
            raise HeadError("it is unknown which head made the embeddings")
        return tuple(read_history(folder, tensors_sha256))
    except HeadError as error:
        gaps.append(f"No curve: {error}.")
        return ()
