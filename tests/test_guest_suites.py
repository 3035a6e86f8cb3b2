"""The public suites, inherited for the guest package as another project does."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pipeline.datasets.readers import READERS
from pipeline.testing import (
    BackboneSuite,
    EncoderCase,
    EncoderSuite,
    HeadCase,
    HeadSuite,
    ReaderCase,
    ReaderSuite,
)
from tests.test_guests import COLOURS, GUEST, draw_photos, forget, install


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install(monkeypatch, GUEST)
    yield
    forget()


class TestNetwork(BackboneSuite):
    @pytest.fixture
    def case(self) -> str:
        return "tiny-net"


class TestHead(HeadSuite):
    @pytest.fixture
    def case(self) -> HeadCase:
        return HeadCase("least-squares")


class TestEncoder(EncoderSuite):
    @pytest.fixture
    def case(self, tmp_path: Path) -> EncoderCase:
        return EncoderCase.fitted("letters", tmp_path / "fitted")


class TestReader(ReaderSuite):
    @pytest.fixture
    def case(self, tmp_path: Path) -> ReaderCase:
        draw_photos(tmp_path / "photos")
        rows = []
        for number in range(30):
            caption = f"a {[*COLOURS][number % 3]} wall {'z' * (number % 4)}".strip()
            split = ("train", "train", "train", "val", "test")[number // 3 % 5]
            rows.append((f"{number}.png", f"{number}.png", split, (caption,)))
        return ReaderCase(partial(READERS.get("lines"), tmp_path / "photos"), rows)
