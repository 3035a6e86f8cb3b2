"""The report: its numbers against the ranks, text as text, gaps as sentences, equal bytes."""

import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import read_embeddings, write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.evaluate import evaluate_protocol
from pipeline.retrieval.provenance import columns_of
from pipeline.retrieval.ranking.protocols import resolve_protocol
from pipeline.retrieval.ranking.ranks import rank_both_ways
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.retrieval.tables import SEEN, write_recall
from pipeline.store.files import OutputError, write_json
from pipeline.store.hashing import sha256_of_file
from pipeline.web.report.pages import write_pages
from pipeline.web.report.results import Folders, Result, collect_results, lineage_of
from pipeline.web.report.retrievals import FAILURES, TOP
from pipeline.web.report.thumbnails import TINY
from pipeline.web.report.verdict import verdict_of
from pipeline.web.report.write import write_report
from tests.project import PROJECT, Recorder

EVIL = (
    "<script>alert('a dog')</script>",
    "quotes \" and ' & &amp; entities </title>",
    "\x1b[31mred\x07 \u202egnp.exe a dog",
    "{{ 7 * 7 }} {% raw %} a cat",
)
STRANGE = "name with #, %2e & <b>"
IMAGES = 30
TENSORS = "1" * 64


class _Page(HTMLParser):
    """Tags with their attributes, and the text that is shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.shown = ""
        self._hidden = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._hidden = tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.shown += data


def _page(path: Path) -> _Page:
    return _Page(path.read_text(encoding="utf-8"))


def _made_from(dataset: Path, name: str) -> dict[str, Any]:
    side = {"recipe": {"name": "pool"}, "recipe_hash": "0123456789abcdef", "weights": "random:0"}
    return {
        "dataset": "mine",
        "split": "test",
        "experiment": name,
        "inputs": {"images": side, "captions": side},
        "manifest_sha256": sha256_of_file(dataset / "manifest.jsonl"),
        "seed": 3,
        "chosen_on": "mine/val",
        "tensors_sha256": TENSORS,
    }


def _evaluated(folders: Folders, name: str, e: Embeddings, protocol: str | None = None) -> None:
    file = folders.embeddings[0] / f"file of {name[:3]}{protocol or ''}.h5"
    write_embeddings(file, e)
    method: dict[str, Any] = {}
    table = recall_table(e)
    if protocol is not None:
        evaluation = evaluate_protocol(e, resolve_protocol(protocol, 2))
        table, method = evaluation.table, evaluation.method
    out = folders.evaluations / name
    write_recall(out, table)
    made_from = {"embeddings_sha256": sha256_of_file(file), "similarity": e.similarity}
    write_json(out / "provenance.json", {**made_from, "provenance": e.provenance, **method})


def _folders(data: Path) -> Folders:
    evaluations, heads, text = (data / kind / "mine" for kind in ("evaluations", "heads", "text"))
    embeddings = data / "embeddings/mine", data / "ensembles/mine"
    return Folders(evaluations, embeddings, heads, data / "mine", text)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Two experiments on 30 images, of which one picture is gone and one is no picture."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("report")
    found = _folders(folder / "data")
    pictures = folder / "data" / "pictures"
    pictures.mkdir(parents=True)
    entries = []
    for k in range(IMAGES):
        if k == 1:
            (pictures / f"{k}.png").write_text("no picture")
        elif k:
            Image.new("RGB", (300, 40 + k), (8 * k, 90, 9)).save(pictures / f"{k}.png")
        texts = (EVIL[k % 4], f"a dog {k}", *(f"a {'very ' * j}long dog" for j in range(k % 3)))
        entries.append(ImageEntry(f"<i>{k}", f"{k}.png", "test", texts))
    dataset = found.dataset
    made_by = "drawn by `<b> draw` and ` alone"
    Manifest("mine", pictures, tuple(entries), "CC <0>", made_by, {}).write(dataset)
    images = rng.normal(size=(IMAGES, 8)).astype(np.float32)
    rows = [(i, caption) for i, entry in enumerate(entries) for caption in entry.caption_ids]
    for name, noise in (("plain", 0.7), (STRANGE, 2.0)):
        noisy = images[[i for i, _ in rows]] + noise * rng.normal(size=(len(rows), 8))
        e = Embeddings(
            tuple(entry.id for entry in entries),
            images,
            tuple(caption for _, caption in rows),
            tuple(entries[i].id for i, _ in rows),
            noisy.astype(np.float32),
            "cosine",
            _made_from(dataset, name),
        )
        _evaluated(found, name, e, None if name == "plain" else "first-20")
    curve = [{"epoch": k, "loss": 1.0, "rsum": 10.0 * k, "best": float(k == 2)} for k in (1, 2, 3)]
    write_json(found.heads / "plain" / "head.json", {"tensors_sha256": TENSORS, "history": curve})
    return found


@pytest.fixture
def folders(made: Folders, tmp_path: Path) -> Folders:
    """A copy of `made` to be changed."""
    shutil.copytree(made.dataset.parent, tmp_path / "data")
    return _folders(tmp_path / "data")


@pytest.fixture(scope="module")
def html(made: Folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of both experiments."""
    out = tmp_path_factory.mktemp("html")
    _write(made, out)
    return out


