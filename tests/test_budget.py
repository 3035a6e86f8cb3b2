"""Each room has at most the lines of its budget, and lines are counted by kind as they should."""

from collections import Counter

from bench.budget import BUDGET, count, measure, room_of, sources_of_tree, table

SOURCE = '''"""A module.

With two lines of text.
"""

import os  # a comment after code is code

X = 1
"""What X is."""

# A comment.
def f(a):
    """Return a."""
    return """not
    a docstring"""


class C:
    y: int = 2
    """A field."""
'''


def test_no_room_exceeds_its_budget() -> None:
    """If this fails: take out as much, or raise the number in bench/budget.py with a reason."""
    lines: Counter[str | None] = Counter()
    for path, source in sources_of_tree():
        lines[room_of(path)] += len(source.splitlines())
    assert lines.keys() - {"bench", "pipeline", None} == BUDGET.keys()
    over = {room: (lines[room], most) for room, most in BUDGET.items() if lines[room] > most}
    assert over == {}


def test_lines_are_counted_by_kind() -> None:
    kinds = count(SOURCE)
    assert kinds == {"docstrings": 7, "code": 7, "comments": 1, "blank": 5}
    assert sum(kinds.values()) == len(SOURCE.splitlines())


def test_the_table_has_the_difference_to_a_commit() -> None:
    now = measure([("pipeline/store/a.py", "x = 1\ny = 2\n"), ("docs/a.py", "x = 1\n")])
    before = measure([("pipeline/store/a.py", "x = 1\n"), ("pipeline/old/b.py", "x = 1\n")])
    lines = {line.split()[0]: line.split() for line in table(now, before)}
    assert lines["store"][1:3] == ["1", "+0"]
    assert lines["store"][3:5] == ["2", "+1"]
    assert lines["old"][3:5] == ["0", "-1"]
    assert room_of("pipeline/__init__.py") == "pipeline"
    assert room_of("docs/tools/pages.py") is None
