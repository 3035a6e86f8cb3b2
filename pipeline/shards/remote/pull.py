"""Pulling: a shared feature set, or some of its rows, becomes a feature folder of this machine."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipeline.datasets.manifest import read_manifest
from pipeline.errors import WrongUsage
from pipeline.packed import TextIndex
from pipeline.progress import QUIET, Monitor
from pipeline.shards.card import CARD_FILE
from pipeline.shards.convert.importers.id_files import read_ids
from pipeline.shards.feature_set import FeatureSet, MissingRows
from pipeline.shards.index import FeatureIndex
from pipeline.shards.reader import ShardFile
from pipeline.shards.remote.contents import (
    CONTENTS_FILE,
    ENCODER_SUFFIX,
    Contents,
    SharedFile,
    Transfer,
)
from pipeline.shards.remote.download import FileDownload, Meter, bytes_moved_for
from pipeline.shards.remote.locate import open_remote
from pipeline.shards.remote.offer import Offer, read_offer
from pipeline.shards.remote.output import PullOutput
from pipeline.shards.remote.remote import ExchangeError, NoByteRanges, RemoteError
from pipeline.shards.remote.rows import (
    absent_rows,
    bytes_moved_for_rows,
    fetch_hollow,
    fetch_rows,
    is_sound_hollow,
    require_places,
)
from pipeline.shards.remote.selection import ids_of_split
from pipeline.shards.resume.feature_build import ShardBuild


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
    """Fetch a feature set that `push` or anybody has put somewhere, whole or some of its rows.

    The whole set comes file by file with the same bytes, SHARDS.md and encoder too; each file's
    SHA-256 is computed as it comes. Of a set that `push` has put there some rows can come alone:
    first all of the shards but their features, checked by SHA-256, then the features of these rows,
    each checked by its CRC-32. They become a set with the same recipe, weights, dataset and
    software; the encoder comes too, SHARDS.md does not.

    What has come lies in `.work` beside the output until all is there; the same call goes on
    with it, also from another place with the same set. A finished output is checked, and its
    damaged shards are fetched again.

    Parameters
    ----------
    url : a folder, `file://`, `http(s)://`, `dvc:REMOTE/PATH`, or any URL that fsspec can read.
    out : folder of the shards; the encoder goes to `<out>.encoder`.
    dataset, split : a prepared dataset and the name of one of its splits: only the rows that
        belong to it, in the set's order.
    ids : only these rows in this order, or a file as `read_ids` takes.
    recipe : name or hash of the recipe that is wanted. None: any.
    monitor : gets the progress in bytes, and lines of what is moved and of what goes wrong.

    Returns
    -------
    Transfer
        Its `moved` is what this call fetched.

    Raises
    ------
    OtherSet
        The set has another recipe than `recipe`.
    OtherShard
        The output holds other features or other rows.
    MissingRows
        The set does not have rows that are asked for.
    DamagedCopy
        What came, several times, is not what was pushed.
    RemoteError
        The other side does not answer, has no feature set, or does not serve ranges of bytes.
    ExchangeError
        The set is not what it says it is, or does not fit on the disk.
    DatasetError
        The dataset, or the split of it, is not there.
    WrongUsage
        A split without dataset, or together with ids.
    """
    if (dataset is None) != (split is None) or (split is not None and ids is not None):
        raise WrongUsage(
            "a split and its dataset are named together, and without ids: --split NAME --dataset "
            "DIR, or --ids FILE"
        )
    asked = read_ids(ids) if isinstance(ids, str | Path) else ids
    manifest = read_manifest(dataset) if dataset is not None else None
    if manifest is not None:
        manifest.select(split)
    meter = Meter(monitor.log)
    offer = read_offer(open_remote(url), recipe, meter)
    if asked is not None:
        return _pull_rows(offer, Path(out), lambda _: list(asked), meter, monitor)
    if manifest is not None and split is not None:
        return _pull_rows(
            offer, Path(out), lambda known: ids_of_split(known, manifest, split), meter, monitor
        )
    return _pull_whole(offer, Path(out), meter, monitor)


def _pull_whole(offer: Offer, out: Path, meter: Meter, monitor: Monitor) -> Transfer:
    """Fetch the files that are not there, check them together, and move them to the output."""
    output = PullOutput(out, offer, "whole")
    shards = offer.index.shards
    with output.pulling(), output.writing():
        with monitor.progress("check", "byte") as progress:
            output.take_over_shards(progress)
        waiting = [entry for entry in shards if not (output.work / entry.file).is_file()]
        others = output.missing_others(card=True)
        total = sum(map(offer.size_of, waiting)) + sum(file.size for file in others.values())
        monitor.log(
            f"{offer.remote.shown}: {offer.index.describe()}; {len(waiting)} of {len(shards)} "
            f"shards, {total / 1e6:.1f} of {offer.size / 1e6:.1f} MB, are to come"
        )
        if offer.contents is None:
            monitor.log(f"no {CONTENTS_FILE} there: only the shards and their index are pulled")
        output.require_room(total)
        done = 0
        with monitor.progress("pull", "byte") as progress:

            def show(size: int) -> None:
                progress(done + size, max(total, done + size), 0)

            for entry in waiting:
                path = output.work / entry.file
                size = offer.size_of(entry) if offer.contents else None
                download = FileDownload(
                    offer.remote, path, entry.sha256, size, offer.most_of(entry)
                )
                download.fetch(meter, show)
                done += path.stat().st_size
            _fetch_others(offer, others, meter, show)
        if waiting or others or not output.is_finished:
            output.open_work()
            output.publish()
        else:
            output.remove_work()
    return Transfer(offer.index, meter.moved, offer.size)


def _pull_rows(
    offer: Offer,
    out: Path,
    choose: Callable[[Sequence[str]], list[str]],
    meter: Meter,
    monitor: Monitor,
) -> Transfer:
    """Fetch some rows and build a set of them.

    Parameters
    ----------
    offer, out, meter, monitor : see `pull`.
    choose : gives the ids that are wanted, of all ids of the set.
    """
    if offer.contents is None:
        raise ExchangeError(
            f"{offer.remote.shown} has no {CONTENTS_FILE}, which says where rows lie; pull the "
            f"whole set (about {offer.size / 1e6:,.1f} MB), or have it pushed by `pipeline shards "
            "push`"
        )
    output = PullOutput(out, offer, "rows")
    try:
        with output.pulling():
            features = _fetch_hollow_set(offer, offer.contents, output, meter, monitor)
            ids = choose(features.ids)
            _require_rows(features, ids, offer)
            others = output.missing_others(card=False)
            index = _build(offer, output, features, ids, others, meter, monitor)
            output.remove_work()
    except NoByteRanges as error:
        raise RemoteError(
            f"{error}; rows cannot come alone from there: pull the whole set "
            f"({offer.size / 1e6:,.1f} MB), or from another place"
        ) from error
    return Transfer(index, meter.moved, offer.size)


def _fetch_hollow_set(
    offer: Offer, contents: Contents, output: PullOutput, meter: Meter, monitor: Monitor
) -> FeatureSet:
    """Fetch all of the shards but their features."""
    shards = [contents.shard(entry.file, entry.sha256) for entry in offer.index.shards]
    waiting = [shard for shard in shards if not is_sound_hollow(output.work / shard.file, shard)]
    total = sum(bytes_moved_for(shard.rest) for shard in waiting)
    monitor.log(
        f"{offer.remote.shown}: {offer.index.describe()}, {offer.size / 1e6:.1f} MB; "
        f"{total / 1e6:.2f} MB of ids and checksums are to come first"
    )
    output.require_room(total)
    done = 0
    with monitor.progress("pull ids", "byte") as progress:
        for shard in waiting:

            def show(moved: int, done: int = done) -> None:
                progress(done + moved, total, 0)

            fetch_hollow(offer.remote, output.work / shard.file, shard, meter, show)
            done += bytes_moved_for(shard.rest)
    features = output.open_work()
    require_places(offer.remote, [output.work / shard.file for shard in shards])
    return features


def _require_rows(features: FeatureSet, ids: Sequence[str], offer: Offer) -> None:
    rows = TextIndex(features.ids).rows_of(ids, len(ids))
    if absent := [ids[at] for at in np.flatnonzero(rows < 0).tolist()]:
        raise MissingRows(
            f"{offer.remote.shown} has no rows for {len(absent)} of {len(ids)} ids, first "
            f"{absent[:5]}; it holds {len(features)} rows of the dataset "
            f"{offer.index.header.dataset!r}, such as {features.ids[0]!r}"
        )


def _build(
    offer: Offer,
    output: PullOutput,
    features: FeatureSet,
    ids: list[str],
    others: dict[Path, SharedFile],
    meter: Meter,
    monitor: Monitor,
) -> FeatureIndex:
    """Fetch the rows that the output lacks, and the encoder, and build the set."""
    header = offer.index.header
    software = [entry.created_by or header.created_by for entry in offer.index.shards]
    header = replace(header, created_by="; ".join(dict.fromkeys(software)))
    compress = ShardFile(features.folder / offer.index.shards[0].file).compressed
    inputs = ["pulled", offer.index.content_sha256]
    with ShardBuild(output.out, header, ids, None, compress, inputs) as build:
        wanted = [i for span in build.pending() for i in build.ids[span.start : span.stop]]
        absent = absent_rows(features, wanted)
        size = bytes_moved_for_rows(absent)
        rest = sum(file.size for file in others.values())
        monitor.log(
            f"{sum(map(len, absent.values()))} of {len(ids)} rows are to come: "
            f"{(size + rest) / 1e6:.2f} MB"
        )
        output.require_room(size + rest + len(wanted) * header.row_bytes)
        with monitor.progress("pull rows", "byte") as progress:
            fetch_rows(offer.remote, absent, meter, progress)
        with monitor.progress("pull encoder", "byte") as progress:
            _fetch_others(offer, others, meter, lambda done: progress(done, max(done, rest), 0))
        for span in build.pending():
            row = span.start
            for block in features.blocks(build.ids[row : span.stop], allow_failed=True):
                build.append(row, block)
                row += len(block)
        output.publish_encoder()
        return build.publish()


def _fetch_others(
    offer: Offer, others: dict[Path, SharedFile], meter: Meter, show: Callable[[int], None]
) -> None:
    """Fetch files of the encoder, and the card."""
    done = 0
    for path, file in others.items():
        path.parent.mkdir(exist_ok=True)
        remote = offer.remote if file.file == CARD_FILE else offer.remote.beside(ENCODER_SUFFIX)

        def show_more(size: int, done: int = done) -> None:
            show(done + size)

        FileDownload(remote, path, file.sha256, file.size, file.size).fetch(meter, show_more)
        done += file.size
