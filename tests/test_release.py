"""What a release states in several files: one version, and a section of the changelog."""

import re
from configparser import ConfigParser

import yaml

import pipeline
from tests.project import PROJECT


def test_the_oldest_torch_is_that_of_the_workflow_and_the_page() -> None:
    setup = (PROJECT / "setup.cfg").read_text()
    (torch,) = re.findall(r"^    torch>=(.+)$", setup, re.MULTILINE)
    (vision,) = re.findall(r"^    torchvision>=(.+)$", setup, re.MULTILINE)
    page = (PROJECT / "docs/installation.md").read_text()
    assert f"`torch>={torch}` and `torchvision>={vision}` are required" in page
    workflow = (PROJECT / ".github/workflows/ci.yml").read_text()
    assert f"pip install torch=={torch}.0 torchvision=={vision}.0 " in workflow


def test_one_version_everywhere() -> None:
    setup = ConfigParser()
    setup.read(PROJECT / "setup.cfg")
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    assert {setup["metadata"]["version"], citation["version"]} == {pipeline.__version__}
    headings = re.findall(r"^## (.+)$", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] in ("Unreleased", pipeline.__version__)
    assert pipeline.__version__ in headings
