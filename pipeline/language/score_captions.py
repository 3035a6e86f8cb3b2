"""The job of `pipeline score`: a file of captions becomes a row of scores."""

import csv
import io
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.datasets.scenes.dataset import scenes_of
from pipeline.datasets.scenes.parse import parse
from pipeline.datasets.scenes.truth import FACETS, truth_of
from pipeline.datasets.scenes.world import Scene
from pipeline.datasets.splits import USUAL_NAMES
from pipeline.files import require_folder, write_json, write_text
from pipeline.hashing import sha256_of_file
from pipeline.heads.inputs.feature_rows import ArrayRows, FeatureRows
from pipeline.heads.trained_head import TrainedHead
from pipeline.language import LanguageError
from pipeline.language.captions_file import read_captions, read_provenance
from pipeline.language.scores.table import COLUMNS, TOKENIZER, score
from pipeline.progress import QUIET, Monitor
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.recall import recall_table
from pipeline.shards.feature_set import FeatureSet
from pipeline.text.encoders.base import CaptionEncoder, unknown_to_all

CAPTIONS_FILE, PROVENANCE_FILE = "captions.json", "provenance.json"
TRUTH_COLUMNS = {
    "parsed": "parsed",
    "true": "true",
    **{f"true_{facet}": facet for facet in FACETS},
    **{f"says_{facet}": f"says {facet}" for facet in FACETS},
}
RANKING_COLUMNS = {
    **{f"finds_image_r{k}": f"R@{k}" for k in (1, 5, 10)},
    "finds_image_median_rank": "medr",
}
HEADINGS = {**COLUMNS, **TRUTH_COLUMNS, **RANKING_COLUMNS}
"""Every column of `evaluate_captions`, and what it is called where people read it."""

Row = dict[str, float | int]


def evaluate_captions(
    file: str | Path,
    dataset: str | Path,
    out: str | Path,
    *,
    ranked_by: "RankingHead | None" = None,
    monitor: Monitor = QUIET,
) -> Row:
    """Score a file of captions and write `captions.json`, `captions.csv` and `provenance.json`.

    Parameters
    ----------
    file : anybody's captions in COCO's format; see `pipeline.language.captions_file`.
    dataset : folder of the dataset whose images they are of.
    out : folder of the three files.
    ranked_by : a head that ranks the images by each caption; None: no such figures.
    monitor : gets a line with counts and seconds.

    Returns
    -------
    dict
        The columns of `pipeline.language.scores.table.score`; of drawn scenes those of `truth`;
        with a head those of `RankingHead.figures`.

    Raises
    ------
    LanguageError
        The file is missing or damaged, or has an image that the dataset has not.
    """
    file, folder = Path(file), Path(out)
    require_folder(folder)
    started = time.monotonic()
    manifest = read_manifest(dataset)
    found = read_captions(file)
    entries = {entry.id: entry for entry in manifest.entries if entry.id in found}
    captions = {image: text for image, text in found.items() if text is not None}
    references = {image: entry.captions for image, entry in entries.items()}
    row: Row = dict(score(captions, references, training_captions(manifest, entries)))
    scenes = scenes_of(manifest, captions)
    if scenes is not None:
        row |= truth(captions, scenes)
    if ranked_by is not None:
        row |= ranked_by.figures(captions)
    write_json(folder / CAPTIONS_FILE, row)
    write_text(folder / "captions.csv", _csv(row))
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


def training_captions(manifest: Manifest, described: Mapping[str, ImageEntry]) -> list[str]:
    """Return the captions of the training split, but for those of images that are described."""
    (train,) = USUAL_NAMES["train"]
    return [
        text
        for entry in manifest.entries
        if entry.split == train and entry.id not in described
        for text in entry.captions
    ]


def truth(captions: Mapping[str, str], scenes: Mapping[str, Scene]) -> Row:
    """Compare captions with the scenes that they describe.

    Returns
    -------
    dict
        In per cent: `parsed`, the captions that the grammar has, and `true`, those of which
        everything is right, both of all captions; for each facet `true_<facet>`, those of which it
        is right, of the parsed captions that speak of it (without any, the column is missing), and
        `says_<facet>`, those that speak of it, of all that are parsed.
    """
    said = {image: parse(text) for image, text in captions.items()}
    found = {
        image: truth_of(parsed, scenes[image])
        for image, parsed in said.items()
        if parsed is not None
    }
    row: Row = {
        "parsed": 100 * len(found) / len(captions),
        "true": 100 * sum(t.true for t in found.values()) / len(captions),
    }
    for facet in FACETS:
        right = [t.right[facet] for t in found.values() if facet in t.right]
        if right:
            row[f"true_{facet}"] = 100 * fmean(right)
    for facet in FACETS:
        spoken = sum(facet in t.right for t in found.values())
        row[f"says_{facet}"] = 100 * spoken / len(found) if found else 0.0
    return row


class RankingHead:
    """A retrieval head that ranks images by captions.

    Attributes
    ----------
    head : trained.
    """

    def __init__(self, head: TrainedHead, encoder: CaptionEncoder, images: FeatureSet) -> None:
        """Take what embeds both sides.

        Parameters
        ----------
        head : trained.
        encoder : of the captions that the head was fitted on.
        images : features of the recipe that the head was fitted on.

        Raises
        ------
        HeadError
            The features are of another recipe.
        """
        head.inputs.images.require(images, "image")
        self.head, self._encoder, self._images = head, encoder, images

    def figures(self, captions: Mapping[str, str]) -> Row:
        """Return how well each caption finds its own image among all that are described.

        Parameters
        ----------
        captions : by image, one each.

        Returns
        -------
        dict
            `finds_image_r1`, `_r5`, `_r10` in per cent and `finds_image_median_rank`.

        Raises
        ------
        LanguageError
            A caption has no word that the encoder knows.
        """
        images, texts = list(captions), list(captions.values())
        if unknown := sorted(unknown_to_all(self._encoder.reports(texts).values())):
            raise LanguageError(
                f"the encoder {self._encoder.name!r} knows no word of {len(unknown)} captions, "
                f"first {[texts[at] for at in unknown[:5]]}; rank by a head of another encoder"
            )
        head = self.head.head
        embeddings = Embeddings(
            tuple(images),
            head.embed_images(FeatureRows(self._images, images)),
            tuple(f"{image}#0" for image in images),
            tuple(images),
            head.embed_captions(ArrayRows(np.asarray(self._encoder.encode(texts), np.float32))),
            head.similarity,
            {},
        )
        table = recall_table(embeddings)
        return {
            column: table[column.replace("finds_image", "text_to_image")]
            for column in RANKING_COLUMNS
        }


def markdown(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return rows of scores by name as a Markdown table, without what captions speak of."""
    columns = [
        name
        for name in HEADINGS
        if any(name in row for row in rows.values()) and not name.startswith("says_")
    ]
    lines = [
        "| captions | " + " | ".join(HEADINGS[name] for name in columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for name, row in rows.items():
        cells = (_cell(row[column]) if column in row else "" for column in columns)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(value: float | int) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def _csv(row: Row) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(row)
    writer.writerow(row.values())
    return stream.getvalue()
