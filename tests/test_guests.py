"""Guests: what the package in tests/package_with_entry_points adds, with and without it."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import pipeline
from pipeline.datasets.readers import READERS
from pipeline.heads.head_types import HEADS, CaptionFeatures
from pipeline.store import registry
from pipeline.store.registry import PluginError
from pipeline.text import EncoderError
from pipeline.text.encoders.plan_json import options_of, plan_of
from pipeline.text.encoders.registry import encoder_options
from tests.in_process import status_of
from tests.project import PROJECT

GUEST = PROJECT / "tests/package_with_entry_points"
COLOURS = {"red": (200, 30, 20), "green": (20, 190, 40), "blue": (30, 40, 210)}


def forget() -> None:
    for each in registry._REGISTRIES:
        vars(each).pop("_found", None)


def install(patch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Put packages on the path, whose metadata lies beside them."""
    for folder in folders:
        patch.syspath_prepend(folder)
    forget()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget()
    yield
    forget()


def broken(folder: Path, **groups: str) -> Path:
    """Write the metadata of a package of which nothing is of use."""
    lines = [f"[caption_feature_pipeline.{group}]\n{line}\n" for group, line in groups.items()]
    (folder / "bad-2.0.dist-info").mkdir(parents=True)
    (folder / "bad-2.0.dist-info/entry_points.txt").write_text("".join(lines))
    (folder / "bad-2.0.dist-info/METADATA").write_text("Name: bad\nVersion: 2.0\n")
    return folder


