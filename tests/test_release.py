"""What a release states in several files: one version, and a section of the changelog."""

import re
from configparser import ConfigParser

import yaml

import pipeline
from tests.project import PROJECT


def test_one_version_everywhere() -> None:
    setup = ConfigParser()
    setup.read(PROJECT / "setup.cfg")
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    assert {setup["metadata"]["version"], citation["version"]} == {pipeline.__version__}
    headings = re.findall(r"^## (.+)$", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] in ("Unreleased", pipeline.__version__)
    assert pipeline.__version__ in headings
