"""Mean average precision over bootstrap samples of images."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from pipeline.regions.localization.localized import Localized, Scores
from pipeline.regions.localization.measures import NMS, by_head, claims, ranked_per_phrase
from pipeline.store.shards.row_keys import RowNumbers

_AT_ONCE = 1 << 20  # maximum number of true positives of all samples in memory


@dataclass(frozen=True)
class MeanAveragePrecision:
    """Mean average precision of phrases, per cent; an image drawn twice counts twice."""

    each: Scores
    """(1, photos with phrases), summed average precisions, each ranked in its image only."""
    ranking: "Ranking"
    truth_photo: RowNumbers
    truths: RowNumbers
    """`truth_photo`, `truths`: (pairs,) image and number of its true boxes, phrase by phrase."""
    truth_starts: RowNumbers  # (phrases,) start of each phrase's pairs

    @classmethod
    def of(cls, localized: Localized, threshold: float = NMS) -> "MeanAveragePrecision":
        """Rank the proposals by the head's embeddings, with suppression."""
        images = np.unique(localized.query_image)
        pairs, scores, right = [], [], []
        for image, phrase, values, truth, overlap in ranked_per_phrase(
            localized, by_head(localized), threshold
        ):
            if len(truth):
                pairs.append((phrase, image, len(truth)))
                scores.append(values)
                right.append(claims(overlap) if len(values) else np.zeros(0, bool))
        phrase_of_pair, image_of_pair, truths = np.array(pairs, np.int64).reshape(-1, 3).T
        photo = np.searchsorted(images, image_of_pair)
        pair = np.repeat(np.arange(len(pairs)), [len(values) for values in scores])
        score = np.concatenate([*scores, []])
        is_right = np.concatenate([*right, []]).astype(bool)

        alone = Ranking.of(pair, photo[pair], score, is_right, (len(pairs), len(images)))
        precisions = alone.precision_sums(np.ones((1, len(images))))[:, 0] / truths
        each: Scores = np.bincount(photo, precisions, len(images)).astype(np.float64)

        phrases, number = np.unique(phrase_of_pair, return_inverse=True)
        shape = len(phrases), len(images)
        ranking = Ranking.of(number[pair], photo[pair], score, is_right, shape)
        by_phrase = np.argsort(number, kind="stable")
        starts = np.searchsorted(number[by_phrase], np.arange(len(phrases)))
        return cls(each[None], ranking, photo[by_phrase], truths[by_phrase], starts)

    def figures(self, times: Scores) -> Scores:
        """Return the mean average precision (draws,) for counts (draws, photos) of each image."""
        step = max(1, _AT_ONCE // max(1, len(self.truths)))
        some = [self._figures(times[at : at + step]) for at in range(0, len(times), step)]
        return np.concatenate(some)

    def _figures(self, times: Scores) -> Scores:
        asked_for = times.T[self.truth_photo] * self.truths[:, None]
        truths = np.add.reduceat(asked_for, self.truth_starts, axis=0)
        sums = self.ranking.precision_sums(times)
        precisions = np.divide(sums, truths, out=np.zeros_like(sums), where=truths > 0)
        with np.errstate(invalid="ignore"):  # samples without a query
            means: Scores = precisions.sum(axis=0) / np.count_nonzero(truths, axis=0)
        return 100.0 * means


@dataclass(frozen=True)
class Ranking:
    """Detections ranked within groups, such as phrases, with what precision needs of them."""

    seen: csr_array
    """(true positives, photos), numbers of detections since the previous one of the group."""
    photo: RowNumbers  # (true positives,), by group, the best first
    starts: RowNumbers
    groups: RowNumbers
    """`starts`, `groups`: (groups with a true positive,) their starts, and the group's number."""
    number: int

    @classmethod
    def of(
        cls,
        group: RowNumbers,
        photo: RowNumbers,
        score: Scores,
        right: npt.NDArray[np.bool_],
        shape: tuple[int, int],
    ) -> "Ranking":
        """Rank detections (n,) by score, the first of equals first; `shape`: (groups, photos)."""
        order = np.lexsort((-score, group))
        rows = np.flatnonzero(right[order])
        # Index of the next true positive; detections after a group's last one are dropped.
        following: RowNumbers = np.cumsum(right[order]) - right[order]
        ranked = np.concatenate([group[order[rows]], [-1]])
        detections = order[ranked[following] == group[order]]
        following = following[ranked[following] == group[order]]
        seen = csr_array(
            (np.ones(len(detections)), (following, photo[detections])), shape=(len(rows), shape[1])
        )
        groups, starts = np.unique(ranked[:-1], return_index=True)
        return cls(seen, photo[order[rows]], starts, groups, shape[0])

    def precision_sums(self, times: Scores) -> Scores:
        """Return (groups, draws): sums of the interpolated precisions at the true positives."""
        sums = np.zeros((self.number, len(times)))
        if not len(self.groups):
            return sums
        hits = times.T[self.photo]
        hit_sums, seen = self._running(hits), self._running(self.seen @ times.T)
        precision = np.divide(hit_sums, seen, out=np.zeros_like(seen), where=seen > 0)
        # Precisions are at most 1: offsets of 2 per group keep one running maximum per group.
        level = 2.0 * np.repeat(np.arange(len(self.groups))[::-1], self._sizes)[:, None]
        falling = np.maximum.accumulate((precision + level)[::-1])[::-1] - level
        sums[self.groups] = np.add.reduceat(hits * falling, self.starts)
        return sums

    @property
    def _sizes(self) -> RowNumbers:
        return np.diff(self.starts, append=len(self.photo))

    def _running(self, values: Scores) -> Scores:
        """Return cumulative sums within each group, (true positives, draws)."""
        sums = np.cumsum(values, axis=0)
        before = np.where(self.starts[:, None] > 0, sums[self.starts - 1], 0.0)
        running: Scores = sums - np.repeat(before, self._sizes, axis=0)
        return running