def draw_photos(folder: Path) -> None:
    """Write photos of one colour, whose captions name it."""
    folder.mkdir()
    rng, lines = np.random.default_rng(0), []
    for number in range(30):
        colour = [*COLOURS][number % 3]
        noise = rng.integers(-20, 20, (40, 50, 3))
        pixels = np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        split = ("train", "train", "train", "val", "test")[number // 3 % 5]
        lines.append(f"{split} {number}.png a {colour} wall {'z' * (number % 4)}")
    (folder / "captions.txt").write_text("\n".join(lines))


PARAMS = {
    "dataset": "lines",
    "experiments": {
        "mine": {"head": "least-squares", "images": "tiny-net-pool", "captions": "letters"},
        "by-path": {"head": "guest.sides:HEAD", "images": "tiny-net-pool", "captions": "letters"},
    },
    "caption_features": {"letters": {"encoder": "letters"}},
}
TEXTS, FEATURES = "data/text/lines/letters", "data/features/lines/tiny-net-pool"
HEAD, EMBEDDED = "data/heads/lines/mine", "data/embeddings/lines/mine.h5"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where every command has used what the package adds."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        install(patch, GUEST)
        draw_photos(Path("photos"))
        Path("params.yaml").write_text(yaml.safe_dump(PARAMS))
        assert status_of("prepare", "lines", "--root", "photos", "--out", "data/lines") == 0
        images = ("extract", "--recipe", "tiny-net-pool")
        of = ("--dataset", "data/lines", "--out")
        assert status_of(*images, *of, FEATURES) == 0
        assert status_of(*images, *of, "two", "--workers", 2) == 0
        assert status_of("text", "--encoder", "letters", *of, TEXTS) == 0
        for name in ("mine", "by-path"):
            assert status_of("train", "--experiment", name) == 0
            assert status_of("embed", "--experiment", name) == 0
        assert status_of("search", "a red wall", "--experiment", "mine") == 0
        assert status_of("evaluate") == 0
    return folder


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def test_everything_records_where_it_comes_from(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(file: str) -> dict[str, object]:
        content: dict[str, object] = json.loads(Path(file).read_text())
        return content

    (row,) = read(f"{TEXTS}.encoder/encoder.json")["plan"]["parts"]  # type: ignore[index]
    assert row["plugin"] == "guest==1.0"
    assert pipeline.read_features(TEXTS).index.header.recipe["plugin"] == "guest==1.0"
    assert read(f"{HEAD}/head.json")["plugin"] == "guest==1.0"
    assert "plugin" not in read("data/heads/lines/by-path/head.json")
    assert pipeline.read_embeddings(EMBEDDED).provenance["plugin"] == "guest==1.0"
    one, two = (next(Path(folder).glob("*.h5")) for folder in (FEATURES, "two"))
    assert one.read_bytes() == two.read_bytes()
    assert status_of("shards", "info", FEATURES) == 0
    assert "guest==1.0" in capsys.readouterr().out
    install(monkeypatch, GUEST)
    # A head of the guest is found by its path too.
    heads = [pipeline.load_head(f"data/heads/lines/{name}") for name in ("mine", "by-path")]
    captions = pipeline.load_encoder(f"{TEXTS}.encoder").encode(["a red wall", "a blue wall"])
    by_name, by_path = (head.embed_captions(captions) for head in heads)
    np.testing.assert_array_equal(by_name, by_path)
    plan = plan_of(encoder_options("letters+bow", pca=3))
    plan["parts"][0]["plugin"] = "guest==0.9"
    with pytest.raises(EncoderError, match=r"'letters' was fitted by guest==0.9, and is"):
        options_of(plan)


def test_without_it_rows_are_read_and_nothing_is_computed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for works in (
        ("shards", "info", FEATURES),
        ("shards", "verify", TEXTS),
        ("evaluate", EMBEDDED, "--out", "again"),
        ("report", "--html", "pages"),
        ("search", "--image", "12.png", "--experiment", "mine"),
        ("search", "--image", "12.png", "--features", FEATURES),
        ("run", "qian2018-baseline", "--dataset", "data/lines", "--dry-run"),
    ):
        assert status_of(*works) == 0, capsys.readouterr().err
    table = Path("data/evaluations/lines/mine/recall.json")
    assert Path("again/recall.json").read_bytes() == table.read_bytes()
    one = pipeline.read_features(FEATURES).ids[0]
    similar = ("search", "--image", f"photos/{one}", "--features", FEATURES)
    of, out = ("--dataset", "data/lines"), ("--out", "x")
    for refused, message in (
        (("train", "--experiment", "mine", *out), "no head is called 'least-squares'"),
        (("extract", "--recipe", "tiny-net", *of, *out), "no image recipe"),
        (("text", "--encoder", "letters", *of, *out), "no encoder is called 'letters'"),
        (("prepare", "lines", "--root", "photos", *out), "No such command 'lines'"),
        (similar, "features of guest==1.0, which is not installed"),
        (("search", "a red wall", "--experiment", "mine"), "one of the heads of guest==1.0, which"),
        (("run", "mine"), "no head is called 'least-squares'"),
    ):
        assert status_of(*refused) in (1, 2), refused
        printed = capsys.readouterr().err
        assert (message in printed, "Traceback" in printed) == (True, False), printed
    with pytest.raises(PluginError, match=r"'least-squares' is one of the heads of guest==1.0, wh"):
        pipeline.load_head(HEAD)
    with pytest.raises(PluginError, match=r"'letters' is one of the encoders of guest==1.0, which"):
        pipeline.load_encoder(f"{TEXTS}.encoder")


def test_lists_have_it_with_its_origin_and_name_what_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = broken(
        tmp_path,
        heads="ridge = guest.sides:HEAD\nleast-squares = guest.sides:HEAD\ngone = nowhere:HEAD",
        encoders="letters = guest.texts:Letters\nodd = guest.sides:LeastSquares",
        readers="lost = guest.texts:nothing\ncoco = guest.texts:read_lines",
    )
    install(monkeypatch, bad, GUEST)
    for kind, name in (
        ("heads", "least-squares"),
        ("encoders", "letters"),
        ("backbones", "tiny-net"),
        ("recipes", "tiny-net"),
    ):
        assert status_of("list", kind) == 0
        shown = capsys.readouterr()
        (line,) = (line for line in shown.out.splitlines() if line.split()[0] == name)
        assert "guest==1.0" in line or "bad==2.0" in line
        faults = [line for line in shown.err.splitlines() if line.startswith("warning: ")]
        assert len(faults) == {"heads": 3, "encoders": 2}.get(kind, 0), faults
    assert HEADS.plugin("ridge") == READERS.plugin("coco") == ""
    with pytest.raises(PluginError, match=r"'gone' of bad==2.0 cannot be imported .*nowhere"):
        HEADS.get("gone")
    with pytest.raises(PluginError, match=r"'odd' of bad==2.0 is a type, expected a subclass of"):
        encoder_options("mean+odd-one")
    assert status_of("prepare", "lost", "--root", "x") == 1
    assert "'lost' of bad==2.0 cannot be imported" in capsys.readouterr().err
    assert status_of("prepare", "coco", "--help") == 0
    assert "--captions" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["sides:HEAD", "guest.sides:Settings", "pipeline.nowhere:HEAD"])
def test_a_path_without_a_head_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, GUEST)
    with pytest.raises(PluginError, match=f"'{name}'.*; correct|cannot be imported"):
        pipeline.resolve_experiment(
            "x", head=name, images="y", captions=CaptionFeatures("z", "mean")
        )
