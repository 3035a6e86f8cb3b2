"""Writes docs/verdicts.md: the papers' claims tested on Flickr8k, of what `compare` wrote.

python docs/tools/claims.py data/claims/flickr8k
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline.studies.claims.tables import digits_of, heading

PAGE = Path(__file__).parents[1] / "verdicts.md"

_HEAD = """# Verdicts

Which claims of the papers hold on Flickr8k? 1,000 dev images, squashed to 224 x 224; claims on
phrases use their boxes in Flickr30k Entities. EfficientNet-Lite0 features, networks of the size
`small`, 5,000 training images (2,000 for phrases), an AMD EPYC without AMX.

```
pipeline compare --claims papers --dataset data/flickr8k --out data/claims/flickr8k
python docs/tools/claims.py data/claims/flickr8k
```

- Yan's two claims on VSE++ are tested on ResNet-50's features, the paper's family: in a copy of the
  list (`pipeline/studies/claims/published.json`) their sides are `NAME@resnet50-caffe-grid` and
  `vsepp@resnet50-caffe-pool`, and `--claims` is the copy.
- **Tuned on dev**: these images also chose each system's epoch and settings.
- i→t is image to text, t→i text to image ([figures](evaluation.md#the-numbers)).
- The papers' figures are of other features, larger networks and mostly more images.
- In brackets: trainings of each side. With one, the interval ignores the variation between
  trainings; in simulations of `rsum`, such a test rejects a true null in 12 to 55 of 100 cases
  before the correction, and one of three trainings against one in 9 to 36 ([The
  test](claims.md#the-test)).
- p is Holm's, over all tests of the table ([Claims](claims.md)).
- "No better than" is tested as equal: the linear network, worse than CCA from text to image, counts
  as contradicted, although these words allow it.
- On structure, the paper's gain from text to image is outside of three of our intervals: +1.6 with
  nonlinear and +1.4 with linear branches, +2.3 over the mean of word vectors. They end at +0.9,
  +0.4 and +0.8 (one training each).
- Some of Wang's networks had [fewer epochs](results.md#flickr8k-1000-dev-images).
"""


_COLUMNS = ("claim", "first; second", "figure", "paper", "here", "difference, 95 %", "p", "")


def page(judged: list[dict[str, Any]]) -> str:
    """Return the page of the objects of a `claims.json`."""
    tested = [one for one in judged if one["comparison"]]
    lines = [_summary(judged, tested), "", f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS)]
    lines[-1] += "|"
    rows = [[cell.replace("|", "\\|") for cell in _row(one)] for one in tested]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    missing = dict.fromkeys(one["name"] for one in judged if not one["comparison"])
    reason = {one["name"]: one["reason"] for one in judged}
    texts = {one["name"]: one["claim"] for one in judged}
    if missing:
        lines += ["", "Not judged, since a side was not trained here:", ""]
        commands = {name: _missing(reason[name]) for name in missing}
        lines += [
            f"- {'; '.join(texts[name] for name in missing if commands[name] == made)}: {made}"
            for made in dict.fromkeys(commands.values())
        ]
    return "\n".join([_HEAD, *lines]) + "\n"


def _summary(judged: list[dict[str, Any]], tested: list[dict[str, Any]]) -> str:
    claims = {one["name"]: set[str]() for one in judged}
    for one in tested:
        claims[one["name"]].add(one["outcome"])
    whole = [outcomes for outcomes in claims.values() if outcomes]
    agree = sum(outcomes <= {"holds"} for outcomes in whole)
    some = sum("holds" in outcomes for outcomes in whole) - agree
    against = sum(bool(outcomes & {"the opposite", "the two differ"}) for outcomes in whole)
    counts = ", ".join(f"{o}: {n}" for o, n in Counter(o["outcome"] for o in tested).items())
    return (
        f"{len(claims)} claims, {len(judged)} figures; {len(whole)} claims with {len(tested)} "
        f"figures are tested. **{agree} claims hold** in every figure, {some} in some; {against} "
        "are contradicted in a figure, the others undecided or without a difference. "
        f"By figure: {counts}."
    )


def _row(one: dict[str, Any]) -> list[str]:
    found, figure = one["comparison"], one["figure"]
    digits = digits_of(figure["measure"])
    printed = [figure["first"], figure["second"]]
    means = [sum(found[side]) / len(found[side]) for side in ("first", "second")]
    sides = (f"`{one[side]}` ({len(found[side])})" for side in ("first", "second"))
    p, source = one["adjusted_p"], ", ".join(filter(None, (one["paper"], one["section"])))
    return [
        one["claim"] + (f" ({source})" if source else ""),
        "; ".join(sides),
        heading(figure["measure"]),
        "" if None in printed else ", ".join(f"{value:g}" for value in printed),
        ", ".join(f"{mean:.{digits}f}" for mean in means),
        _difference(found, digits),
        "< 0.001" if p < 0.001 else f"{p:.3f}",
        one["outcome"],
    ]


def _difference(found: dict[str, Any], digits: int) -> str:
    """Return the difference with its interval, which few images have none of."""
    difference, low, high = (found[key] for key in ("difference", "low", "high"))
    bounds = "" if low is None or high is None else f", {low:+.{digits}f} to {high:+.{digits}f}"
    return f"{difference:+.{digits}f}{bounds}"


def _missing(reason: str) -> str:
    """Return the commands of a reason, without the path before them."""
    return reason.rpartition("make it with ")[2] or reason


def main() -> None:
    """Write the page."""
    judged = json.loads((Path(sys.argv[1]) / "claims.json").read_text(encoding="utf-8"))
    PAGE.write_text(page(judged), encoding="utf-8")


if __name__ == "__main__":
    main()
