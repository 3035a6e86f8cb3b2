"""Files that are missing, and folders that have gone."""

import shutil
from pathlib import Path

import pytest

from pipeline.store.errors import FileReadError
from pipeline.store.jobs.origins import missing_files, require_folder
from pipeline.store.objects.urls import common_folder


def test_a_missing_file_is_a_fact_until_the_folder_of_all_has_gone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    files = [root / name for name in ("a/0.jpg", "a/1.jpg", "b/2.jpg", "b/3.jpg", "b/4.jpg")]
    (root / "a").mkdir(parents=True)
    files[1].touch()
    folder = common_folder(files)
    assert folder == root
    assert missing_files(files[:3]) == [True, False, True]
    assert missing_files(files[2:]) == [True, True, True]
    require_folder(folder)
    shutil.rmtree(root)
    with pytest.raises(FileReadError, match=r"root, the folder of the files, does not exist"):
        require_folder(folder)
