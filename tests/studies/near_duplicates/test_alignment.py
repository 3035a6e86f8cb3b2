"""Images laid over each other: against a naive correlation, and copies found by their pixels."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image, ImageEnhance, ImageOps

from pipeline.datasets.readers.folder import read_folder
from pipeline.store.builder.arrays import write_features
from pipeline.store.errors import WrongUsage
from pipeline.studies import StudyError
from pipeline.studies.near_duplicates.alignment import (
    SIDE,
    Field,
    Templates,
    correlation,
    small_grey,
)
from pipeline.studies.near_duplicates.confirmed import CANDIDATES, LEAST_CORRELATION, Nearest
from pipeline.studies.near_duplicates.find import duplicates
from pipeline.studies.near_duplicates.pairs import Pairs
from stages.cli import cli
from tests.project import Recorder


def drawn(seed: int, size: tuple[int, int] = (200, 140)) -> Image.Image:
    """Return an image of soft shapes at all scales."""
    rng = np.random.default_rng(seed)
    total = np.zeros((size[1], size[0], 3))
    for cells in (4, 8, 16, 32):
        noise = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), np.uint8))
        total += np.asarray(noise.resize(size, Image.Resampling.BICUBIC), np.float64) / 4
    return Image.fromarray(total.astype(np.uint8))


def aligned(part: Image.Image, whole: Image.Image) -> float:
    """Return the correlation of one image with a part of the other."""
    field = Field.of(small_grey(whole))
    return correlation(field, Templates.of(small_grey(part), field.shape))


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "same": lambda image: image,
    "crop": lambda image: image.crop((50, 20, 180, 104)),
    "half": lambda image: image.resize((100, 70)),
    "flip": ImageOps.mirror,
    "flipped crop": lambda image: ImageOps.mirror(image.crop((5, 30, 135, 121))),
    "squashed": lambda image: image.resize((120, 120)),
    "darker": lambda image: ImageEnhance.Brightness(image).enhance(0.5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_image_aligns_with_its_own_and_no_other(change: str) -> None:
    image = drawn(0)
    changed = CHANGES[change](image)
    assert aligned(changed, image) > 0.75
    assert max(aligned(changed, drawn(seed)) for seed in (1, 2, 3)) < 0.5


def test_the_correlation_is_that_of_a_naive_search() -> None:
    """A template's Pearson correlation with every window, one after the other."""
    whole, part = small_grey(drawn(4)), small_grey(drawn(4).crop((30, 10, 190, 122)))
    field = Field.of(whole)
    templates = Templates.of(part, field.shape)
    best = -1.0
    fitting = min(whole.width / part.width, whole.height / part.height)
    sizes = [whole.size] + [
        (round(part.width * fitting * k / 20), round(part.height * fitting * k / 20))
        for k in range(20, 9, -1)
    ]
    for size in sizes:
        small = Field.of(part.resize(size, Image.Resampling.BILINEAR)).pixels
        for template in (small, small[:, ::-1]):
            height, width = template.shape
            for top in range(whole.height - height + 1):
                for left in range(whole.width - width + 1):
                    window = field.pixels[top : top + height, left : left + width]
                    best = max(best, np.corrcoef(template.ravel(), window.ravel())[0, 1])
    assert abs(whole.width * whole.height - SIDE**2) < 0.05 * SIDE**2
    np.testing.assert_allclose(correlation(field, templates), best, atol=1e-4)


def test_images_of_one_colour_align_with_nothing() -> None:
    plain = Image.new("RGB", (90, 60), (40, 90, 10))
    assert aligned(plain, plain) == aligned(plain, drawn(0)) == 0
    assert aligned(drawn(0), plain) < 0.2
    assert aligned(Image.new("RGB", (1, 1)), drawn(0)) <= 0


