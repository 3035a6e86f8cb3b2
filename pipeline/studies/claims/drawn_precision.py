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
    """Mean average precision in per cent over the phrases of the sampled images.

    An image that is sampled twice contributes its phrases and proposals twice. A phrase without a
    sampled image does not count. With each image sampled once, it is the mean of
    `pipeline.regions.localization.measures.average_precisions`.

    Attributes
    ----------
    each : (1, photos), summed average precisions of an image's phrases, ranked in this image only;
        only images with phrases.
    ranking : Ranking. Detections of each phrase.
    truth_photo, truths : (pairs,) image and number of its true boxes, phrase by phrase.
    truth_starts : (phrases,) start of each phrase's pairs.
    """

    each: Scores
    ranking: "Ranking"
    truth_photo: RowNumbers
    truths: RowNumbers
    truth_starts: RowNumbers

    @classmethod
    def of(cls, localized: Localized, threshold: float = NMS) -> "MeanAveragePrecision":
        """Rank the proposals by the head's embeddings, with suppression."""
        images = np.unique(localized.query_image)
        pairs, scores, right = [], [], []
        for image, phrase, own, truth, overlap in ranked_per_phrase(
            localized, by_head(localized), threshold
        ):
            if len(truth):
                pairs.append((phrase, image, len(truth)))
                scores.append(own)
                right.append(claims(overlap) if len(own) else np.zeros(0, bool))
        phrase_of_pair, image_of_pair, truths = np.array(pairs, np.int64).reshape(-1, 3).T
        photo = np.searchsorted(images, image_of_pair)
        pair = np.repeat(np.arange(len(pairs)), [len(own) for own in scores])
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
        """See `pipeline.studies.significance.paired.Part.figures`."""
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
    """Detections of several groups, such as phrases, ranked within each group.

    Interpolated precision is needed only at the true positives, which are few.

    Attributes
    ----------
    seen : (true positives, photos), number of each image's detections after the previous true
        positive of the group and up to this one.
    photo : (true positives,), group by group, the best first.
    starts, groups : (groups with a true positive,) their starts, and the group's number.
    number : int. Number of groups.
    """

    seen: csr_array
    photo: RowNumbers
    starts: RowNumbers
    groups: RowNumbers
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
        """Rank detections by their scores; the first one wins ties.

        Parameters
        ----------
        group, photo, score, right : (detections,)
        shape : tuple of 2 int. Number of groups, and of images.
        """
        order = np.lexsort((-score, group))
        rows = np.flatnonzero(right[order])
        # Index of the next true positive; detections after a group's last one are dropped.
        following: RowNumbers = np.cumsum(right[order]) - right[order]
        ranked = np.concatenate([group[order[rows]], [-1]])
        kept = order[ranked[following] == group[order]]
        following = following[ranked[following] == group[order]]
        seen = csr_array(
            (np.ones(len(kept)), (following, photo[kept])), shape=(len(rows), shape[1])
        )
        groups, starts = np.unique(ranked[:-1], return_index=True)
        return cls(seen, photo[order[rows]], starts, groups, shape[0])

    def precision_sums(self, times: Scores) -> Scores:
        """Return the sum of the interpolated precisions at the true positives of each group.

        See `pipeline.regions.localization.measures.average_precision`.

        Parameters
        ----------
        times : (draws, photos), multiplicity of each image in each sample.

        Returns
        -------
        (groups, draws)
        """
        sums = np.zeros((self.number, len(times)))
        if not len(self.groups):
            return sums
        hits = times.T[self.photo]
        found, seen = self._running(hits), self._running(self.seen @ times.T)
        precision = np.divide(found, seen, out=np.zeros_like(seen), where=seen > 0)
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
