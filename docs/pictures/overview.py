"""Draw the pipeline as `pipeline.svg`: what goes in, which command does what, and what comes out.

Run as `python docs/pictures/overview.py docs/pictures/pipeline.svg`. Colours follow the
reader's scheme; the figure is narrow, so that a phone shows its text almost at its own size.
"""

import sys
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 440, 432
BOX, ROW = 206, 80
"""Width and height of a box; one box spans both columns."""
GAP = 32
EDGE = 8
LINE = 21

STYLE = """
svg{--ink:#1c2024;--soft:#596069;--rule:#8b949e;--data:#f4f6f8;--work:#ddeaf7}
@media (prefers-color-scheme:dark){svg{--ink:#e8eaed;--soft:#a3abb5;--data:#1f242a;--work:#17324c}}
text{fill:var(--ink);font:15px system-ui,sans-serif}.head{font-weight:700;font-size:17px}
.soft{fill:var(--soft)}rect{stroke:var(--rule)}.data{fill:var(--data)}.work{fill:var(--work)}
path{fill:none;stroke:var(--rule);stroke-width:2}.tip{fill:var(--rule);stroke:none}
"""

BOXES = (
    # row, column (None: both), kind, heading, lines
    (0, 0, "data", "images", ("a folder, Flickr8k,", "COCO, drawings")),
    (0, 1, "data", "captions", ("one or more", "sentences an image")),
    (1, 0, "work", "extract", ("networks by recipe,", "to shards with ids")),
    (1, 1, "work", "text", ("word vectors, counts,", "Fisher vectors, tokens")),
    (2, None, "work", "train, embed",
     ("a head of a paper or ours", "puts both sides into one space")),
    (3, 0, "work", "evaluate, report", ("Recall@K both ways,", "with intervals")),
    (3, 1, "work", "search, serve", ("sentences find images,", "images find sentences")),
)  # fmt: skip


def main() -> None:
    """Write the figure."""
    parts = [part for box in BOXES for part in _box(*box)]
    parts += [part for row in (1, 2, 3) for column in (0, 1)
              for part in _arrow(_left(column) + BOX / 2, _top(row))]  # fmt: skip
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n'
        "<title>Images and captions become features, a head puts both in one space, and the "
        "commands evaluate, report, search and serve use it.</title>\n"
        f"<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )
    Path(sys.argv[1]).write_text(svg, encoding="utf-8")


def _top(row: int) -> int:
    return EDGE + row * (ROW + GAP)


def _left(column: int) -> int:
    return EDGE + column * (WIDTH - 2 * EDGE - BOX)


def _box(
    row: int, column: int | None, kind: str, heading: str, lines: tuple[str, ...]
) -> list[str]:
    """Return a box with a heading and lines of text in its middle."""
    left, width = (EDGE, WIDTH - 2 * EDGE) if column is None else (_left(column), BOX)
    top, middle = _top(row), left + width / 2
    y = top + (ROW - LINE * len(lines)) / 2 + 4
    parts = [f'<rect class="{kind}" x="{left}" y="{top}" width="{width}" height="{ROW}" rx="8"/>']
    for number, line in enumerate((heading, *lines)):
        look = "soft" if number else "head"
        at = f'x="{middle:g}" y="{y + LINE * number:g}" text-anchor="middle"'
        parts.append(f'<text class="{look}" {at}>{escape(line)}</text>')
    return parts


def _arrow(x: float, bottom: float) -> list[str]:
    """Return an arrow through the gap above a box."""
    return [
        f'<path d="M{x:g} {bottom - GAP + 4:g}V{bottom - 10:g}"/>',
        f'<path class="tip" d="M{x:g} {bottom - 2:g}l-6 -10h12z"/>',
    ]


if __name__ == "__main__":
    main()