def _results(folders: Folders, *names: str) -> tuple[Result, ...]:
    return collect_results(names, folders, lambda done: None)


def _gaps(folders: Folders) -> tuple[str, ...]:
    (result,) = _results(folders, "plain")
    return result.gaps


def _write(folders: Folders, out: Path) -> tuple[str, ...]:
    return write_pages(out, ["plain", STRANGE], folders)


def _embeddings(folders: Folders) -> Embeddings:
    return read_embeddings(folders.embeddings[0] / "file of pla.h5")


def _image_of_each_caption(e: Embeddings) -> np.ndarray:
    rows = {image_id: row for row, image_id in enumerate(e.image_ids)}
    return e.image_embeddings[[rows[image_id] for image_id in e.caption_image_ids]]


def _files(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _front(folder: Path) -> str:
    return " ".join(_page(folder / "index.html").shown.split())


def _map_data(path: Path) -> dict[str, Any]:
    found = re.search(r'id="map-data">(.*?)</script>', path.read_text(encoding="utf-8"))
    assert found is not None
    return json.loads(found[1])


def test_text_from_data_is_text_and_nothing_is_asked_for(html: Path) -> None:
    seen, images = "", 0
    for path in html.rglob("*.html"):
        page = _page(path)
        seen += page.shown
        headings: list[str | None] = []
        own = {"script"} if path.parent.name == "maps" else set()
        assert {tag for tag, _ in page.tags} & {"script", "i", "b", "iframe", "form"} == own
        for tag, attributes in page.tags:
            images += tag == "img"
            assert tag != "img" or attributes["alt"]
            assert not [name for name in attributes if name.startswith("on")]
            for name in ("src", "href"):
                target = attributes.get(name)
                if target and target.startswith("#"):
                    headings.append(target[1:])
                elif target and not target.startswith("data:"):
                    assert ":" not in target
                    assert (path.parent / unquote(target)).is_file(), target
        ids = [a.get("id") for tag, a in page.tags if tag == "h2"]
        assert headings == (ids if path.parent.name == "experiments" else []), path
        raw = path.read_text(encoding="utf-8")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", raw)
        assert "http" not in raw.replace("http-equiv", "")
    assert images > 20
    for text in (*EVIL[:2], r"\x1b[31mred\x07 \u202egnp.exe a dog", EVIL[3]):
        assert text in seen
    index = (html / "index.html").read_text(encoding="utf-8")
    assert "drawn by <code>&lt;b&gt; draw</code> and ` alone" in index
    for path in html.rglob("*.svg"):
        assert "http" not in path.read_text().replace("http://www.w3.org/2000/svg", "")
        ElementTree.parse(path)
        assert path.with_suffix(".csv").is_file()


def test_a_map_allows_its_own_script_alone_and_shows_its_images(html: Path) -> None:
    path = html / "maps" / "plain.html"
    raw = path.read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", raw, re.DOTALL)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in raw
    data = _map_data(path)
    assert sorted(data["ids"]) == sorted(f"<i>{k}" for k in range(IMAGES))
    assert data["sheet"] == _map_data(path.with_name(f"{STRANGE}.html"))["sheet"]
    file, columns, rows = data["sheet"]
    side = TINY
    with Image.open(path.parent / file) as sheet:
        assert sheet.size == (columns * side, rows * side) == (6 * side, 5 * side)
        pixels = np.asarray(sheet, np.int64)
        for k, image in enumerate(data["ids"]):
            number = int(image[3:])
            middle = pixels[k // 6 * side + side // 2, k % 6 * side + side // 2]
            colour = (8 * number, 90, 9) if number > 1 else (128, 128, 128)
            assert np.abs(middle - np.array(colour)).max() < 8
    for copy in {*(html / "images").iterdir()} - {html / "images" / Path(file).name}:
        with Image.open(copy) as small:
            assert (small.format, max(small.size)) == ("JPEG", 224)
            assert not small.getexif()


def test_numbers_are_those_of_the_ranks(made: Folders, html: Path) -> None:
    """Ranks shown, what was found, and the figures' data against the whole matrix."""
    (result, other) = _results(made, "plain", STRANGE)
    e = _embeddings(made)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in
            (e.image_embeddings.astype(float), e.caption_embeddings.astype(float))]  # fmt: skip
    scores = unit[0] @ unit[1].T
    image_ranks, caption_ranks = rank_both_ways(e)
    assert result.retrieval is not None
    assert result.retrieval.caption_ranks == tuple(caption_ranks)
    for answer in (*result.retrieval.sentences, *result.retrieval.sentence_failures):
        column = e.caption_ids.index(answer.query)
        order = [e.image_ids[k] for k in np.argsort(-scores[:, column])]
        assert list(answer.hits) == order[:TOP]
        assert order[answer.rank - 1] == answer.best_correct == e.caption_image_ids[column]
        assert answer.correct == {answer.best_correct}
    for answer in (*result.retrieval.images, *result.retrieval.image_failures):
        row = e.image_ids.index(answer.query)
        order = [e.caption_ids[k] for k in np.argsort(-scores[row])]
        assert list(answer.hits) == order[:TOP]
        assert order[answer.rank - 1] == answer.best_correct
        assert answer.rank == image_ranks[row] + 1
        own = {c for c, i in zip(e.caption_ids, e.caption_image_ids, strict=True)
               if i == answer.query}  # fmt: skip
        assert answer.correct == own
    failures = [answer.rank for answer in result.retrieval.sentence_failures]
    assert failures == sorted(failures, reverse=True)
    assert failures[0] == max(caption_ranks) + 1
    of_images = [answer.rank for answer in result.retrieval.image_failures]
    assert of_images == [rank + 1 for rank in sorted(image_ranks, reverse=True) if rank][:FAILURES]
    # The first 20 images are all that the protocol ranks.
    assert other.retrieval is not None
    assert {caption.split("#")[0] for caption in other.retrieval.caption_ids} == {
        f"<i>{k}" for k in range(20)
    }

    with (html / "figures/plain-r10-by-length.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert sum(int(row["queries"]) for row in rows) == len(e.caption_ids)
    hits = sum(int(row["queries"]) * float(row["text_to_image_r10"]) for row in rows)
    assert hits == pytest.approx(100 * np.count_nonzero(caption_ranks < 10))
    shown = _page(html / "experiments/plain.html").shown
    assert "random:0" in shown
    table = recall_table(e)
    low, high = result.retrieval.rsum_interval
    assert f"{table['rsum']:.1f} {low:.1f}–{high:.1f}" in " ".join(shown.split())
    index = _page(html / "index.html").shown
    assert index.count("Compare figures within one table only") == 2  # two protocols
    with (html / "figures/rsum-2.csv").open(newline="") as stream:
        (line,) = csv.DictReader(stream)
    assert (line["experiment"], float(line["rsum"])) == (STRANGE, other.recall["rsum"])
    assert float(line["rsum_low"]) == other.recall["rsum_low"]


def test_what_is_missing_is_told_and_the_rest_is_there(folders: Folders, tmp_path: Path) -> None:
    gaps = _write(folders, tmp_path / "html")
    (gap,) = [gap for gap in gaps if "No curve" in gap]
    assert gap.startswith(f"{STRANGE}: No curve: {folders.heads / STRANGE / 'head.json'} not found")
    for reason in ("no such file", "not an image"):
        assert any(reason in gap for gap in gaps)

    (folders.embeddings[0] / "file of pla.h5").unlink()
    (folders.dataset / "manifest.jsonl").unlink()
    gaps = _write(folders, tmp_path / "html")
    assert any(gap.startswith("plain: No file of") for gap in gaps)
    assert any("cannot be read" in gap and "manifest.jsonl not found" in gap for gap in gaps)
    index = _page(tmp_path / "html" / "index.html")
    assert all(gap.replace("\n", " ").replace("`", "") in index.shown for gap in gaps)
    shown = _page(tmp_path / "html" / "experiments" / "plain.html").shown
    assert "rsum against the epoch" in shown
    assert "fail worst" not in shown


def test_the_front_says_who_won_and_shows_why(folders: Folders, tmp_path: Path) -> None:
    """Compared, won by how much, and one sentence that is found and one that is missed."""
    rng = np.random.default_rng(1)
    e = _embeddings(folders)
    noise = rng.normal(size=e.caption_embeddings.shape).astype(np.float32)
    worse = replace(e, caption_embeddings=e.caption_embeddings + 2 * noise)
    _evaluated(folders, "worse", worse)
    write_pages(tmp_path / "html", ["worse", "plain"], folders)
    plain, other = _results(folders, "plain", "worse")
    verdict = verdict_of([other, plain])
    assert (verdict.winner.name, verdict.second and verdict.second.name) == ("plain", "worse")
    assert verdict.margin == plain.recall["rsum"] - other.recall["rsum"]
    assert verdict.interval
    low, high = verdict.interval
    assert low < verdict.margin < high
    assert verdict.found
    assert verdict.found.rank == 1
    assert verdict.missed
    assert plain.retrieval
    assert verdict.missed.rank == max(plain.retrieval.caption_ranks) + 1
    raw = (tmp_path / "html/index.html").read_text(encoding="utf-8")
    front = _front(tmp_path / "html")
    assert f"mine/test: {IMAGES} images, {len(e.caption_ids)} captions" in front
    # Whatever the interval.
    assert (
        f"Too few images to rank 2 systems: plain has the highest rsum, {plain.recall['rsum']:.1f}"
        in front
    )
    assert f"The difference to worse is {verdict.margin:.1f} (95 % interval" in front
    assert f"{low:.1f} to {high:.1f})." in front.replace("−", "-")
    assert f"{verdict.missed.rank} · correct" in front
    table = raw[raw.index("<tr class=first>") :]
    assert table.index(">plain</a>") < table.index(">worse</a>")  # though it was named first


def test_rows_whose_encoders_have_seen_the_dataset_are_set_apart(
    folders: Folders, tmp_path: Path
) -> None:
    e = _embeddings(folders)
    seen = {**e.provenance, "has_seen": {"captions": ["flickr30k", "snli"]}}
    perfect = replace(e, caption_embeddings=_image_of_each_caption(e), provenance=seen)
    _evaluated(folders, "best", perfect)
    verdict = verdict_of(_results(folders, "plain", "best"))
    assert (verdict.winner.name, verdict.second, verdict.competing) == ("plain", None, 1)
    assert [result.name for result in verdict.set_apart] == ["best"]
    assert verdict_of(_results(folders, "best")).winner.name == "best"
    write_report(folders, tmp_path, html=tmp_path / "html")
    assert "| best † " in (tmp_path / "recall.md").read_text(encoding="utf-8")
    raw = (tmp_path / "html/index.html").read_text(encoding="utf-8")
    front = _front(tmp_path / "html")
    assert "plain is the only system" in front
    assert "Not ranked, since their encoders have seen this dataset: best † (rsum " in front
    assert "best: captions: flickr30k, snli." in front
    table = raw[raw.index('aria-label="Recall of') :]
    row = table[table.index(">best</a> †") :]
    assert "number best" not in row[: row.index("</tr>")]
    own = " ".join(_page(tmp_path / "html/experiments/best.html").shown.split())
    assert "Its encoders have seen this dataset (captions: flickr30k, snli)" in own


def test_the_front_without_a_second_an_interval_or_examples(
    folders: Folders, tmp_path: Path
) -> None:
    e = _embeddings(folders)
    for sign, text in ((1, "No sentence is missed: each"), (-1, "No image ranks first")):
        own = replace(e, caption_embeddings=sign * _image_of_each_caption(e))
        _evaluated(folders, "best", own)
        write_pages(tmp_path / "html", ["best"], folders)
        assert text in _front(tmp_path / "html")
    assert "best is the only system: rsum" in _front(tmp_path / "html")
    shutil.copytree(folders.evaluations / "plain", folders.evaluations / "twin")
    (plain, twin) = _results(folders, "plain", "twin")
    assert verdict_of([plain, twin]).margin == 0
    for file in folders.embeddings[0].glob("*.h5"):
        file.unlink()
    path = folders.evaluations / "twin/recall.json"
    recall = json.loads(path.read_text())
    write_json(path, recall | {"rsum": recall["rsum"] - 7})
    write_pages(tmp_path / "html", ["plain", "twin"], folders)
    front = _front(tmp_path / "html")
    assert "Too few images to rank 2 systems: plain has the highest rsum" in front
    # 600 of 30 images.
    assert (
        "The difference to twin is 7.0. One test image with its sentences contributes up to 20.0"
        in front
    )
    assert "Worst miss" not in front


def test_a_dataset_that_does_not_fit(folders: Folders) -> None:
    path = folders.evaluations / "plain" / "provenance.json"
    metadata = json.loads(path.read_text())
    for changes, reason in (
        ({"dataset": ""}, "not recorded"),
        ({"dataset": "../mine"}, "is mine"),
        ({"dataset": "mine", "average_captions": True}, "no sentence represents"),
        ({"average_captions": False, "manifest_sha256": "0" * 64}, "has changed since"),
    ):
        metadata["provenance"] |= changes
        write_json(path, metadata)
        (result,) = _results(folders, "plain")
        assert (result.dataset is None) == ("changed" not in reason)
        assert reason in result.gaps[0]
    e = _embeddings(folders)
    renamed = {image: f"{image}.jpg" for image in e.image_ids}
    of_caption = tuple(renamed[image] for image in e.caption_image_ids)
    _evaluated(
        folders,
        "plain",
        replace(e, image_ids=tuple(renamed.values()), caption_image_ids=of_caption),
    )
    assert "lacks 30 images of the embedding file" in _gaps(folders)[0]
    entry = ImageEntry("<i>0", "0", "test", ("a",))
    Manifest("mine", folders.dataset, (entry,), "", "", {}).write(folders.dataset)
    assert re.search("lacks .* captions of the embedding file", _gaps(folders)[0])


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("provenance.json", "[]", "is corrupt"),
        ("provenance.json", '{"provenance": 3}', "is corrupt"),
        ("recall.json", "{", "JSON is malformed"),
    ],
)
def test_damaged_files_are_refused(folders: Folders, file: str, text: str, message: str) -> None:
    (folders.evaluations / "plain" / file).write_text(text)
    with pytest.raises(EmbeddingsError, match=message):
        _results(folders, "plain")


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ({"tensors_sha256": "2" * 64}, "describes another head than the one that made"),
        ({"history": [3]}, "is damaged"),
        ({"history": [{"loss": 1.0, "rsum": 9.0}]}, "has a loss, but no epoch"),
        ({"history": None}, "is damaged"),
    ],
)
def test_the_curve_is_of_the_head_that_made_the_embeddings(
    folders: Folders, head: dict[str, Any], reason: str
) -> None:
    """Another dataset's head under the experiment's name: no curve, and a line that says why."""
    path = folders.heads / "plain" / "head.json"
    (before,) = _results(folders, "plain")
    assert len(before.history) == 3
    write_json(path, {**json.loads(path.read_text()), **head})
    (result,) = _results(folders, "plain")
    (gap,) = [gap for gap in result.gaps if gap.startswith(f"No curve: {path} ")]
    assert reason in gap
    assert result.history == ()


