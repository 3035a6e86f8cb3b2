"""What every reader of a published dataset promises: entries, manifest, refusals, corrupt files."""

import hashlib
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers import READERS
from pipeline.testing import ReaderCase, ReaderSuite
from stages.prepare import prepare
from tests.datasets.readers.sources import SOURCES, Source, as_bytes
from tests.images.odd_files import png

Change = Callable[[dict[str, Any]], object]
"""Changes the files of a source by path."""


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """Each source, written to `tmp_path`."""
    SOURCES[request.param].write(tmp_path)
    return SOURCES[request.param]


def test_every_reader_has_a_source() -> None:
    assert {source.reader for source in SOURCES.values()} == set(READERS)


class TestReaders(ReaderSuite):
    @pytest.fixture
    def case(self, source: Source, tmp_path: Path) -> ReaderCase:
        return ReaderCase(partial(source.read, tmp_path), source.rows)


def test_notes_and_media(source: Source, tmp_path: Path) -> None:
    manifest = source.read(tmp_path)
    assert {**manifest.notes, **source.notes} == manifest.notes
    for noted in manifest.notes["source_files"]:
        (path,) = tmp_path.rglob(noted["file"])
        assert hashlib.sha256(path.read_bytes()).hexdigest() == noted["sha256"]
    assert manifest.media == ("clips" if source.media[0].startswith("clips/") else "images")


def test_a_missing_file_is_named(source: Source, tmp_path: Path) -> None:
    optional = {"e/UNRELATED_CAPTIONS", "splits/dev.txt", "splits/train.txt"}
    for name in {*source.files, *source.media} - optional:
        (tmp_path / name).rename(tmp_path / "away")
        if source.options.get("subset") and name in source.media:
            assert len(source.read(tmp_path)) == len(source.rows) - 1
        else:
            with pytest.raises(DatasetError):
                source.read(tmp_path)
        (tmp_path / "away").rename(tmp_path / name)


def test_links_that_leave_the_project_are_noted(source: Source, tmp_path: Path) -> None:
    assert "links_followed" not in source.read(tmp_path).notes
    path, target = tmp_path / source.media[0], tmp_path.with_name(f"{tmp_path.name}-target")
    path.rename(target)
    path.symlink_to(target)
    assert source.read(tmp_path).notes["links_followed"] is True


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


