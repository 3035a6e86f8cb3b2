"""What is on the disk about each experiment, and a sentence about every piece that is not."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.datasets.manifest import (
    MANIFEST_FILE,
    DatasetError,
    Manifest,
    check_relative,
    read_manifest,
)
from pipeline.hashing import sha256_of_file
from pipeline.heads.trained_head import HISTORY_FILE
from pipeline.report.analysis.head_inspection import Insides, WordPlane
from pipeline.report.analysis.retrievals import Retrieval, protocol_of, retrieve
from pipeline.report.data.provenance import (
    columns_of,
    dataset_of,
    lineage_of,
    members_of,
)
from pipeline.retrieval.embeddings import read_embeddings
from pipeline.retrieval.geometry import Closeness
from pipeline.retrieval.tables import (
    PROVENANCE_FILE,
    RECALL_FILE,
    TableError,
    read_provenance,
    read_recall,
)


@dataclass(frozen=True)
class Folders:
    """Where things lie.

    Attributes
    ----------
    reports : `<experiment>/recall.json` and `provenance.json`.
    embeddings : embedding files, found by their SHA-256, whatever they are called.
    heads : `<experiment>/`, a trained head with its history.
    datasets : prepared datasets, by name.
    text : `<dataset>/<name>` caption features, each with its encoder beside it.
    """

    reports: Path
    embeddings: Path
    heads: Path
    datasets: Path
    text: Path


@dataclass(frozen=True)
class Dataset:
    """A prepared dataset by ids.

    Attributes
    ----------
    texts : caption id to its sentence.
    files : image id to its path.
    captions : image id to its first sentence, or "".
    """

    manifest: Manifest
    texts: Mapping[str, str]
    files: Mapping[str, Path]
    captions: Mapping[str, str]


@dataclass(frozen=True)
class Case:
    """An experiment with all that was found of it.

    Attributes
    ----------
    recall : its table.
    facts : its `provenance.json`.
    history : the entries of its head's history, () if there is none.
    retrieval : None without its embedding file.
    input_closeness : of the sentences in the features that the head was fed with, or a few words
        why there is none: those are token ids, several kinds side by side with them, or not
        there.
    word_plane : None for an ensemble, for sets of vectors, and without the head or its encoder.
    dataset : None where that is not known or lacks an image or a caption that was ranked.
    gaps : what is left out, and why.
    """

    name: str
    recall: Mapping[str, float | int]
    facts: Mapping[str, Any]
    history: tuple[Mapping[str, Any], ...]
    retrieval: Retrieval | None
    input_closeness: Closeness | str
    word_plane: WordPlane | None
    dataset: Dataset | None
    gaps: tuple[str, ...]

    @property
    def columns(self) -> dict[str, str]:
        """What `pipeline.report.data.provenance.columns_of` says of its facts."""
        return columns_of(self.facts)

    @property
    def lineage(self) -> dict[str, str]:
        """What `pipeline.report.data.provenance.lineage_of` says of its facts."""
        return lineage_of(self.facts)

    @property
    def rsum_interval(self) -> tuple[float, float] | None:
        """The table's own bootstrap interval, else the one of the embeddings, if they are there."""
        if "rsum_low" in self.recall:
            return float(self.recall["rsum_low"]), float(self.recall["rsum_high"])
        return self.retrieval.rsum_interval if self.retrieval else None


