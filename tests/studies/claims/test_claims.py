"""Lists of claims: Holm's correction against the definition, outcomes, and what is not judged."""

import json
import re
import runpy
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from pipeline.heads.presets import PRESETS
from pipeline.language.presets import LANGUAGE_PRESETS
from pipeline.studies import StudyError
from pipeline.studies.claims.claim import Claim, Figure, read_claims
from pipeline.studies.claims.compare import MEASURES
from pipeline.studies.claims.judge import holm, holm_with_bounds, judge
from pipeline.studies.claims.tables import as_json, markdown, p_text, write_claims
from tests.project import PROJECT
from tests.retrieval.factories import noisy, written
from tests.test_site import anchors


def rejected(p: Sequence[float], level: float) -> set[int]:
    """Reject the smallest p while it is at most level / (tests that are left)."""
    found: set[int] = set()
    while len(found) < len(p):
        least = min((at for at in range(len(p)) if at not in found), key=lambda at: p[at])
        if p[least] * (len(p) - len(found)) > level:
            break
        found.add(least)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_holm_rejects_as_the_procedure_step_by_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = (rng.random(9) * 10.0 ** -rng.integers(0, 4, 9)).tolist()
    p[3] = p[1]  # ties
    adjusted = holm(p)
    for level in (0.001, 0.01, 0.05, 0.2, 0.9):
        assert {at for at, value in enumerate(adjusted) if value <= level} == rejected(p, level)
    assert holm([]) == []
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@pytest.mark.parametrize("seed", range(20))
def test_a_p_that_rests_on_bounds_is_a_bound(seed: int) -> None:
    """Against the procedure for all that the p below the bounds can be."""
    rng = np.random.default_rng(seed)
    p = (rng.integers(1, 8, 6) / 100).tolist()
    bounds = (rng.random(6) < 0.5).tolist()
    bounds[0] = True
    found = holm_with_bounds(p, bounds)
    assert [value for value, _ in found] == holm(p)
    possible = []
    for lowered in product((0.0, 0.3, 1.0), repeat=6):
        true = [q * by if of else q for q, by, of in zip(p, lowered, bounds, strict=True)]
        levels = sorted({min(1.0, n * q) for n in range(1, 7) for q in true})
        possible.append(
            [next(level for level in (*levels, 1.0) if at in rejected(true, level) or level == 1.0)
             for at in range(6)]
        )  # fmt: skip
    highest, lowest = np.max(possible, axis=0), np.min(possible, axis=0)
    np.testing.assert_allclose([value for value, _ in found], highest, rtol=1e-12)
    assert [is_bound for _, is_bound in found] == (lowest < highest - 1e-12).tolist()


def test_a_bound_is_marked_and_rounded_up() -> None:
    assert [p_text(p, True) for p in (2 / 10_001, 2 / 18_201 * 85, 0.01, 1.0)] == [
        "≤ 0.0002", "≤ 0.0094", "≤ 0.01", "≤ 1"
    ]  # fmt: skip
    assert [p_text(p, False) for p in (2 / 10_001, 0.0094, None)] == ["< 0.001", "0.009", ""]


def claim(
    name: str, first: str | tuple[str, ...], second: str, **more: object
) -> dict[str, object]:
    return {
        "name": name, "claim": f"claim of {name}", "first": first, "second": second,
        "figures": [{"measure": "text_to_image_r1", "first": 9.5, "second": 3}], **more,
    }  # fmt: skip


