"""Draw the pipeline as `pipeline.svg`: what goes in, which command does what, and what comes out.

Run as `python docs/pictures/overview.py docs/pictures/pipeline.svg`. Colours follow the
reader's scheme.
"""

import sys
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 800, 252
ROW = 110
"""Height of a box; two boxes are stacked, `GAP` apart, or one box spans both rows."""
GAP = 24
TOP = 4
LINE = 20

STYLE = """
svg{--ink:#1c2024;--soft:#596069;--rule:#8b949e;--data:#f4f6f8;--work:#ddeaf7}
@media (prefers-color-scheme:dark){svg{--ink:#e8eaed;--soft:#a3abb5;--data:#1f242a;--work:#17324c}}
text{fill:var(--ink);font:13px system-ui,sans-serif}.head{font-weight:700;font-size:16px}
.soft{fill:var(--soft)}rect{stroke:var(--rule)}.data{fill:var(--data)}.work{fill:var(--work)}
path{fill:none;stroke:var(--rule);stroke-width:2}.tip{fill:var(--rule);stroke:none}
"""

BOXES = (
    # left, width, row (None: both), kind, heading, lines
    (4, 150, 0, "data", "images", ("a folder, Flickr8k,", "COCO, drawings")),
    (4, 150, 1, "data", "captions", ("one or more", "sentences an image")),
    (196, 168, 0, "work", "extract", ("networks by recipe,", "to shards with ids")),
    (196, 168, 1, "work", "text", ("word vectors, counts,", "Fisher vectors, tokens")),
    (406, 166, None, "work", "train, embed",
     ("a head of a paper or", "ours puts both sides", "into one space")),
    (614, 182, 0, "work", "evaluate, report", ("Recall@K both ways,", "with intervals")),
    (614, 182, 1, "work", "search, serve", ("sentences find images,", "images find sentences")),
)  # fmt: skip


def main() -> None:
    """Write the figure."""
    parts = [part for box in BOXES for part in _box(*box)]
    parts += [part for row in (0, 1) for left, right in ((154, 196), (364, 406), (572, 614))
              for part in _arrow(left, right, _top(row) + ROW / 2)]  # fmt: skip
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n'
        "<title>Images and captions become features, a head puts both in one space, and the "
        "commands evaluate, report, search and serve use it.</title>\n"
        f"<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )
    Path(sys.argv[1]).write_text(svg, encoding="utf-8")


def _top(row: int) -> int:
    return TOP + row * (ROW + GAP)


def _box(
    left: int, width: int, row: int | None, kind: str, heading: str, lines: tuple[str, ...]
) -> list[str]:
    """Return a box with a heading and lines of text in its middle."""
    top, height = (_top(0), 2 * ROW + GAP) if row is None else (_top(row), ROW)
    middle = left + width / 2
    y = top + (height - LINE * len(lines)) / 2
    parts = [
        f'<rect class="{kind}" x="{left}" y="{top}" width="{width}" height="{height}" rx="8"/>'
    ]
    for number, line in enumerate((heading, *lines)):
        look = "soft" if number else "head"
        at = f'x="{middle:g}" y="{y + LINE * number:g}" text-anchor="middle"'
        parts.append(f'<text class="{look}" {at}>{escape(line)}</text>')
    return parts


def _arrow(left: float, right: float, y: float) -> list[str]:
    return [
        f'<path d="M{left + 4:g} {y:g}H{right - 10:g}"/>',
        f'<path class="tip" d="M{right - 2:g} {y:g}l-10 -6v12z"/>',
    ]


if __name__ == "__main__":
    main()
