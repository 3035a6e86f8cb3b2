"""The page of captions: scores that belong to them, verdicts on scenes, text as text."""

import re
from pathlib import Path

import pytest

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.language.captioning.captions import Caption
from pipeline.language.captioning.captions_file import Described, write_captions
from pipeline.language.score_captions import evaluate_captions
from pipeline.store.errors import WrongUsage
from pipeline.studies.regularities import Plane, Regularities, Sheet, write_regularities
from pipeline.studies.scenes.draw_scenes import draw_scenes
from pipeline.studies.scenes.drawn_truth import drawn_truth
from pipeline.web.report.caption_report import write_captions_page
from tests.project import Recorder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    """Six scenes, captions of two systems with the scores of one, and a space."""
    folder = tmp_path_factory.mktemp("captions")
    manifest = draw_scenes(folder / "data", 6, 0)
    manifest.write(folder / "data")
    own = [Described(e.id, (Caption(e.captions[1], 1.0),)) for e in manifest.entries]
    odd = [Described(e.id, (Caption("<script>a purple dog", 1.0),)) for e in manifest.entries]
    write_captions(folder / "own.jsonl", own, {})
    write_captions(folder / "odd.jsonl", [*odd[:5], Described(odd[5].image, error="cut")], {})
    evaluate_captions(
        folder / "own.jsonl", folder / "data", folder / "scores" / "own",
        truth=drawn_truth(manifest),
    )  # fmt: skip
    first = manifest.entries[0].id
    kinds = {"colours": dict.fromkeys(
        ("analogies", "queries", "composed_has", "composed_keeps", "composed_both", "image_both",
         "word_both", "word_has", "chance"), 12.25)}  # fmt: skip
    planes = {"colours": Plane({"red": (0, 1)}, {"red": {first: (1, 0)}}, (0.75, 0.25))}
    sheets = {"colours": (Sheet(first, "red", "blue", (manifest.entries[1].id,)),)}
    write_regularities(folder / "spaces" / "linear.json", Regularities(kinds, {}, planes, sheets))
    return folder, manifest


def page_of(folder: Path, out: str, monitor: Recorder, *names: str) -> str:
    files = [folder / f"{name}.jsonl" for name in names]
    spaces = [folder / "spaces" / "linear.json"]
    write_captions_page(
        files, folder / "scores", folder / "data", folder / out,
        truth=drawn_truth(read_manifest(folder / "data")), regularities=spaces, monitor=monitor,
    )  # fmt: skip
    return (folder / out / "captions.html").read_text(encoding="utf-8")


def test_the_page_has_scores_verdicts_and_pictures(made: tuple[Path, Manifest]) -> None:
    folder, manifest = made
    monitor = Recorder()
    page = page_of(folder, "html", monitor, "own", "odd")
    assert page == page_of(folder, "again", Recorder(), "own", "odd")
    assert page.count('src="data:image/jpeg;base64') == 6 + 2
    assert "the first image − red + blue" in page
    assert page.count('<span class="best">true</span>') == 6
    assert (page.count("not parsed"), page.count("no caption")) == (5, 1)
    assert "&lt;script&gt;a purple dog" in page
    assert "<script" not in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert manifest.entries[0].captions[1] in page
    assert "100.00" in page
    assert "12.2" in page
    assert "both: word alone" in page
    assert "re-sorted" not in page
    assert "component 1, 75 % of the variance" in page
    assert monitor.lines[0].startswith(f"{folder / 'odd.jsonl'} has no scores yet")


def test_captions_without_a_common_image_are_refused(made: tuple[Path, Manifest]) -> None:
    folder, _ = made
    write_captions(folder / "else.jsonl", [Described("x", (Caption("a", 1.0),))], {})
    with pytest.raises(WrongUsage, match="no image of scenes in common"):
        page_of(folder, "none", Recorder(), "own", "else")
    with pytest.raises(WrongUsage, match="no file of captions"):
        page_of(folder, "none", Recorder())
