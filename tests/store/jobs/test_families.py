"""Every family of features has every capability of the driver: one test each, for all families."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from json import loads
from pathlib import Path
from shutil import copytree
from typing import Any

import fsspec
import numpy as np
import pytest
import torch

from pipeline.clips.clip_batches import View
from pipeline.clips.extract_clips import extract_clips
from pipeline.clips.recipes import ClipRecipe
from pipeline.clips.sound.extract_sound import extract_sound
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.images.extract import extract
from pipeline.regions.features import Regions, extract_regions
from pipeline.regions.proposal_source import Proposer
from pipeline.regions.propose import propose
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.verify import verify
from pipeline.store.workers.place import Place
from pipeline.text.encode import encode
from tests.clips.factories import tone, write_wav
from tests.clips.moving import write_clip
from tests.images.networks.narrow import NAME, NARROW
from tests.images.odd_files import photo
from tests.project import Recorder, contents
from tests.store.jobs.factories import options
from tests.store.workers.tasks import serial

LITE, BOXES, ROWS, ENTRIES = "efficientnet-lite0-pool", 2, 5, 8


@dataclass(frozen=True)
class Family:
    """A family of features.

    Attributes
    ----------
    make : makes the features of a folder's dataset.
    suffix : of the files that rows are made from; "" of captions.
    per_entry : rows of an entry of the dataset.
    """

    make: Callable[..., FeatureIndex]
    suffix: str = ".png"
    per_entry: int = 1


def _images(data: Path, out: Path, **given: Any) -> FeatureIndex:
    given = {"weights": "random:0", "threads": 1, "readers": 1, "batch_size": 2} | given
    return extract(data, out, recipe=LITE, **options(**given))


def _regions(recipe: str) -> Callable[..., FeatureIndex]:
    def make(data: Path, out: Path, **given: Any) -> FeatureIndex:
        """As `--regions` says: propose, and again where images have changed."""
        boxes = data / "boxes"
        how = {"update": True} if given.get("update") else {"add": True}
        propose(data, boxes, proposer=Proposer("grid", BOXES), **options(**how))
        weights = {} if recipe == "box-geometry" else {"weights": "random:0"}
        given = {"threads": 1} | weights | given
        return extract_regions(data, out, recipe=recipe, regions=Regions(boxes), **options(**given))

    return make


def _proposals(data: Path, out: Path, **given: Any) -> FeatureIndex:
    return propose(data, out, proposer=Proposer("grid", BOXES), **options(**given))


def _clips(data: Path, out: Path, **given: Any) -> FeatureIndex:
    pytest.importorskip("av", reason="needs the extra clips")
    return extract_clips(data, out, recipe=f"{LITE}@even:2", **options(**given))


def _sound(data: Path, out: Path, **given: Any) -> FeatureIndex:
    pytest.importorskip("av", reason="needs the extra clips")
    # A codebook is fitted to the clips as they were; it stays where they change.
    given = {"codebook": data / "codebook.safetensors"} | given
    return extract_sound(data, out, recipe="mfcc-bow-2", **options(**given))


def _captions(data: Path, out: Path, **given: Any) -> FeatureIndex:
    return encode(data, out, encoder="mean", **options(**given))


FAMILIES = {
    "images": Family(_images),
    "cut regions": Family(_regions(LITE), per_entry=BOXES),
    "pooled regions": Family(_regions("efficientnet-lite0-roi-align"), per_entry=BOXES),
    "box geometry": Family(_regions("box-geometry"), per_entry=BOXES),
    "proposals": Family(_proposals),
    "clips": Family(_clips, ".mp4"),
    "sound": Family(_sound, ".wav"),
    "captions": Family(_captions, ""),
}

of_all = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
of_files = pytest.mark.parametrize(
    "family",
    [f for f in FAMILIES.values() if f.suffix],
    ids=[n for n, f in FAMILIES.items() if f.suffix],
)


@pytest.fixture(autouse=True)
def _narrow_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKBONES, NAME, NARROW)

    def mean_colours(recipe: ClipRecipe, *_: Any) -> View:
        def network(batch: torch.Tensor) -> torch.Tensor:
            return batch.float().flatten(1).mean(1, keepdim=True).expand(-1, 1280)

        return View(recipe, 1, lambda image: np.asarray(image.resize((8, 8))), network, 2)

    monkeypatch.setattr("pipeline.clips.clip_source.clip_view", mean_colours)


def write_origin(file: Path, number: int) -> None:
    """Write the file of an entry; another number is another content."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".wav":
        write_wav(file, tone(200 + 130 * number, 0.2))
    elif file.suffix == ".mp4":
        write_clip(file, 3 + number, size=(48, 32))
    else:
        photo(number, 40 + number, 32).save(file)


