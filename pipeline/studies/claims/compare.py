"""Comparison of two systems by their embeddings, localized phrases or captions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import h5py

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.experiments.layout import Layout, seeds_of
from pipeline.retrieval.measures import Column
from pipeline.retrieval.ranking.protocols import resolve_protocol
from pipeline.store.families import has
from pipeline.store.guard import crash_of
from pipeline.store.one_or_many import values_of
from pipeline.store.wording import did_you_mean
from pipeline.studies import StudyError
from pipeline.studies.significance import compare as compare_embeddings
from pipeline.studies.significance.compare import read_ranked
from pipeline.studies.significance.paired import RESAMPLES, Comparison, Outputs, compare_outputs
from pipeline.text.tokenizers.tokenizer import TOKENIZERS

Kind = Literal["embeddings", "localizations", "captions"]

MEASURES: dict[Kind, Mapping[str, Column]] = {"embeddings": compare_embeddings.MEASURES}
"""Figures by kind of file."""
DEFAULT_MEASURES: dict[Kind, Sequence[str]] = {"embeddings": compare_embeddings.DEFAULT_MEASURES}
if has("regions"):
    from pipeline.regions.localization.localized import FORMAT as LOCALIZATIONS
    from pipeline.studies.claims import compare_localized

    MEASURES["localizations"] = compare_localized.MEASURES
    DEFAULT_MEASURES["localizations"] = compare_localized.DEFAULT_MEASURES
if has("language"):
    from pipeline.studies.claims import compare_captions

    MEASURES["captions"] = compare_captions.MEASURES
    DEFAULT_MEASURES["captions"] = compare_captions.DEFAULT_MEASURES
COLUMNS = {name: column for of in MEASURES.values() for name, column in of.items()}


def compare(
    first: str | Path | Sequence[str | Path],
    second: str | Path | Sequence[str | Path],
    *,
    measure: str | None = None,
    dataset: str | Path | None = None,
    protocol: str = "all",
    captions_per_image: int | None = 5,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Compare a metric of two systems on the same images with a paired test.

    Parameters
    ----------
    first, second : str, Path or sequence of them. Files of each system, one per training (seed):
        embeddings, localizations, or captions in COCO's format.
    measure : str or None. A figure of `MEASURES`; None: rsum, R@1 of phrases, or BLEU-4.
    dataset : str, Path or None. Folder of the dataset with the reference captions.
    protocol, captions_per_image : see `pipeline.evaluate`; embeddings only.
    resamples : int. Number of bootstrap samples, at least 1.

    Returns
    -------
    Comparison
        The figure of each training, and the difference with its 95 % interval, p and verdict.

    Raises
    ------
    StudyError
        The files are of different kinds, or captions lack a dataset.
    UnknownName
        Unknown figure for their kind.
    EmbeddingsError, RegionError, LanguageError
        A file is missing or corrupt, or they differ in images, captions, phrases, true boxes or
        references; the first difference is named.

    Notes
    -----
    A paired bootstrap over the images, and with several seeds also over the trainings (Davison &
    Hinkley 1997, section 5.2.1). Small galleries are tested by flipping the signs of differences of
    pseudo-values (Efron & Tibshirani 1993, chapter 11), which ignores the variance between
    trainings. Three trainings estimate that variance poorly: consider an interval that barely
    excludes 0 as undecided.

    Examples
    --------
    >>> files = ["data/embeddings/mine/qian2018-baseline.h5"] * 2
    >>> comparison = pipeline.compare(*files, measure="text_to_image_r10")
    >>> comparison.margin, comparison.num_images
    (0.0, 4)
    """
    sides = [
        [Path(file) for file in values_of(side, (str, Path), "a file (path)")]
        for side in (first, second)
    ]
    kind = kind_of_files([file for side in sides for file in side])
    files = ComparedFiles(None if dataset is None else Path(dataset), protocol, captions_per_image)
    ours, theirs = ([files.read(file, kind) for file in side] for side in sides)
    return compare_outputs(ours, theirs, measure or DEFAULT_MEASURES[kind][0], resamples)


@dataclass(frozen=True)
class ComparedFiles:
    """Files to compare, each read once."""

    dataset: Path | None = None  # folder with reference captions and caption lengths
    protocol: str = "all"  # of embeddings, as in `pipeline.evaluate`
    captions_per_image: int | None = 5
    same_captions: bool = True  # whether two embedding files need the same captions
    _read: dict[Path, Outputs] = field(default_factory=dict, init=False, repr=False)

    def read(self, file: Path, kind: Kind) -> Outputs:
        """Return the contents of a file, read on first use."""
        if file not in self._read:
            self._read[file] = self._open(file, kind)
        return self._read[file]

    def _open(self, file: Path, kind: Kind) -> Any:
        if kind == "captions":
            if self._manifest is None:
                raise StudyError(
                    f"{file} holds captions, whose references are in a dataset; pass `dataset=...`"
                )
            return compare_captions.read_scored(file, self._manifest)
        if kind == "localizations":
            return compare_localized.read_phrases_found(file)
        return read_ranked(
            file,
            resolve_protocol(self.protocol, self.captions_per_image),
            same_captions=self.same_captions,
            lengths=None if self.dataset is None else self._lengths,
        )

    @cached_property
    def _manifest(self) -> Manifest | None:
        return None if self.dataset is None else read_manifest(self.dataset)

    def _lengths(self) -> Mapping[str, int]:
        """Return the word count of each caption of the dataset, by caption id."""
        entries = () if self._manifest is None else self._manifest.entries
        return {
            caption_id: len(TOKENIZERS["treebank"].tokenize(text))
            for entry in entries
            for caption_id, text in zip(entry.caption_ids, entry.captions, strict=True)
        }


def kind_of_measure(measure: str) -> Kind:
    """Return the kind of file for a figure."""
    for kind, measures in MEASURES.items():
        if measure in measures:
            return kind
    raise StudyError(f"unknown figure {measure!r}; {did_you_mean(measure, list(COLUMNS))}")


def kind_of_files(files: Sequence[Path]) -> Kind:
    """Return the kind of output of files."""
    kinds = {file: _kind_of(file) for file in files}
    if not kinds:
        raise StudyError("no file is named; name two to compare")
    if len(set(kinds.values())) > 1:
        contents = ", ".join(f"{file} has {kind}" for file, kind in kinds.items())
        raise StudyError(f"{contents}; only files of one kind can be compared")
    return next(iter(kinds.values()))


def _kind_of(file: Path) -> Kind:
    if file.suffix in (".json", ".jsonl"):
        return "captions"
    if not has("regions"):
        return "embeddings"
    try:
        # For a corrupt file, the reader of embeddings raises the right error.
        is_localized = not crash_of(_format_of, file) and _format_of(file) == LOCALIZATIONS
    except OSError:
        is_localized = False
    return "localizations" if is_localized else "embeddings"


def _format_of(file: Path) -> object:
    with h5py.File(file, "r") as opened:
        return opened.attrs.get("format")


def files_of(name: str, kind: Kind, layout: Layout) -> list[Path]:
    """Return the files of a kind for all seeds of an experiment, existing or not."""
    if kind == "embeddings":
        return layout.seeds(name)
    of = layout.localization if kind == "localizations" else layout.captions
    return seeds_of(of(name))


def kind_of_names(names: Sequence[str], layout: Layout) -> Kind:
    """Return the first kind of output that all experiments have; embeddings if none."""
    for kind in MEASURES:
        if all(files_of(name, kind, layout)[0].is_file() for name in names):
            return kind
    return "embeddings"
