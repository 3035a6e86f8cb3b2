"""The table of mutants, from what mutmut prints and keeps."""

from pathlib import Path

from bench.mutants import PROJECT, TARGETS, difference, endings, table

MODULE = "language/scores/bleu.py"
NAME = "pipeline.language.scores.bleu.x_bleu__mutmut_"


def test_targets_are_modules_with_their_tests() -> None:
    for module, tests in TARGETS.items():
        assert (PROJECT / "pipeline" / module).is_file()
        for test in tests:
            assert (PROJECT / "tests" / test).exists()


def test_mutants_that_a_test_fails_for_or_that_never_end_are_killed() -> None:
    printed = (
        f"    {NAME}1: killed\n    {NAME}2: timeout\n    {NAME}3: survived\n    {NAME}4: killed"
    )
    ended = endings(printed, [f"{NAME}1", f"{NAME}2", f"{NAME}3"])
    assert table([MODULE], {MODULE: 4}, ended).splitlines()[2:] == [
        f"| `{MODULE}` | 4 | 3 | 2 | 67 % |",
        "| `all` | 4 | 3 | 2 | 67 % |",
    ]


def test_the_lines_that_a_mutant_changes(tmp_path: Path) -> None:
    file = tmp_path / f"pipeline/{MODULE}"
    file.parent.mkdir(parents=True)
    bodies = {"orig": "a = 1\n    return a", "1": "a = 2\n    return a"}
    lines = [f"def x_bleu__mutmut_{name}(a):\n    {body}\n" for name, body in bodies.items()]
    file.write_text("".join(lines), encoding="utf-8")
    assert difference(tmp_path, f"{NAME}1") == ["-    a = 1", "+    a = 2"]
