"""A further feature set that receives rows while another one is computed from the same sources."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.builder.unfinished_shard import PENDING
from pipeline.store.jobs.feature_source import FeatureSource
from pipeline.store.packed import TextIndex
from pipeline.store.shards.format import RowBlock
from pipeline.store.shards.plan import Span
from pipeline.store.shards.row_keys import RowNumbers

S = TypeVar("S", bound=FeatureSource)


@dataclass(frozen=True)
class Sink(Generic[S]):
    """A further feature set: its source, which may share work with another, and its build."""

    # Rows are stored as finished rows in its work folder, from which its own run resumes.
    source: S
    build: ShardBuild  # entered

    @cached_property
    def _index(self) -> TextIndex:
        return TextIndex(self.build.ids)

    def pending(self, ids: Sequence[str]) -> RowNumbers:
        """Return the row of each id in this set, (n,); -1 where it is not pending."""
        rows = self._index.rows_of(ids, len(ids))
        here = np.flatnonzero(rows >= 0)
        rows[here[self.build.state[rows[here]] != PENDING]] = -1
        return rows

    def keep(self, ids: Sequence[str], block: RowBlock) -> None:
        """Append the pending rows of a block; `ids` are its row ids."""
        rows = self.pending(ids)
        for span in self._consecutive(rows):
            part = block if len(span) == len(block) else _part(block, span)
            self.build.append(int(rows[span.start]), part)

    def _consecutive(self, rows: RowNumbers) -> list[Span]:
        """Return the spans of a block whose rows are consecutive rows of one shard here."""
        here = np.flatnonzero(rows >= 0)
        if not len(here):
            return []
        shards = np.array([self.build.plan.shard_of(row) for row in rows[here].tolist()])
        follows = (np.diff(here) == 1) & (np.diff(rows[here]) == 1) & (np.diff(shards) == 0)
        parts = np.split(here, np.flatnonzero(~follows) + 1)
        return [Span(int(part[0]), int(part[-1]) + 1) for part in parts]


def _part(block: RowBlock, span: Span) -> RowBlock:
    """Return some rows of a block."""
    rows = slice(span.start, span.stop)
    crc32 = None if block.source_crc32 is None else block.source_crc32[rows]
    others = {name: values[rows] for name, values in block.other_sources.items()}
    return RowBlock(block.features[rows], block.status[rows], block.errors[rows], crc32, others)
