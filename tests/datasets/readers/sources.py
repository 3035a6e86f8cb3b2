"""A small source of each reader: its files, the call, and the entries that it has."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers import READERS

Row = tuple[str, str, str, tuple[str, ...]]
"""Id, file, split and captions of an entry."""


def png(width: int, height: int) -> bytes:
    stream = BytesIO()
    Image.new("RGB", (width, height)).save(stream, "png")
    return stream.getvalue()


@dataclass
class Source:
    """Files by path below a folder (text, bytes or JSON values), and options with paths there."""

    reader: str
    files: dict[str, Any]
    options: dict[str, Any]
    rows: list[Row]
    media: tuple[str, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)

    def changed(self) -> "Source":
        """Return a copy whose files may be changed."""
        return Source(
            self.reader, deepcopy(self.files), self.options, self.rows, self.media, self.notes
        )

    def write(self, root: Path) -> None:
        for name in self.media:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(png(100, 50))
        for name, content in self.files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(as_bytes(content))

    def read(self, root: Path, **options: Any) -> Manifest:
        values = {key: _below(root, value) for key, value in self.options.items()}
        manifest: Manifest = READERS.get(self.reader)(**(values | options))
        return manifest


def as_bytes(content: Any) -> bytes:
    if isinstance(content, bytes):
        return content
    return (content if isinstance(content, str) else json.dumps(content)).encode()


def _below(root: Path, value: Any) -> Any:
    if isinstance(value, Path):
        return root / value
    if isinstance(value, Mapping):
        return {key: _below(root, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_below(root, item) for item in value)
    return value


def _sentences(*captions: str) -> list[dict[str, Any]]:
    return [{"raw": caption, "tokens": caption.split()} for caption in captions]


COCO = Source(
    "coco",
    {
        "c.json": {
            "licenses": [{"id": 4, "name": "BY", "url": "u"}, {"id": 5, "name": "BY-SA"}],
            "images": [
                {"id": 9, "file_name": "9.jpg", "license": 4},
                {"id": 3, "file_name": "3.jpg", "license": 5},
            ],
            "annotations": [
                {"id": 7, "image_id": 3, "caption": "three, first"},
                {"id": 1, "image_id": 9, "caption": "nine\n"},
                {"id": 2, "image_id": 3, "caption": "three,\nsecond"},
            ],
        },
        "train.json": {
            "images": [{"id": 10, "file_name": "10.jpg"}],
            "annotations": [{"id": 1, "image_id": 10, "caption": "ten"}],
        },
        "boxes.json": {
            "images": [
                {"id": 9, "file_name": "9.jpg", "width": 10, "height": 8},
                {"id": 2, "file_name": "b.jpg", "width": 4, "height": 4},
            ],
            "categories": [{"id": 18, "name": "dog", "supercategory": "animal"}],
            "annotations": [
                {"id": 1, "image_id": 9, "category_id": 18, "bbox": [1.5, 2, 8.51, 3]},
                {"id": 2, "image_id": 9, "category_id": 18, "bbox": [0, 0, 1, 1], "iscrowd": 1},
                {"id": 3, "image_id": 9, "category_id": 18, "bbox": [0, 0, 0, 1]},
                {"id": 4, "image_id": 2, "category_id": 18, "bbox": [0, 0, 1, 1]},
            ],
        },
    },
    {
        "root": Path(),
        "captions": [(None, Path("c.json")), ("train", Path("train.json"))],
        "folders": {"train": "train2017"},
        "boxes": [Path("boxes.json")],
    },
    [
        ("9", "9.jpg", "val", ("nine",)),
        ("3", "3.jpg", "val", ("three, first", "three, second")),
        ("10", "train2017/10.jpg", "train", ("ten",)),
    ],
    ("9.jpg", "3.jpg", "train2017/10.jpg"),
    {
        "captions_with_blanks_cut_or_lines_joined": 2,
        "boxes_left_out": {
            "of crowds": 1, "without an area": 1, "of images without captions": 1
        },
    },
)  # fmt: skip
KARPATHY = Source(
    "karpathy",
    {
        "d.json": {
            "dataset": "small",
            "images": [
                {"filename": "8.jpg", "filepath": "val2014", "cocoid": 8, "split": "test",
                 "sentences": _sentences(*"abcdefg")},
                {"filename": "5.jpg", "filepath": "val2014", "cocoid": 5, "split": "restval",
                 "sentences": _sentences("a dog\n")},
                {"filename": "6.jpg", "split": "train", "sentences": _sentences("x", "x")},
            ],
        }
    },
    {"root": Path(), "captions": Path("d.json")},
    [
        ("8", "val2014/8.jpg", "test", tuple("abcdefg")),
        ("5", "val2014/5.jpg", "train", ("a dog",)),
        ("6.jpg", "6.jpg", "train", ("x", "x")),
    ],
    ("val2014/8.jpg", "val2014/5.jpg", "6.jpg"),
    {"restval_merged": 1, "captions_with_blanks_cut_or_lines_joined": 1},
)  # fmt: skip
FLICKR8K = Source(
    "flickr8k",
    {
        # Captions are joined by number, not by line.
        "annotations/F.token.txt": "".join(
            f"{name}.jpg#{k}\t{name} caption {k} .\n" for name in "dcba" for k in (1, 0)
        ),
        "splits/dev.txt": "b.jpg\n",
        "splits/train.txt": b"\xef\xbb\xbfc.jpg\r\na.jpg\r\n\r\n",
    },
    {"root": Path(), "captions_per_image": 2},
    [
        (f"{name}.jpg", f"{name}.jpg", split, (f"{name} caption 0 .", f"{name} caption 1 ."))
        for name, split in (("c", "train"), ("a", "train"), ("b", "dev"))
    ],
    ("images/a.jpg", "images/b.jpg", "images/c.jpg"),
    {"images_in_no_split": 1, "images_in_no_split_first": ["d.jpg"]},
)
ENTITIES = Source(
    "entities",
    {
        "e/Annotations/7.xml": """<annotation><filename>7.jpg</filename>
