"""What a release states in several files: one version, and a section of the changelog."""

import re
import tomllib

import yaml

import pipeline
from tests.project import PROJECT


def test_one_version_everywhere() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    assert {project["version"], citation["version"]} == {pipeline.__version__}
    headings = re.findall(r"^## (.+)$", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] in ("Unreleased", pipeline.__version__)
    assert pipeline.__version__ in headings
