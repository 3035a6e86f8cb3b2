"""The job of `pipeline evaluate`: from an embedding file to a recall table with provenance."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.measures import COUNTS, DIRECTIONS, MEASURES
from pipeline.retrieval.quantised.codes import shortened
from pipeline.retrieval.ranking.bootstrap import RankedGallery, intervals
from pipeline.retrieval.ranking.galleries import first_captions, galleries
from pipeline.retrieval.ranking.protocols import Protocol, resolve_protocol
from pipeline.retrieval.ranking.ranks import Ranker, query_rows, rank_both_ways
from pipeline.retrieval.ranking.recall import Table, chance, table_of_ranks
from pipeline.retrieval.ranking.small_galleries import INTERVALS, is_small, table_of_gallery
from pipeline.retrieval.ranking.splits import of_split
from pipeline.retrieval.tables import PROVENANCE_FILE, RELEVANCE_FILE, write_recall
from pipeline.store.devices import AUTO, choose_device
from pipeline.store.files import require_folder, write_json
from pipeline.store.objects.block_cache import sha256_of
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.wording import counted

MAX_PAIRS = 200_000_000_000
"""Default limit of compared image-caption pairs."""

Relevance = Mapping[str, Mapping[str, Any]]
"""Further figures of a gallery as JSON values, by the name of their judgments."""

Judge = Callable[[Embeddings, Monitor], Relevance]
"""Ranks a gallery by judgments of relevance; `pipeline.judged_by` makes one from files."""

_PAIRS_A_SECOND = 1e8
"""On one core, for 32 dimensions; see bench/scale.py."""


@dataclass(frozen=True)
class Evaluation:
    """A recall table and its method."""

    # The columns of `recall_table`; with a protocol also `PROTOCOL_COLUMNS`, and `num_images`
    # and `num_captions` count all folds; below 1,000 images `SMALL_COLUMNS`.
    table: Table
    # the same up to the chance levels, of each fold; () with one gallery
    folds: tuple[Table, ...] = ()
    # The protocol, or `captions_per_image`, and the parameters of the intervals, as JSON
    # values.
    method: dict[str, Any] = field(default_factory=dict)
    relevance: Relevance = field(default_factory=dict)


def evaluate(
    embeddings: str | Path,
    out: str | Path | None = None,
    *,
    split: str | None = None,
    protocol: str | None = None,
    captions_per_image: int | None = 5,
    dim: int | None = None,
    relevance: Judge | None = None,
    device: str = AUTO,
    max_pairs: int = MAX_PAIRS,
    monitor: Monitor = QUIET,
) -> Evaluation:
    """Compute the recall table of an embedding file in both directions, and optionally write it.

    R@K is the percentage of queries whose rank, from 0, is below K; an image query is ranked by its
    best caption. Equal scores are ranked by id.

    Parameters
    ----------
    embeddings : str or Path. The file, from this project or others; docs/evaluation.md has the
        layout.
    out : str, Path or None. Folder of `recall.json`, `.csv` and `provenance.json`; None: no files.
    split : str or None. Split to rank in a file of several, or "all"; None: the only one.
    protocol : str or None. "all", "flickr8k", "flickr30k", "coco-5k", "coco-1k" (5 folds), "msvd",
        "trecvid-vtt", or "first-N" images. It checks the contents of the file, and adds mean
        inverted rank, chance levels and 95 % intervals. None ranks everything in one gallery, and
        adds the latter two only below 1,000 images.
    captions_per_image : int or None. Maximal number of captions per image, the first ones; None:
        all.
    dim : int or None. Number of leading dimensions to use, with cosine; None: all.
    relevance : callable or None. Function that evaluates relevance judgments, such as
        `pipeline.judged_by(files)`; its figures are also written to `relevance.json`.
    device : str. A torch device, such as "cuda"; "auto": the best of this machine. "cpu" needs no
        torch.
    max_pairs : int. Maximum number of image-caption pairs to compare.
    monitor : Monitor. Receives one line with counts and seconds.

    Returns
    -------
    Evaluation
        `table`, with `image_to_text_*` and `text_to_image_*` of `r1`, `r5`, `r10` (0-100),
        `median_rank`, `mean_rank` (from 1), `rsum` and counts; `folds`, `method` and `relevance`.

    Raises
    ------
    EmbeddingsError
        The file is missing or corrupt, has no captions, split or dimensions as requested, does not
        match the protocol, or would compare more than `max_pairs` pairs; or a similarity is not
        finite.
    UnknownName
        The protocol is unknown.
    DeviceError
        The device does not exist, lacks float64, or has too little memory.
    OutputError
        The folder is not writable.

    Examples
    --------
    >>> result = pipeline.evaluate("data/embeddings/mine/qian2018-baseline.h5", "tables")
    >>> result.table["num_images"], 0 <= result.table["rsum"] <= 600
    (4, True)
    """
    file, folder = Path(embeddings), None if out is None else Path(out)
    resolved = None if protocol is None else resolve_protocol(protocol, captions_per_image)
    if relevance is not None and resolved is not None and (resolved.folds > 1 or resolved.sets):
        raise EmbeddingsError(
            f"the protocol {resolved.name} has several galleries, but judgments apply to one; omit "
            "the protocol, or choose one of a single gallery, such as coco-5k"
        )
    if folder is not None:
        require_folder(folder)
    rank = _ranker(choose_device(device, monitor, float64=True))
    started = time.monotonic()
    space = _rankable(read_embeddings(file), file, split)
    if dim is not None:
        space = with_dim(space, dim)
    if silent := len(space.image_ids) - len(space.captioned):
        monitor.log(f"{silent} images without a caption are in the gallery, but not queries")
    _require_affordable(file, space, resolved, max_pairs)
    if resolved is None:
        evaluation = _evaluate_whole(space, captions_per_image, rank)
    else:
        evaluation = evaluate_protocol(space, resolved, rank)
    if relevance is not None:
        judged = relevance(
            first_captions(space, captions_per_image)
            if resolved is None
            else galleries(space, resolved)[0],
            monitor,
        )
        evaluation = replace(evaluation, relevance=judged)
    table = evaluation.table
    if folder is not None:
        provenance = {
            "embeddings_sha256": sha256_of(file),
            "similarity": space.similarity,
            "provenance": space.provenance,
            **evaluation.method,
            **({} if dim is None else {"dim": dim}),
            **({} if resolved is None else {"folds": list(evaluation.folds)}),
        }
        _write(folder, evaluation, provenance)
    monitor.log(
        f"{folder or file}: {table['num_images']} of {counted(len(space.image_ids), 'image')} and "
        f"{table['num_captions']} of {counted(len(space.caption_ids), 'caption')} ranked by "
        f"{space.similarity} in {time.monotonic() - started:.1f} s"
    )
    return evaluation


def _write(folder: Path, evaluation: Evaluation, provenance: dict[str, Any]) -> None:
    # A file of judgments is that of an earlier evaluation, whose table this one replaces.
    (folder / RELEVANCE_FILE).unlink(missing_ok=True)
    if evaluation.relevance:
        digest = provenance["embeddings_sha256"]
        judged = {"embeddings_sha256": digest, "judgments": evaluation.relevance}
        write_json(folder / RELEVANCE_FILE, judged)
    write_recall(folder, evaluation.table)
    write_json(folder / PROVENANCE_FILE, provenance)


def evaluate_protocol(
    embeddings: Embeddings, protocol: Protocol, rank: Ranker = rank_both_ways
) -> Evaluation:
    """Rank in both directions under a protocol, with chance levels and confidence intervals.

    Figures are means over folds, including median and mean rank (as in vsepp and SCAN) and `rsum`.
    `<direction>_r<K>_chance` is the expectation for a random order, `..._low` and `..._high` are
    the bounds of `pipeline.retrieval.ranking.bootstrap.intervals`.
    """
    tables: list[Table] = []
    ranked: list[RankedGallery] = []
    for gallery in galleries(embeddings, protocol):
        ranks = rank(gallery)
        table = table_of_ranks(gallery, ranks)
        for direction, of_direction in zip(DIRECTIONS, ranks, strict=True):
            table |= {m.name(direction): m.of(of_direction) for m in MEASURES if m.of_protocols}
        table |= chance(gallery, with_ranks=is_small(gallery))
        tables.append(table)
        ranked.append(RankedGallery(*ranks, query_rows(gallery)))
    table = tables[0] if len(tables) == 1 else _mean(tables)
    if protocol.sets:
        # All galleries are of the same images.
        table["num_images"] = tables[0]["num_images"]
    table |= {**intervals(ranked), "num_folds": len(tables)}
    return Evaluation(
        table,
        tuple(tables) if len(tables) > 1 else (),
        {"protocol": asdict(protocol), "intervals": INTERVALS},
    )


def with_dim(space: Embeddings, dim: int) -> Embeddings:
    """Return embeddings shortened to their first dimensions."""
    images, captions = (
        shortened(side, dim, space.similarity)
        for side in (space.image_embeddings, space.caption_embeddings)
    )
    return replace(space, image_embeddings=images, caption_embeddings=captions)


def _rankable(space: Embeddings, file: Path, split: str | None) -> Embeddings:
    """Return the split of a file to rank; raise if it has no captions."""
    try:
        space = of_split(space, split)
    except EmbeddingsError as error:
        raise EmbeddingsError(f"{file} {error}") from error
    if not space.caption_ids:
        raise EmbeddingsError(
            f"{file} has no captions: nothing to rank; embed images with captions, or search these "
            "with `pipeline search`"
        )
    return space


def _evaluate_whole(
    embeddings: Embeddings, captions_per_image: int | None, rank: Ranker
) -> Evaluation:
    """Rank in both directions in one gallery, without a protocol."""
    table = table_of_gallery(embeddings, captions_per_image, rank)
    method: dict[str, Any] = {"captions_per_image": captions_per_image}
    return Evaluation(
        table, method=method | ({"intervals": INTERVALS} if "rsum_low" in table else {})
    )


def _require_affordable(
    file: Path, space: Embeddings, protocol: Protocol | None, max_pairs: int
) -> None:
    """Raise if a table would compare too many pairs; the message states the cost."""
    images, captions = len(space.image_ids), len(space.caption_ids)
    share = 1.0
    if protocol is not None and protocol.images is not None:
        share = min(1.0, protocol.images / images)
    folds = protocol.folds if protocol is not None else 1
    pairs = int(images * share * captions * share * folds)
    if pairs > max_pairs:
        raise EmbeddingsError(
            f"{file}: exact ranks of {int(images * share):,} images and "
            f"{int(captions * share):,} captions compare {pairs:.1e} pairs, about "
            f"{pairs / _PAIRS_A_SECOND / 3600:.0f} hours of one core; use a subset, for example "
            "`protocol=first-5000`, or search single queries with `pipeline search --approximate`, "
            "which prints its recall of the exact hits; "
            f"`max_pairs={pairs + 1}` compares them anyway, and `device=cuda` is faster"
        )


def _mean(tables: list[Table]) -> Table:
    """Return the mean of every figure, and the sums of images and captions."""
    mean: Table = {name: float(np.mean([t[name] for t in tables])) for name in tables[0]}
    for name in COUNTS:
        of_folds = [int(t[name]) for t in tables]
        mean[name] = max(of_folds) if name == "captions_per_image" else sum(of_folds)
    return mean


def _ranker(device: str) -> Ranker:
    if device == "cpu":
        return rank_both_ways
    # Imported here: torch is slow to import, and numpy suffices on a CPU.
    from pipeline.retrieval.ranking.on_device import rank_on

    return rank_on(device)