def test_equal_bytes_and_nothing_stale(made: Folders, html: Path, tmp_path: Path) -> None:
    out, first = tmp_path / "out", _files(html)
    assert first.keys() >= {"index.html", "figures/rsum-1.svg", "experiments/plain.html"}
    write_pages(out, ["plain"], made)
    plain = _files(out)
    assert f"experiments/{STRANGE}.html" not in plain
    _write(made, out)
    assert _files(out) == first
    (out / "mine.txt").write_text("not the report's")
    write_pages(out, ["plain"], made)
    assert _files(out) == plain | {"mine.txt": b"not the report's"}


def test_the_job_takes_the_order_and_gives_the_rows(folders: Folders, tmp_path: Path) -> None:
    told = Recorder()
    found = write_report(
        folders, str(tmp_path / "report"), first=["no table", "plain"], html=tmp_path / "html",
        monitor=told,
    )  # fmt: skip
    assert list(found.rows) == ["plain", STRANGE]
    assert {*found.gaps} <= {*told.lines}
    rows = json.loads((tmp_path / "report" / "recall.json").read_text())
    assert rows == [{"experiment": name, **row} for name, row in found.rows.items()]
    table = (tmp_path / "report" / "recall.md").read_text()
    first = re.search("^\\| plain .*mine/test.*$", table, re.MULTILINE)
    assert first
    assert {"pool", "random:0"} <= {cell.strip() for cell in first[0].split("|")}
    assert "first-20, 2 captions an image" in table
    assert list(write_report(folders, tmp_path / "report").rows) == [STRANGE, "plain"]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        write_report(folders, tmp_path / "more", html=tmp_path / "file")
    assert not (tmp_path / "more").exists()
    with pytest.raises(EmbeddingsError, match="run `pipeline evaluate"):
        write_report(replace(folders, evaluations=tmp_path / "nowhere"), tmp_path / "more")


