"""One shard in the making: which of its rows are there, in which files, and which are missing.

Finished rows lie in *pieces*, small shards in the work folder that may hold any rows of the
shard, or in an older version of the shard of which only some rows are made again.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipeline.shards.file import ShardFile
from pipeline.shards.format import DamagedShard, FeatureHeader, OtherShard, RowBlock
from pipeline.shards.plan import ShardPlan, Span, runs
from pipeline.shards.write import write_shard

_COPY_BYTES = 1 << 24

Buffer = Sequence[tuple[int, RowBlock]]


class ShardInMaking:
    """A shard that is not finished, with what is there of it.

    Attributes
    ----------
    path : where it will lie once it is finished, in the work folder.
    span, ids : its rows.
    missing : spans of rows still to be computed, in order.
    older : the finished shard that has the rows that were never missing, if there is one.
    """

    def __init__(
        self,
        work: Path,
        header: FeatureHeader,
        plan: ShardPlan,
        shard: int,
        ids: Sequence[str],
        older: Path | None = None,
    ) -> None:
        """Describe a shard of which no row is missing yet; see `need`.

        Parameters
        ----------
        work : the work folder.
        header : of the feature set.
        plan : of the feature set.
        shard : number of the shard.
        ids : of all rows of the feature set.
        older : see above.
        """
        self.path = work / plan.file_name(shard)
        self.span = plan.span(shard)
        self.missing: tuple[Span, ...] = ()
        self.older = older
        self.ids = list(ids[self.span.start : self.span.stop])
        self._header = header
        self._shard, self._shards = shard, plan.shards_then(shard)
        self._pieces: dict[Path, np.ndarray] = {}
        self._needed = np.zeros(len(self.span), bool)

    @property
    def rows_in_pieces(self) -> int:
        """Number of rows that lie in pieces."""
        return sum(len(rows) for rows in self._pieces.values())

    def need(self, rows: np.ndarray) -> None:
        """Count rows (n,) int64 of the feature set, as missing unless a piece has them."""
        self._needed[rows - self.span.start] = True
        there = np.zeros(len(self.span), bool)
        for positions in self._pieces.values():
            there[positions] = True
        absent = np.flatnonzero(self._needed & ~there)
        self.missing = tuple(runs(absent + self.span.start))

    def find_pieces(self) -> list[str]:
        """Look for pieces that an earlier run left; remove damaged ones and say what they were."""
        damaged = []
        row = {one: number for number, one in enumerate(self.ids)}
        for path in piece_files(self.path.parent, self._shard):
            try:
                piece = ShardFile(path)
                piece.require(self._header, [one for one in piece.ids if one in row])
                piece.inspect(0)
                self._pieces[path] = np.array([row[one] for one in piece.ids])
            except (DamagedShard, OtherShard) as error:
                damaged.append(str(error))
                path.unlink()
        return damaged

    def arrived(self, rows: int) -> None:
        """Count the next `rows` rows of the first missing span as there, in the buffer."""
        first, *others = self.missing
        left = Span(first.start + rows, first.stop)
        self.missing = (left, *others) if len(left) else tuple(others)

    def put_down(self, buffer: Buffer) -> None:
        """Write a piece of the blocks of rows that came since the last one, in row order."""
        rows = self._positions(buffer)
        path = self.path.with_name(
            f"piece-{self._shard:05d}-{self.span.start + rows[0]:09d}-"
            f"{self.span.start + rows[-1] + 1:09d}.h5"
        )
        ids = [self.ids[row] for row in rows]
        write_shard(path, self._header, ids, (block for _, block in buffer), 0, 1)
        self._pieces[path] = rows

    def finish(self, buffer: Buffer, compress: bool) -> None:
        """Write the shard from the older one, the pieces and the buffer; remove the pieces."""
        blocks = self._blocks(buffer)
        write_shard(self.path, self._header, self.ids, blocks, self._shard, self._shards, compress)
        for path in piece_files(self.path.parent, self._shard):
            path.unlink()

    def _blocks(self, buffer: Buffer) -> Iterator[RowBlock]:
        """Yield the shard's rows in order, each from where it lies, some MiB at a time."""
        lying: list[tuple[Path | RowBlock, np.ndarray]] = [*self._pieces.items()]
        lying += [(block, self._positions([(first, block)])) for first, block in buffer]
        # -1 is the older shard, where every row lies in its own place.
        origin, place = np.full(len(self.span), -1), np.arange(len(self.span))
        for number, (_, rows) in enumerate(lying):
            needed = np.flatnonzero(self._needed[rows])
            origin[rows[needed]], place[rows[needed]] = number, needed
        # A shard can have hundreds of pieces, and an open one may hold a file descriptor.
        opened = lru_cache(maxsize=4)(ShardFile)
        step = max(1, _COPY_BYTES // max(1, self._header.row_bytes))
        cuts = [0, *(np.flatnonzero(np.diff(origin)) + 1), len(origin)]
        for start, stop in pairwise(cuts):
            source = lying[origin[start]][0] if origin[start] >= 0 else self.older
            for part in Span(start, stop).batches(step):
                held = source if isinstance(source, RowBlock) else opened(source)
                yield _take(held, place[part.start : part.stop])

    def _positions(self, buffer: Buffer) -> np.ndarray:
        rows = [np.arange(first, first + len(block)) for first, block in buffer]
        return np.concatenate(rows) - self.span.start


def _take(source: ShardFile | RowBlock, rows: np.ndarray) -> RowBlock:
    features = source.features[rows] if isinstance(source, RowBlock) else source.read_rows(rows)
    crc32 = None if source.source_crc32 is None else source.source_crc32[rows]
    return RowBlock(features, source.status[rows], tuple(source.errors[r] for r in rows), crc32)


def piece_files(work: Path, shard: int) -> list[Path]:
    """Return the pieces of a shard that lie in a work folder."""
    return sorted(work.glob(f"piece-{shard:05d}-*.h5"))
