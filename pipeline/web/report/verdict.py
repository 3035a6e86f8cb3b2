"""The best experiment of a table, its margin, and examples of its successes and failures."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.retrieval.ranking.bootstrap import RESAMPLES
from pipeline.retrieval.ranking.small_galleries import FEWEST_IMAGES
from pipeline.studies.significance.compare import rsum_of
from pipeline.studies.significance.paired import margins, percentile_interval
from pipeline.web.report.results import Result
from pipeline.web.report.retrievals import QueryResult


@dataclass(frozen=True)
class Verdict:
    """First and second row of a table by `rsum`."""

    winner: Result  # the row with the highest `rsum`; ties in table order
    second: Result | None  # the next row; None if only one row competes
    margin: float  # difference of their `rsum`; 0 without a second row
    interval: tuple[float, float] | None
    """95 % interval of the margin; None if their images differ, or a file is missing."""
    one_image: float  # decrease of `rsum` if one image and all of its sentences are no longer found
    competing: int  # number of competing rows
    set_apart: tuple[Result, ...]  # rows that do not compete, by `rsum`

    @property
    def enough(self) -> bool:
        """Whether there are enough images for a verdict."""
        return self.winner.recall["num_images"] >= FEWEST_IMAGES

    @property
    def decided(self) -> bool:
        """Whether the winner is better: no second row, or an interval above 0 or unknown."""
        if self.second is None:
            return True
        return self.enough and (self.interval is None or self.interval[0] > 0)

    @property
    def found(self) -> QueryResult | None:
        """A sentence whose image the winner ranks first; None if there is none."""
        return self.winner.retrieval.found_first if self.winner.retrieval else None

    @property
    def missed(self) -> QueryResult | None:
        """The sentence with the highest rank of its image by the winner; None if all rank first."""
        failures = self.winner.retrieval.sentence_failures if self.winner.retrieval else ()
        return failures[0] if failures else None


def verdict_of(results: Sequence[Result]) -> Verdict:
    """Compare the two best of at least one comparable experiments."""
    by_rsum = sorted(results, key=lambda result: -float(result.recall["rsum"]))
    # Rows whose encoders have seen the dataset compete among themselves only if all have.
    fair = [result for result in by_rsum if not result.seen]
    set_apart = tuple(result for result in by_rsum if result.seen) if fair else ()
    winner, *others = fair or by_rsum
    # 100 per cent in three R@K of two directions, over all images.
    one_image = 600.0 / float(winner.recall["num_images"])
    second = others[0] if others else None
    margin = float(winner.recall["rsum"]) - float((second or winner).recall["rsum"])
    interval = _interval(winner, second) if second else None
    return Verdict(winner, second, margin, interval, one_image, 1 + len(others), set_apart)


def _interval(winner: Result, second: Result) -> tuple[float, float] | None:
    a, b = winner.retrieval, second.retrieval
    if a is None or b is None or a.image_ids != b.image_ids:
        return None
    ours, theirs = ([rsum_of(gallery) for gallery in of.galleries] for of in (a, b))
    return percentile_interval(margins([ours], [theirs], RESAMPLES))
