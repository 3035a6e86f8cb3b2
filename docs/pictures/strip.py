"""Draw the query image and the results of `pipeline search --image ID --of images --json`.

Run as `pipeline search ... --json | python docs/pictures/strip.py OUT.png`. The query's
image must be in the folder of its results, as drawn scenes are.
"""

import json
import sys
from pathlib import Path

from PIL import Image

SIDE, GAP, APART = 128, 6, 30
"""Pixels: side of an image, gap between results, gap between the query and the first result."""
COLOURS = 256
"""A palette keeps the strip small."""


def main() -> None:
    """Put the query on the left and its results on the right, best first."""
    (answer,) = json.load(sys.stdin)["answers"]
    results = [Path(result["file"]) for result in answer["results"]]
    query = results[0].with_name(answer["query"]["image"] + results[0].suffix)
    width = SIDE * (1 + len(results)) + APART + GAP * (len(results) - 1)
    strip = Image.new("RGB", (width, SIDE), "white")
    left = 0
    for path in (query, *results):
        with Image.open(path) as picture:
            strip.paste(picture.convert("RGB").resize((SIDE, SIDE)), (left, 0))
        left += SIDE + (APART if path == query else GAP)
    strip.quantize(COLOURS, kmeans=2, dither=Image.Dither.NONE).save(sys.argv[1], optimize=True)


if __name__ == "__main__":
    main()
