"""The snippets of docs/cluster.md that cannot run are whole: shell and YAML that readers accept."""

import re
import subprocess

import click
import yaml

from stages.embed import embed
from stages.extract import extract
from stages.text import text
from tests.project import PROJECT

PAGE = (PROJECT / "docs" / "cluster.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for kind, text in found if kind == language]


def test_snippets_can_be_read() -> None:
    for shell in blocks("sh"):
        subprocess.run(["bash", "-n"], input=shell, text=True, check=True)
    (manifest,) = blocks("yaml")
    kinds = [document["kind"] for document in yaml.safe_load_all(manifest)]
    assert kinds == ["Service", "Deployment", "Deployment", "Job"]
    assert sum("#SBATCH" in shell for shell in blocks("sh")) == 1


def test_options_of_the_page_exist() -> None:
    for command in (extract, text, embed):
        options = {name for option in command.params for name in option.opts}
        assert {"--workers", "--scheduler", "--resource", "--summary"} <= options, command.name
    known = {
        name
        for option in extract.params
        for name in option.opts
        if isinstance(option, click.Option)
    }
    for line in PAGE.replace("\\\n", " ").splitlines():
        if line.startswith("pipeline extract "):
            assert set(re.findall(r"--[a-z-]+", line)) <= known, line
