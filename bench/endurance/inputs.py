"""Small valid inputs of every reader, generated here: one folder per reader, of the same name."""

import base64
import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image

from bench.endurance.commands import LITE, NETWORK, undisturbed
from tests.images.fuzz import sound_files

_IDS = [f"{number}.jpg" for number in range(6)]
_RNG = np.random.default_rng(0)
_WAYS = ("read", "pull", "verify", "index", "card")
_WORDS = ("a", "dog", "réd", "new york")

_XML = (
    "<annotation><filename>0.jpg</filename>"
    "<size><width>60</width><height>40</height><depth>3</depth></size>"
    "<object><name>1</name><name>2</name><bndbox><xmin>1</xmin><ymin>11</ymin><xmax>40</xmax>"
    "<ymax>40</ymax></bndbox></object><object><name>3</name><scene>1</scene><nobndbox>0</nobndbox>"
    "</object></annotation>"
)

_FORM = b"multipart/form-data; boundary=bound\n" + b"\r\n".join(
    [
        *(b"--bound", b'Content-Disposition: form-data; name="of"', b"", b"scene-00003"),
        *(b"--bound", b'Content-Disposition: form-data; name="plus"', b"", "réd".encode()),
        *(b"--bound", b'Content-Disposition: form-data; name="file"; filename="a.png"'),
        *(b"Content-Type: image/png", b"", b"\x89PNG\r\n\x1a\n" + bytes(1500), b"--bound--", b""),
    ]
)


def make_inputs(folder: Path, project: Path) -> None:
    """Create the folders of all readers below `folder`, with outputs of commands in `project`."""
    scenes, features = project / "data/scenes", project / f"data/features/scenes/{LITE}"
    for name, data in sound_files().items():
        _write(folder / "pictures" / name, data)
    for file in ("manifest.jsonl", "regions.jsonl", "dataset.json"):
        _write(folder / "manifest" / file, (scenes / file).read_bytes())
    image_sources(folder)
    clip_sources(folder)
    _word_vectors(folder, project)
    _copy(project / f"data/heads/scenes/{NETWORK}", folder / "head")
    for name in ("several", "pca"):
        _copy(project / f"made/{name}.encoder", folder / "encoder" / name)
    for name in ("index.json", *(f"shards, {way}" for way in _WAYS)):
        _copy(features, folder / name)
    embeddings = project / f"data/embeddings/scenes/{NETWORK}.h5"
    _write(folder / "embeddings/e.h5", embeddings.read_bytes())
    _copy(project / "made/both", folder / "side by side/both")
    for part in "ab":
        _copy(project / f"made/{part}", folder / "side by side" / part)
    _weights(folder / "weights")
    features_of_others(folder)
    _sentences(folder)
    _write(folder / "upload form/form", _FORM)
    _write(folder / "params.yaml/params.yaml", (project / "params.yaml").read_bytes())
    _copy(project / "data", folder / "report/data")
    for part in ("features", "parts", "unindexed"):
        shutil.rmtree(folder / "report/data" / part)
    _write(folder / "report/params.yaml", (project / "params.yaml").read_bytes())
    _clips(folder / "clips")
    _sounds(folder / "sounds")


def _write(path: Path, content: bytes | str | dict[str, Any] | list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text, encoding="utf-8")


def _copy(source: Path, to: Path) -> None:
    shutil.copytree(source, to, ignore=shutil.ignore_patterns(".work"))


