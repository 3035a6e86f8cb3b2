"""The searched gallery: an embedding file together with its dataset, and the hits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pipeline.datasets.manifest import MANIFEST_FILE, Manifest, read_manifest
from pipeline.datasets.metadata import read_metadata
from pipeline.datasets.splits import ALL, splits_of
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.approximate import ApproximateIndex, open_index
from pipeline.retrieval.composition import ids_and_scores, require_composable
from pipeline.retrieval.csls import as_queries, is_corrected
from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.quantised.two_stage import nearest_stored
from pipeline.retrieval.query.conditions import Condition, Fields
from pipeline.retrieval.search import Gallery, SideName, nearest
from pipeline.retrieval.similarity import Vectors
from pipeline.store.hashing import sha256_of_file
from pipeline.store.packed import PackedTexts, TextIndex
from pipeline.store.shards.row_keys import RowNumbers

_MOST_CHOSEN = 16  # subsets whose rows are kept


@dataclass(frozen=True)
class Hit:
    """One result: an image or a sentence."""

    rank: int  # from 1
    score: float  # similarity to the query; higher is nearer
    id: str  # of the image or the caption
    image: str  # id of the image, or of the caption's image
    file: Path  # of that image
    caption: str  # the sentence; for an image its first caption, or ""
    split: str = ""  # of that image


class NothingFulfils(EmbeddingsError):
    """No searched image or sentence fulfils the conditions of a query."""


class EmbeddedDataset:
    """An embedding file and its dataset, searched by vectors."""

    def __init__(
        self, file: Path, folder: Path, log: Callable[[str], None], split: str | None = None
    ) -> None:
        """Read the embedding file; the dataset is read on first use."""
        self.file: Path = file
        self.folder: Path = folder
        self.split: str | None = split  # comma-separated; None: all splits in the file
        self._log = log
        # Quantised rows stay so, and are searched in two stages.
        self.space: Embeddings = read_embeddings(file, codes=True)
        self._galleries: dict[SideName, Gallery] = {}
        self._chosen: dict[tuple[SideName, tuple[str, ...]], RowNumbers] = {}
        self._dataset_ids: dict[SideName, _DatasetIds] = {}
        self._indexes: dict[SideName, ApproximateIndex] = {}

    @cached_property
    def manifest(self) -> Manifest:
        """The dataset; logs a line if it has changed since it was embedded."""
        manifest = read_manifest(self.folder)
        embedded = self.space.provenance.get("manifest_sha256")
        if embedded not in (None, sha256_of_file(self.folder / MANIFEST_FILE)):
            self._log(
                f"{self.folder} has changed since it was embedded; its captions may have, too"
            )
        return manifest

    @property
    def of_splits(self) -> str:
        """Searched splits for messages, such as " of split test"; "" if unknown."""
        split = self.split or self.space.provenance.get("split")
        return "" if not split else " of all splits" if split == ALL else f" of split {split}"

    @cached_property
    def fields(self) -> Fields:
        """Fields of the dataset's images that conditions may name."""
        return Fields(self.manifest.packed, read_metadata(self.folder))

    def gallery(self, side: SideName) -> Gallery:
        """Return one side of the file; the dataset must have all its ids."""
        if side not in self._galleries:
            gallery = Gallery.of(self.space, side)
            if unknown_ids := self._ids_of(side).without(gallery.ids):
                raise EmbeddingsError(
                    f"{len(unknown_ids)} of the {len(gallery.ids)} {side} of the embedding file "
                    f"are not in {self.folder / MANIFEST_FILE}, first {unknown_ids[:5]}; pass the "
                    "dataset that was embedded "
                    f"({self.space.provenance.get('dataset', 'its name is not recorded')}) with "
                    "`dataset=...`"
                )
            self._galleries[side] = gallery
        return self._galleries[side]

    def rows(self, side: SideName, where: Sequence[str] = ()) -> RowNumbers | None:
        """Return the row numbers of one side that are searched, (n,) int64; None: all."""
        gallery, key = self.gallery(side), (side, tuple(where))
        if self.split is None and not where:
            return None
        if key not in self._chosen:
            index = self._ids_of(side)
            mask = self.fields.matching(map(Condition.of, where))
            if self.split is not None:
                splits = splits_of(self.manifest, self.split)
                mask &= np.isin(self.manifest.packed.splits, splits)
            if len(self._chosen) >= _MOST_CHOSEN:
                self._chosen.pop(next(iter(self._chosen)))
            self._chosen[key] = np.flatnonzero(mask[index.images_of(gallery.ids)])
        return self._chosen[key]

    def ids(self, side: SideName, where: Sequence[str] = ()) -> Sequence[str]:
        """Return the ids of one side that are searched."""
        gallery, rows = self.gallery(side), self.rows(side, where)
        if rows is None:
            return gallery.ids
        return PackedTexts(gallery.ids[row] for row in rows.tolist())

    def choices(self) -> dict[str, tuple[str, ...]]:
        """Return the values of each field with few distinct values, over the searched images."""
        return self.fields.choices(self._ids_of("images").images_of(self.ids("images")))

    def stored(self, image_id: str) -> Vectors:
        """Return the stored embedding of an image, (1, dim) or (1, parts, dim) float32."""
        try:
            at = self.space.image_ids.index(image_id)
        except ValueError:
            raise EmbeddingsError(
                f"{image_id!r} is not the id of an image in {self.file} (ids there look like "
                f"{self.space.image_ids[0]!r})"
            ) from None
        row, provenance = self.space.image_embeddings[[at]], self.space.provenance
        if is_corrected(provenance):
            return as_queries(row[:, :-2], "images")
        if any(map(is_corrected, provenance.get("ensemble", ()))):
            raise EmbeddingsError(
                f"rows of {self.file} are corrected for hubs member by member, so that one cannot "
                f"be a query; pass the file of the image {image_id!r}"
            )
        return row

    def nearest(
        self,
        queries: Vectors,
        asking: SideName,
        of: SideName,
        top: int,
        leave_out: str | None = None,
        around_mean: int | None = None,
        approximate: bool = False,
        where: Sequence[str] = (),
    ) -> list[list[Hit]]:
        """Return the nearest items of each query, best first; ties are sorted by id.

        `queries`, (queries, dim) or (queries, parts, dim), are of the side `asking`, hits of `of`.
        The first `around_mean` hits are re-sorted around their mean before the best are returned.
        """
        if around_mean is not None:
            require_composable(self.space.similarity)
        gallery, among = self.gallery(of), self.rows(of, where)
        what = "sentences" if of == "captions" else "images"
        if where and among is not None and not len(among):
            raise NothingFulfils(
                f"no {what}{self.of_splits} fulfil {' and '.join(map(repr, where))}"
            )
        if not (len(gallery.ids) if among is None else len(among)):
            raise EmbeddingsError(
                f"{self.file} has no {what}{self.of_splits}, so none can be found; look for "
                f"{'images' if of == 'captions' else 'those of another split'}"
            )
        number = max(top, around_mean or 0) + (leave_out is not None)
        if approximate:
            hits = self._index(of).nearest(queries, asking, number, among)
        else:
            hits = (
                nearest_stored(gallery, queries, asking, number)
                if among is None
                else nearest(gallery, queries, asking, number, among=among)
            )
        index = self._ids_of(of)
        return [
            [
                Hit(rank, score, id, *index.about(id))
                for rank, (id, score) in enumerate(best[:top], 1)
            ]
            for best in ids_and_scores(hits, gallery, leave_out, around_mean)
        ]

    def _ids_of(self, side: SideName) -> "_DatasetIds":
        """Return the index of the dataset's images or captions by id."""
        if side not in self._dataset_ids:
            self._dataset_ids[side] = _DatasetIds(self.manifest, side)
        return self._dataset_ids[side]

    def _index(self, side: SideName) -> ApproximateIndex:
        if side not in self._indexes:
            self._indexes[side] = open_index(self.file, self.space, side, self._log)
        return self._indexes[side]


