"""A hub that does not answer costs one request, and what is in its cache is used all the same."""

import time
from pathlib import Path

import pytest

from pipeline.images.networks.hub import hub_or_cache

hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
COMMIT = "0" * 40


@pytest.fixture(autouse=True)
def out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache with one file of one repository, and a hub behind a closed port."""
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    for name, text in (("refs/main", COMMIT), (f"snapshots/{COMMIT}/here", "weights")):
        path = tmp_path / "models--a--b" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)


def test_the_cache_is_used_and_what_it_lacks_fails_at_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    with hub_or_cache():
        assert Path(hub.hf_hub_download("a/b", "here", cache_dir=tmp_path)).read_text() == "weights"
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:9 does not answer: ."), hub_or_cache():
        hub.hf_hub_download("a/b", "missing", cache_dir=tmp_path)
    assert time.monotonic() - started < 4
    assert not hub.constants.HF_HUB_OFFLINE
    assert capfd.readouterr() == ("", "")


def test_another_error_of_the_block_is_not_put_down_to_the_hub() -> None:
    with pytest.raises(RuntimeError, match="shapes differ"), hub_or_cache():
        raise RuntimeError("shapes differ")
    assert not hub.constants.HF_HUB_OFFLINE


def test_a_hub_that_answers_or_is_switched_off_is_left_to_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.images.networks.hub._unreachable", lambda: None)
    with hub_or_cache():
        assert not hub.constants.HF_HUB_OFFLINE
    asked = "pipeline.images.networks.hub._unreachable"
    monkeypatch.setattr(asked, lambda: pytest.fail("was asked"))
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    with hub_or_cache():
        pass
    assert hub.constants.HF_HUB_OFFLINE