CORRUPTIONS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "half of it": _half,
    "no last bytes": lambda data: data[:-3],
    "zeros": lambda data: bytes(len(data)),
    "a zero byte": lambda data: _half(data) + b"\0" + data[len(data) // 2 :],
    "another encoding": lambda data: _half(data) + b"caf\xe9" + data[len(data) // 2 :],
    "a flipped bit": lambda data: data[:5] + bytes([data[5] ^ 1]) + data[6:] if data[5:] else data,
    "twice": lambda data: data + data,
    "a page of a server": lambda data: b"<!DOCTYPE html>\n<html>404</html>\n",
    "depth": lambda data: b"[" * 10**5,
    "a long line": lambda data: data.replace(b" ", b"x" * 10**5, 1),
    "a large number": lambda data: re.sub(rb"\d+", b"9" * 5000, data, count=3),
}


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_a_corrupt_file_is_read_or_refused(source: Source, tmp_path: Path, corruption: str) -> None:
    """No other exception than DatasetError."""
    for name, content in source.files.items():
        sound = as_bytes(content)
        (tmp_path / name).write_bytes(CORRUPTIONS[corruption](sound))
        try:
            source.read(tmp_path).write(tmp_path / "out")
        except DatasetError as error:
            if len(str(error)) < 20:
                pytest.fail(str(error))
        (tmp_path / name).write_bytes(sound)


def replaced(file: str, old: str, new: str) -> Change:
    def change(files: dict[str, Any]) -> None:
        text = as_bytes(files[file]).decode()
        assert old in text
        files[file] = text.replace(old, new, 1)

    return change


def entry(file: str, part: str, index: int, **values: Any) -> Change:
    """Change keys of an entry of a JSON file; None removes a key."""

    def change(files: dict[str, Any]) -> None:
        chosen = files[file][part][index]
        chosen.update(values)
        for key, value in values.items():
            if value is None:
                del chosen[key]

    return change


def whole(file: str, content: Any) -> Change:
    return lambda files: files.update({file: content})


_image = partial(entry, "c.json", "images")
_caption = partial(entry, "c.json", "annotations")
_thing = partial(entry, "boxes.json", "annotations")
_photo = partial(entry, "d.json", "images")
_clip = partial(entry, "one.json", "videos", 0)
_token = partial(replaced, "annotations/F.token.txt")
_marked = partial(replaced, "e/Sentences/7.txt")
_xml = partial(replaced, "e/Annotations/7.xml")
_list = partial(whole, "splits/dev.txt")
_truth = partial(whole, "vtt/vtt.gt")
_line = partial(replaced, "t.tsv", "a_1_9.avi\tvid1301\ttest\ty")
_box = partial(replaced, "r.csv", "a.png,it,0,0,10,20,animal,1,train")

REFUSALS: dict[str, list[tuple[Change, str]]] = {
    "coco": [
        (_image(1, id=9), r"c.json: images\[1\]: duplicate image '9', first"),
        (_image(1, id=True), r"images\[1\]\.id: Expected `int \| str`"),
        (entry("train.json", "images", 0, id=9), r"train.json: images\[0\]: dup.*c.json: images"),
        (_image(1, file_name="../3.jpg"), r"images\[1\]: .*leaves the image"),
        (_image(1, file_name="5.jpg"), r"images\[1\]: image '5.jpg' not found"),
        (_image(1, file_name="x" * 300), r"images\[1\]: .*cannot be accessed"),
        (_image(1, file_name="9.jpg"), r"images\[1\]: image '.' has the file '9.jpg'.* of '9'"),
        (_caption(2, caption='["A.", "B."]'), r"annotations\[2\]: the caption is a list of texts"),
        (_caption(1, image_id=77), r"annotations\[1\]: image_id '77' is not"),
        (_caption(1, image_id=3), r"images\[0\]: image '9' has no caption"),
        (_caption(1, id=7), r"annotations\[1\]: duplicate annotation id 7"),
        (_caption(2, caption=5), r"annotations\[2\]\.caption: Expected `str`"),
        (_caption(2, caption=" "), r"annotations\[2\]: the caption is empty"),
        (_caption(2, caption=None), r"annotations\[2\]: .*field `caption`"),
        (lambda f: f["c.json"].pop("annotations"), r"c.json: .*required field `annotations`"),
        (lambda f: f["c.json"].update(images={}), r"c.json: images: Expected `array`"),
        (whole("c.json", b'{\n"images": [\n1,,2]}'), "line 3, column 3"),
        (
            whole("c.json", b'{"images": "\n\ncaf\xe9"}'),
            "line 3: byte 18 of the file is not",
        ),
        (whole("c.json", b"[]"), "Expected `object`, got `array`"),
        (_thing(0, bbox=[1.5, 2, 9, 3]), r"annotations\[0\]: bbox .* is outside its image"),
        (_thing(0, category_id=1), r"category_id 1 is not in the file"),
    ],
    "karpathy": [
        (_photo(1, cocoid=8), r"images\[1\]: duplicate image '8'.*\[0\]"),
        (_photo(1, sentences=[]), r"images\[1\]: `sentences` is empty"),
        (_photo(1, sentences=[{}]), r"images\[1\]\.sentences\[0\]: .*required field `raw`"),
        (_photo(0, split="a b"), r"images\[0\]: split 'a b' is not a plain"),
        (_photo(0, split=None), r"images\[0\]: .*required field `split`"),
        (_photo(2, filepath=".."), r"images\[2\]: .*leaves the image root"),
    ],
    "flickr8k": [
        (_token("c.jpg#0\tc caption 0 .\n", ""), r"line 3: image 'c.jpg'.* c.jpg#0"),
        (_token("c.jpg#0", "c.jpg#1"), r"line 4: dup.*c.jpg#1, first in .*line 3"),
        (_token("c.jpg#0", "c.jpg#2"), r"line 4: caption c.jpg#2 has a number beyond #1"),
        (_token("c.jpg#0", "c.jpg#x"), r"line 4: .*NAME#NUMBER<TAB>CAPTION"),
        (_token("c.jpg#0\t", "c.jpg#0 "), r"line 4: .*NAME#NUMBER<TAB>CAPTION"),
        (_token("c caption 0 .", " "), r"line 4: c.jpg#0: the caption is empty"),
        (_list("b.jpg\nb.jpg"), "dev.txt, line 2: duplicate image 'b.jpg'"),
        (_list("a.jpg"), r"dev.txt, line 1: dup.*train.txt, line 2"),
        (_list("x.jpg"), "dev.txt, line 1: image 'x.jpg' has no caption"),
        (_list("d.jpg"), "dev.txt, line 1: image 'd.jpg' not found below"),
        (lambda f: f.pop("annotations/F.token.txt"), r"0 files named \*token\*"),
        (whole("annotations/x.token", ""), r"2 files named \*token\*"),
        (lambda f: [f.pop(n) for n in list(f) if "splits" in n], "no split file"),
    ],
    "entities": [
        (_marked("A man] waits", "A man waits"), r"7.txt, line 2: the mark at '\[/EN#2"),
        (_marked("EN#2", "EN#9"), r"caption 2: the chain 9 of 'A man' is not in"),
        (_xml("<xmax>40", "<xmax>101"), r"object 0 .*1 11 101 50.* is outside"),
        (_xml("<xmax>40", "<xmax>0"), r"object 0 \(chain 1, 2\): .* has no area"),
        (_xml("<ymin>11", "<ymin>0"), "is outside its image of 100 x 50"),
        (_xml("<xmax>40", "<xmax>4.5"), "<xmax> is '4.5', expected a whole number"),
        (_xml("</annotation>", ""), "7.xml is not XML: .*line 8"),
        (_xml("<annotation>", "<!DOCTYPE a []><annotation>"), "defines entities"),
        (whole("e/train.txt", "7\n8"), "train.txt, line 2: image 8 has no file in"),
        (whole("e/train.txt", "7\n7"), r"line 2: duplicate image '7', first in .*line 1"),
        (lambda f: f.pop("e/train.txt"), "no train.txt"),
    ],
    "msvd": [
        (whole("map.txt", "a_1_9 vid1\na_1_9 vid2"), "map.txt, line 2: .*once"),
        (whole("map.txt", "a_1_9 vid1"), "all.txt, line 3: clip 'c_2_3' has no number"),
    ],
    "msrvtt": [
        (_clip(video_id="x"), r"two.json: sentences\[1\]: clip 'video7'"),
        (_clip(video_id="video0"), r"two.json: videos\[0\]: duplicate"),
        (entry("two.json", "sentences", 1, video_id="video0"), "'video7' has no sentence"),
    ],
    "trecvid-vtt": [
        (_truth("1 2"), "line 1: '1 2'; expected <clip>"),
        (_truth("1 3 1"), "line 1: set A has no sentence 3"),
        (_truth("1 2 1\n2 2 2"), "line 2: sentence 2 of set A .*line 1"),
        (_truth("1 2 1"), "test: 1 found, 2 expected"),
    ],
    "msvd table": [
        (_line("a_1_9.avi\tvid0\ttrain\tx"), "line 3: vid0 is not a clip of MSVD"),
        (_line("a_1_9.avi\tvid1971\ttest\tx"), "line 3: vid1971 is not a clip"),
        (_line("a_1_9.avi\t12\ttrain\tx"), "line 3: '12' is not a clip number"),
        (_line("a_1_9.avi\tvid12\ttest\tx"), "has split 'test'; its number makes it 'train'"),
        (_line("a_1_9.avi\tvid12\ttrain"), "line 3: 3 fields found, 4 expected"),
        (
            _line("a_1_9.avi\tvid7\ttrain\tx"),
            "vid7 is .a_1_9.avi. here and .c_2_3.avi. in .*line 2",
        ),
        (_line("../x.avi\tvid12\ttrain\tx"), r"clip '../x.avi' leaves"),
        (_line("gone.avi\tvid12\ttrain\tx"), r"line 3: clip 'gone.avi' not found .*`subset=True`"),
        (_line("a_1_9.avi\tvid12\ttrain\t "), "line 3: the caption is empty"),
    ],
    "regions": [
        (_box("a.png,x,0,0,101,5,,,train"), r"line 4: the box \[0.0, 0.0, 101.0, 5.0\] is outside"),
        (_box("a.png,x,3,0,3,5,,,train"), "line 4: .* has no area"),
        (_box("a.png,x,nan,0,3,5,,,train"), "line 4: .* has no area"),
        (_box("a.png,x,-1,0,3,5,,,train"), "line 4: .* is outside its image of 100 x 50"),
        (_box("a.png,x,a,0,3,5,,,train"), "line 4: the box 'a,0,3,5' is not four numbers"),
        (_box("a.png,,0,0,3,5,,,train"), "line 4: the phrase: the caption is empty"),
        (_box("c.png,x,0,0,3,5,,,train"), "line 4: image 'c.png' not found"),
        (_box("a.png,x,0,0,3,5,,,val"), "line 4: the split is 'val' here and 'train' in .*line 2"),
        (_box("b.png,x,0,0,3,5,,,"), "line 4: the split is '' here and 'val' in .*line 3"),
        (_box("r.csv,x,0,0,3,5,,,train"), "size of .*r.csv cannot be read"),
        (
            lambda files: files.update({"a.png": png((60_000, 60_000), 8, 2, b"")}),
            "size of .*a.png cannot be read .*3600000000 pixels",
        ),
    ],
}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [(name, *refused) for name, cases in REFUSALS.items() for refused in cases],
)
def test_refusals_name_file_and_place(
    tmp_path: Path, name: str, change: Change, message: str
) -> None:
    source = SOURCES[name].changed()
    change(source.files)
    source.write(tmp_path)
    with pytest.raises(DatasetError, match=message):
        source.read(tmp_path)


@pytest.mark.parametrize("reader", [*READERS])
def test_its_command_follows_from_its_signature(reader: str) -> None:
    ended = CliRunner().invoke(prepare, [reader, "--help"])
    assert ended.exit_code == 0
    assert f"Example:\n    pipeline prepare {reader} --root ROOT" in ended.stdout
    assert "--expect SPLIT=COUNT" in ended.stdout
    assert json.dumps(ended.stdout).isascii()
