"""What the page of `pipeline serve --regions` asks: phrases, answered with boxes in pictures."""

import threading

from pipeline.pages.marked import Mark, boxes_over
from pipeline.retrieval.search import SearchError
from pipeline.search.embedded_dataset import Hit
from pipeline.search.region_searcher import RegionSearcher
from pipeline.search.serve.service import Answer, Query


class RegionService:
    """A searcher of regions for several threads, with what the page shows of it.

    Attributes
    ----------
    experiment, similarity, manifest, image_ids, split, searched, composable, filterable, sides,
        no_uploads : as of `pipeline.search.serve.service.SearchService`; only phrases can be asked.
    phrases : that were localized.
    """

    composable = filterable = False
    sides: tuple[str, ...] = ()
    no_uploads = "With boxes, only phrases can be asked"

    def __init__(self, searcher: RegionSearcher, *, top: int = 12) -> None:
        """Load the models, so that no query waits for them.

        Parameters
        ----------
        searcher : not to be used elsewhere.
        top : how many images a phrase gets, at least 1.

        Raises
        ------
        SearchError, PipelineError
            Head, encoder and dataset are not those of the localization file.
        """
        self._searcher, self._top, self._busy = searcher, top, threading.Lock()
        models, found = searcher.models, searcher.found
        self.experiment, self.similarity = models.head.experiment, found.similarity
        self.manifest, self.image_ids = searcher.manifest, found.image_ids
        self.searched: str = f"{len(found.image_ids)} images and {len(found.boxes)} boxes in them"
        split = found.provenance.get("split")
        self.split: str = f" of split {split}" if split else ""
        self.phrases: tuple[str, ...] = found.phrase_texts
        models.keep_encoder(found.phrase_texts)

    def answer(self, query: Query) -> Answer:
        """Answer a query.

        Raises
        ------
        SearchError
            It is no phrase, or has no known word.
        """
        if not query.sentence:
            raise SearchError("boxes are found by a phrase; ask with one")
        if query.conditions:
            raise SearchError("boxes are not found by conditions; leave them out")
        notes = list[str]()
        with self._busy:
            (hits,) = self._searcher.by_phrases([query.sentence], top=self._top, log=notes.append)
        return Answer(
            query,
            "images",
            tuple(Hit(h.rank, h.score, h.id, h.id, h.file, h.caption) for h in hits),
            tuple(notes),
            boxes={h.id: (h.size, boxes_over(h.size, [Mark(h.box)])) for h in hits},
        )
