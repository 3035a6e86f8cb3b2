"""Service of `pipeline serve --localize`: finds boxes in images by phrase."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.datasets.manifest import Manifest
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.query.embedded_dataset import Hit
from pipeline.web.serve.service import Answer, Query, page_of

if TYPE_CHECKING:
    from pipeline.regions.localization.region_searcher import RegionSearcher


class RegionService:
    """Thread-safe region searcher, as `SearchService`, but for boxes of phrases."""

    composable = filterable = False
    sides: tuple[str, ...] = ()
    no_uploads = "Boxes are found by phrases only"

    def __init__(self, searcher: "RegionSearcher", *, top: int = 12) -> None:
        self._searcher, self._top, self._busy = searcher, top, threading.Lock()
        models, localized = searcher.models, searcher.found
        self.experiment: str = models.head.experiment
        self.similarity: str = localized.similarity
        self.manifest: Manifest = searcher.manifest
        self.image_ids: Sequence[str] = localized.image_ids
        self.searched: str = (
            f"{len(localized.image_ids)} images and {len(localized.boxes)} boxes in them"
        )
        split = localized.provenance.get("split")
        self.split: str = f" of split {split}" if split else ""
        self.phrases: tuple[str, ...] = localized.phrase_texts
        models.keep_encoder(localized.phrase_texts)

    def answer(self, query: Query) -> Answer:
        if not query.sentence:
            raise EmbeddingsError("boxes are found by a phrase; enter one")
        if query.conditions:
            raise EmbeddingsError("conditions do not apply to boxes; omit them")
        notes = list[str]()
        with self._busy:
            (region_hits,) = self._searcher.by_phrases(
                [query.sentence], top=query.page * self._top + 1, log=notes.append
            )
        boxes = {hit.id: hit for hit in region_hits}
        all_hits = [Hit(h.rank, h.score, h.id, h.id, h.file, h.caption) for h in region_hits]
        hits, more = page_of(all_hits, query.page, self._top)
        return Answer(query, "images", hits, tuple(notes), boxes=boxes, more=more)
