"""The page by HTTP: the answers of the search, text as text, and nothing that was not asked for."""

import gc
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from io import BytesIO
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image, ImageFile
from starlette.testclient import TestClient

from pipeline.datasets.manifest import read_manifest
from pipeline.heads import HeadError
from pipeline.language.captioning.captions import Caption
from pipeline.retrieval.composition import compose
from pipeline.retrieval.query.searcher import Searcher
from pipeline.store.files import OutputError
from pipeline.web.serve.app import HEADERS, make_app
from pipeline.web.serve.hosts import Hosts
from pipeline.web.serve.result_pages import MAX_BODY
from pipeline.web.serve.server import Server
from pipeline.web.serve.service import SearchService
from tests.project import Recorder
from tests.web.serve.factories import (
    FORM,
    HUGE,
    KINDS,
    OUTSIDE,
    STRANGE,
    TOP,
    Got,
    Page,
    Site,
    Sources,
    form,
    png,
    with_size,
)

# Starlette leaves the unfinished file of a form without its end to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in.*SpooledTemporaryFile")

Ask = Callable[[Site], Got]
SAFE = {name.lower(): value for name, value in HEADERS.items()}


@pytest.fixture
def searcher(site: Site) -> Searcher:
    return site.sources.searcher()


def _links(page: Page) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the links to other pages of results by their text."""
    texts = [text for text in ("Previous page", "Next page") if text in page.shown]
    yield from zip(
        texts, [tag for _, tag in page.tags if "page=" in tag.get("href", "")], strict=True
    )


def file_of(site: Site, name: str) -> bytes:
    manifest = read_manifest(site.sources.dataset)
    (file,) = [entry.file for entry in manifest.entries if entry.id == name]
    return (manifest.image_root / file).read_bytes()


def test_the_page_has_its_forms_and_asks_for_nothing_elsewhere(site: Site) -> None:
    got = site.get()
    assert got.status == 200
    assert SAFE.items() <= got.headers.items()
    assert "Python" not in str(got.headers)
    addresses = [v for _, tag in got.page.tags for k, v in tag.items() if k in ("src", "href")]
    first = {address.partition("?")[0] for address in addresses}
    assert first == {"/", "/image", "/map", "/script.js", "/style.css", "data:,"}
    assert not [tag for tag, _ in got.page.tags if tag in ("style", "iframe", "object", "embed")]
    script = "text/javascript"
    for path, kind in (("/style.css", "text/css"), ("/script.js", script), ("/map.js", script)):
        got = site.get(path)
        assert got.status == 200
        assert got.headers["content-type"].startswith(kind)
        assert b"http" not in got.body
        assert b"{%" not in got.body


def test_the_first_page_has_queries_to_begin_with(site: Site) -> None:
    page = site.get().page
    ids = [entry.id for entry in read_manifest(site.sources.dataset).entries]
    assert page.hits == ids
    queries = [tag["href"] for _, tag in page.tags if tag.get("href", "").startswith("/?")]
    assert len(queries) == len(ids) + 3
    for query in queries:
        found = site.get(query).page
        assert found.fault == ""
        assert len(found.hits) == TOP


@pytest.mark.parametrize("of", ["images", "sentences"])
def test_a_sentence_finds_what_the_search_finds(of: str, site: Site, searcher: Searcher) -> None:
    (expected,) = searcher.by_sentences(["a red dog"], of=of, top=TOP)
    page = site.get("/", q="a red dog", of=of).page
    assert page.hits == [hit.image for hit in expected]
    for hit in expected:
        assert f"{hit.rank} · {hit.score:.4f} · {hit.id}" in page.shown
    assert ("input", "a red dog") in [(tag, a.get("value")) for tag, a in page.tags]


def test_a_program_is_answered_in_json(site: Site, searcher: Searcher) -> None:
    def ask(**fields: str) -> dict[str, Any]:
        got = site.get("/search.json", **fields)
        assert (got.status, got.headers["content-type"]) == (200, "application/json")
        assert SAFE.items() <= got.headers.items()
        answer: dict[str, Any] = json.loads(got.body)
        return answer

    names = ("rank", "score", "id", "image", "caption", "split")
    sentence = "a red qzzyx"
    for fields, hits in (
        ({"q": sentence}, searcher.by_sentences(sentence, top=2 * TOP)),
        ({"image": STRANGE, "plus": "red"}, searcher.by_image(STRANGE, plus="red", top=2 * TOP)),
    ):
        expected = [{name: getattr(hit, name) for name in names} for hit in hits]
        first, second = ask(**fields), ask(**fields, page="2")
        assert first["hits"] + second["hits"] == expected
        assert first["more"] is True
    assert ask(q=sentence)["notes"] == ["unknown words are ignored: qzzyx"]
    for fields, message in (({"q": "qzzyx"}, "No word of the query"), ({}, "one image")):
        refused = site.get("/search.json", **fields)
        assert (refused.status, refused.headers["content-type"]) == (400, "application/json")
        assert message in json.loads(refused.body)["error"]


def test_long_ids_break_at_their_separators(site: Site) -> None:
    assert "folder/<wbr>ä &amp;" in site.get("/", image=STRANGE).body.decode()


def test_an_upload_finds_what_its_file_finds(site: Site, searcher: Searcher) -> None:
    for name in ("blue", STRANGE):
        data = file_of(site, name)
        for kind in ("images", "sentences"):
            expected = searcher.by_image(Image.open(BytesIO(data)), of=kind, top=TOP)
            got = site.upload(data, of=kind)
            assert got.status == 200
            assert got.page.hits == [hit.image for hit in expected]
            assert b"<html" not in got.body
        assert site.upload(data, of="images").page.hits[0] == name


def test_conditions_restrict_what_is_found(site: Site) -> None:
    ids = [entry.id for entry in read_manifest(site.sources.dataset).entries]
    fields = {"is.kind": KINDS[0], "is.number": "", "where": "number<5\r\nid!=red\r\n"}
    got = site.get("/", q="a red dog", of="images", **fields)
    assert {*got.page.hits} == {*ids[0:5:2]} - {"red"}, got.page.fault
    assert KINDS[0].encode() not in got.body
    link = next(tag["href"] for _, tag in got.page.tags if "image=" in tag.get("href", ""))
    assert {*site.get(link).page.hits} <= {*ids[0:5:2]} - {"red"}
    picture = file_of(site, "blue")
    assert {*site.upload(picture, of="images", where="number<3").page.hits} == {*ids[:3]}
    none = {"where": "number>99", "of": "images"}
    sentence = site.get("/", q="a red dog", **none)
    for got in (sentence, site.get("/", image="red", **none), site.upload(picture, **none)):
        assert (got.status, got.page.fault) == (200, "")
        assert "No images fulfil 'number>99'." in got.page.shown
        assert "Nearest" not in got.page.shown
    assert sentence.page.hits == []


def test_further_pages_continue_the_ranking(site: Site, searcher: Searcher) -> None:
    expected = [hit.image for hit in searcher.by_sentences("a red dog", top=10)]
    alike = [hit.image for hit in searcher.by_image("red", of="images", top=10)]
    for fields, ranked in (({"q": "a red dog", "of": "images"}, expected),
                           ({"image": "red", "of": "images"}, alike)):  # fmt: skip
        page, found = site.get("/", **fields).page, list[str]()
        for number in range(1, 4):
            found += page.hits
            links = {text: tag["href"] for text, tag in _links(page)}
            assert ("Previous page" in links) is (number > 1)
            if number < 3:
                page = site.get(links["Next page"]).page
        assert "Next page" not in links
        assert found == ranked
    copy_of_red = file_of(site, "red")
    first = site.upload(copy_of_red, of="images")
    assert [tag["data-page"] for _, tag in first.page.tags if "data-page" in tag] == ["2"]
    second = site.upload(copy_of_red, of="images", page="2").page.hits
    assert [*first.page.hits, *second] == [
        hit.image
        for hit in searcher.by_image(Image.open(BytesIO(copy_of_red)), of="images", top=2 * TOP)
    ]
    assert "no further results" in site.get("/", q="a red dog", page="9").page.shown


def test_the_map_has_the_searched_images_alone(site: Site) -> None:
    """An image of another split would have no picture."""
    service = copy(site.service)
    service.__dict__.pop("_map", None)
    service.image_ids = service.image_ids[:3]
    assert service.map is not None
    assert {*service.map.ids} == {*service.image_ids}


def test_an_upload_is_described(site: Site) -> None:
    def describe(picture: Image.Image) -> list[Caption]:
        return [Caption(f"a <b> of {picture.width} pixels", 0.5)]

    service = SearchService(site.sources.searcher(), top=TOP, describe=describe)
    with TestClient(make_app(service, hosts=Hosts({"testserver"}), log=print)) as client:
        got = client.post("/upload", files={"file": png(40, 30)}).text
        composed = client.post("/upload", files={"file": png(40, 30)}, data={"plus": "red"}).text
    assert "a &lt;b&gt; of 40 pixels" in got
    assert got.index("Captions") < got.index("Nearest sentences")
    assert "Captions" not in composed


def test_words_are_taken_from_a_picture_and_added(site: Site, searcher: Searcher) -> None:
    embedded = searcher.embedded
    words = searcher.models.embed_sentences(["red", "blue", "dog"], pytest.fail)
    query = compose(embedded.stored("red")[0], words[:1], words[1:])[None]
    (expected,) = embedded.nearest(query, "images", "images", TOP, "red")
    page = site.get("/", image="red", minus="red", plus="blue, dog", of="images").page
    assert page.hits == [hit.image for hit in expected]
    assert "red" not in page.hits
    uploaded = site.upload(file_of(site, "red"), minus="red", plus="blue dog", of="images").page
    (alike,) = embedded.nearest(query, "images", "images", TOP)
    assert uploaded.hits == [hit.image for hit in alike]


def test_text_from_data_and_queries_is_text(site: Site) -> None:
    query = "\"'><script>alert(1)</script> red dog \x07\u202e"
    for got in (
        site.get("/", q=query, of="sentences"),
        site.get("/", q=query, of="images"),
        site.get("/", q=f"{query[:40]}\n"),
        site.get("/", image=STRANGE),
        site.get("/", image=f"{query}<b>"),
        site.upload(file_of(site, STRANGE), of="sentences"),
        site.get("/map"),
    ):
        scripts = [tag for tag in got.page.tags if tag[0] == "script"]
        assert [tag for _, tag in scripts if "src" in tag] in (
            [], [{"src": "/script.js", "defer": ""}], [{"src": "/map.js", "defer": ""}]
        )  # fmt: skip
        assert {tag.get("type") for _, tag in scripts} <= {None, "application/json"}
        assert not [name for _, tag in got.page.tags for name in tag if name.startswith("on")]
        assert not any(character in got.body.decode() for character in "\x07\u202e")
    page = site.get("/", image=STRANGE).page
    alts = {a["alt"] for tag, a in page.tags if tag == "img"}
    assert '<script>alert("a red dog")</script>' in alts
    assert STRANGE in page.shown
    assert "<b>mine</b>" in page.shown
    found = site.get("/", q="red 7 onerror", of="sentences").page.shown
    assert "<img src=x onerror=alert(1)> & 'red' \\u202e {{ 7 * 7 }}" in found


def test_words_that_are_not_known_are_said(site: Site) -> None:
    assert "Unknown words are ignored: qzzyx" in site.get("/", q="a red qzzyx").page.shown
    again = site.get("/", q="qzzyx").page
    assert "qzzyx" in [a.get("value") for _, a in again.tags]


def of(**fields: str) -> Ask:
    """A query by the fields of its address."""
    return lambda site: site.get("/", **fields)


def file(data: bytes) -> Ask:
    """An upload of a file by the page's script."""
    return lambda site: site.upload(data)