def test_the_tables_alone_need_neither_heads_nor_pages(made: Folders, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from pipeline.web.report.results import Folders; "
        "from pipeline.web.report.write import write_report; none = Path('none'); "
        f"folders = Folders(Path({str(made.evaluations)!r}), (), none, none, none); "
        f"assert len(write_report(folders, {str(tmp_path / 'report')!r}).rows) == 2; "
        "sys.exit(', '.join({'torch', 'jinja2', 'PIL'} & sys.modules.keys()) or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_tables_of_regions_are_left_out_and_named(folders: Folders, tmp_path: Path) -> None:
    made_from = {"localization_sha256": "0" * 64, "similarity": "cosine", "provenance": {}}
    write_json(folders.evaluations / "phrases" / "provenance.json", made_from)
    write_json(folders.evaluations / "phrases" / "localization.json", {"rows": {}})
    told = Recorder()
    assert list(write_report(folders, tmp_path / "tables", monitor=told).rows) == [STRANGE, "plain"]
    assert any("left out" in line and ": phrases; " in line for line in told.lines)
    for name in ("plain", STRANGE):
        shutil.rmtree(folders.evaluations / name)
    with pytest.raises(EmbeddingsError, match="of an embedding file"):
        write_report(folders, tmp_path / "tables")


def test_an_ensemble_is_found_in_its_own_folder(folders: Folders, tmp_path: Path) -> None:
    file = folders.embeddings[0] / "file of pla.h5"
    folders.embeddings[1].mkdir(parents=True)
    file.rename(folders.embeddings[1] / "ours.h5")
    (result,) = _results(folders, "plain")
    assert result.retrieval is not None
    (folders.embeddings[1] / "ours.h5").unlink()
    assert _gaps(folders)[0].startswith(
        f"No file of {folders.embeddings[0]} or {folders.embeddings[1]} is "
    )


def test_columns_of_an_ensemble_join_its_members() -> None:
    members = [
        {"dataset": "d", "split": "test", "inputs": {"images": {"weights": weights}}, "seed": seed}
        for weights, seed in (("w", 0), ("v", 0), ("w", 1))
    ]
    metadata = {"provenance": {"ensemble": members, "weights": [1, 1, 1]}}
    assert columns_of(metadata) == {"split": "d/test", "image weights": "w + v"}
    assert lineage_of(metadata)["seed"] == "0 + 1"
    own = {"dataset": "d", "split": "train", "trained_on": "d/train"}
    several = {**own, "split": "all", "splits": [["dev", 2], ["train", 9]]}
    for member in (own, several, {"ensemble": [own, {**own, "split": "dev"}]}):
        assert columns_of({"provenance": member})[SEEN] == "head: d/train"
    assert SEEN not in columns_of({"provenance": {**own, "split": "dev", "splits": "train"}})
    assert columns_of({"provenance": {"dataset": ["x"], "inputs": 3}}) == {}