<size><width>100</width><height>50</height><depth>3</depth></size>
<object><name>1</name><name>2</name><bndbox>
<xmin>1</xmin><ymin>11</ymin><xmax>40</xmax><ymax>50</ymax></bndbox></object>
<object><name>1</name><bndbox>
<xmin>61</xmin><ymin>1</ymin><xmax>100</xmax><ymax>20</ymax></bndbox></object>
<object><name>3</name><scene>1</scene><nobndbox>0</nobndbox></object>
</annotation>""",
        "e/Sentences/7.txt": (
            "[/EN#1/people Two men] on [/EN#3/scene a road] see [/EN#0/notvisual nothing] .\n"
            "[/EN#2/people/other A man] waits ."
        ),
        "e/train.txt": "7\n",
        "e/UNRELATED_CAPTIONS": "# format: <imageID> <sentence number>\n",
    },
    {"root": Path("e"), "images": Path("photos")},
    [
        (
            "7_ab12.jpg", "7_ab12.jpg", "train",
            ("Two men on a road see nothing .", "A man waits ."),
        )
    ],
    ("photos/7_ab12.jpg",),
    {"phrases_left_out": {"not visual": 1, "scene or no box": 1}},
)  # fmt: skip
REGIONS = Source(
    "regions",
    {
        "r.csv": "image,phrase,x0,y0,x1,y1,type,chain,split\n"
        "a.png,a dog,0,0,10,20,animal,1,train\n"
        'b.png,"a, cat",1.5,2,3,4,,,val\n'
        "a.png,it,0,0,10,20,animal,1,train\n"
    },
    {"root": Path(), "table": Path("r.csv"), "name": "mine"},
    [("a.png", "a.png", "train", ()), ("b.png", "b.png", "val", ())],
    ("a.png", "b.png"),
)
MSVD = Source(
    "msvd",
    {
        "all.txt": "# comment\n\nc_2_3 a dog runs\na_1_9 a man's \"hat\"\nc_2_3  a  dog \nb_0_7 x\n"
        "gone x\n",
        "map.txt": "a_1_9 vid1301\nb_0_7 vid1300\nc_2_3 vid7\ngone vid8\n",
    },
    {"root": Path("clips"), "captions": Path("all.txt"), "mapping": Path("map.txt"),
     "subset": True},
    [
        ("vid7", "c_2_3.avi", "train", ("a dog runs", "a  dog")),
        ("vid1300", "b_0_7.avi", "val", ("x",)),
        ("vid1301", "a_1_9.avi", "test", ("a man's \"hat\"",)),
    ],
    ("clips/a_1_9.avi", "clips/b_0_7.avi", "clips/c_2_3.avi"),
    {
        "clips_missing": 1, "clips_missing_first": ["gone"],
        "subset_of": {"train": 1200, "val": 100, "test": 670},
    },
)  # fmt: skip
MSVD_TABLE = Source(
    "msvd",
    {
        "t.tsv": "file\tid\tsplit\tcaption\nc_2_3.avi\tvid7\ttrain\tx\n"
        "a_1_9.avi\tvid1301\ttest\ty\n"
    },
    {"root": Path("clips"), "captions": Path("t.tsv"),
     "expect": {"train": 1, "val": 0, "test": 1}},
    [("vid7", "c_2_3.avi", "train", ("x",)), ("vid1301", "a_1_9.avi", "test", ("y",))],
    ("clips/a_1_9.avi", "clips/c_2_3.avi"),
)  # fmt: skip
MSRVTT = Source(
    "msrvtt",
    {
        "one.json": {"videos": [{"video_id": "video7", "split": "validate"}], "sentences": []},
        "two.json": {
            "videos": [{"video_id": "video0", "split": "train"}],
            "sentences": [
                {"video_id": "video0", "caption": "x"},
                {"video_id": "video7", "caption": "y"},
                {"video_id": "video0", "caption": "z"},
            ],
        },
    },
    {"root": Path("clips"), "captions": [Path("one.json"), Path("two.json")],
     "expect": {"train": 1, "val": 1, "test": 0}},
    [("video7", "video7.mp4", "val", ("y",)), ("video0", "video0.mp4", "train", ("x", "z"))],
    ("clips/video0.mp4", "clips/video7.mp4"),
)  # fmt: skip
TRECVID = Source(
    "trecvid-vtt",
    {
        "vtt/vines.textDescription.A.testingSet": "1    one in A\n2    two in A\n",
        "vtt/vines.textDescription.B.testingSet": "1 one in B\n2 two in B\n",
        "vtt/vtt.gt": "2 1 2\n1 2 1\n",
    },
    {"root": Path("clips"), "captions": Path("vtt"), "expect": {"test": 2}},
    [("2", "2.mp4", "test", ("one in A", "two in B")),
     ("1", "1.mp4", "test", ("two in A", "one in B"))],
    ("clips/1.mp4", "clips/2.mp4"),
)  # fmt: skip

SOURCES = {
    "coco": COCO,
    "karpathy": KARPATHY,
    "flickr8k": FLICKR8K,
    "entities": ENTITIES,
    "regions": REGIONS,
    "msvd": MSVD,
    "msvd table": MSVD_TABLE,
    "msrvtt": MSRVTT,
    "trecvid-vtt": TRECVID,
}