def parts(*fields: tuple[str, str | bytes]) -> Ask:
    """An upload of a form; bytes are files."""
    return lambda site: site.send(form(fields))


def raw(lines: str, body: str = "") -> Ask:
    """An upload of other headers."""
    return lambda site: site.raw(f"{site.head}{lines}\r\n\r\n{body}".encode())


SMALL = ("file", png(4, 3))
NO_IMAGE = "not an image of a known format"


@pytest.mark.parametrize(
    ("ask", "status", "expected"),
    [
        (of(q=""), 400, "one image"),
        (of(q="   "), 400, "is empty"),
        (of(q="a\nb"), 400, "line break"),
        (of(q="red " * 300), 400, "the limit is 1000"),
        (of(q="red", image="red"), 400, "one image"),
        (of(q="red", plus="blue"), 400, "to an image only"),
        (of(q="red", of="files"), 400, "expected images or sentences"),
        (of(q="red", file="x"), 400, "no field 'file'"),
        (of(q="qzzyx"), 400, "o word of the query 'qzzyx' is known"),
        (of(image="red", plus="dog " * 11), 400, "11 words"),
        (of(image="red", minus="qzzyx"), 400, "o word of the query 'qzzyx' is known"),
        (of(q="red", page="0"), 400, "from 1 to 100"),
        (of(q="red", page="x"), 400, "from 1 to 100"),
        (of(q="red", page="101"), 400, "from 1 to 100"),
        (of(q="red", where="numbr<3"), 400, "no field 'numbr' (did you mean number?)"),
        (of(q="red", where="id~("), 400, "does not compile"),
        (file(b"no picture"), 415, NO_IMAGE),
        (file(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), 415, NO_IMAGE),
        (file(b"%!PS-Adobe-3.0 EPSF-3.0\n"), 415, NO_IMAGE),
        (file(png(90, 90)[:-30]), 415, "unreadable"),
        (file(png(90, 90)[:30]), 415, "unreadable"),
        (file(b""), 400, "is empty"),
        (file(b"x" * (MAX_BODY + 1)), 413, f"the limit is {MAX_BODY}"),
        (raw(f"Content-Length: {10**17}"), 413, f"{10**17} bytes"),
        (raw(""), 411, "states its length"),
        (raw("Transfer-Encoding: chunked", "4\r\nhalf\r\n0\r\n"), 411, "states its length"),
        (raw("Content-Type: image/png\r\nContent-Length: 4", "half"), 415, "is a form"),
        (raw("Content-Length: 4", "half"), 415, "is a form"),
        (lambda site: site.send(b"no form"), 400, "not a complete form"),
        (lambda site: site.send(form([SMALL])[:-20]), 400, "The upload has no file."),
        (parts(("file", "text")), 400, "has no file"),
        (parts(("of", "images")), 400, "has no file"),
        (parts(SMALL, SMALL), 400, "Too many files"),
        (parts(SMALL, ("of", "images"), ("of", "images")), 400, "a field more than once"),
        (parts(SMALL, *((f"a{k}", "") for k in range(20))), 400, "Too many fields"),
        (parts(SMALL, ("other", "1")), 400, "no field 'other'"),
        (parts(SMALL, ("q", "red")), 400, "or one image"),
        (parts(SMALL, ("minus", "x" * 1001)), 400, "the limit is 1000"),
        (parts(SMALL, ("minus", "x" * 2**21)), 400, "Part exceeded maximum size"),
    ],
)
def test_a_wrong_request_is_a_paragraph(ask: Ask, status: int, expected: str, site: Site) -> None:
    got = ask(site)
    assert (got.status, expected in got.page.fault) == (status, True), got.page.fault
    assert not got.page.hits
    gc.collect(1)  # the young, among which is all that a request leaves


