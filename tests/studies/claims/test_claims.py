"""Lists of claims: Holm's correction against the definition, outcomes, and what is not judged."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.heads.presets import PRESETS
from pipeline.language.presets import LANGUAGE_PRESETS
from pipeline.studies import StudyError
from pipeline.studies.claims.claim import Claim, Figure, read_claims
from pipeline.studies.claims.compare import MEASURES
from pipeline.studies.claims.judge import holm, judge
from pipeline.studies.claims.tables import as_json, markdown, write_claims
from tests.project import PROJECT
from tests.retrieval.factories import noisy, written


@pytest.mark.parametrize("seed", range(20))
def test_holm_rejects_as_the_procedure_step_by_step(seed: int) -> None:
    """Reject the smallest p while it is at most level / (tests that are left)."""
    rng = np.random.default_rng(seed)
    p = (rng.random(9) * 10.0 ** -rng.integers(0, 4, 9)).tolist()
    p[3] = p[1]  # ties
    adjusted = holm(p)
    for level in (0.001, 0.01, 0.05, 0.2, 0.9):
        rejected: set[int] = set()
        while len(rejected) < len(p):
            least = min((at for at in range(len(p)) if at not in rejected), key=lambda at: p[at])
            if p[least] > level / (len(p) - len(rejected)):
                break
            rejected.add(least)
        assert {at for at, value in enumerate(adjusted) if value <= level} == rejected
    assert holm([]) == []
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


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
    page = runpy.run_path(str(PROJECT / "docs/tools/claims.py"))["page"](stored)
    assert "**3 claims hold** in every figure, 0 in some; 2 are contradicted in a figure" in page
    assert "| claim of worse (a\\|b) |" in page
    assert "- claim of lost: `make lost`\n" in page


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
            assert side in known or made, (of.name, side)
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