def _images(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        Image.new("RGB", (60, 40)).save(folder / name)


def image_sources(folder: Path) -> None:
    for name in (
        "karpathy", "coco", "flickr8k", "folder csv", "folder jsonl", "regions csv",
        "regions jsonl", "entities", "entities zip", "entities tar",
    ):  # fmt: skip
        _images(folder / name / "images", _IDS)
    splits = ("train", "train", "val", "test", "restval", "train")
    _write(folder / "karpathy/dataset_x.json", {"dataset": "x", "images": [
        {"filename": name, "cocoid": number, "imgid": number, "split": split, "sentences": [
            {"raw": f"a dog number {number}", "tokens": ["a", "dog"]}, {"raw": "two"}]}
        for number, (name, split) in enumerate(zip(_IDS, splits, strict=True))]})  # fmt: skip
    sizes = {"width": 60, "height": 40}
    images = [{"id": n, "file_name": name, "license": 4, **sizes} for n, name in enumerate(_IDS)]
    _write(folder / "coco/captions.json", {
        "licenses": [{"id": 4, "name": "BY", "url": "u"}], "images": images, "annotations": [
            {"id": n, "image_id": n % 6, "caption": "a dog"} for n in range(12)]})  # fmt: skip
    things = [
        {"id": n, "image_id": n % 6, "category_id": 18, "iscrowd": 0, "bbox": [1.5, 2, 9, 3 + n]}
        for n in range(8)
    ]
    categories = [{"id": 18, "name": "dog", "supercategory": "animal"}]
    _write(folder / "coco/boxes.json",
           {"images": images, "categories": categories, "annotations": things})  # fmt: skip
    tokens = [f"{name}#{k}\ta dog , number {k} ." for name in _IDS for k in range(2)]
    _write(folder / "flickr8k/annotations/F.token.txt", "\n".join(tokens) + "\n")
    for split, names in (("train", _IDS[:3]), ("dev", _IDS[3:4]), ("test", _IDS[4:])):
        _write(folder / f"flickr8k/splits/{split}.txt", "\n".join(names) + "\n")
    rows = [(name, f"a dog, number {n}", "train" if n else "test") for n, name in enumerate(_IDS)]
    lines = [f'{path},"{caption}",{split}' for path, caption, split in rows]
    _write(folder / "folder csv/c.csv", "\n".join(["path,caption,split", *lines]) + "\n")
    records = [dict(zip(("path", "caption", "split"), row, strict=True)) for row in rows]
    _write(folder / "folder jsonl/c.jsonl", "\n".join(map(json.dumps, records)) + "\n")
    keys = ("image", "phrase", "x0", "y0", "x1", "y1", "type", "chain", "split")
    values = [
        (name, f"thing {n}", 1.5, 0, 20 + n, 30, "people", "1", "train")
        for n, name in enumerate(_IDS)
    ]
    table = [",".join(map(str, row)) for row in (keys, *values)]
    _write(folder / "regions csv/r.csv", "\n".join(table) + "\n")
    boxes = [dict(zip(keys, row, strict=True)) for row in values]
    _write(folder / "regions jsonl/r.jsonl", "\n".join(map(json.dumps, boxes)) + "\n")
    _entities(folder)


def _entities(folder: Path) -> None:
    root = folder / "entities/e"
    for name in _IDS:
        number = name.partition(".")[0]
        _write(root / f"Annotations/{number}.xml", _XML.replace("0.jpg", name))
        sentence = "[/EN#1/people Two men] on [/EN#3/scene a road] see [/EN#0/notvisual it] .\n"
        _write(root / f"Sentences/{number}.txt", sentence + "[/EN#2/people/other A man] waits .")
    _write(root / "train.txt", "0\n1\n2\n3\n")
    _write(root / "test.txt", "4\n5\n")
    _write(root / "UNRELATED_CAPTIONS", "# format: <imageID> <sentence number>\n5 1\n")
    paths = [path for path in sorted(root.rglob("*")) if path.is_file()]
    files = [(path, path.relative_to(root).as_posix()) for path in paths]
    # Without times, owners and modes: the same bytes each time.
    with zipfile.ZipFile(folder / "entities zip/e.zip", "w") as archive:
        for path, name in files:
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    with tarfile.open(folder / "entities tar/e.tar", "w") as tar:
        for path, name in files:
            member = tarfile.TarInfo(f"e/{name}")
            member.size = path.stat().st_size
            tar.addfile(member, io.BytesIO(path.read_bytes()))


def clip_sources(folder: Path) -> None:
    for name, clips in (
        ("msvd", ["a_1_9.avi", "b_0_7.avi"]), ("msrvtt", ["video0.mp4", "video7.mp4"]),
        ("trecvid", ["1.mp4", "2.mp4"]),
    ):  # fmt: skip
        for clip in clips:
            _write(folder / name / "clips" / clip, b"clip")
    _write(folder / "msvd/all.txt", "a_1_9 a dog runs\nb_0_7 a man\na_1_9 two\n")
    _write(folder / "msvd/map.txt", "a_1_9 vid1301\nb_0_7 vid1300\n")
    _write(folder / "msrvtt/msrvtt.json", {
        "videos": [{"video_id": "video7", "split": "validate"},
                   {"video_id": "video0", "split": "train"}],
        "sentences": [{"video_id": f"video{v}", "caption": "x"} for v in (0, 7, 0)]})  # fmt: skip
    for name in "AB":
        _write(folder / f"trecvid/texts/vines.textDescription.{name}.testingSet",
               f"1    one in {name}\n2    two in {name}\n")  # fmt: skip
    _write(folder / "trecvid/texts/vtt.gt", "1 2 1\n2 1 2\n")


def _word_vectors(folder: Path, project: Path) -> None:
    rows = _RNG.standard_normal((len(_WORDS), 5)).astype("f4")
    lines = [f"{w} {' '.join(map(str, row))}" for w, row in zip(_WORDS, rows, strict=True)]
    for name in ("vectors text", "vectors text, all"):
        _write(folder / name / "glove.txt", "\n".join(lines) + "\n")
        _write(folder / name / "word2vec.vec", f"{len(lines)} 5\n" + "\n".join(lines) + "\n")
    parts = [
        w.replace(" ", "_").encode() + b" " + row.tobytes()
        for w, row in zip(_WORDS, rows, strict=True)
    ]
    _write(folder / "vectors binary/w.bin", b"%d 5\n" % len(parts) + b"".join(parts))
    import fasttext

    corpus = folder / "corpus.txt"
    corpus.write_text("a dog runs\nréd dogs run on the grass\n" * 5)
    model = fasttext.train_unsupervised(
        str(corpus), dim=5, bucket=300, minCount=1, thread=1, verbose=0, epoch=1
    )
    (folder / "vectors fasttext").mkdir()
    model.save_model(str(folder / "vectors fasttext/f.bin"))
    stored = (project / "made/w2v.safetensors").read_bytes()
    _write(folder / "vectors store/w.safetensors", stored)


def _weights(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    from tests.images.caffe_files import blob, block

    folder.mkdir()
    state = {"a.weight": torch.arange(12.0).reshape(3, 4), "a.bias": torch.zeros(3)}
    torch.save(state, folder / "w.pth")
    torch.save(state, folder / "old.pt", _use_new_zipfile_serialization=False)
    save_file(state, folder / "w.safetensors")
    layer = block(1, b"fc") + b"".join(block(7, blob(value, old=False)) for value in state.values())
    _write(folder / "w.caffemodel", block(1, b"VGG") + block(100, layer))


def features_of_others(folder: Path) -> None:
    from scipy.io import savemat

    rng = np.random.default_rng(0)
    rows = rng.random((6, 4, 3), np.float32)
    for name in ("import npy", "import mat"):
        _write(folder / name / "ids.txt", "\n".join(_IDS) + "\n")
    np.save(folder / "import npy/x.npy", rows)
    savemat(folder / "import mat/x.mat", {"feats": rows[:, 0].T})
    with (folder / "import mat/x.mat").open("r+b") as file:
        file.write(b"MATLAB 5.0 MAT-file".ljust(116))  # the header has the time
    boxes = rng.random((6, 4, 4), np.float32)
    lines = [
        "\t".join(
            [name, "60", "40", "4", *(base64.b64encode(part.tobytes()).decode() for part in both)]
        )
        for name, both in zip(_IDS, zip(boxes, rows, strict=True), strict=True)
    ]
    (folder / "boxes").mkdir()
    for name in ("import tsv", "boxes"):
        _write(folder / name / "x.tsv", "\n".join(lines) + "\n")
    for name, row, box in zip(_IDS, rows, boxes, strict=True):
        buffer = io.BytesIO()
        np.savez(buffer, features=row, bbox=box)
        _write(folder / f"import npz/npz/{name}.npz", buffer.getvalue())
    np.savez(folder / "boxes/x.npz", **dict(zip(_IDS, boxes, strict=True)))
    (folder / "import hdf5").mkdir()
    with (
        h5py.File(folder / "import hdf5/x.h5", "w") as groups,
        h5py.File(folder / "boxes/x.h5", "w") as table,
    ):
        for name, row, box in zip(_IDS, rows, boxes, strict=True):
            groups[f"images/{name}/global_descriptor"] = row[0]
            table[f"{name}/boxes"], table[f"{name}/scores"] = box, box[:, 0]
    results = [{"image_id": n, "bbox": [1, 2, 3, 4.5], "score": 0.5} for n in range(5)]
    _write(folder / "boxes/x.json", results)


def _sentences(folder: Path) -> None:
    from pipeline.language.captioning.captions_file import provenance_of
    from pipeline.regions.localization.localized import write_localized
    from tests.regions.localization.factories import localized

    lines = [{"image_id": n, "caption": f"a dog {n}"} for n in range(4)]
    _write(folder / "captions/c.json", lines)
    _write(folder / "captions/c.jsonl", "\n".join(map(json.dumps, lines)) + "\n")
    for name in ("c.json", "c.jsonl"):
        _write(provenance_of(folder / "captions" / name), {"seed": 3})
    _write(folder / "tagger/tagger.json", {
        "weights": {"bias": {"NN": 1.0, "DT": 0.5}, "i suffix g": {"NN": 2.0}},
        "tagdict": {"a": "DT"}, "classes": ["NN", "DT"]})  # fmt: skip
    (folder / "localized").mkdir()
    write_localized(folder / "localized/x.h5", localized())


def _clips(folder: Path) -> None:
    from tests.clips.factories import encode, tone
    from tests.clips.moving import write_clip

    folder.mkdir()
    write_clip(folder / "x.avi")
    write_clip(folder / "x.mp4")
    encode(folder / "y.mkv", "pcm_s16le", tone(440, 0.3), frames=4)


def _sounds(folder: Path) -> None:
    from tests.clips.factories import encode, tone, write_changing_sound, write_wav

    write_wav(folder / "x.wav", *[tone(440, 0.2)] * 9)
    write_changing_sound(folder / "x.aac")
    for name, codec in (("x.flac", "flac"), ("x.ogg", "libopus"), ("x.mp3", "mp3")):
        encode(folder / name, codec, tone(440, 0.3))


def make_more(project: Path) -> None:
    """Add to the project what only readers need: an encoder of three parts, a view, vectors."""
    for text in (
        "text --dataset data/scenes --encoder bow+mean+token-ids --out made/several",
        "text --dataset data/scenes --encoder fv-hglmm --components 2 --sample 300 --pca 8 "
        "--out made/pca",
        "vectors --train word2vec --dim 4 --epochs 1 --min-count 1 --dataset data/scenes "
        "--out made/w2v.safetensors",
    ):
        undisturbed(text.split(), project)
    from pipeline.store.shards.feature_set import FeatureSet
    from pipeline.store.shards.side_by_side import write_view

    for part in "ab":
        shutil.copytree(project / f"data/features/scenes/{LITE}", project / f"made/{part}")
    write_view(project / "made/both", [FeatureSet(project / "made" / p) for p in "ab"], "unit")
