"""Writes docs/lab/verdicts.md: the papers' claims tested on Flickr8k, of what `compare` wrote.

python docs/tools/claims.py data/claims/flickr8k [EARLIER.json]

An earlier claims.json adds its outcomes, also of claims that are not tested any more, and lists the
figures whose outcome has changed.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.studies.claims.compare import COLUMNS
from pipeline.studies.claims.tables import digits_of, heading, p_text

PAGE = Path(__file__).parents[1] / "lab" / "verdicts.md"
Tests = Sequence[Mapping[str, Any]]
"""Objects of a `claims.json`, one per figure of a claim."""

HEAD = """# Verdicts

Which claims of the papers hold on Flickr8k, each on its paper's own measure? [How they are
tested](#how-they-are-tested) has the images, features, networks and limits.
"""

NOTES = """## How they are tested

1,000 dev images, squashed to 224 x 224; claims on phrases use their boxes in Flickr30k Entities.
EfficientNet-Lite0 features, or those behind the `@`; networks of the size `small`, 5,000 training
images (2,000 for phrases), an AMD EPYC without AMX.

```
pipeline compare --claims papers --dataset data/flickr8k --out data/claims/flickr8k
python docs/tools/claims.py data/claims/flickr8k
```

- **Tuned on dev**: these images also chose each system's epoch and settings.
- i→t is image to text, t→i text to image ([figures](../evaluation.md#the-numbers)).
  *Paper* and *here* have the figures of both sides, *trainings* the number of trainings of each.
- The papers' figures are of other features, larger networks and mostly more images. Yan's sides are
  on ResNet-50's features, the paper's family.
- p is Holm's, over all tests of the page ([Claims](../evaluation.md#claims)); ≤ marks an
  upper bound.
- \\*: a side has one training, so the interval ignores the variation between trainings (closed
  forms, such as CCA and regression, have none). In simulations of `rsum`, such a test rejects a
  true null in 12 to 55 of 100 cases before the correction, and one of three trainings against one
  in 9 to 36 ([The test](../evaluation.md#the-test)).
- †: undecided, and the interval ends short of the paper's gain.
- Wang's networks have 20 of 45 epochs (`pipeline train --max-epochs 20`) if they are linear or on
  mean vectors, with the best before the 19th, else 30. The nonlinear one with one direction still
  rises by 0.6 to 0.9 rsum an epoch then, the others by at most 0.4.
- *Last time*: other trainings, mostly on the same processor.
"""

_GROUPS = {
    "What holds": {"holds"},
    "The opposite": {"the opposite"},
    "Undecided": {"undecided", "too few images"},
    "No difference, or the two differ": {"no difference found", "the two differ"},
}
_COLUMNS = ("figure", "paper", "here", "difference, 95 %", "trainings", "p", "outcome")


def page(judged: Tests, earlier: Tests = ()) -> str:
    """Return the page of the objects of a `claims.json`, and of an earlier one."""
    before = {_key(one): one for one in earlier if one["comparison"]}
    claims = _by_claim(one for one in judged if one["comparison"] or _key(one) in before)
    tested = _by_claim(one for one in judged if one["comparison"])
    lines = [HEAD, _summary(judged, tested), ""]
    for title, outcomes in _GROUPS.items():
        items = [_item(tests, outcomes) for tests in tested.values() if _is_in(tests, outcomes)]
        lines += [f"## {title}", "", *items, ""] if items else []
    if before:
        lines += _since(judged, earlier, [claims[name] for name in claims if name not in tested])
    lines += [*_not_judged([one for one in judged if one["name"] not in claims]), NOTES]
    for paper in dict.fromkeys(tests[0]["paper"] for tests in claims.values()):
        lines += [f"## {_title(paper)}", ""]
        for tests in claims.values():
            lines += _block(tests, before) if tests[0]["paper"] == paper else []
    return "\n".join(lines).rstrip() + "\n"


def _by_claim(tests: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    claims: dict[str, list[Mapping[str, Any]]] = {}
    for one in tests:
        claims.setdefault(one["name"], []).append(one)
    return claims


def _since(judged: Tests, earlier: Tests, untested: Sequence[Tests]) -> list[str]:
    """Return the outcomes that have changed, and those of claims that were only tested before."""
    lines = changed(judged, earlier)
    lines = [
        "## Changed outcomes",
        "",
        f"{len(lines)} figures have another outcome than last time (in brackets the trainings of "
        "each side).",
        "",
        *lines,
        "",
    ]
    if untested:
        names = {tests[0]["name"] for tests in untested}
        before = _by_claim(one for one in earlier if one["comparison"] and one["name"] in names)
        outcomes = set().union(*_GROUPS.values())
        items = [_item(tests, outcomes) for tests in before.values()]
        lines += ["## Tested last time only", "", *items, ""]
    return lines


def changed(judged: Tests, earlier: Tests) -> list[str]:
    """Return a line for each figure that has another outcome than in an earlier list."""
    now = {_key(one): one for one in judged if one["comparison"]}
    both = [(one, now[_key(one)]) for one in earlier if one["comparison"] and _key(one) in now]
    return [
        f"- {_link(new)}, {heading(new['figure']['measure'])}: {_outcome(old)}, now {_outcome(new)}"
        for old, new in both
        if old["outcome"] != new["outcome"]
    ]


def _summary(judged: Tests, claims: Mapping[str, Tests]) -> str:
    tested = [one for tests in claims.values() for one in tests]
    whole = [{one["outcome"] for one in tests} for tests in claims.values()]
    agree = sum(outcomes <= {"holds"} for outcomes in whole)
    some = sum("holds" in outcomes for outcomes in whole) - agree
    against = sum(bool(outcomes & {"the opposite", "the two differ"}) for outcomes in whole)
    counts = ", ".join(f"{o}: {n}" for o, n in Counter(o["outcome"] for o in tested).items())
    return (
        f"{len({one['name'] for one in judged})} claims, {len(judged)} figures; {len(whole)} "
        f"claims with {len(tested)} figures are tested. **{agree} claims hold** in every figure, "
        f"{some} in some; {against} are contradicted in a figure, the others undecided or without "
        f"a difference. By figure: {counts}. A side has one training (\\*) in "
        f"{sum(one['one_training'] for one in tested)} figures."
    )


def _is_in(tests: Tests, outcomes: set[str]) -> bool:
    """Return whether a claim is listed with these outcomes: undecided only if all figures are."""
    found = {one["outcome"] for one in tests}
    return found <= outcomes if "undecided" in outcomes else bool(found & outcomes)


def _item(tests: Tests, outcomes: set[str]) -> str:
    """Return a claim of a list, with the figures that have one of its outcomes."""
    figures: dict[str, list[str]] = {}
    for one in tests:
        if one["outcome"] in outcomes:
            figures.setdefault(one["outcome"], []).append(heading(one["figure"]["measure"]))
    words = [
        (f"{outcome} in " if "no difference found" in outcomes else "") + ", ".join(headings)
        for outcome, headings in figures.items()
    ]
    mark = r" \*" if any(one["one_training"] for one in tests) else ""
    only = "" if {one["outcome"] for one in tests} <= outcomes else " only"
    return f"- {_link(tests[0])} ({_title(tests[0]['paper'])}){mark}: {'; '.join(words)}{only}"


def _not_judged(judged: Tests) -> list[str]:
    """Return the claims without a test, together if they need the same commands."""
    claims: dict[str, dict[str, None]] = {}
    for one in judged:
        if not one["comparison"]:
            made_by = one["reason"].rpartition("make it with ")[2] or one["reason"]
            claims.setdefault(made_by, {})[one["claim"]] = None
    if not claims:
        return []
    lines = [f"- {'; '.join(texts)}: {made_by}" for made_by, texts in claims.items()]
    return ["## Not judged", "", "A side was not trained here:", "", *lines, ""]


def _block(tests: Tests, before: Mapping[tuple[str, str], Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a claim: its text, its sides and source, and a row per figure."""
    claim = tests[0]
    source = (_capital(claim[key]) for key in ("section", "of", "remark"))
    joint = " over " if claim["says"] == "better" else " and "
    sides = joint.join(f"`{_side(claim[side])}`" for side in ("first", "second"))
    yield from (f"### {claim['claim']}", "", ". ".join([sides, *filter(None, source)]) + ".", "")
    columns = [*_COLUMNS, "last time"] if before else _COLUMNS
    yield from (f"| {' | '.join(columns)} |", "|---" * len(columns) + "|")
    for one in tests:
        cells = _row(one)
        if before:
            cells.append(_last_time(before.get(_key(one))))
        yield f"| {' | '.join(cells)} |"
    yield ""


def _row(one: Mapping[str, Any]) -> list[str]:
    found, figure = one["comparison"], one["figure"]
    digits = digits_of(figure["measure"])
    printed = [figure["first"], figure["second"]]
    cells = [heading(figure["measure"]), "" if None in printed else ", ".join(map(str, printed))]
    if not found:
        return cells + [""] * (len(_COLUMNS) - len(cells))
    means = [sum(found[side]) / len(found[side]) for side in ("first", "second")]
    return [
        *cells,
        ", ".join(f"{mean:.{digits}f}" for mean in means),
        _difference(one),
        _trainings(one),
        p_text(one["adjusted_p"], one["adjusted_p_is_bound"]),
        one["outcome"] + (r" \*" if one["one_training"] else "") + _short_of_paper(one),
    ]


def _short_of_paper(one: Mapping[str, Any]) -> str:
    """Return a mark if the figure is undecided and its interval ends short of the paper's gain."""
    figure, found = one["figure"], one["comparison"]
    if one["outcome"] != "undecided" or None in (figure["first"], figure["second"], found["low"]):
        return ""
    gain = figure["first"] - figure["second"]
    lower_is_better = COLUMNS[figure["measure"]].lower_is_better
    return " †" if (found["low"] > gain if lower_is_better else found["high"] < gain) else ""


def _last_time(one: Mapping[str, Any] | None) -> str:
    return "" if one is None else f"{_outcome(one)}: {_difference(one)}"


def _outcome(one: Mapping[str, Any]) -> str:
    """Return the outcome, with the number of trainings of each side."""
    return f"{one['outcome']} ({_trainings(one)})"


def _trainings(one: Mapping[str, Any]) -> str:
    return ", ".join(str(len(one["comparison"][side])) for side in ("first", "second"))


def _difference(one: Mapping[str, Any]) -> str:
    """Return the difference with its interval, which few images have none of."""
    digits = digits_of(one["figure"]["measure"])
    difference, low, high = (one["comparison"][key] for key in ("difference", "low", "high"))
    bounds = "" if low is None or high is None else f", {low:+.{digits}f} to {high:+.{digits}f}"
    return f"{difference:+.{digits}f}{bounds}"


def _key(one: Mapping[str, Any]) -> tuple[str, str]:
    return one["name"], one["figure"]["measure"]


def _link(one: Mapping[str, Any]) -> str:
    """Return a link to the heading of a claim, whose anchor GitHub and the site form alike."""
    anchor = re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", one["claim"]).strip().lower())
    return f"[{one['claim']}](#{anchor})"


def _title(paper: str) -> str:
    """Return the title of a paper: "Qian & Lamberti 2018" for qian-lamberti-2018."""
    *names, year = paper.split("-")
    return f"{' & '.join(name.capitalize() for name in names)} {year}".strip()


def _side(side: str | list[str]) -> str:
    return side if isinstance(side, str) else " + ".join(side)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def main(folder: str, earlier: str | None = None) -> None:
    """Write the page."""
    judged = json.loads((Path(folder) / "claims.json").read_text(encoding="utf-8"))
    before = json.loads(Path(earlier).read_text(encoding="utf-8")) if earlier else []
    PAGE.write_text(page(judged, before), encoding="utf-8")
    if earlier:
        lines = changed(judged, before)
        sys.stdout.write("\n".join([f"{len(lines)} outcomes differ from {earlier}", *lines]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
