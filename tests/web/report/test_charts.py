"""Charts: well-formed, points where their values say, text as text, scales that cover the data."""

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from pipeline.web.report.charts import (
    COLOURS,
    Bar,
    Series,
    Spans,
    dot_chart,
    line_chart,
    nice_ticks,
    span_chart,
)
from pipeline.web.report.figures import letter_chart, thumbnail_chart

NAME = '<script>alert("x")</script> & \x1b[31m \u202egnp'


def _parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def _all(svg: str, tag: str) -> list[ElementTree.Element]:
    return _parsed(svg).findall(f".//{{http://www.w3.org/2000/svg}}{tag}")


@pytest.mark.parametrize(
    ("low", "high"), [(0, 292.7), (0, 100), (0, 0), (3, 3), (0.0012, 0.0013), (-7, 12), (1, 30)]
)
def test_ticks_cover_the_data_evenly(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low
    assert ticks[-1] >= high
    steps = [b - a for a, b in pairwise(ticks)]
    assert 1 <= len(steps) <= 7
    assert max(steps) == pytest.approx(min(steps))
    mantissa = f"{steps[0]:.6e}".split("e")[0]
    assert float(mantissa) in (1, 2, 5)


def test_ticks_of_whole_numbers_and_refusals() -> None:
    assert nice_ticks(1, 3, whole=True) == [1, 2, 3]
    assert nice_ticks(0, 573.3, most=600)[-1] == 600
    assert nice_ticks(0, 250, most=240) == [0, 50, 100, 150, 200, 240]
    for low, high in ((1.0, 0.0), (0.0, float("nan")), (0.0, float("inf"))):
        with pytest.raises(ValueError, match="cannot run from"):
            nice_ticks(low, high)


def test_a_system_has_its_own_look_on_all_charts() -> None:
    looks = set()
    for number in range(COLOURS):
        line = line_chart([Series("b", ((1, 3),), number=number)], "x", "y", "z")
        dots = dot_chart([Bar("b", 3, number=number)], "x", "z")
        assert f'class="f{number}"' in line
        (mark,) = _all(dots, "polygon" if number else "circle")
        looks.add(mark.attrib.get("points", ""))
    assert len(looks) == COLOURS


def test_dots_stand_at_their_values() -> None:
    svg = dot_chart([Bar("a", 50, 40, 70), Bar(NAME, 100)], "rsum", "alt " + NAME)
    first, second = (float(c.attrib["cx"]) for c in _all(svg, "circle"))
    zero = float(_all(svg, "line")[0].attrib["x1"])
    (numeral,) = [text.attrib for text in _all(svg, "text") if text.text == "0"]
    assert (float(numeral["x"]), numeral["text-anchor"]) == (zero, "middle")
    assert (second - zero) == pytest.approx(2 * (first - zero), abs=0.2)
    (interval,) = [line for line in _all(svg, "line") if line.attrib["class"] == "line c0"]
    ends = [(float(interval.attrib[x]) - zero) / (second - zero) for x in ("x1", "x2")]
    assert ends == pytest.approx([0.4, 0.7], abs=0.002)


def test_lines_join_their_points_and_names_are_text() -> None:
    series = Series(NAME, ((1, 0), (2, 50), (4, 100)), marked=2)
    others = [Series(name, ((3, 3),), number=n) for n, name in enumerate(("c", "d"), COLOURS)]
    svg = line_chart([series, Series("b", ((1, 10), (4, 20)), number=1), *others], "x", "y", "z")
    mine = next(p for p in _all(svg, "polyline") if p.attrib["class"] == "line c0")
    points = [tuple(map(float, p.split(","))) for p in mine.attrib["points"].split()]
    (x1, y1), (x2, y2), (x4, y4) = points
    assert (x4 - x1) == pytest.approx(3 * (x2 - x1), abs=0.3)
    assert (y1 - y4) == pytest.approx(2 * (y1 - y2), abs=0.3)
    sizes = sorted(float(c.attrib["r"]) for c in _all(svg, "circle"))
    assert sizes[-1] > sizes[0] == sizes[-2]
    texts = [text.text or "" for text in _all(svg, "text")]
    assert any(
        text.startswith(r'<script>alert("x")</script> & \x1b[31m \u202egn') for text in texts
    )
    for name, number in (("c", COLOURS + 1), ("d", COLOURS + 2)):
        assert name in texts
        assert texts.count(str(number)) == 2  # at the line's end and in the legend
    assert not _all(svg, "script")


def test_a_scale_starts_near_values_far_above_zero_and_says_so() -> None:
    for least, said in ((40, False), (60, True)):
        lines = [Series("a", ((1, 90), (2, 100)), 2), Series("b", ((1, least), (2, 95)), 2, 1)]
        svg = line_chart(lines, "epoch", "R@10", "z")
        title = _all(svg, "text")[0].text or ""
        assert ("starts at 60" in title) is said
    (circle,) = [c for c in _all(svg, "circle") if c.attrib["class"] == "f0 kept"]
    (square,) = [c for c in _all(svg, "polygon") if c.attrib["class"] == "f1 kept"]
    top = min(float(p.split(",")[1]) for p in square.attrib["points"].split())
    assert float(circle.attrib["cy"]) + float(circle.attrib["r"]) < top


def test_letters_stand_at_their_points_at_one_scale() -> None:
    svg = letter_chart({NAME: [(0, 0), (3, 0)], "b": [(0, 6)]}, "x", "y", "z")
    letters = [text for text in _all(svg, "text") if "letter" in text.attrib.get("class", "")]
    origin, right, _, above, _ = [(float(t.attrib["x"]), float(t.attrib["y"])) for t in letters]
    assert [text.text for text in letters] == ["A", "A", "A", "B", "B"]
    assert right[1] == origin[1]
    assert above[0] == origin[0]
    assert origin[1] - above[1] == pytest.approx(2 * (right[0] - origin[0]), abs=0.2)
    assert _all(letter_chart({"a": [(0, 0)]}, "x", "y", "z"), "text")


def test_spans_go_from_a_filled_end_to_a_hollow_one() -> None:
    rows = [Spans(NAME, "token ids", (0.5, 1)), Spans("b", (0, 0.25), (0, 1))]
    svg = span_chart(rows, ("before", "after"), ("one", "two"), "x", "z")
    texts = [text.text for text in _all(svg, "text")]
    assert texts.count("no grey line: token ids") == 1
    assert texts[-4:] == ["before", "after", "one", "two"]
    ends = [(c.attrib["class"], float(c.attrib["cx"])) for c in _all(svg, "circle")]
    *ends, _, _, _, _, _, _ = ends  # the legend's
    assert [kind for kind, _ in ends] == [
        "f0", "line unfilled c0", "soft", "line unfilled cs", "f0", "line unfilled c0"
    ]  # fmt: skip
    half, one, zero, quarter = (ends[k][1] for k in (0, 1, 2, 3))
    assert one - zero == pytest.approx(2 * (half - zero), abs=0.2)
    assert one - zero == pytest.approx(4 * (quarter - zero), abs=0.3)


def test_words_stand_over_pictures_and_apart_from_each_other() -> None:
    words = {NAME: (0.0, 0.0), "same": (0.0, 0.0), "far": (0.0, -1.0)}
    pictures = [("<b>", b"\xff\xd8", (1.0, 0.0)), ("none", b"", (0.0, 1.0))]
    svg = thumbnail_chart(words, pictures, "x", "y", "z")
    (image,) = _all(svg, "image")
    assert image.attrib["href"] == "data:image/jpeg;base64,/9g="
    frames = _all(svg, "rect")[1:]
    assert frames[0].attrib["x"] == image.attrib["x"]
    assert float(frames[0].attrib["y"]) > float(frames[1].attrib["y"])
    labels = [t for t in _all(svg, "text") if t.attrib.get("class") == "word"]
    assert len(labels) == 3
    heights = sorted(float(t.attrib["y"]) for t in labels)
    assert all(b - a >= 15 for a, b in pairwise(heights))
    assert _all(thumbnail_chart({"a": (0, 0)}, [], "x", "y", "z"), "text")
