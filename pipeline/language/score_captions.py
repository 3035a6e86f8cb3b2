"""The job of `pipeline score`: score a file of captions as one row of a table."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.datasets.entries import ImageEntry, PackedEntries
from pipeline.datasets.image_truth import CaptionTruth
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.datasets.splits import USUAL_NAMES
from pipeline.heads.inputs.feature_rows import ArrayRows, FeatureRows
from pipeline.heads.inputs.pairs import with_features
from pipeline.heads.trained_head import TrainedHead
from pipeline.language import LanguageError
from pipeline.language.captioning.captions_file import read_captions, read_provenance
from pipeline.language.scores.table import COLUMNS, TOKENIZER, score, score_truth, truth_columns
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.measures import IN_TABLES
from pipeline.retrieval.ranking.ranks import rank_both_ways
from pipeline.retrieval.ranking.recall import measures
from pipeline.retrieval.similarity import unit_rows
from pipeline.store.files import require_folder, write_json, write_text
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.wording import counted, csv_text, markdown_table
from pipeline.text.encoders.base import CaptionEncoder, unknown_to_all

CAPTIONS_FILE, PROVENANCE_FILE = "captions.json", "provenance.json"
RANKING_COLUMNS = {
    f"finds_image_{measure.column.name}": measure.column.title
    for measure in IN_TABLES
    if measure.in_report
}
Row = dict[str, float | int]

_TEXTS = 512  # per embedding call


def evaluate_captions(
    file: str | Path,
    dataset: str | Path,
    out: str | Path,
    *,
    truth: CaptionTruth | None = None,
    ranked_by: "RankingHead | None" = None,
    monitor: Monitor = QUIET,
) -> Row:
    """Score a file of captions; write `captions.json`, `captions.csv` and `provenance.json`."""
    file, folder = Path(file), Path(out)
    require_folder(folder)
    started = time.monotonic()
    manifest = read_manifest(dataset)
    results = read_captions(file)
    entries = {entry.id: entry for entry in manifest.entries if entry.id in results}
    captions = {image: text for image, text in results.items() if text is not None}
    references = {image: entry.captions for image, entry in entries.items()}
    row: Row = dict(score(captions, references, training_captions(manifest, entries)))
    if truth is not None:
        row |= score_truth(captions, truth)
    if ranked_by is not None:
        row |= ranked_by.figures(captions, monitor)
    if len(captions) == 1:
        monitor.log("one image is scored: CIDEr weights words by other images, and is 0")
    write_json(folder / CAPTIONS_FILE, row)
    write_text(folder / "captions.csv", csv_text([row, row.values()]))
    write_json(
        folder / PROVENANCE_FILE,
        {
            "captions_sha256": sha256_of_file(file),
            "dataset": manifest.name,
            "tokenizer": TOKENIZER.to_json(),
            "ranked_by": None if ranked_by is None else ranked_by.head.provenance,
            "provenance": read_provenance(file),
        },
    )
    seconds = time.monotonic() - started
    monitor.log(f"{folder}: captions of {len(captions)} images scored in {seconds:.1f} s")
    return row


def headings(truth: CaptionTruth | None) -> dict[str, str]:
    """Return every column of `evaluate_captions` with its heading."""
    scores = {name: column.title for name, column in COLUMNS.items()}
    return {**scores, **truth_columns(truth), **RANKING_COLUMNS}


def training_captions(manifest: Manifest, described: Mapping[str, ImageEntry]) -> list[str]:
    """Return the captions of the training split, except those of described images."""
    (train,) = USUAL_NAMES["train"]
    return [
        text
        for entry in manifest.entries
        if entry.split == train and entry.id not in described
        for text in entry.captions
    ]


class RankingHead:
    """A retrieval head that ranks images by captions."""

    def __init__(self, head: TrainedHead, encoder: CaptionEncoder, images: FeatureSet) -> None:
        """Store a head with its caption encoder, and features of its image recipe."""
        head.inputs.images.require(images, "image")
        self.head: TrainedHead = head
        self._encoder, self._images = encoder, images

    def cosines(self, images: Sequence[str], texts: Sequence[Sequence[str]]) -> list[list[float]]:
        """Return the cosines, -1 to 1, of each image, by id, with its texts."""
        if self.head.head.similarity != "cosine":
            raise LanguageError(
                f"{self.head.experiment} compares by {self.head.head.similarity}; use an "
                "experiment with cosine similarity"
            )
        # Each text once: candidates repeat across images.
        every = sorted({text for candidates in texts for text in candidates})
        at = {text: row for row, text in enumerate(every)}
        embedded = np.concatenate(
            [self._embedded(every[i : i + _TEXTS]) for i in range(0, len(every), _TEXTS)]
        )
        return [
            (embedded[[at[text] for text in candidates]] @ point).tolist()
            for point, candidates in zip(self.points(images), texts, strict=True)
        ]

    def with_features(self, entries: PackedEntries) -> PackedEntries:
        """Return the images whose features have not failed."""
        return with_features(entries, self._images)

    def points(self, images: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the unit vectors (n, dim) of images by id."""
        return unit_rows(self.head.head.embed_images(FeatureRows(self._images, list(images))))

    def _embedded(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the unit vectors of texts; a text without a known word is zero."""
        rows = np.asarray(self._encoder.encode(texts), np.float32)
        points = unit_rows(self.head.head.embed_captions(ArrayRows(rows)))
        points[[*unknown_to_all(self._encoder.reports(texts).values())]] = 0
        return points

    def figures(self, captions: Mapping[str, str], monitor: Monitor = QUIET) -> Row:
        """Return `RANKING_COLUMNS`: how well captions, by image id, retrieve their images."""
        unknown = set(unknown_to_all(self._encoder.reports(list(captions.values())).values()))
        ranked = {
            image: text
            for at, (image, text) in enumerate(captions.items())
            if text and at not in unknown
        }
        lost = [image for image in captions if image not in ranked]
        if not ranked:
            raise LanguageError(
                f"the encoder {self._encoder.name!r} knows no word of {len(captions)} captions, "
                f"first {list(captions.values())[:5]}; rank by a head with another encoder"
            )
        if lost:
            monitor.log(
                f"{counted(len(lost), 'caption has', 'captions have')} no word that the encoder "
                f"{self._encoder.name!r} knows and find no image, first of {lost[:5]}"
            )
        head = self.head.head
        embeddings = Embeddings(
            tuple(captions),
            head.embed_images(FeatureRows(self._images, list(captions))),
            tuple(f"{image}#0" for image in ranked),
            tuple(ranked),
            head.embed_captions(
                ArrayRows(np.asarray(self._encoder.encode(list(ranked.values())), np.float32))
            ),
            head.similarity,
            {},
        )
        _, ranks = rank_both_ways(embeddings)
        # A caption without a known word ranks its image last.
        table = measures(np.concatenate([ranks, np.full(len(lost), len(captions) - 1)]))
        return {column: table[column.removeprefix("finds_image_")] for column in RANKING_COLUMNS}


def markdown(rows: Mapping[str, Mapping[str, Any]], truth: CaptionTruth | None = None) -> str:
    """Return rows of scores by name as a Markdown table, without the columns of mentions."""
    columns = {
        name: heading
        for name, heading in headings(truth).items()
        if any(name in row for row in rows.values()) and not name.startswith("says_")
    }
    return markdown_table(
        ["captions", *columns.values()],
        [
            [name, *(_cell(row[column]) if column in row else "" for column in columns)]
            for name, row in rows.items()
        ],
    )


def _cell(value: float | int) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"