@pytest.mark.parametrize(
    "ask",
    [
        *(lambda site, q=query: site.ask("GET", f"/?{q}")
          for query in ("q=%ff", "q=red&q=blue", "&".join(f"a{k}=1" for k in range(20)))),
        *(raw(lengths, "half")
          for lengths in ("Content-Length: 4\r\nContent-Length: 5", "Content-Length: -4",
                          "Content-Length: 4_0")),
    ],
)  # fmt: skip
def test_addresses_and_lengths_that_are_damaged_are_refused(ask: Ask, site: Site) -> None:
    assert ask(site).status == 400


def test_pictures_are_small_copies_by_id(site: Site) -> None:
    for name in ("red", STRANGE):
        got = site.get("/image", id=name)
        assert (got.status, got.headers["content-type"]) == (200, "image/jpeg")
        with Image.open(BytesIO(got.body)) as image:
            assert image.size == (320, 48)
        assert site.get("/image", id=name).body == got.body
    with Image.open(BytesIO(site.get("/image", id="blue").body)) as image:
        assert np.allclose(np.asarray(image).mean(axis=(0, 1)), (20, 40, 220), atol=12)


def test_only_pictures_of_the_dataset_are_shown(site: Site) -> None:
    root = read_manifest(site.sources.dataset).image_root
    assert (root / "below/0.png").is_file()
    for name in (
        "below/0.png", "0.png", "../secret.png", "../../etc/passwd", "/etc/passwd", "..", ".", "",
        str(root / "below/0.png"), "..%2fsecret.png", "red/../red", "red\0", "red.png", "\\secret",
    ):  # fmt: skip
        assert site.get("/image", id=name).status == 404, name
        escaped = "".join(f"%{byte:02x}" for byte in name.encode())
        assert site.ask("GET", f"/image?id={escaped}").status == 404
        for path in (f"/image/{quote(name)}", f"/image/{quote(name, safe='')}", f"/{quote(name)}x"):
            assert site.ask("GET", path).status == 404, path
    for path in ("//[", "/../pyproject.toml", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd"):
        got = site.ask("GET", path)
        assert (got.status, got.body) == (404, b"There is no such address.\n"), path


def test_a_link_that_leaves_the_project_is_refused(
    site: Site, sources: Sources, request: pytest.FixtureRequest
) -> None:
    """Until the folder of its target is part of a project, as a linked cache of DVC is."""
    got = site.get("/image", id=OUTSIDE)
    assert got.status == 415
    assert got.body.startswith(b"The image is unreadable: a link that leaves the image root and")
    project = sources.dataset.parent / ".dvc"
    project.mkdir()
    request.addfinalizer(project.rmdir)
    assert site.get("/image", id=OUTSIDE).status == 200


def test_fifty_megapixels_are_refused_without_decoding(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(image: ImageFile.ImageFile) -> None:
        raise AssertionError("decoded")

    data, larger = png(8000, 6250, "L"), with_size(png(1, 1), 30000, 30000)
    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    started = time.monotonic()
    got = site.upload(data)
    assert got.status == 413
    assert "8000 x 6250 pixels are more than the limit" in got.page.fault
    assert site.get("/image", id=HUGE).status == 413
    assert site.upload(larger).status == 413
    assert time.monotonic() - started < 5


def test_a_picture_at_the_limit_is_taken(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.web.serve.service.MAX_PIXELS", 600)
    assert site.upload(png(1, 600)).status == 200
    assert site.upload(png(1, 601)).status == 413


def test_an_upload_at_the_limit_stays_in_memory(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rollover(file: object) -> None:
        raise AssertionError("written to the disk")

    monkeypatch.setattr("tempfile.SpooledTemporaryFile.rollover", rollover)
    data = png(40, 30)
    data += bytes(MAX_BODY - len(form({"file": data})))
    assert len(form({"file": data})) == MAX_BODY
    assert site.upload(data).status == 200


def test_an_upload_that_stands_still_is_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.web.serve.app.SECONDS_OF_SILENCE", 0.2)
    got = site.raw(f"{site.head}Content-Type: {FORM}\r\nContent-Length: 99\r\n\r\n--front".encode())
    assert (got.status, "sent nothing for 0.2 seconds" in got.page.fault) == (408, True)


def test_an_upload_that_ends_early_is_logged(site: Site) -> None:
    data = f"{site.head}Content-Type: {FORM}\r\nContent-Length: 99\r\n\r\n--front".encode()
    with socket.create_connection(site.address, timeout=30) as connection:
        connection.sendall(data)
    site.wait_for("POST /upload: 400, The upload ended before its stated length.")


def test_foreign_names_and_pages_are_refused(site: Site) -> None:
    port, upload = site.address[1], form({"file": png(40, 30)})
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
        assert site.ask("GET", "/", Host=host).status == 403
        assert site.send(upload, Host=host).status == 403
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{port}", "http://127.0.0.1"):
        assert site.send(upload, Origin=origin).status == 403
        assert site.ask("GET", "/", Origin=origin).status == 403
    for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
        assert site.ask("GET", "/", Host=host).status == 200
        assert site.send(upload, Host=host, Origin=f"http://{host}").status == 200
    assert site.raw(b"GET / HTTP/1.0\r\n\r\n").status == 403
    twice = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n"
    assert site.raw(twice.encode()).status == 400


def test_other_methods(site: Site) -> None:
    for path in ("/", "/?q=red", "/image?id=red", "/style.css"):
        got, head = site.ask("GET", path), site.ask("HEAD", path)
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == str(len(got.body))
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"):
            refused = site.ask(method, path)
            assert refused.status == 405
            assert {*refused.headers["allow"].split(", ")} == {"GET", "HEAD"}
            assert SAFE.items() <= refused.headers.items()
    assert site.ask("GET", "/upload").headers["allow"] == "POST"


def test_what_is_no_http_is_refused_by_the_server(site: Site) -> None:
    for data in (
        b"GET / and more HTTP/1.1\r\n\r\n",
        b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20000 + b"\r\n",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
    ):
        site.log.clear()
        assert site.raw(data).status == 400
        site.wait_for("Invalid HTTP request received.")


def test_ten_at_once_are_answered_as_one_by_one(site: Site) -> None:
    asks: list[Callable[[], bytes]] = [
        *(lambda w=w: site.get("/", q=f"a {w} dog").body for w in ("red", "blue", "grey", "white")),
        *(lambda w=w: site.get("/", q=w, of="sentences").body for w in ("green", "black")),
        *(lambda w=w: site.upload(file_of(site, w)).body for w in ("yellow", "grey")),
        lambda: site.get("/", image="red", plus="blue").body,
        lambda: site.get("/", q="qzzyx").body,
    ]
    one_by_one = [ask() for ask in asks]
    assert len(set(one_by_one)) == 10
    with ThreadPoolExecutor(10) as pool:
        for _ in range(3):
            assert [future.result() for future in [pool.submit(ask) for ask in asks]] == one_by_one


def test_a_fault_of_the_program_has_no_traceback_on_the_page(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(site.service, "_image", fail)
    for ask in (lambda: site.get("/", image="red"), lambda: site.upload(png(40, 30))):
        got = ask()
        assert got.status == 500
        assert "its terminal has the error" in got.page.fault
        assert b"ZeroDivision" not in got.body
        assert SAFE.items() <= got.headers.items()
        site.wait_for("ZeroDivisionError: a fault")
        site.log.clear()


def test_without_the_network_of_pictures_sentences_are_answered(site: Site) -> None:
    monitor = Recorder()
    searcher = site.sources.searcher("random:1", monitor)
    service = SearchService(searcher, top=TOP, monitor=monitor)
    assert monitor.lines[0].startswith("no uploads: the recipe")
    app = make_app(service, hosts=Hosts({"testserver"}), log=monitor.log)
    with TestClient(app) as client:
        page = client.get("/").text
        refused = client.post("/upload", files={"file": png(40, 30)})
    assert "Uploads are not available" in page
    assert 'type="file"' not in page
    assert (refused.status_code, "The recipe" in refused.text) == (400, True)


def test_other_addresses_are_served_with_a_warning(site: Site) -> None:
    monitor = Recorder()
    with Server(site.sources.searcher(), host="0.0.0.0", port=0, monitor=monitor) as server:
        assert socket.gethostname() in server.url
    (warning,) = monitor.lines
    assert "no password and no encryption" in warning
    assert "ssh -L" in warning
    everywhere = Hosts.of(ip_address("0.0.0.0"), "0.0.0.0", 8765)
    for name in ("192.168.0.7", "[fe80::1]", "localhost", socket.gethostname()):
        assert f"{name}:8765" in everywhere
    for host in ("evil.example:8765", "192.168.0.7:80", "192.168.0.7", "", "1.2.3.4:x",
                 "u@1.2.3.4:8765"):  # fmt: skip
        assert host not in everywhere
    own = Hosts.of(ip_address("127.0.0.1"), "127.0.0.1", 80)
    assert "localhost" in own
    assert "192.168.0.7:80" not in own


def test_a_port_that_is_taken_is_said(site: Site) -> None:
    with pytest.raises(OutputError, match=r"`port=.*`"):
        Server(site.sources.searcher(), port=site.address[1])


def test_a_port_is_given_back_if_the_models_do_not_belong_to_the_embeddings(
    site: Site, tmp_path: Path
) -> None:
    searcher = Searcher(site.sources.embeddings, dataset=site.sources.dataset, head=tmp_path)
    with pytest.raises(HeadError):
        Server(searcher, port=0)
