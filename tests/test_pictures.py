"""The images of README and docs: as their programs draw them, in one file, text as text."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from PIL import Image

from tests.project import PROJECT

PICTURES = PROJECT / "docs/pictures"


def test_the_picture_of_the_pipeline_is_what_its_program_draws(tmp_path: Path) -> None:
    drawn = tmp_path / "pipeline.svg"
    subprocess.run([sys.executable, PICTURES / "overview.py", drawn], check=True)
    assert drawn.read_bytes() == (PICTURES / "pipeline.svg").read_bytes()


def test_photographs_are_embedded_in_one_small_file(tmp_path: Path) -> None:
    Image.new("RGB", (256, 256), "red").save(tmp_path / "a.png")
    results = [{"file": str(tmp_path / "a.png")}] * 4
    found = {"answers": [{"query": {"sentence": "<b> & hearts"}, "results": results}]}
    drawn = tmp_path / "photographs.svg"
    program = [sys.executable, str(PICTURES / "photographs.py"), str(drawn)]
    subprocess.run(program, input=json.dumps(found), text=True, check=True)
    for path, images in ((drawn, 3), (PICTURES / "photographs.svg", 12)):
        svg = ElementTree.parse(path).getroot()
        named = {element.tag.split("}")[1]: element for element in svg}
        links = [e.get("href", "") for e in svg if e.tag.endswith("image")]
        assert len(links) == images
        assert all(link.startswith("data:image/jpeg;base64,") for link in links)
        assert named["text"].text
        assert path.stat().st_size < 150_000
    assert "“&lt;b&gt; &amp; hearts”" in drawn.read_text(encoding="utf-8")
