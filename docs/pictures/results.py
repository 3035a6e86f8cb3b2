r"""Draw what `pipeline search SENTENCE --json` found: each sentence above its first pictures.

`results.svg` is made by these commands, in three minutes; its sentences are chosen by hand, its
pictures are those found among the 167 of the test split:

    pipeline prepare scenes --images 1000 --seed 0 --out data/scenes
    pipeline run kiros2014-linear --dataset data/scenes
    printf '%s\n' 'blue fish' 'red hearts' 'stars on a wooden floor' > queries.txt
    pipeline search --queries queries.txt --experiment kiros2014-linear --dataset data/scenes \
        --json | python docs/pictures/results.py docs/pictures/results.svg

In a folder with a `params.yaml`, `run` takes the experiment's settings from there; this picture
was made in one without.

Pictures stand in the file, so that it shows wherever it lies; its colours follow the reader's
scheme.
"""

import io
import json
import sys
from base64 import b64encode
from html import escape
from pathlib import Path

from PIL import Image

SIDE, GAP, LABEL = 140, 8, 34
"""Pixels: of a picture, between pictures, and of the line with the sentence above them."""
SHARP = 2
"""Pixels of the copy to a pixel shown, for dense screens."""
QUALITY = 72

STYLE = """
svg{--ink:#1c2024}@media (prefers-color-scheme:dark){svg{--ink:#e8eaed}}
text{fill:var(--ink);font:600 17px system-ui,sans-serif}
"""


def main() -> None:
    """Put the sentences below each other, each with its pictures, best first."""
    answers = json.load(sys.stdin)["answers"]
    columns = max(len(answer["results"]) for answer in answers)
    width, row = columns * (SIDE + GAP) - GAP, LABEL + SIDE + GAP
    parts = []
    for number, answer in enumerate(answers):
        top = number * row
        query = escape(answer["query"]["sentence"])
        parts.append(f'<text x="0" y="{top + 23}">“{query}”</text>')
        for column, result in enumerate(answer["results"]):
            parts.append(_picture(Path(result["file"]), column * (SIDE + GAP), top + LABEL))
    height = len(answers) * row
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>Sentences, each with the first pictures found for it.</title>\n"
        f"<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )
    Path(sys.argv[1]).write_text(svg, encoding="utf-8")


def _picture(path: Path, left: int, top: int) -> str:
    """Return a small copy as an element of SVG."""
    stream = io.BytesIO()
    with Image.open(path) as picture:
        small = picture.convert("RGB").resize(
            (SHARP * SIDE, SHARP * SIDE), Image.Resampling.LANCZOS
        )
    small.save(stream, "JPEG", quality=QUALITY, optimize=True)
    data = b64encode(stream.getvalue()).decode()
    place = f'x="{left}" y="{top}" width="{SIDE}" height="{SIDE}"'
    return f'<image {place} href="data:image/jpeg;base64,{data}"/>'


if __name__ == "__main__":
    main()
