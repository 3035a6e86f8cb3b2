"""What travels with published shards: the header of the card, and Croissant."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pipeline.store.hashing import sha256_of_file
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.share.cards.card import card_text, write_card
from pipeline.store.share.pull import pull
from pipeline.store.share.push import push
from tests.store.shards.factories import build, ids

EVIL = 'a": b\n---\n# x\u2028\u202e\x1b <script> é 🌻\x7f' * 30


@pytest.fixture
def index(tmp_path: Path) -> FeatureIndex:
    return build(tmp_path / "set", 23)


def header_of(text: str) -> dict[str, object]:
    begin, header, _ = text.split("---\n", 2)
    assert begin == ""
    found: dict[str, object] = yaml.safe_load(header)
    return found


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        (None, None),
        ("CC BY 4.0", "cc-by-4.0"),
        ("MIT", "mit"),
        ("photos belong to their authors; for research", "other"),
        (EVIL, "other"),
    ],
)
def test_the_header_is_that_of_a_dataset_card(
    index: FeatureIndex, licence: str | None, expected: str | None
) -> None:
    header = header_of(card_text(index, licence=licence))
    assert header.get("license") == expected
    assert header["pretty_name"] == "Features of made"
    evil = replace(index, header=replace(index.header, dataset=EVIL))
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in EVIL)
    assert header_of(card_text(evil))["pretty_name"] == f"Features of {visible}"
    for rows, category in ((999, "n<1K"), (1000, "1K<n<10K"), (10**9, "100M<n<1B")):
        sized = replace(index, shards=(replace(index.shards[0], rows=rows),))
        assert header_of(card_text(sized))["size_categories"] == [category]


def test_the_hub_s_client_reads_the_header(index: FeatureIndex) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    data = hub.DatasetCard(card_text(index, licence="CC0")).data
    assert (data.license, data.task_categories) == ("cc0-1.0", ["feature-extraction"])


@pytest.mark.filterwarnings("ignore")
def test_croissant_names_every_file_with_its_size_and_sha256(tmp_path: Path) -> None:
    """Also to the library of the standard, if it is installed; and both files travel."""
    folder = tmp_path / "set"
    index = build(folder, 23)
    push(folder, tmp_path / "bare")
    assert "croissant" not in json.loads((tmp_path / "bare" / "files.json").read_text())
    write_card(folder, licence=EVIL)
    first = (folder / "croissant.json").read_bytes()
    write_card(folder, licence=EVIL)
    assert (folder / "croissant.json").read_bytes() == first
    about = json.loads(first)
    assert about["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    assert (about["license"], about["name"]) == (EVIL, "made made")
    assert [file["contentUrl"] for file in about["distribution"]] == [e.file for e in index.shards]
    for file in about["distribution"]:
        path = folder / file["contentUrl"]
        assert file["sha256"] == sha256_of_file(path)
        assert file["contentSize"] == f"{path.stat().st_size} B"
    assert str(tmp_path) not in first.decode()
    push(folder, tmp_path / "there")
    pull(tmp_path / "there", tmp_path / "whole")
    for name in ("SHARDS.md", "croissant.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (folder / name).read_bytes()
    pull(tmp_path / "there", tmp_path / "rows", ids=[ids(23)[5]])
    assert not (tmp_path / "rows" / "croissant.json").exists()
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed")
    metadata = mlcroissant.Dataset(jsonld=str(folder / "croissant.json")).metadata
    assert metadata.ctx.issues.errors == set()
