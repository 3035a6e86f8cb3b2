r"""Draw the results of `pipeline search --json`: one column per sentence, its first images below.

`photographs.svg` is drawn by these commands, in a folder without `params.yaml`, from a head that
was trained on Flickr8k (`pipeline run kiros2014-linear --dataset data/flickr8k`) and has not seen
these photographs. The sentences are chosen: for others, such as "a brick wall", the first result
is wrong.

    mkdir photos && data=$(python -c 'import skimage; print(skimage.__path__[0])')/data
    for name in astronaut.png brick.png camera.png chelsea.png coffee.png grass.png gravel.png \
        hubble_deep_field.jpg moon.png rocket.jpg; do cp $data/$name photos; done
    pipeline prepare folder --root photos --out data/cc0
    pipeline extract --recipe efficientnet-lite0-pool --dataset data/cc0 \
        --out data/features/cc0/efficientnet-lite0-pool
    printf '%s\n' 'a man taking a photo with his camera' 'a close up of a cat' 'a grassy field' \
        'a rocket in the sky' > queries.txt
    pipeline search --queries queries.txt --top 3 --experiment kiros2014-linear --dataset data/cc0 \
        --head data/heads/flickr8k/kiros2014-linear --encoder data/text/flickr8k/bow-vsepp.encoder \
        --json | python docs/pictures/photographs.py docs/pictures/photographs.svg

The ten photographs are those of the scikit-image package without restrictions: CC0 (camera by Lav
Varshney, chelsea by Stefan van der Walt, coffee by Rachel Michetti, and the textures) or in the
public domain (NASA, SpaceX). Images are embedded in the file; its colours follow the reader's
scheme.
"""

import io
import json
import sys
import textwrap
from base64 import b64encode
from html import escape
from pathlib import Path

from PIL import Image, ImageOps

LARGE, SMALL, GAP, LABEL = 196, 94, 8, 52
"""Pixels: sides of the first image and of the others, gap, and height of a sentence."""
SHARP = 1.5
"""Pixels of an embedded image per pixel shown, for dense screens."""
QUALITY = 72
LICENCE = "Photographs of scikit-image: CC0 or public domain."

STYLE = """
svg{--ink:#1c2024}@media (prefers-color-scheme:dark){svg{--ink:#e8eaed}}
text{fill:var(--ink);font:600 16px system-ui,sans-serif}
"""


def main() -> None:
    """Write the sentences next to each other, each with its images, best first."""
    answers = json.load(sys.stdin)["answers"]
    parts = []
    for column, answer in enumerate(answers):
        left = column * (LARGE + 2 * GAP)
        lines = textwrap.wrap(f"“{answer['query']['sentence']}”", 22)[:2]
        for number, line in enumerate(lines):
            parts.append(f'<text x="{left}" y="{18 + 21 * number}">{escape(line)}</text>')
        first, *others = [Path(result["file"]) for result in answer["results"]][:3]
        parts.append(embedded(first, left, LABEL, LARGE))
        for number, file in enumerate(others):
            at = left + number * (SMALL + GAP)
            parts.append(embedded(file, at, LABEL + LARGE + GAP, SMALL))
    width, height = len(answers) * (LARGE + 2 * GAP) - 2 * GAP, LABEL + LARGE + GAP + SMALL
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>Sentences, each with the first photographs found for it.</title>\n"
        f"<desc>{LICENCE}</desc>\n<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )
    Path(sys.argv[1]).write_text(svg, encoding="utf-8")


def embedded(path: Path, left: int, top: int, side: int) -> str:
    """Return the central square of an image as an SVG element, `side` pixels wide."""
    stream = io.BytesIO()
    pixels = int(SHARP * side)
    with Image.open(path) as image:
        small = ImageOps.fit(image.convert("RGB"), (pixels, pixels), Image.Resampling.LANCZOS)
    small.save(stream, "JPEG", quality=QUALITY, optimize=True)
    data = b64encode(stream.getvalue()).decode()
    place = f'x="{left}" y="{top}" width="{side}" height="{side}"'
    return f'<image {place} href="data:image/jpeg;base64,{data}"/>'


if __name__ == "__main__":
    main()
