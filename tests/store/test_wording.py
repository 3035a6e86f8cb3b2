"""Counts, nearest names and URLs in messages."""

import pytest

from pipeline.store.wording import counted, did_you_mean, markdown_table, nearest, without_secrets


def test_counts_have_their_number() -> None:
    assert [counted(n, "shard") for n in (0, 1, 2)] == ["0 shards", "1 shard", "2 shards"]
    assert counted(3, "query", "queries") == "3 queries"
    assert counted(1, "row has", "rows have") == "1 row has"


@pytest.mark.parametrize(
    ("given", "known", "expected"),
    [
        ("recpie", ["precision", "device", "recipe"], ["recipe"]),
        ("extrct", ["prepare", "text", "extract"], ["extract"]),
        (
            "kiros",
            ["kiros2014-lstm", "vsepp", "kiros2014-gru"],
            ["kiros2014-gru", "kiros2014-lstm"],
        ),
        ("clip", ["vgg19", "open-clip:MODEL.TAG"], ["open-clip:MODEL.TAG"]),
        ("VSE++", ["vsepp"], ["vsepp"]),
        ("zz", ["abc", "vsepp"], []),
        ("", ["a"], []),
        ("a", [], []),
    ],
)
def test_the_nearest_names_come_first(given: str, known: list[str], expected: list[str]) -> None:
    assert nearest(given, known) == expected


def test_at_most_five_names_and_no_name_twice() -> None:
    known = [f"clip-{n}" for n in range(50)] * 2
    assert len(set(nearest("clip", known))) == len(nearest("clip", known)) == 5


def test_without_a_near_name_all_are_listed_or_the_command_that_lists_them() -> None:
    assert did_you_mean("recipes", ["recipe"]) == "did you mean recipe?"
    assert did_you_mean("abc", ["abd", "abe"]) == "did you mean abd or abe?"
    assert did_you_mean("x", ["cca", "ridge"], "pipeline list heads") == "known: cca, ridge"
    assert did_you_mean("x", []) == "known: none"
    many = [f"head-{n}" for n in range(13)]
    assert did_you_mean("x", many, "pipeline list heads") == "`pipeline list heads` lists all"


def test_urls_are_shown_without_secrets() -> None:
    assert without_secrets("s3://me:key@host/a/b?token=1") == "s3://host/a/b"
    assert without_secrets("a/b@c?d") == "a/b@c?d"


def test_a_cell_of_a_table_is_one_cell() -> None:
    table = markdown_table(["name", "reason"], [["x", "Expected `int | str`\nin a.json"]])
    assert table.splitlines()[2] == r"| x | Expected `int \| str` in a.json |"