class _DatasetIds:
    """Images of a dataset, or its captions, by id."""

    def __init__(self, manifest: Manifest, side: SideName) -> None:
        self._manifest, self._entries = manifest, manifest.select()
        self._texts: Sequence[str] | None = None
        self._image_of_row = np.arange(len(self._entries))
        ids = self._entries.ids
        if side == "captions":
            captions = self._entries.captions
            ids, self._texts = captions.ids, captions.texts
            self._image_of_row = np.repeat(self._image_of_row, self._entries.num_captions)
        self._index = TextIndex(ids)

    def without(self, ids: Sequence[str]) -> list[str]:
        """Return the ids that are not in the dataset."""
        rows = self._index.rows_of(ids, len(ids))
        return [ids[at] for at in np.flatnonzero(rows < 0).tolist()]

    def images_of(self, ids: Sequence[str]) -> RowNumbers:
        """Return the entry number of the image of each known id, (ids,) int64."""
        return self._image_of_row[self._index.rows_of(ids, len(ids))]

    def about(self, row_id: str) -> tuple[str, Path, str, str]:
        """Return image id, file, text and split of a known id."""
        row = int(self._index.rows_of([row_id], 1)[0])
        entry = self._entries[int(self._image_of_row[row])]
        text = entry.first_caption if self._texts is None else self._texts[row]
        return entry.id, self._manifest.image_root / entry.file, text, entry.split
