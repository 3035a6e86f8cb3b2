"""Search for boxes by phrase in a localization file."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.regions import RegionError
from pipeline.regions.localization.localized import Localized, read_localized
from pipeline.store.errors import WrongUsage
from pipeline.store.one_or_many import texts_of
from pipeline.store.progress import QUIET, Monitor

if TYPE_CHECKING:
    from pipeline.retrieval.query.query_models import QueryModels


@dataclass(frozen=True)
class RegionHit:
    """An image with its box that is nearest to a phrase."""

    rank: int  # from 1
    score: float  # similarity of box and phrase; higher is nearer
    id: str
    file: Path
    box: tuple[float, float, float, float]  # x0 y0 x1 y1 in pixels, right and bottom exclusive
    size: tuple[int, int]  # width and height in pixels
    caption: str  # first caption of the image, or ""


class RegionSearcher:
    """Finds the images whose best box is nearest to a phrase.

    As `pipeline.Searcher`, but its results are boxes in images.

    Parameters
    ----------
    file : str or Path. Localization file of `pipeline localize`.
    dataset : str or Path. Folder of the dataset.
    head, encoder : str, Path or None. Folders of the head that computed the file, and of the
        encoder of the phrases; both are needed to search.
    monitor : Monitor. Receives log lines.

    Attributes
    ----------
    found : Localized. Contents of the localization file.
    file, folder : Path. Localization file, and folder of the dataset.

    Raises
    ------
    RegionError
        The file is missing, of another format, or damaged.

    Examples
    --------
    >>> searcher = pipeline.RegionSearcher(
    ...     "data/localizations/mine/phrases.h5", dataset="data/mine",
    ...     head="data/heads/mine/phrases", encoder="data/text/mine/phrases.encoder",
    ... )  # doctest: +SKIP
    >>> [(hit.id, hit.box) for hit in searcher.by_phrases("a red ball")]  # doctest: +SKIP
    """

    def __init__(
        self,
        file: str | Path,
        *,
        dataset: str | Path,
        head: str | Path | None = None,
        encoder: str | Path | None = None,
        monitor: Monitor = QUIET,
    ) -> None:
        self.file: Path = Path(file)
        self.folder: Path = Path(dataset)
        self.found: Localized = read_localized(file)
        self._head = None if head is None else Path(head)
        self._encoder = None if encoder is None else Path(encoder)
        self._monitor = monitor

    @cached_property
    def manifest(self) -> Manifest:
        """The dataset; it must have all images of the file."""
        manifest = read_manifest(self.folder)
        if missing := manifest.by_id.lacking(self.found.image_ids):
            raise RegionError(
                f"{self.folder} lacks {len(missing)} images of {self.file}, first "
                f"{missing[0]!r}; pass the dataset that was localized (`dataset=...`)"
            )
        return manifest

    @cached_property
    def models(self) -> "QueryModels":
        """Models that embed phrases."""
        # Here, since they import torch, which takes seconds.
        from pipeline.retrieval.query.query_models import QueryModels

        return QueryModels(
            self.found, self.file, head=self._head, encoder=self._encoder, weights=None
        )

    @overload  # a str is an Iterable[str] too, and the first that fits is meant
    def by_phrases(  # type: ignore[overload-overlap]
        self, phrases: str, *, top: int = ..., log: Callable[[str], None] | None = ...
    ) -> list[RegionHit]: ...
    @overload
    def by_phrases(
        self, phrases: Iterable[str], *, top: int = ..., log: Callable[[str], None] | None = ...
    ) -> list[list[RegionHit]]: ...
    def by_phrases(
        self,
        phrases: str | Iterable[str],
        *,
        top: int = 5,
        log: Callable[[str], None] | None = None,
    ) -> list[RegionHit] | list[list[RegionHit]]:
        """Return the images whose best box is nearest to a phrase, or to each of several phrases.

        Parameters
        ----------
        phrases : str or iterable of str. One phrase or several, each one line with at least one
            word.
        top : int. Number of images, at least 1.
        log : callable or None. Receives a line on unknown words; None: the monitor.

        Returns
        -------
        list of RegionHit
            For a single phrase, best first; ties are in image order, and within an image in the
            order of the proposals.
        list of list of RegionHit
            For several phrases.

        Raises
        ------
        WrongUsage
            `top` is below 1.
        RegionError, PipelineError
            A phrase cannot be embedded, or the models are not those of the file.
        """
        if top < 1:
            raise WrongUsage(f"`top={top}` is below 1; pass a positive number")
        texts, alone = texts_of(phrases, "phrase")
        if not texts:
            return []
        rows = self.models.embed_sentences(texts, log or self._monitor.log)
        images = [i for i in range(len(self.found.image_ids)) if self._has_boxes(i)]
        best = np.empty((len(images), len(texts)), np.int64)
        score = np.empty((len(images), len(texts)))
        for position, image in enumerate(images):
            scores = self.found.scores(image, rows)
            best[position], score[position] = scores.argmax(axis=0), scores.max(axis=0)
        order = np.argsort(-score, axis=0, kind="stable")[:top]
        hits = [
            [
                self._hit(
                    rank, images[position], int(best[position, column]), score[position, column]
                )
                for rank, position in enumerate(order[:, column].tolist(), 1)
            ]
            for column in range(len(texts))
        ]
        return hits[0] if alone else hits

    def _has_boxes(self, image: int) -> bool:
        rows = self.found.regions_of(image)
        return rows.stop > rows.start

    def _hit(self, rank: int, image: int, number: int, score: float) -> RegionHit:
        localized, image_id = self.found, self.found.image_ids[image]
        x0, y0, x1, y1 = localized.boxes[localized.regions_of(image)][number].tolist()
        width, height = localized.sizes[image].tolist()
        entry = self.manifest.by_id[image_id]
        return RegionHit(
            rank, float(score), image_id, self.manifest.image_root / entry.file,
            (x0, y0, x1, y1), (width, height), entry.first_caption,
        )  # fmt: skip
