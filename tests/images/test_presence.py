"""Files that are missing, and folders that have gone."""

import shutil
from pathlib import Path

import pytest

from pipeline.images.decode import ImageReadError
from pipeline.images.presence import common_folder, seen_files
from pipeline.shards.plan import Span


def test_a_missing_file_or_folder_is_a_fact_until_the_folder_of_all_has_gone(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    files = [root / name for name in ("a/0.jpg", "a/1.jpg", "b/2.jpg", "b/3.jpg", "b/4.jpg")]
    (root / "a").mkdir(parents=True)
    files[1].touch()
    folder = common_folder(files)
    assert folder == root
    assert seen_files(files, Span(0, 3), folder)["absent"] == [0, 2]
    assert seen_files(files, Span(2, 5), folder) == {
        "files": [str(file) for file in files[2:]],
        "absent": [0, 1, 2],
    }
    shutil.rmtree(root)
    with pytest.raises(ImageReadError, match=r"root, the folder of the files, is not there"):
        seen_files(files, Span(2, 5), folder)