@pytest.fixture
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Systems of 60 and 40 images, and a function that writes a list of claims on them."""
    monkeypatch.chdir(tmp_path)
    folder = Path("data/embeddings/mine")
    for seed, name in enumerate(("good", "good-seed1", "good-seed2")):
        written(folder, name, noisy(60, 0.5, seed + 1))
    written(folder, "near", noisy(60, 0.52, 9))
    written(folder, "poor", noisy(60, 2.5, 7))
    written(folder, "few", noisy(40, 0.5, 7))

    def write(*claims: dict[str, object]) -> Path:
        file = tmp_path / "claims.json"
        file.write_text(json.dumps({"format": "pipeline-claims", "format_version": 1,
                                    "claims": claims}))  # fmt: skip
        return file

    return write


def test_each_outcome(claims: Callable[..., Path], tmp_path: Path) -> None:
    ranks = [{"measure": "text_to_image_mean_rank"}]
    file = claims(
        claim("better", "good", "poor", meaning="good is good", of="COCO", remark="Other words"),
        claim("worse", "poor", "good", paper="a|b"),
        claim("rank", "good", "poor", figures=ranks),
        claim("near", "good", "near"),
        claim("level", "good", "near", says="level"),
        claim("apart", "good", "poor", says="level"),
        claim("few", "few", "few"),
        claim("files", ("data/embeddings/mine/good.h5", "good-seed1"), "poor"),
        claim("lost", "lost", "poor", commands=["make lost", "make other"]),
        claim("mixed", "few", "good"),
        claim("words", "good", "poor", figures=[{"measure": "bleu_4"}]),
    )
    judged = judge(read_claims(file), "data/mine")
    outcomes = {of.claim.name: of.outcome for of in judged}
    assert outcomes == {
        "better": "holds", "worse": "the opposite", "rank": "holds", "near": "undecided",
        "level": "no difference found", "apart": "the two differ", "few": "too few images",
        "files": "holds", "lost": "not judged", "mixed": "not judged", "words": "not judged",
    }  # fmt: skip
    reasons = {of.claim.name: of.reason for of in judged if of.reason}
    assert reasons["lost"].endswith("lost.h5 not found; make it with `make lost`")
    assert "60 images that are not the 40" in reasons["mixed"] or "40 images" in reasons["mixed"]
    assert "pipeline caption --experiment good" in reasons["words"]
    compared = [of for of in judged if of.comparison]
    assert [of.adjusted_p for of in compared] == holm(
        [of.comparison.p for of in compared if of.comparison]
    )
    table = markdown(judged)
    assert table.startswith(
        "8 of 11 claims tested; holds: 3, the opposite: 1, undecided: 1, no difference found: 1, "
        "the two differ: 1, too few images: 1."
    )
    assert "| claim of better | good (3) | poor (1) | t→i R@1 | 9.5, 3 |" in table
    assert "| holds * |" in table
    assert "claim of worse (a\\|b)" in table
    assert "- lost (t→i R@1): data/embeddings/mine/lost.h5 not found" in table
    assert "- claim of better: good is good. The paper: COCO. Other words." in table
    write_claims(tmp_path / "out", judged)
    stored = json.loads((tmp_path / "out/claims.json").read_text())
    assert stored == json.loads(json.dumps(as_json(judged)))
    assert (tmp_path / "out/claims.md").read_text() == table
    assert [row["adjusted_p_is_bound"] for row in stored if row["name"] in ("better", "near")] == [
        True, False
    ]  # fmt: skip
    assert "| ≤ 0.0002 | ≤ 0.0016 | holds * |" in table


def test_the_page_lists_claims_by_outcome_and_has_each_once(
    claims: Callable[..., Path], tmp_path: Path
) -> None:
    two = [{"measure": "text_to_image_r1", "first": 9.0, "second": 3}, {"measure": "rsum"}]
    file = claims(
        claim("better", "good", "poor", paper="kiros-2014", section="table 1", of="COCO",
              figures=two),
        claim("worse, by far", "poor", "good", paper="qian-lamberti-2018"),
        claim("near", "good", "near", paper="kiros-2014"),
        claim("apart", "good", "poor", says="level", paper="kiros-2014"),
        claim("lost", "lost", "poor", commands=["make lost"]),
    )  # fmt: skip
    stored = json.loads(json.dumps(as_json(judge(read_claims(file), "data/mine"))))
    tool = runpy.run_path(str(PROJECT / "docs/tools/claims.py"))
    (tmp_path / "page.md").write_text(page := tool["page"](stored))
    assert "**1 claims hold** in every figure, 0 in some; 2 are contradicted in a figure" in page
    assert (tool["HEAD"] in page, tool["NOTES"] in page) == (True, True)
    start, _, blocks = page.partition("## How they are tested")
    assert re.findall(r"^(?:## |- \[)([^]\n]+).*?((?:: .*)?)$", start, re.MULTILINE) == [
        ("What holds", ""), ("claim of better", ": t→i R@1, rsum"),
        ("The opposite", ""), ("claim of worse, by far", ": t→i R@1"),
        ("Undecided", ""), ("claim of near", ": t→i R@1"),
        ("No difference, or the two differ", ""),
        ("claim of apart", ": the two differ in t→i R@1"),
        ("Not judged", ""),
    ]  # fmt: skip
    assert "- claim of lost: `make lost`\n" in start
    assert r"(#claim-of-worse-by-far) (Qian & Lamberti 2018) \*: t→i R@1" in start
    assert set(re.findall(r"\(#([^)]+)\)", page)) <= anchors(tmp_path / "page.md")
    headings = re.findall(r"^##+ (.+)$", blocks, re.MULTILINE)
    assert headings == [
        "Kiros 2014", "claim of better", "claim of near", "claim of apart",
        "Qian & Lamberti 2018", "claim of worse, by far",
    ]  # fmt: skip
    assert "`good` over `poor`. Table 1. COCO.\n\n| figure |" in blocks
    first, second = re.findall(r"^\| (?:t→i R@1|rsum) .*$", blocks, re.MULTILINE)[:2]
    assert first.startswith("| t→i R@1 | 9.0, 3.0 | ")
    assert first.endswith(r" | 3, 1 | ≤ 0.001 | holds \* |")
    assert second.startswith("| rsum |  | ")
    assert "last time" not in page


def test_the_page_has_the_outcomes_of_an_earlier_list(claims: Callable[..., Path]) -> None:
    """Matched by claim and figure, also where nothing is tested now; † is short of the paper."""
    names = ("better", "good", "poor"), ("near", "good", "near"), ("lost", "good", "poor")
    then = as_json(judge(read_claims(claims(*(claim(*name) for name in names))), "data/mine"))
    then = json.loads(json.dumps(then))
    then[0]["outcome"], then[0]["comparison"]["first"] = "undecided", [70.0]
    then[1]["name"] = "another"
    now = as_json(judge(read_claims(claims(
        *(claim(*name) for name in names[:2]), claim("lost", "lost", "poor"),
    )), "data/mine"))  # fmt: skip
    tool = runpy.run_path(str(PROJECT / "docs/tools/claims.py"))
    change = "[claim of better](#claim-of-better), t→i R@1: undecided (1, 1), now holds (3, 1)"
    assert tool["changed"](now, then) == [f"- {change}"]
    page = tool["page"](now, then)
    assert "1 figures have another outcome than last time" in page
    assert f"\n- {change}\n" in page
    assert "## Tested last time only\n\n- [claim of lost](#claim-of-lost)" in page
    assert "## Not judged" not in page
    better, near, lost = re.findall(r"^\| t→i R@1 .*$", page, re.MULTILINE)
    assert re.search(r" \| holds \\\* \| undecided \(1, 1\): \+[\d.]+, .* to .* \|$", better)
    assert near.endswith(r" | undecided \* † |  |")  # of a gain of 6.5 in the paper
    assert lost.startswith("| t→i R@1 | 9.5, 3.0 |  |  |  |  |  | holds (3, 1): +")
    assert lost.count(" |") == better.count(" |") == 8


def test_the_page_of_verdicts_has_all_claims_and_nothing_by_hand() -> None:
    tool = runpy.run_path(str(PROJECT / "docs/tools/claims.py"))
    page = tool["PAGE"].read_text(encoding="utf-8")
    listed = read_claims("papers")
    counts = f"{len(listed)} claims, {sum(len(of.figures) for of in listed)} figures"
    assert page.startswith(f"{tool['HEAD']}\n{counts};")
    start, notes, blocks = page.partition(tool["NOTES"])
    assert notes
    titles = {of.claim for of in listed}
    for text in re.findall(r"^- (.*)$", start, re.MULTILINE):
        linked = re.match(r"\[(.+?)\]\(#", text)
        named = [linked[1]] if linked else text.partition(": `")[0].split("; ")
        assert {*named} <= titles, text
    assert {*re.findall(r"^### (.+)$", blocks, re.MULTILINE)} <= titles
    text = (PROJECT / "docs/evaluation.md").read_text(encoding="utf-8")
    assert counts in re.sub(r" of \[five papers\]\(heads.md\), with", ",", " ".join(text.split()))


def test_other_captions_compare_from_text_to_image_alone(claims: Callable[..., Path]) -> None:
    """As mean captions, of which each image has one."""
    e = noisy(60, 0.5, 1)
    mean = type(e)(
        e.image_ids, e.image_embeddings, tuple(f"{i}#mean" for i in e.image_ids), e.image_ids,
        e.caption_embeddings[::2], "cosine", {},
    )  # fmt: skip
    written(Path("data/embeddings/mine"), "mean", mean)
    strict, other = judge(
        read_claims(
            claims(
                claim("strict", "mean", "poor", captions_per_image=1),
                claim("other", "mean", "poor", captions_per_image=1, same_captions=False),
            )
        ),
        "data/mine",
    )
    assert "60 captions that are not the 60" in strict.reason
    assert other.outcome == "holds"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"figures": []}, "at least one figure"),
        ({"figures": [{"measure": "rsun"}]}, "unknown figure 'rsun'; did you mean rsum"),
        ({"same_captions": False, "figures": [{"measure": "rsum"}]}, "rsum cannot be compared"),
        ({"says": "worse"}, "Expected one of 'better', 'level'"),
        ({"first": 3}, "claims.0..first"),
        ({"colour": "red"}, "unknown field"),
    ],
)
def test_a_wrong_list_is_refused_where_it_is_wrong(
    changes: dict[str, object], fault: str, claims: Callable[..., Path]
) -> None:
    with pytest.raises(StudyError, match=fault):
        read_claims(claims({**claim("a", "good", "poor"), **changes}))
    with pytest.raises(StudyError, match="'a' names several claims"):
        read_claims(claims(claim("a", "good", "poor"), claim("a", "good", "poor")))


def test_the_papers_claims_name_what_exists() -> None:
    """Presets, or what the claim's own commands make; printed figures agree with the direction."""
    known = {*PRESETS, *LANGUAGE_PRESETS}
    found = read_claims("papers")
    assert len(found) >= 30
    for of in found:
        for side in (of.first, of.second):
            assert isinstance(side, str)
            made = any(Path(w).stem == side for c in of.commands for w in c.split())
            assert side.partition("@")[0] in known or made, (of.name, side)
        for figure in of.figures:
            if figure.first is not None and figure.second is not None and of.says == "better":
                lower = figure.measure.endswith("mean_rank")
                assert (figure.first > figure.second) != lower, of.name
            assert any(figure.measure in measures for measures in MEASURES.values())
        assert of.paper
        assert of.section
        assert of.meaning


def test_without_any_outputs_every_claim_has_a_reason(tmp_path: Path) -> None:
    asked = read_claims("papers")
    judged = judge(asked, tmp_path / "none", root=tmp_path)
    assert markdown(judged).startswith(f"0 of {len(asked)} claims tested; none.")
    assert {of.outcome for of in judged} == {"not judged"}
    assert all("not found; make it with" in of.reason for of in judged)
    assert "Not judged:" in markdown(judged)
    assert judge((Claim("a", "b", "x", "y", (Figure("rsum"),)),))[0].reason.endswith(
        "pass its `dataset=...`"
    )
