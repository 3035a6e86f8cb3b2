"""Results of a list of claims as Markdown and JSON."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.store.files import require_folder, write_json, write_text
from pipeline.studies.claims.claim import Claim, Figure
from pipeline.studies.claims.compare import COLUMNS
from pipeline.studies.claims.judge import LEVEL, Judged
from pipeline.studies.significance.paired import Comparison

_COLUMNS = (
    "claim", "first", "second", "figure", "paper", "here", "difference", "95 % interval", "p",
    "p, Holm", "outcome",
)  # fmt: skip


def markdown(judged: Sequence[Judged]) -> str:
    """Return a table with one row per test, a legend, and the untested claims."""
    tested = [of for of in judged if of.comparison]
    outcomes = Counter(of.outcome for of in judged)
    figures = ", ".join(f"{outcome}: {n}" for outcome, n in outcomes.items())
    lines = [_summary(judged), "", f"By figure: {figures}.", ""]
    if tested:
        lines += [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
        rows = [_row(of, of.comparison) for of in tested if of.comparison]
        lines += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
        lines += ["", _legend(len(tested)), ""]
        lines += [*dict.fromkeys(_meaning(of.claim) for of in tested if of.claim.meaning), ""]
    if len(tested) < len(judged):
        missing: dict[tuple[str, str], list[str]] = {}
        for of in judged:
            if not of.comparison:
                missing.setdefault((of.claim.name, of.reason), []).append(of.figure.measure)
        lines += ["Not judged:", ""]
        lines += [
            f"- {name} ({', '.join(map(heading, measures))}): {reason}"
            for (name, reason), measures in missing.items()
        ]
    return "\n".join(lines).rstrip() + "\n"


def as_json(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Return an object per test, with the keys listed in docs/evaluation.md."""
    return [
        {
            **{k: v for k, v in asdict(of.claim).items() if k != "figures"},
            "figure": asdict(of.figure),
            "outcome": of.outcome,
            "reason": of.reason,
            "adjusted_p": of.adjusted_p,
            "adjusted_p_is_bound": of.adjusted_p_is_bound,
            "one_training": of.one_training,
            "comparison": None if of.comparison is None else comparison_json(of.comparison),
        }
        for of in judged
    ]


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON values; infinite bounds are null."""
    return {
        "measure": comparison.measure,
        "first": list(comparison.first),
        "second": list(comparison.second),
        "difference": comparison.margin,
        "low": comparison.low if math.isfinite(comparison.low) else None,
        "high": comparison.high if math.isfinite(comparison.high) else None,
        "p": comparison.p,
        "p_is_bound": comparison.p_is_bound,
        "num_images": comparison.num_images,
        "differing": comparison.differing,
        "verdict": comparison.verdict,
        "decided": comparison.decided,
    }


def write_claims(folder: str | Path, judged: Sequence[Judged]) -> None:
    """Write `claims.md` and `claims.json`."""
    folder = Path(folder)
    require_folder(folder)
    write_text(folder / "claims.md", markdown(judged))
    write_json(folder / "claims.json", as_json(judged))


def line(comparison: Comparison) -> str:
    """Return one line with the difference of a comparison, its interval, p and verdict."""
    digits = digits_of(comparison.measure)
    p = p_text(comparison.p, comparison.p_is_bound)
    return (
        f"{heading(comparison.measure)}: difference {comparison.margin:+.{digits}f}, "
        f"{_interval(comparison)}, p {p}, over {comparison.num_images} images: {comparison.verdict}"
    )


def side(name: str, values: Sequence[float], measure: str) -> str:
    """Return the figure of a system, and that of each training if there are several."""
    digits = digits_of(measure)
    mean = f"{name}: {heading(measure)} {sum(values) / len(values):.{digits}f}"
    each = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{mean} (mean of {each})" if len(values) > 1 else mean


def _summary(judged: Sequence[Judged]) -> str:
    of_claim: dict[str, set[str]] = {of.claim.name: set() for of in judged}
    for of in judged:
        if of.comparison:
            of_claim[of.claim.name].add(of.outcome)
    counts = Counter(_together(outcomes) for outcomes in of_claim.values() if outcomes)
    by_claim = ", ".join(f"{outcome}: {n}" for outcome, n in counts.items())
    return f"{sum(counts.values())} of {len(of_claim)} claims tested; {by_claim or 'none'}."


def _together(outcomes: set[str]) -> str:
    """Return a short outcome of a claim, given those of its figures."""
    if len(outcomes) == 1:
        return next(iter(outcomes))
    if outcomes & {"the opposite", "the two differ"}:
        return "the opposite in some figures"
    return "holds in some figures" if "holds" in outcomes else "undecided"


def _row(of: Judged, comparison: Comparison) -> list[str]:
    digits = digits_of(comparison.measure)
    source = ", ".join(filter(None, (of.claim.paper, of.claim.section)))
    means = [sum(side) / len(side) for side in (comparison.first, comparison.second)]
    return [
        of.claim.claim + (f" ({source})" if source else ""),
        *(
            _named(s, n)
            for s, n in ((of.claim.first, comparison.first), (of.claim.second, comparison.second))
        ),
        heading(comparison.measure),
        _printed(of.figure),
        ", ".join(f"{mean:.{digits}f}" for mean in means),
        f"{comparison.margin:+.{digits}f}",
        _interval(comparison).removeprefix("95 % interval "),
        p_text(comparison.p, comparison.p_is_bound),
        p_text(of.adjusted_p, of.adjusted_p_is_bound),
        of.outcome + (" *" if of.one_training else ""),
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _meaning(claim: Claim) -> str:
    """Return a line on the interpretation of a claim, the paper's setting, and the differences."""
    parts = (claim.meaning, claim.of and f"The paper: {claim.of}", claim.remark)
    return f"- {claim.claim}: " + ". ".join(filter(None, parts)) + "."


def _legend(number: int) -> str:
    return (
        f"The first side is the one claimed to be better. Paired tests over test images and "
        f"trainings; p, Holm: corrected for all {number} tests of the table, significant below "
        f"{LEVEL}; ≤: an upper bound, as no draw has the other sign. In brackets the number of "
        "trainings; *: a side has only one, so the interval ignores the variance between trainings "
        "(closed forms, such as CCA, have none). "
        '"Undecided" and "no difference found" do not mean that the systems are equal.'
    )


def _named(side: str | tuple[str, ...], figures: Sequence[float]) -> str:
    return f"{side if isinstance(side, str) else ' + '.join(side)} ({len(figures)})"


def _printed(figure: Figure) -> str:
    if figure.first is None or figure.second is None:
        return ""
    return f"{figure.first:g}, {figure.second:g}"


def _interval(comparison: Comparison) -> str:
    if not math.isfinite(comparison.low):
        return "no 95 % interval of so few images"
    digits = digits_of(comparison.measure)
    return f"95 % interval {comparison.low:+.{digits}f} to {comparison.high:+.{digits}f}"


def p_text(p: float | None, is_bound: bool) -> str:
    """Return a p value; "≤" marks an upper bound, rounded up."""
    if p is None:
        return ""
    if is_bound:
        return f"≤ {math.ceil(p * 10_000) / 10_000:g}"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def heading(measure: str) -> str:
    """Return the display name of a figure."""
    return COLUMNS[measure].title


def digits_of(measure: str) -> int:
    """Return the number of decimals of a figure."""
    return COLUMNS[measure].decimals