def write_dataset(
    data: Path, family: Family, entries: int = ROWS, changed: int | None = None
) -> Path:
    """Write a dataset; the entry `changed` has another origin than otherwise."""
    found = []
    for number in range(entries):
        content = 50 + number if number == changed else number
        name = f"{number}{family.suffix or '.png'}"
        write_origin(data / "files" / name, content)
        caption = f"a dog and {'two cats' if number == changed and not family.suffix else 'a cat'}"
        found.append(ImageEntry(name, name, "train", (f"{caption} run {'on ' * number}",)))
    media: Any = "clips" if family.suffix in (".mp4", ".wav") else "images"
    manifest = Manifest("mine", data / "files", tuple(found), "none", "made", {}, media=media)
    manifest.write(data)
    return data


def content(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.suffix != ".json"}


def computed(summary: Path) -> int:
    return int(loads(summary.read_text())["rows_computed"])


@of_all
def test_rows_of_changed_origins_are_recomputed_and_no_others(
    family: Family, tmp_path: Path
) -> None:
    """Equal to a set that is made from nothing, byte for byte; a second call computes nothing."""
    out, summary = tmp_path / "a" / "out", tmp_path / "summary.json"
    family.make(write_dataset(tmp_path / "data", family), out, rows_per_shard=2)
    write_dataset(tmp_path / "data", family, changed=3)
    monitor = Recorder()
    family.make(tmp_path / "data", out, rows_per_shard=2, summary=summary, monitor=monitor)
    assert computed(summary) == family.per_entry, monitor.lines
    assert any("changed or new" in line for line in monitor.lines)
    family.make(tmp_path / "data", tmp_path / "b" / "out", rows_per_shard=2)
    assert content(out) == content(tmp_path / "b" / "out")
    family.make(tmp_path / "data", out, rows_per_shard=2, summary=summary)
    assert computed(summary) == 0
    assert verify(out).faults == []


@of_all
def test_a_set_in_a_store_is_that_of_a_folder(family: Family, tmp_path: Path) -> None:
    """A changed origin, by its size and time, costs its shard."""
    store, url = fsspec.filesystem("memory"), Path(f"memory://{tmp_path.name}/out")
    data, summary = write_dataset(tmp_path / "data", family), tmp_path / "summary.json"
    for changed in (None, 3):
        write_dataset(data, family, changed=changed)
        for file in (data / "files").glob("*"):
            os.utime(file, (1, 1 + (file.stem == str(changed))))
        family.make(data, url, rows_per_shard=2, summary=summary)
        assert computed(summary) == (ROWS * family.per_entry if changed is None else 2)
        out = tmp_path / str(changed) / "out"
        family.make(data, out, rows_per_shard=2)
        there = {Path(file).name: store.cat(file) for file in store.find(f"/{tmp_path.name}/out")}
        assert there == {
            path.name: path.read_bytes() for path in out.iterdir() if path.name in there
        }
        assert "index.json" in there
    family.make(data, url, rows_per_shard=2, summary=summary)
    assert computed(summary) == 0


@of_files
def test_failed_rows_are_kept_and_retried_when_asked(family: Family, tmp_path: Path) -> None:
    data, out = write_dataset(tmp_path / "data", family), tmp_path / "out"
    summary, broken = tmp_path / "summary.json", data / "files" / f"1{family.suffix}"
    # A codebook needs all sounds, and boxes an image: what fails, fails afterwards.
    if family.suffix == ".wav":
        family.make(data, tmp_path / "first" / "out")
    broken.write_bytes(b"damaged")
    if family.per_entry > 1:  # an image that cannot be read has no boxes, hence no regions
        assert family.make(data, out).rows == (ROWS - 1) * family.per_entry
        return
    assert family.make(data, out).failed_rows == 1
    assert FeatureSet(out).failures()[0][:2] == (broken.name, "unreadable")
    monitor = Recorder()
    family.make(data, out, summary=summary, monitor=monitor)
    assert computed(summary) == 0
    assert any("1 row failed before; `retry_failed=True`" in line for line in monitor.lines)
    family.make(data, out, retry_failed=True, summary=summary)
    assert computed(summary) == 1
    write_origin(broken, 1)
    assert family.make(data, out).failed_rows == 0, "a repaired file is a changed file"


