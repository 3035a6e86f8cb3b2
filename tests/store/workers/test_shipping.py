"""What tasks read reaches workers that share no folder, once and unchanged."""

from pathlib import Path

import fsspec
import pytest

from pipeline.store.errors import FileReadError
from pipeline.store.objects.locate import open_remote
from pipeline.store.workers import shipping as shipping_module
from pipeline.store.workers.shipping import Shipping, shared


@pytest.fixture
def shipping(tmp_path: Path) -> Shipping:
    url = f"memory://{tmp_path.name}/files"
    return Shipping(open_remote(url), url, print)


def test_files_and_folders_arrive_by_their_content(tmp_path: Path, shipping: Shipping) -> None:
    head = tmp_path / "head"
    (head / "deep").mkdir(parents=True)
    (head / "a.json").write_text("{}")
    (head / "deep" / "b.bin").write_bytes(b"1234")
    folder, file = shipping(head), shipping(head / "a.json")
    assert folder.here() != head
    assert (folder.here() / "deep" / "b.bin").read_bytes() == b"1234"
    assert (folder.here().name, file.here().name) == ("head", "a.json")
    assert file.here() == file.here(), "received once"
    assert len(fsspec.filesystem("memory").find(f"/{tmp_path.name}/files")) == 2
    assert shared(head).here() == head


def test_a_file_is_made_once(tmp_path: Path, shipping: Shipping) -> None:
    written: list[Path] = []

    def write(path: Path) -> None:
        written.append(path)
        path.write_bytes(b"weights")

    made = [shipping.made("w.bin", write) for _ in range(3)]
    assert len(written) == 1
    assert [one.here().read_bytes() for one in made] == [b"weights"] * 3


def test_a_changed_copy_is_refused(
    tmp_path: Path, shipping: Shipping, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text("{}")
    shipped = shipping(tmp_path / "a.json")
    store = fsspec.filesystem("memory")
    store.pipe(store.find(f"/{tmp_path.name}/files")[0], b"[]")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(shipping_module, "scratch", lambda: tmp_path / "scratch")
    with pytest.raises(FileReadError, match=r"is not the copy of .*a\.json that the command"):
        shipped.here()
    assert not [*(tmp_path / "scratch").iterdir()], "nothing is left"