def collect(
    names: Sequence[str], folders: Folders, said: Callable[[int], None]
) -> tuple[Case, ...]:
    """Read everything about some experiments; embedding files one after the other.

    Parameters
    ----------
    names : folders of `folders.reports`.
    said : is told how many experiments are done.

    Raises
    ------
    TableError
        A recall table, a provenance or a history is damaged.
    EmbeddingsError, ProtocolError
        An embedding file does not give what its table says.
    """
    found = sorted(folders.embeddings.glob("*.h5"))
    file_of = {sha256_of_file(path): path for path in reversed(found)}
    dataset_named = cache(lambda name: _dataset(folders.datasets, name))
    insides = Insides(folders.heads, folders.text)
    cases = []
    for number, name in enumerate(names):
        said(number)
        recall = read_recall(folders.reports / name / RECALL_FILE)
        facts = read_provenance(folders.reports / name / PROVENANCE_FILE)
        gaps: list[str] = []
        path = _embeddings_file(facts, file_of, folders.embeddings, gaps)
        embeddings = read_embeddings(path) if path else None
        retrieval = retrieve(embeddings, protocol_of(facts, recall)) if embeddings else None
        dataset = _fitting(
            dataset_named(dataset_of(facts)), facts, retrieval, folders.datasets, gaps
        )
        # An ensemble has no head of its own, so that nothing is missing.
        alone = members_of(facts) == [facts["provenance"]]
        history = _history(folders.heads / name / HISTORY_FILE, gaps) if alone else ()
        close: Closeness | str = "sentences not known" if alone else "an ensemble"
        words = None
        if alone and path and embeddings and retrieval and dataset:
            owner_of = retrieval.first_gallery
            close = insides.input_closeness(facts, owner_of, gaps)
            spoken_of = insides.spoken_of({one: dataset.texts[one] for one in owner_of}, owner_of)
            words = insides.word_plane(name, path, embeddings, spoken_of, gaps)
        cases.append(
            Case(name, recall, facts, history, retrieval, close, words, dataset, tuple(gaps))
        )
    said(len(names))
    return tuple(cases)


def _embeddings_file(
    facts: Mapping[str, Any], file_of: Mapping[str, Path], folder: Path, gaps: list[str]
) -> Path | None:
    """Return the embedding file of a table, found by its SHA-256, or add a gap."""
    digest = str(facts.get("embeddings_sha256", ""))
    if digest not in file_of:
        gaps.append(
            f"No file of {folder} is the embedding file that the table was made from (SHA-256 "
            f"{digest[:16] or 'not said'}…): no interval, no breakdown, no queries."
        )
    return file_of.get(digest)


def _fitting(
    dataset: Dataset | str,
    facts: Mapping[str, Any],
    retrieval: Retrieval | None,
    folder: Path,
    gaps: list[str],
) -> Dataset | None:
    """Return a dataset that has all that was ranked, or None; add a gap then, or if it changed."""
    if isinstance(dataset, str):
        gaps.append(dataset)
        return None
    name = dataset.manifest.name
    ranked = (("captions", retrieval.caption_ids, dataset.texts),
              ("images", retrieval.image_ids, dataset.files)) if retrieval else ()  # fmt: skip
    for what, ids, known in ranked:
        if unknown_ids := [one for one in ids if one not in known]:
            gaps.append(
                f"The dataset {name} lacks {len(unknown_ids)} {what} of the embedding file, first "
                f"{unknown_ids[0]}: no breakdown, no queries."
            )
            return None
    made_from = {one.get("manifest_sha256") for one in members_of(facts)} - {None}
    if made_from - {sha256_of_file(folder / dataset_of(facts) / MANIFEST_FILE)}:
        gaps.append(
            f"The dataset {name} has changed since its features were made; sentences and pictures "
            "shown here may be others than those that were ranked."
        )
    return dataset


def _dataset(datasets: Path, name: str) -> Dataset | str:
    """Read a dataset, or say why not; the name comes from somebody's file."""
    if not name or "/" in name or check_relative(name):
        return "Its dataset is not said: no breakdown, no queries."
    try:
        manifest = read_manifest(datasets / name)
    except DatasetError as error:
        return f"No breakdown and no queries, since its dataset cannot be read: {error}"
    return Dataset(
        manifest,
        {i: t for e in manifest.entries for i, t in zip(e.caption_ids, e.captions, strict=True)},
        {e.id: manifest.image_root / e.file for e in manifest.entries},
        {e.id: e.first_caption for e in manifest.entries},
    )


def _history(path: Path, gaps: list[str]) -> tuple[Mapping[str, Any], ...]:
    """Read the history of a head; without one return () and add a gap."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(one, dict) for one in entries):
            raise TypeError("expected a list of objects")
    except FileNotFoundError:
        gaps.append(f"{path} is not there: no curve.")
        return ()
    except (ValueError, TypeError) as error:
        raise TableError(
            f"{path} is no history of a head ({error}); expected a list of one JSON object an "
            "epoch, as `pipeline train` writes it"
        ) from error
    return tuple(entries)