@of_all
def test_rows_are_added_in_new_shards(family: Family, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    family.make(write_dataset(data, family), out)
    before, summary = content(out), tmp_path / "summary.json"
    write_dataset(data, family, ROWS + 2)
    index = family.make(data, out, add=True, summary=summary)
    assert (index.rows, computed(summary)) == ((ROWS + 2) * family.per_entry, 2 * family.per_entry)
    assert before.items() <= content(out).items()
    ids = FeatureSet(out).ids
    family.make(data, tmp_path / "whole")
    np.testing.assert_allclose(
        FeatureSet(out).read(ids), FeatureSet(tmp_path / "whole").read(ids), rtol=1e-5, atol=1e-5
    )


@of_all
def test_rows_that_are_not_in_the_order_of_the_set(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New entries come first in the dataset and last in the set; then an older one changes."""
    monkeypatch.setattr(Place, "executor", lambda *_: nullcontext(serial))
    data, given = tmp_path / "data", {"rows_per_shard": 2 * family.per_entry + 1}
    places = {"workers": Place(workers=2), "here": Place()}
    write_dataset(data, family, ROWS + 2)
    later = read_manifest(data)
    older = replace(later, entries=later.entries[2:])
    older.write(data)
    family.make(data, tmp_path / "workers", place=places["workers"], **given)
    copytree(tmp_path / "workers", tmp_path / "here")
    later.write(data)
    for name, place in places.items():
        family.make(data, tmp_path / name, add=True, place=place, **given)
    write_dataset(data, family, ROWS + 2, changed=4)
    family.make(data, tmp_path / "whole")
    whole = FeatureSet(tmp_path / "whole")
    for name, place in places.items():
        family.make(data, tmp_path / name, add=True, place=place, **given)
        found = FeatureSet(tmp_path / name)
        assert found.ids != whole.ids
        rows = found.read(whole.ids)
        np.testing.assert_allclose(rows, whole.read(whole.ids), rtol=1e-5, atol=1e-5)
        sources = found.source_crc32[found.rows_of(whole.ids)]
        np.testing.assert_array_equal(sources, whole.source_crc32)


@of_all
def test_an_update_makes_the_set_what_the_dataset_is_now(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One entry removed, one changed, two new, another order: the bytes of a set made anew."""
    monkeypatch.setattr(Place, "executor", lambda *_: nullcontext(serial))
    data, summary, per = tmp_path / "data", tmp_path / "summary.json", family.per_entry
    places = {"here": Place(summary=summary), "workers": Place(workers=2, summary=summary)}
    outs = {name: tmp_path / name / "out" for name in places}
    rows_per_shard = 2 * per + 1
    write_dataset(data, family, ENTRIES)
    family.make(data, outs["here"], rows_per_shard=rows_per_shard)
    (outs["here"] / "notes.txt").write_text("of the user")
    copytree(outs["here"], outs["workers"])
    write_dataset(data, family, ENTRIES + 2, changed=4)
    later = read_manifest(data)
    order = [8, 1, 0, 3, 4, 5, 6, 9, 7]
    replace(later, entries=tuple(later.entries[number] for number in order)).write(data)
    for name, place in places.items():
        monitor = Recorder()
        family.make(data, outs[name], update=True, place=place, monitor=monitor)
        assert computed(summary) == 3 * per, monitor.lines
        counts = f"{9 * per} rows: {6 * per} kept, {2 * per} new, {per} changed, {per} removed"
        assert counts in monitor.lines
    family.make(data, tmp_path / "anew" / "out", rows_per_shard=rows_per_shard)
    for name, out in outs.items():
        assert (out / "notes.txt").read_text() == "of the user"
        (out / "notes.txt").unlink()
        assert contents(out) == contents(tmp_path / "anew" / "out")
        assert verify(out).faults == []
        inode = (out / "index.json").stat().st_ino
        family.make(data, out, update=True, place=places[name])
        assert computed(summary) == 0
        assert inode == (out / "index.json").stat().st_ino, "an up-to-date set is not rewritten"


@of_all
def test_an_interrupted_run_states_what_it_keeps_and_resumes(
    family: Family, tmp_path: Path
) -> None:
    data = write_dataset(tmp_path / "data", family)
    family.make(data, tmp_path / "a" / "out", rows_per_shard=1)
    stopped, out = Recorder(interrupt_at=2), tmp_path / "b" / "out"
    # Sound without a codebook would be interrupted while that is fitted.
    with pytest.raises(KeyboardInterrupt):
        family.make(data, out, rows_per_shard=1, monitor=stopped)
    total = ROWS * family.per_entry
    assert any(f"interrupted: 2 of {total} rows are kept in" in line for line in stopped.lines)
    assert not out.exists()
    resumed = Recorder()
    family.make(data, out, rows_per_shard=1, monitor=resumed)
    assert any("2 rows are done" in line for line in resumed.lines)
    assert content(tmp_path / "a" / "out") == content(out)
