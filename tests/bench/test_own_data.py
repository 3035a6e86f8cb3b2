"""One's own images change, and the same two calls end in the files of a run from nothing."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from bench.own_data import NAMES, OwnData, changes
from stages.cli import main
from tests.forks import exit_of_child, fork

IMAGES = 20


def test_all_changes_at_once(tmp_path: Path) -> None:
    data, names = OwnData(tmp_path, IMAGES), NAMES[:1]
    lines, _ = data.run(names)
    assert (lines.computed("image"), lines.computed("caption")) == (IMAGES, IMAGES)
    for apply in changes(IMAGES).values():
        apply(data)
    lines, _ = data.run(names)
    images = next(line for line in lines.lines if re.match(r"\d+ rows: ", line))
    assert images == "20 rows: 16 kept, 2 new, 2 changed, 2 removed"
    assert lines.computed("image") == 4
    assert lines.computed("caption") == 4, "the mean of word vectors is not fitted"
    data.run(names, "fresh")
    assert data.outputs() == data.outputs("fresh")
    lines, _ = data.run(names)
    assert lines.computed("image") == lines.computed("caption") == 0
    assert data.outputs() == data.outputs("fresh")


@pytest.mark.slow
def test_killed_at_each_step_of_an_update_the_same_command_has_the_same_bytes(
    tmp_path: Path,
) -> None:
    data = OwnData(tmp_path, IMAGES)
    data.run(NAMES)
    for apply in changes(IMAGES).values():
        apply(data)
    data.run(NAMES, "fresh")
    data.write("data")

    def update(stderr: int) -> None:
        os.chdir(tmp_path)
        sys.stderr = os.fdopen(stderr, "w", buffering=1)
        sys.argv = ["pipeline", "run", *NAMES, "--dataset", "data/mine", "--size", "tiny"]
        main()

    kills = 0
    while True:
        lines, stderr = os.pipe()
        child = fork(update, stderr)
        os.close(stderr)
        with os.fdopen(lines) as logged:
            for number, _ in enumerate(logged):
                if number > 4 * kills + 2:
                    os.kill(child, signal.SIGKILL)
                    break
        if (status := exit_of_child(child)) == 0:
            break
        assert status == -signal.SIGKILL
        kills += 1
    assert kills > 3
    assert data.outputs() == data.outputs("fresh")
