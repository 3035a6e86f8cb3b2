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
        ("CC0", "cc0-1.0"),
        ("CC BY 4.0", "cc-by-4.0"),
        ("MIT", "mit"),
        ("photos belong to their authors; for research", "other"),
        ("cc-by-9.9", "other"),
        (EVIL, "other"),
    ],
)
def test_the_header_is_that_of_a_dataset_card(
    index: FeatureIndex, licence: str | None, expected: str | None
) -> None:
    header = header_of(card_text(index, licence=licence))
    assert header.get("license") == expected
    assert header["size_categories"] == ["n<1K"]
    assert header["pretty_name"] == "Features of made"


@pytest.mark.parametrize(
    ("rows", "category"), [(999, "n<1K"), (1000, "1K<n<10K"), (10**9, "100M<n<1B")]
)
def test_the_size_is_one_of_the_hub_s_names(index: FeatureIndex, rows: int, category: str) -> None:
    entry = replace(index.shards[0], rows=rows)
    header = header_of(card_text(replace(index, shards=(entry,))))
    assert header["size_categories"] == [category]


def test_text_from_data_stays_one_value(index: FeatureIndex) -> None:
    evil = replace(index, header=replace(index.header, dataset=EVIL))
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in EVIL)
    assert header_of(card_text(evil))["pretty_name"] == f"Features of {visible}"


def test_the_hub_s_client_reads_the_header(index: FeatureIndex) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    data = hub.DatasetCard(card_text(index, licence="CC0")).data
    assert isinstance(data, hub.DatasetCardData)
    assert (data.license, data.task_categories) == ("cc0-1.0", ["feature-extraction"])


def test_croissant_names_every_file_with_its_size_and_sha256(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    index = build(folder, 23)
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
    write_card(folder)
    assert "license" not in json.loads((folder / "croissant.json").read_text())


@pytest.mark.filterwarnings("ignore")
def test_croissant_is_valid_to_the_library_of_the_standard(tmp_path: Path) -> None:
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed")
    build(tmp_path / "set", 23)
    write_card(tmp_path / "set", licence="CC-BY-4.0")
    metadata = mlcroissant.Dataset(jsonld=str(tmp_path / "set" / "croissant.json")).metadata
    assert metadata.ctx.issues.errors == set()
    assert [file.sha256 for file in metadata.distribution] == [
        sha256_of_file(tmp_path / "set" / file.content_url) for file in metadata.distribution
    ]


def test_it_is_pushed_and_pulled_with_a_whole_set(tmp_path: Path) -> None:
    build(tmp_path / "set", 23)
    push(tmp_path / "set", tmp_path / "bare")
    assert "croissant" not in json.loads((tmp_path / "bare" / "files.json").read_text())
    write_card(tmp_path / "set")
    push(tmp_path / "set", tmp_path / "there")
    pull(tmp_path / "there", tmp_path / "whole")
    for name in ("SHARDS.md", "croissant.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "set" / name).read_bytes()
    pull(tmp_path / "there", tmp_path / "rows", ids=[ids(23)[5]])
    assert not (tmp_path / "rows" / "croissant.json").exists()
