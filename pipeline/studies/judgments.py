"""Rank correlation between scores of captions and human ratings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from scipy.stats import kendalltau

from pipeline.datasets.manifest import read_manifest
from pipeline.language import LanguageError
from pipeline.language.scores.bleu import MAX_N, Words, bleu
from pipeline.language.scores.cider import cider_d
from pipeline.language.scores.rouge import rouge_l
from pipeline.language.scores.table import COLUMNS, TOKENIZER
from pipeline.store.files import require_folder, write_json
from pipeline.store.hashing import sha256_of_file
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.schema import SchemaError, decode_lines
from pipeline.store.wording import markdown_table

CORRELATIONS_FILE = "correlations.json"

Correlations = dict[str, dict[str, float | None]]
"""`tau_b` and `tau_c` by score; None for a single rating, or equal scores or ratings."""


class _Line(msgspec.Struct):
    image_id: int | str
    caption: str
    rating: float | list[float]


@dataclass(frozen=True)
class Rated:
    """A caption with its ratings."""

    image: str
    caption: str
    ratings: tuple[float, ...]  # one or several numbers; higher is better


def read_ratings(file: str | Path) -> list[Rated]:
    """Load JSON lines with `image_id`, `caption` and `rating`, a number or a list of numbers."""
    file = Path(file)
    try:
        lines = list(decode_lines(file.read_bytes().splitlines(), _Line))
    except OSError as error:
        raise LanguageError(f"{file}: {error.strerror}; name a file of rated captions") from error
    except SchemaError as error:
        raise LanguageError(
            f"{file}: {error}; expected JSON lines with image_id, caption and rating"
        ) from error
    captions = [
        Rated(
            str(line.image_id),
            line.caption,
            tuple(line.rating) if isinstance(line.rating, list) else (line.rating,),
        )
        for line in lines
    ]
    for number, rated in enumerate(captions, 1):
        if not rated.ratings or not all(map(math.isfinite, rated.ratings)):
            raise LanguageError(f"{file}: line {number} has the ratings {rated.ratings}")
    if not captions:
        raise LanguageError(f"{file} has no rated caption")
    return captions


def correlate(
    judgments: str | Path, dataset: str | Path, out: str | Path, *, monitor: Monitor = QUIET
) -> Correlations:
    """Correlate scores of captions with their ratings, and write Kendall's tau-b and tau-c."""
    file, folder = Path(judgments), Path(out)
    rated = read_ratings(file)
    require_folder(folder)
    manifest = read_manifest(dataset)
    texts = {entry.id: entry.captions for entry in manifest.entries}
    if unknown := [one.image for one in rated if one.image not in texts]:
        raise LanguageError(
            f"{file}: {len(unknown)} of {len(rated)} rated captions are of images that are not in "
            f"{manifest.name!r}, first {unknown[:5]}; name the dataset that was rated"
        )
    written = {
        image: [words for text in texts[image] if (words := TOKENIZER.tokenize(text))]
        for image in {one.image for one in rated}
    }
    if without := sorted(image for image, correlations in written.items() if not correlations):
        raise LanguageError(f"{len(without)} rated images have no reference, first {without[:5]}")
    scores = caption_scores(
        [TOKENIZER.tokenize(one.caption) for one in rated], [written[one.image] for one in rated]
    )
    # Each rating of a caption is a separate pair, as with the expert ratings of Flickr8k (Hodosh et
    # al. 2013; Anderson et al. 2016).
    repeats = [len(one.ratings) for one in rated]
    ratings = [rating for one in rated for rating in one.ratings]
    correlations = {
        name: _taus([v for v, n in zip(values, repeats, strict=True) for _ in range(n)], ratings)
        for name, values in scores.items()
    }
    about: dict[str, Any] = {
        "judgments_sha256": sha256_of_file(file),
        "dataset": manifest.name,
        "tokenizer": TOKENIZER.to_json(),
        "num_captions": len(rated),
        "num_ratings": len(ratings),
    }
    write_json(folder / CORRELATIONS_FILE, {"correlations": correlations, **about})
    monitor.log(f"{folder}: {len(rated)} captions with {len(ratings)} ratings")
    return correlations


def caption_scores(
    captions: Sequence[Words], references: Sequence[Sequence[Words]]
) -> dict[str, list[float]]:
    """Return each caption's scores: BLEU and ROUGE-L 0 to 1, CIDEr 0 to 10."""
    by_caption = [
        bleu([words], [others]) for words, others in zip(captions, references, strict=True)
    ]
    return {
        **{f"bleu_{n + 1}": [values[n] for values in by_caption] for n in range(MAX_N)},
        "rouge_l": rouge_l(captions, references),
        # An image counts once per caption, as in the common programs.
        "cider": cider_d(captions, references),
    }


def markdown(correlations: Correlations) -> str:
    """Return the correlations as a Markdown table."""
    rows = (
        [COLUMNS[name].title, *("–" if tau is None else f"{tau:.4f}" for tau in taus.values())]
        for name, taus in correlations.items()
    )
    return markdown_table(["score", "tau-b", "tau-c"], rows)


def _taus(scores: Sequence[float], ratings: Sequence[float]) -> dict[str, float | None]:
    if len(scores) < 2:
        return {"tau_b": None, "tau_c": None}
    taus = {}
    for variant in ("b", "c"):
        value = float(kendalltau(scores, ratings, variant=variant).statistic)
        taus[f"tau_{variant}"] = value if math.isfinite(value) else None
    return taus
