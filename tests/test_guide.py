"""The guide: its examples run and print what it shows, its figures are the laboratory's."""

import re
import runpy
from pathlib import Path

import pytest

from pipeline.images.recipes.by_name import PROVIDERS
from tests import guide
from tests.project import PROJECT

DOCS = PROJECT / "docs"
TOOL = runpy.run_path(str(DOCS / "tools" / "figures.py"))
PAGES = TOOL["pages"]()
GUIDE = [PROJECT / "README.md", *sorted(DOCS.glob("*.md"))]
BY_HAND = [
    page
    for page in sorted((DOCS / "lab").glob("*.md"))
    if page.stem not in {"deviations", "verdicts"}  # docs/tools/deviations.py and claims.py
]
_NOT_PROSE = re.compile(
    r"^ *```.*?^ *```$|<!--=.*?<!--/-->|<!--.*?-->|`[^`\n]*`|\]\([^)]*\)", re.DOTALL | re.MULTILINE
)
_MEASURED = re.compile(
    r"\d+\.\d+"
    r"|\d[\d,]* ?(?:s|ms|[kMGT]B|%|per cent|(?:images|rows|captions)/s|seconds?|minutes?|hours?)\b"
)
_MARKDOWN_TABLE = re.compile(r"^(\|.*)\n\|[ :|-]+\|\n((?:\|.*\n)+)", re.MULTILINE)
_FIGURE = re.compile(r"[-+≤<~]?\d(?:[^A-Za-z]|\b(?:to|s|ms|h|min|[kMGT]B)\b)*")
_VERSION = re.compile(r"\b(?:Python|[Vv]ersions?|[\w-]+ ?[>=~]=) ?\d+(?:\.\d+)+(?: to \d+\.\d+)?")


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_examples_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page.read_text(encoding="utf-8")
    for needed in re.findall(r"<!--needs ([\w, ]+)-->", text):
        for name in needed.split(", "):
            pytest.importorskip(name, reason=f"{name} is not installed: an extra of {page.stem}")
    monkeypatch.setenv("PIPELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(PROVIDERS, "_called", {})  # a page may register a network
    guide.run_page(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_and_quoted_figures_are_those_of_the_laboratory(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert TOOL["filled"](text) == text, "run `python docs/tools/figures.py`"


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_measured_figures_are_quoted(page: Path) -> None:
    """A decimal or a figure with a unit is quoted, or is a value to type, in backticks."""
    prose = _VERSION.sub("", _NOT_PROSE.sub("", page.read_text(encoding="utf-8")))
    assert _MEASURED.findall(prose) == []


@pytest.mark.parametrize("page", BY_HAND, ids=lambda page: page.stem)
def test_tables_of_the_laboratory_are_generated(page: Path) -> None:
    """A table in which most cells are numbers comes from docs/lab/tables/."""
    by_hand = []
    text = TOOL["TABLE"].sub("", page.read_text(encoding="utf-8"))
    for header, rows in _MARKDOWN_TABLE.findall(text):
        cells = [
            TOOL["plain"](cell)
            for row in rows.splitlines()
            for cell in re.split(r"(?<!\\)\|", row)[2:]
            if cell.strip()
        ]
        if 2 * sum(bool(_FIGURE.fullmatch(cell)) for cell in cells) > len(cells):
            by_hand.append(header)
    assert not by_hand, "python docs/tools/figures.py writes tables: " + "; ".join(by_hand)


def test_a_figure_that_differs_or_does_not_exist_is_found() -> None:
    quoted = "rsum <!--=flickr8k; kiros2014-linear; rsum-->%s<!--/-->"
    assert TOOL["filled"](quoted % "1.0") == quoted % "244.8"
    for wrong in ("flickr9k; a; b", "flickr8k; nobody; rsum", "flickr8k; vsepp; nothing"):
        with pytest.raises(TOOL["FigureError"]):
            TOOL["filled"](f"rsum <!--={wrong}-->1<!--/-->")
    with pytest.raises(TOOL["FigureError"], match="begin"):
        TOOL["filled"](quoted.removeprefix("rsum "))


def test_outputs_are_compared_roughly_where_machines_differ() -> None:
    assert guide.same("3 rows in 12 s, 0.52\n41266e98ab", "3 rows in 9 s, 0.51\n00f5841266")
    assert guide.same("a\nb\nc\n", "a\n...\n")
    assert guide.same("| vse | 60.0 |", "| vse | 70.0 |")
    for other in ("4 rows in 9 s, 0.51", "3 rows in 9 s, 0.91", "3 lines in 9 s, 0.51"):
        assert not guide.same("3 rows in 9 s, 0.51", other)
    assert not guide.same("a\n", "a\n...\nb\nc\n")
    page = "```console\n$ echo a; echo b; echo c\nx\n...\n```\n"
    assert guide.run_page(page, fill=True) == page.replace("x\n", "a\n")
    with pytest.raises(guide.ExampleError, match="is not what the page has"):
        guide.run_page(page)


def test_the_guide_is_short() -> None:
    texts = [page.read_text(encoding="utf-8") for page in DOCS.glob("*.md")]
    assert len(texts) <= 20
    assert sum(len(text.split()) for text in texts) <= 25_000


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_commands_that_no_test_runs_have_a_reason(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for hit in re.finditer(r"^```(\w*)(.*)\n(.*)", text, re.MULTILINE):
        if text.count("\n```", 0, hit.start() + 1) % 2:  # the end of a block
            continue
        if hit[1] in ("sh", "") and not hit[2]:
            before = text[: hit.start()].rstrip().rpartition("\n")[2]
            assert re.fullmatch(r"<!--not run: .+-->", before), f"{hit[0]}\n{before}"
