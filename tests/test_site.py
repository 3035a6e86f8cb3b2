"""The pages of docs/: their links, their place in the site, and the site as it is built."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click
import pytest
import yaml

import pipeline
from pipeline.store.families import additions
from stages.cli import cli
from tests.project import PROJECT

DOCS = PROJECT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^()\s]+)\)")


def prose(page: Path) -> str:
    """Return a page without its code."""
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, which GitHub and the site form alike."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", t).strip().lower()) for t in titles}


@pytest.mark.parametrize("page", [PROJECT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_relative_links_hold(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


@pytest.mark.parametrize("page", [PROJECT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_code_blocks_are_between_blank_lines(page: Path) -> None:
    """Otherwise the site joins a list after the block into a paragraph."""
    lines = ["", *page.read_text(encoding="utf-8").splitlines(), ""]
    fences = [at for at, line in enumerate(lines) if line.lstrip().startswith("```")]
    assert not [lines[at - 1] for at in fences[::2] if lines[at - 1].strip()]
    assert not [lines[at + 1] for at in fences[1::2] if lines[at + 1].strip()]


def test_code_names_pages_that_exist() -> None:
    """Wherever code, a message or a page speaks of docs/<page>.md, that page exists."""
    for folder in ("docs", "pipeline", "stages"):
        for file in (PROJECT / folder).rglob("*"):
            if file.suffix in {".md", ".py", ".html"}:
                for name in re.findall(r"docs/([\w/]+\.md)", file.read_text(encoding="utf-8")):
                    assert (DOCS / name).is_file(), f"{file.name}: docs/{name}"


def _entries(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _entries(entry)


def test_every_page_is_in_the_navigation() -> None:
    site = yaml.safe_load((PROJECT / "mkdocs.yml").read_text(encoding="utf-8"))
    entries = list(_entries(site["nav"]))
    assert len(set(entries)) == len(entries)
    notebook = {"quickstart.md"}  # made of the notebook when the site is built
    assert {*entries} - notebook == {page.relative_to(DOCS).as_posix() for page in PAGES}


def test_names_of_the_api_pages_exist() -> None:
    of_families = {home.replace(":", ".") for home in additions("PUBLIC").values()}
    for page in (DOCS / "api").glob("*.md"):
        for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            public = name in of_families or name.removeprefix("pipeline.") in pipeline.__all__
            assert public or find_spec(name) is not None, f"{page.name}: {name}"
    front = (DOCS / "api/index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^::: pipeline\.(?:\w+\.)*(\w+)$", front, re.MULTILINE))
    assert listed == {*pipeline.__all__} - {"__version__"}


def test_every_command_is_on_its_page() -> None:
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert re.findall(r"^- `pipeline (\w+)`", page, re.MULTILINE) == cli.list_commands(
        click.Context(cli)
    )


def test_parameters_take_the_form_of_numpydoc() -> None:
    pytest.importorskip("griffe", reason="the site's packages are not installed: make docs")
    sys.path.insert(0, str(DOCS / "tools"))
    try:
        docstrings = importlib.import_module("docstrings")
    finally:
        sys.path.remove(str(DOCS / "tools"))
    text = (
        "Do it.\n\nParameters\n----------\na, b : rows of `<id>`,\n    by <id>.\n\n"
        "Returns\n-------\nx : int"
    )
    lines = docstrings.linked(docstrings.numpydoc(text)).splitlines()
    assert lines[4:7] == ["a, b", "    rows of `<id>`,", "    by &lt;id>."]
    assert lines[-1] == "x : int"
    assert docstrings.linked("See `pipeline.run`.") == (
        'See <autoref identifier="pipeline.run" optional><code>pipeline.run</code></autoref>.'
    )


class _Loaded(HTMLParser):
    """What a page has its browser load (scripts, styles, pictures), its links and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str | None] = {""}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.add(given.get("id"))
        if tag == "a" and (link := given.get("href")):
            self.links.append(link)
        names = {"src", "srcset", "data", "poster"}
        if tag != "a" and given.get("rel") != "canonical":
            names.add("href")
        self.addresses += [value for name in names if (value := given.get(name))]


@pytest.mark.slow
def test_the_site_asks_nobody_for_anything(tmp_path: Path) -> None:
    """It is built strictly: a link, anchor or name that does not hold is an error."""
    if find_spec("mkdocs") is None:
        pytest.skip("the site's packages are not installed: make docs")
    site = tmp_path / "site"
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    pages = {page: _Loaded() for page in site.rglob("*.html")}
    assert len(pages) == len(PAGES) + 2  # the notebook's, and that for addresses without a page
    for page, loaded in pages.items():
        loaded.feed(page.read_text(encoding="utf-8"))
        assert loaded.addresses
        outside = [a for a in loaded.addresses if re.match(r"(https?:)?//", a)]
        assert not outside, page.name
    for page, loaded in pages.items():
        for link in loaded.links:
            if page.name == "404.html" or re.match(r"[a-z]+:", link):
                continue  # the addresses of 404.html are those of a server
            path, _, anchor = unquote(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{page.name}: {link}"
            if target in pages:
                assert anchor in pages[target].anchors, f"{page.name}: {link}"
    for style in site.rglob("*.css"):
        assert not re.search(
            r"(url\(|@import )['\"]?(https?:)?//", style.read_text(encoding="utf-8")
        )
    assert (site / "search/search_index.js").stat().st_size > 100_000
    commands = (site / "commands.html").read_text(encoding="utf-8")
    assert 'id="pipeline-shards-verify"' in commands
    assert 'role="dialog" aria-label="Search"' in commands