def test_the_nearest_candidates_of_each_row_are_kept() -> None:
    rng = np.random.default_rng(0)
    rows = 60
    first, second = np.triu_indices(rows, 1)
    scores = np.round(rng.random(len(first)), 2)
    table = np.zeros((rows, rows))
    table[first, second] = table[second, first] = scores
    expected = set()
    for row in range(rows):
        order = np.argsort(-table[row], kind="stable")
        near = order[order != row][:CANDIDATES].tolist()
        expected |= {(min(row, other), max(row, other)) for other in near}
    nearest = Nearest(np.arange(rows))
    order = rng.permutation(len(first))
    for some in (*np.array_split(order, 7), order[:50]):  # some twice
        nearest.add(Pairs(first[some], second[some], scores[some]))
    assert {tuple(pair) for pair in nearest.pairs.tolist()} == expected


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six images, of which d is a crop of a; the features of all are near each other."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for seed, name in enumerate("abc"):
        drawn(seed).save(f"photos/{name}.png")
    CHANGES["flipped crop"](drawn(0)).save("photos/d.png")
    Image.new("RGB", (40, 40)).save("photos/e.png")
    Path("photos/f.png").write_bytes(b"no image")
    rows = np.ones((6, 4), np.float32) + np.eye(6, 4, dtype=np.float32) / 4
    write_features("features", [f"{name}.png" for name in "abcdef"], rows, recipe={"name": "any"})
    return tmp_path


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.usefixtures("photos")
def test_pixels_decide_among_near_rows(approximate: bool) -> None:
    found = duplicates("features", images="photos", approximate=approximate)
    assert [[image.id for image in group.images] for group in found] == [["a.png", "d.png"]]
    assert (found.threshold, found.correlation) == (0.5, LEAST_CORRELATION)
    assert LEAST_CORRELATION <= found.groups[0].score < 1
    write_features("other", ["d.png"], np.ones((1, 4), np.float32), recipe={"name": "any"})
    between = duplicates("features", "other", images=["photos", "photos"])
    assert sorted(image.id for image in between.images) == ["a.png", "d.png", "d.png"]


@pytest.mark.usefixtures("photos")
def test_the_command_aligns_and_refuses_without_images() -> None:
    arguments = ["duplicates", "features", "--dataset", "photos", "--align", "--page", "page.html"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert "1 group of 2 images whose pixels align, at cosine 0.5" in result.stderr
    page = Path("page.html").read_text(encoding="utf-8")
    assert "at a correlation of 0.65 or more" in page
    assert "correlation up to" in page
    with pytest.raises(WrongUsage, match="--align needs --dataset"):
        CliRunner().invoke(cli, ["duplicates", "features", "--align"], catch_exceptions=False)
    with pytest.raises(WrongUsage, match="of each feature set once"):
        duplicates("features", images=["photos", "photos"])
    write_features("odd", ["a.png", "z.png"], np.ones((2, 4), np.float32), recipe={"name": "any"})
    with pytest.raises(StudyError, match=r"a row 'z.png', which is not an image of photos"):
        duplicates("odd", images="photos")


@pytest.mark.parametrize(("width", "height"), [(400, 100), (600, 60), (900, 30)])
def test_a_wide_image_does_not_match_a_tall_one_by_chance(width: int, height: int) -> None:
    """A few pixels correlate with some window of any image."""
    wide = [drawn(seed, (width, height)) for seed in range(6)]
    tall = [drawn(seed, (height, width)) for seed in range(6, 12)]
    square = drawn(20, (200, 200))
    pairs = [(one, other) for one in wide for other in tall]
    pairs += [(square, one) for one in wide] + [(one, square) for one in wide]
    assert max(aligned(part, whole) for part, whole in pairs) < LEAST_CORRELATION
    middle = wide[0].crop((width // 4, 0, width // 4 + 2 * height, height))
    assert aligned(middle, wide[0]) > LEAST_CORRELATION


@pytest.mark.usefixtures("photos")
def test_missing_and_damaged_images_are_counted() -> None:
    images = read_folder("photos", name="photos")
    Path("photos/b.png").unlink()
    monitor = Recorder()
    duplicates("features", images=images, monitor=monitor)
    (line,) = (line for line in monitor.lines if "match nothing" in line)
    assert line == (
        "2 of 6 images of candidates are missing or cannot be decoded and match nothing, "
        "first b.png, f.png"
    )


@pytest.mark.usefixtures("photos")
def test_modes_and_sizes_of_the_same_image_align() -> None:
    image = drawn(0)
    image.convert("RGBA").save("photos/b.png")
    image.convert("L").resize((2000, 1400)).save("photos/c.png")
    Image.new("L", (1, 1)).save("photos/e.png")
    found = duplicates("features", images="photos")
    assert [[one.id for one in group.images] for group in found] == [
        ["a.png", "b.png", "c.png", "d.png"]
    ]
