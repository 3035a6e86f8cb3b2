"""The page in a real browser: its forms, its script, and no request to anywhere else."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from tests.web.serve.browser import Tab, find_browser, open_tab
from tests.web.serve.factories import STRANGE, TOP, Site, png

PICTURES = "document.querySelectorAll('.hits li').length"
BUTTON = "document.querySelector('.ask button').getBoundingClientRect().height"
LABELS = "[...document.querySelectorAll('#map text')].map((text) => text.getBoundingClientRect())"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    browser = find_browser()
    if browser is None:
        pytest.skip("needs Chromium or Chrome on the PATH")
    with open_tab(browser, tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.fixture(autouse=True)
def nothing_elsewhere(tab: Tab, site: Site) -> Iterator[None]:
    """Nothing is asked of anybody else, and the console holds only refusals that were meant."""
    tab.requests.clear()
    tab.complaints.clear()
    yield
    for url in tab.requests:
        assert url.startswith((site.url, f"blob:{site.url}", "data:,")), url
    assert not [text for text in tab.complaints if "responded with a status of 4" not in text]


def test_an_upload_is_answered_and_a_wrong_file_refused(
    tab: Tab, site: Site, tmp_path: Path
) -> None:
    right, wrong, huge = tmp_path / "right.png", tmp_path / "wrong.png", tmp_path / "huge.png"
    right.write_bytes(png(60, 40))
    wrong.write_text("no picture")
    huge.write_bytes(png(8000, 6250, "L"))
    tab.go(site.url)
    tab.choose("#file", right)
    tab.click("#upload button")
    tab.wait("document.querySelector('.preview')?.complete")
    assert tab.run("document.querySelector('.preview').naturalWidth") == 60
    assert tab.run("document.querySelectorAll('.sentences li').length") == TOP
    tab.type("#upload [name=plus]", "blue")
    tab.click("#upload [value=images]")
    tab.click("#upload button")
    tab.wait("document.querySelectorAll('.pictures li').length")
    for file, text in ((wrong, "not an image"), (huge, "8000 x 6250 pixels are more than")):
        tab.choose("#file", file)
        tab.click("#upload button")
        tab.wait(f"document.querySelector('.fault')?.textContent.includes('{text}')")
        assert tab.run(PICTURES) == 0
    tab.run("document.getElementById('upload').dataset.most = '5'")
    tab.click("#upload button")
    tab.wait("document.querySelector('.fault')?.textContent.includes('the limit is 5')")


def test_an_image_is_dropped_or_pasted(tab: Tab, site: Site) -> None:
    tab.go(site.url)
    image = (
        "const canvas = new OffscreenCanvas(50, 30); canvas.getContext('2d').fillRect(0, 0, 9, 9);"
        "const data = new DataTransfer(); data.items.add(new File([await canvas.convertToBlob()],"
        "'own.png', {type: 'image/png'}));"
    )
    events = (
        "new DragEvent('drop', {dataTransfer: data, cancelable: true, bubbles: true})",
        "new ClipboardEvent('paste', {clipboardData: data, cancelable: true, bubbles: true})",
    )
    for event in events:
        tab.run("document.getElementById('results').replaceChildren()")
        tab.run(f"(async () => {{ {image} document.body.dispatchEvent({event}); }})()")
        tab.wait("document.querySelector('.preview')?.naturalWidth === 50")
        assert tab.run("document.querySelectorAll('.sentences li').length") == TOP
    first = tab.run("document.querySelector('.sentences').innerText")
    tab.click("[data-page='2']")
    tab.wait("document.querySelector('[data-page=\"1\"]')")
    assert tab.run("document.querySelector('.sentences').innerText") != first


def test_markup_in_captions_and_ids_is_shown_as_text(tab: Tab, site: Site) -> None:
    tab.go(f"{site.url}?q=script+onerror+red+dog&of=sentences")
    text = tab.run("document.body.innerText")
    assert '<script>alert("a red dog")</script>' in text
    assert "<img src=x onerror=alert(1)> & 'red'" in text
    assert tab.run("document.scripts.length") == 1
    tab.click(".hits img[alt^='<script>']")
    tab.loaded()
    assert tab.run("document.querySelector('[name=image]').value") == STRANGE
    # What the page's script puts there runs no script either.
    tab.run("document.getElementById('results').innerHTML = '<img src=x onerror=\"window.ran=1\">'")
    tab.wait("document.querySelector('#results img').complete")
    assert tab.run("window.ran === undefined")
    tab.complaints.clear()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_results_are_on_the_first_screen(tab: Tab, site: Site, width: int, height: int) -> None:
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
    )  # fmt: skip
    tab.go(f"{site.url}?q=a+red+dog")
    assert tab.run("document.querySelector('.hits li').getBoundingClientRect().bottom") < height
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run(BUTTON) < 60  # one line
    tab.call("Emulation.clearDeviceMetricsOverride")


def test_the_map_answers_clicks_and_keys(tab: Tab, site: Site) -> None:
    tab.go(f"{site.url}map")
    assert tab.run("document.querySelectorAll('#map circle').length") == 10
    assert tab.run("document.querySelectorAll('#map-shown li').length") == 6  # without a click
    labels = tab.run(LABELS)
    for one, other in combinations(labels, 2):
        assert not (one["x"] < other["right"] and other["x"] < one["right"]
                    and one["y"] < other["bottom"] and other["y"] < one["bottom"])  # fmt: skip
    tab.run("document.getElementById('map').focus()")
    seen = set()
    for key in ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"):
        tab.run(
            f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}'}}))"
        )
        seen.add(tab.run("document.querySelector('.map-own .soft').textContent"))
    assert len(seen) > 1
    chosen = tab.run("document.querySelector('#map-shown button').title")
    tab.run("document.querySelector('#map-shown button').click()")
    assert tab.run("document.querySelector('.map-own p').textContent") == chosen
    assert tab.run("document.querySelectorAll('#map-shown li').length") == 6
    assert tab.run("document.querySelectorAll('#map circle.near').length") == 6
    tab.run("document.querySelector('.map-groups button').click()")
    assert tab.run("document.querySelectorAll('#map circle.away').length") == 0


def test_another_site_cannot_ask(tab: Tab, site: Site) -> None:
    tab.go("data:text/html,<p>elsewhere")
    tab.run(f"fetch('{site.url}upload', {{method: 'POST', body: 'x', mode: 'no-cors'}})"
            ".catch(() => null)")  # fmt: skip
    tab.wait("true")
    assert tab.run(f"fetch('{site.url}').then(() => true, () => false)") is False
    tab.requests[:] = [url for url in tab.requests if not url.startswith("data:text/html")]
    tab.complaints.clear()
