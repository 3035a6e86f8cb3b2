"""Joint test of a list of claims on existing outputs, with Holm's correction."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.experiments.layout import Layout
from pipeline.store.errors import PipelineError
from pipeline.store.progress import QUIET, Monitor
from pipeline.studies import StudyError
from pipeline.studies.claims.claim import Claim, Figure
from pipeline.studies.claims.compare import (
    COLUMNS,
    ComparedFiles,
    Kind,
    files_of,
    kind_of_measure,
)
from pipeline.studies.significance.paired import RESAMPLES, Comparison, compare_outputs

LEVEL = 0.05
"""Significance level for the adjusted p value."""

_MADE_BY = {
    "embeddings": "`pipeline run {name} --dataset {dataset}`",
    "localizations": "`pipeline localize {name} --dataset {dataset} --method METHOD`",
    "captions": "`pipeline caption --experiment {name} --dataset {dataset} --split SPLIT`",
}


@dataclass(frozen=True)
class Judged:
    """Result of one figure of a claim."""

    claim: Claim
    figure: Figure
    comparison: Comparison | None = None  # result of the test; None if it is impossible
    adjusted_p: float | None = None
    """p value adjusted by Holm's method over all comparisons of the list."""
    adjusted_p_is_bound: bool = False
    """Whether `adjusted_p` is an upper bound, as it rests on p values that are."""
    reason: str = ""  # why there is no comparison, or ""

    @property
    def outcome(self) -> str:
        """Short description of the result."""
        test, p = self.comparison, self.adjusted_p
        level = self.claim.says == "level"
        if test is None or p is None:
            return "not judged"
        if test.too_few:
            return "too few images"
        if p >= LEVEL:
            return "no difference found" if level else "undecided"
        if level:
            return "the two differ"
        lower_is_better = COLUMNS[self.figure.measure].lower_is_better
        better = test.margin < 0 if lower_is_better else test.margin > 0
        return "holds" if better else "the opposite"

    @property
    def one_training(self) -> bool:
        """Whether a side has one training, so the interval ignores the variance over seeds."""
        comparison = self.comparison
        return comparison is not None and min(len(comparison.first), len(comparison.second)) == 1


def judge(
    claims: Sequence[Claim],
    dataset: str | Path | None = None,
    *,
    root: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> list[Judged]:
    """Test each figure of each claim on existing outputs, as `compare` does, but all together.

    p values are adjusted by Holm's method over all figures of the list.

    Parameters
    ----------
    claims : sequence of Claim. See `pipeline.read_claims`.
    dataset : str, Path or None. Folder of the experiments' dataset; None: all systems are files.
    root : str, Path or None. Output folder of `pipeline.run`; None: see `Layout`.
    monitor : Monitor. Receives progress in tests.

    Returns
    -------
    list of Judged
        Every figure of every claim, in order. An untestable one has a reason.

    Examples
    --------
    >>> judged = pipeline.judge(pipeline.read_claims("papers"), "data/mine")
    >>> judged[0].reason
    '...'
    """
    tests = [(claim, figure) for claim in claims for figure in claim.figures]
    # Enough samples that a single claim can be significant after the correction.
    resamples = max(RESAMPLES, 200 * len(tests))
    files: dict[tuple[Layout | None, str, int, bool], ComparedFiles] = {}
    judged: list[Judged] = []
    with monitor.progress("compare", "test") as progress:
        for claim, figure in tests:
            of = claim.dataset or dataset
            layout = None if of is None else Layout(of, root)
            read_by = layout, claim.protocol, claim.captions_per_image, claim.same_captions
            if read_by not in files:
                files[read_by] = ComparedFiles(
                    None if layout is None else layout.dataset,
                    claim.protocol,
                    claim.captions_per_image or None,
                    claim.same_captions,
                )
            try:
                comparison = _compare(claim, figure, layout, files[read_by], resamples)
            except PipelineError as error:
                judged.append(Judged(claim, figure, reason=str(error)))
            else:
                judged.append(Judged(claim, figure, comparison))
            progress(len(judged), len(tests), sum(bool(one.reason) for one in judged))
    return _corrected(judged)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values (n,) adjusted by Holm's method (1979), whatever their dependence."""
    # The k-th smallest of n, from 0, is multiplied by n - k; the results are made monotonic.
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = least
    return adjusted


def holm_with_bounds(p_values: Sequence[float], bounds: Sequence[bool]) -> list[tuple[float, bool]]:
    """Return p values adjusted as by `holm`, and which are upper bounds since some of p are."""
    # Holm's p never falls if a p rises: it is exact if it is the same with bounds lowered to 0.
    lowest = holm([0.0 if is_bound else p for p, is_bound in zip(p_values, bounds, strict=True)])
    return [(p, low < p) for p, low in zip(holm(p_values), lowest, strict=True)]


def _corrected(judged: Sequence[Judged]) -> list[Judged]:
    tests = [of.comparison for of in judged if of.comparison]
    adjusted = iter(holm_with_bounds([t.p for t in tests], [t.p_is_bound for t in tests]))
    return [
        Judged(of.claim, of.figure, of.comparison, *next(adjusted)) if of.comparison else of
        for of in judged
    ]


def _compare(
    claim: Claim, figure: Figure, layout: Layout | None, files: ComparedFiles, resamples: int
) -> Comparison:
    kind = kind_of_measure(figure.measure)
    sides = [_files(side, claim, kind, layout) for side in (claim.first, claim.second)]
    ours, theirs = ([files.read(file, kind) for file in side] for side in sides)
    return compare_outputs(ours, theirs, figure.measure, resamples)


def _files(
    side: str | tuple[str, ...], claim: Claim, kind: Kind, layout: Layout | None
) -> list[Path]:
    """Return the files of one side; raise if one is missing."""
    files: list[Path] = []
    for name in (side,) if isinstance(side, str) else side:
        if Path(name).suffix in (".h5", ".json", ".jsonl"):
            paths = [Path(name)]
        elif layout is None:
            raise StudyError(f"{name} is the name of an experiment; pass its `dataset=...`")
        else:
            paths = files_of(name, kind, layout)
        if not paths[0].is_file():
            raise StudyError(f"{paths[0]} not found{_made_by(name, claim, kind, layout)}")
        files += paths
    return files


def _made_by(name: str, claim: Claim, kind: Kind, layout: Layout | None) -> str:
    """Return the end of a message: the commands that compute an output of an experiment."""
    if layout is None:
        return ""
    commands = [
        command
        for command in claim.commands
        if any(Path(word).stem == name for word in command.split())
    ]
    made_by = [f"`{command}`" for command in commands]
    made_by = made_by or [_MADE_BY[kind].format(name=name, dataset=layout.dataset)]
    return "; make it with " + ", then ".join(made_by)
