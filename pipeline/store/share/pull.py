"""Pulling: fetching a shared feature set, or some of its rows, into a local feature folder."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.convert.importers.id_files import read_ids
from pipeline.store.errors import WrongUsage
from pipeline.store.objects.locate import open_remote
from pipeline.store.objects.retry import RemoteError
from pipeline.store.packed import TextIndex
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import FeatureSet, MissingRows
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.row_keys import images_of_rows
from pipeline.store.share.cards.card import CARD_FILE
from pipeline.store.share.cards.croissant import CROISSANT_FILE
from pipeline.store.share.contents import CONTENTS_FILE, ENCODER_SUFFIX, Contents, SharedFile
from pipeline.store.share.download import bytes_moved_for, fetch_file
from pipeline.store.share.meter import Meter, Transfer
from pipeline.store.share.offer import Offer, read_offer
from pipeline.store.share.output import PullOutput
from pipeline.store.share.rows import (
    bytes_moved_for_rows,
    fetch_rows,
    fetch_sparse,
    is_valid_sparse,
    missing_features,
)


def pull(
    url: str | Path,
    out: str | Path,
    *,
    dataset: str | Path | None = None,
    split: str | None = None,
    ids: Sequence[str] | str | Path | None = None,
    recipe: str | None = None,
    monitor: Monitor = QUIET,
) -> Transfer:
    """Fetch a shared feature set or some of its rows.

    A whole set is copied file by file, including SHARDS.md, croissant.json and the encoder; the
    SHA-256 of each file is verified. Single rows need a set written by `push`: all bytes of the
    shards except the features are verified by SHA-256, then each of the rows by its CRC-32. The
    rows become a set with the same recipe, weights, dataset, software and encoder.

    Received files are stored in `.work` next to the output until they are complete; the same call
    resumes from them, also from another URL of the same set. A finished output is verified, and
    its corrupt shards are fetched again.

    Parameters
    ----------
    url : str or Path. A folder, `file://`, `http(s)://`, `dvc:REMOTE/PATH`, or any URL that fsspec
        can read.
    out : str or Path. Folder of the shards; the encoder is stored in `<out>.encoder`.
    dataset, split : str, Path or None. Prepared dataset and name of one of its splits: fetch only
        the rows of this split, in the set's order.
    ids : sequence of str, str, Path, or None. Fetch only these rows, in this order; or a file for
        `read_ids`.
    recipe : str or None. Name or hash of the expected recipe. None: any.
    monitor : Monitor. Receives the progress in bytes, and log lines of transfers and errors.

    Returns
    -------
    Transfer
        `moved` is the number of bytes fetched by this call.

    Raises
    ------
    RemoteError
        The server does not respond, has no feature set or one of another recipe, or does not
        support range requests; the set is inconsistent, or does not fit on the disk.
    DamagedShard, OtherShard, MissingRows
        Several downloads differ from the pushed file; the output holds other features or rows; the
        set lacks requested rows.

    Examples
    --------
    >>> pipeline.push("features/mine", "shared/mine").index.rows
    3
    >>> pipeline.pull("shared/mine", "features/pulled", ids=["b.jpg"]).index.rows
    1
    """
    if (dataset is None) != (split is None) or (split is not None and ids is not None):
        raise WrongUsage(
            "a split requires its dataset, and no ids: pass `split=NAME` and `dataset=DIR`, or "
            "`ids=FILE`"
        )
    requested = read_ids(ids) if isinstance(ids, str | Path) else ids
    manifest = read_manifest(dataset) if dataset is not None else None
    if manifest is not None:
        manifest.select(split)
    meter = Meter(monitor)
    offer = read_offer(open_remote(url), recipe, meter)
    if requested is not None:
        return _pull_rows(offer, Path(out), lambda _: list(requested), meter)
    if manifest is not None and split is not None:
        return _pull_rows(offer, Path(out), lambda ids: _ids_of_split(ids, manifest, split), meter)
    return _pull_whole(offer, Path(out), meter)


def _pull_whole(offer: Offer, out: Path, meter: Meter) -> Transfer:
    """Fetch the missing files, verify them together, and move them to the output."""
    output = PullOutput(out, offer, "whole")
    shards = offer.index.shards
    with output.pulling(), output.writing():
        output.take_over_shards(meter)
        waiting = [entry for entry in shards if not (output.work / entry.file).is_file()]
        others = output.missing_others(descriptions=True)
        total = sum(map(offer.size_of, waiting)) + sum(file.size for file in others.values())
        meter.log(
            f"{offer.remote.shown}: {offer.index.describe()}; {len(waiting)} of {len(shards)} "
            f"shards, {total / 1e6:.1f} of {offer.size / 1e6:.1f} MB, will be fetched"
        )
        if offer.contents is None:
            meter.log(f"no {CONTENTS_FILE}: only the shards and their index are pulled")
        output.require_room(total)
        with meter.expecting("pull", total):
            for entry in waiting:
                path, most = output.work / entry.file, offer.most_of(entry)
                size = offer.size_of(entry) if offer.contents else None
                fetch_file(offer.remote, path, entry.sha256, size, most, meter)
            _fetch_others(offer, others, meter)
        if waiting or others or not output.is_finished:
            output.open_work()
            output.publish()
        else:
            output.remove_work()
    return Transfer(offer.index, meter.moved, offer.size)


def _pull_rows(
    offer: Offer, out: Path, choose: Callable[[Sequence[str]], list[str]], meter: Meter
) -> Transfer:
    """Fetch the rows that `choose` returns from all ids of the set, and build a set of them."""
    if offer.contents is None:
        raise RemoteError(
            f"{offer.remote.shown} has no {CONTENTS_FILE}, which records the location of rows; "
            f"pull the whole set (about {offer.size / 1e6:,.1f} MB), or push it with "
            "`pipeline shards push`"
        )
    output = PullOutput(out, offer, "rows")
    try:
        with output.pulling():
            features = _fetch_sparse_set(offer, offer.contents, output, meter)
            ids = choose(features.ids)
            _require_rows(features, ids, offer)
            index = _build(offer, output, features, ids, meter)
            output.remove_work()
    except RemoteError as error:
        if error.cause != "no ranges":
            raise
        raise RemoteError(
            f"{error}; single rows cannot be fetched from there: pull the whole set "
            f"({offer.size / 1e6:,.1f} MB), or use another URL"
        ) from error
    return Transfer(index, meter.moved, offer.size)


def _fetch_sparse_set(
    offer: Offer, contents: Contents, output: PullOutput, meter: Meter
) -> FeatureSet:
    """Fetch all bytes of the shards except the features."""
    shards = [contents.shard(entry.file, entry.sha256) for entry in offer.index.shards]
    waiting = [shard for shard in shards if not is_valid_sparse(output.work / shard.file, shard)]
    total = sum(bytes_moved_for(shard.rest) for shard in waiting)
    meter.log(
        f"{offer.remote.shown}: {offer.index.describe()}, {offer.size / 1e6:.1f} MB; "
        f"{total / 1e6:.2f} MB of ids and checksums will be fetched first"
    )
    output.require_room(total)
    with meter.expecting("pull ids", total):
        for shard in waiting:
            fetch_sparse(offer.remote, output.work / shard.file, shard, meter)
    return output.open_work()


def _ids_of_split(ids: Sequence[str], dataset: Manifest, split: str) -> list[str]:
    """Return the row ids of a split's images, captions or regions, in the set's order."""
    entries = dataset.select(split)
    selected, images = {*entries.ids}, {*dataset.select().ids}
    chosen: list[str] = []
    with_rows: set[str] = set()
    kinds: set[str] = set()
    for row_id, (image, kind, _) in zip(ids, images_of_rows(ids, images), strict=True):
        if image in selected:
            chosen.append(row_id)
            with_rows.add(image)
            kinds.add(kind)
    lacking = [
        image
        for image, captions in zip(entries.ids, entries.num_captions.tolist(), strict=True)
        if image not in with_rows and ("" in kinds or ("#" in kinds and captions))
    ]
    if lacking or not chosen:
        lacking = lacking or [*entries.ids]
        raise MissingRows(
            f"the set has no row for {len(lacking)} of the {len(selected)} {dataset.media} of the "
            f"split {split!r} of {dataset.name!r}, first {lacking[:5]}; it holds {len(ids)} rows, "
            f"such as {ids[0]!r}: name the dataset and split of these features, or pass the ids"
        )
    return chosen


def _require_rows(features: FeatureSet, ids: Sequence[str], offer: Offer) -> None:
    rows = TextIndex(features.ids).rows_of(ids, len(ids))
    if absent := [ids[at] for at in np.flatnonzero(rows < 0).tolist()]:
        raise MissingRows(
            f"{offer.remote.shown} has no rows for {len(absent)} of {len(ids)} ids, first "
            f"{absent[:5]}; it holds {len(features)} rows of the dataset "
            f"{offer.index.header.dataset!r}, such as {features.ids[0]!r}"
        )


def _build(
    offer: Offer, output: PullOutput, features: FeatureSet, ids: list[str], meter: Meter
) -> FeatureIndex:
    """Fetch the rows and encoder files that the output lacks, and build the set."""
    header = offer.index.header
    software = [entry.created_by or header.created_by for entry in offer.index.shards]
    header = replace(header.renewed, created_by="; ".join(dict.fromkeys(software)))
    compress = ShardFile(features.folder / offer.index.shards[0].file).compressed
    inputs = ["pulled", offer.index.content_sha256]
    others = output.missing_others(descriptions=False)
    with ShardBuild(output.out, header, ids, None, compress, inputs) as build:
        pending = [i for span in build.pending() for i in build.ids[span.start : span.stop]]
        missing = missing_features(features, pending)
        size = bytes_moved_for_rows(missing) + sum(file.size for file in others.values())
        meter.log(
            f"{sum(map(len, missing.values()))} of {len(ids)} rows will be fetched: "
            f"{size / 1e6:.2f} MB"
        )
        output.require_room(size + len(pending) * header.row_bytes)
        with meter.expecting("pull rows", size):
            fetch_rows(offer.remote, missing, meter)
            _fetch_others(offer, others, meter)
        for span in build.pending():
            row = span.start
            for block in features.blocks(build.ids[row : span.stop], allow_failed=True):
                build.append(row, block)
                row += len(block)
        output.publish_encoder()
        return build.publish()


def _fetch_others(offer: Offer, others: dict[Path, SharedFile], meter: Meter) -> None:
    for path, file in others.items():
        path.parent.mkdir(exist_ok=True)
        here = file.file in (CARD_FILE, CROISSANT_FILE)
        remote = offer.remote if here else offer.remote.sibling(ENCODER_SUFFIX)
        fetch_file(remote, path, file.sha256, file.size, file.size, meter)
