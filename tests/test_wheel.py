"""The wheel without extras, in an empty environment, used outside of any checkout: slow."""

import csv
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from email import message_from_string
from pathlib import Path

import pytest
import yaml
from PIL import Image

import pipeline
from pipeline.store.extras import EXTRAS, install_command
from tests.project import PROJECT
from tests.test_guests import GUEST, PARAMS, draw_photos

pytestmark = pytest.mark.slow

Say = Callable[..., str]
UV = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))

# A command for each extra that is refused without it; `mteb` and `pandas` have Python alone.
REFUSED = {
    "clips": "prepare moving-scenes --clips 6 --out moving",
    "cluster": "text --encoder tfidf --dataset data/scenes --workers 1 --out new-cluster",
    "fasttext": "vectors --train fasttext --dataset data/scenes --out fasttext.safetensors",
    "heif": "extract --backbone efficientnet-lite0 --images phone --out new-heif",
    "language": "text --encoder tags --dataset data/scenes --out new-language",
    "lite": "extract --backbone efficientnet-lite1 --dataset data/scenes --out new-lite",
    "onnx": "export qian2018-baseline --dataset data/scenes --to onnx --out programs",
    "open-clip": "extract --recipe open-clip:ViT-B-32 --dataset data/scenes --out new-open-clip",
    "regions": "propose --method edge-boxes --dataset data/scenes --out boxes.jsonl",
    "search": "search --experiment qian2018-baseline --dataset data/scenes --approximate circle",
    "sentences": "text --encoder sentence-transformer:model --dataset data/scenes --out new-sbert",
    "share": "shards pull http://127.0.0.1:1/features new",
    "spacy": "text --encoder tags-spacy --dataset data/scenes --out new-spacy",
    "timm": "extract --recipe timm:resnet10t --dataset data/scenes --out new-timm",
    "web": "serve --experiment qian2018-baseline --dataset data/scenes",
}


def _run(*command: str | Path, cwd: Path, path: Path | None = None, fails: bool = False) -> str:
    """Run a command without the project on Python's path; return its stdout, or why it failed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    ended = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert bool(ended.returncode) == fails, f"{command}:\n{ended.stdout}\n{ended.stderr}"
    return ended.stderr if fails else ended.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the programs of an environment that holds the wheel and what it needs.

    uv builds and installs, or pip where there is no uv, as in the Makefile.
    """
    folder = tmp_path_factory.mktemp("wheel")
    source, wheels, programs = folder / "source", folder / "wheels", folder / "environment" / "bin"
    source.mkdir()
    for name in ("pyproject.toml", "setup.cfg", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source)
    for name in ("pipeline", "stages"):
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    _run(sys.executable, "-m", "venv", programs.parent, cwd=folder)
    if UV:
        _run(UV, "build", "--wheel", "--out-dir", wheels, source, cwd=folder)
    else:
        pip = (programs / "python", "-m", "pip", "--disable-pip-version-check")
        _run(*pip, "wheel", "--no-deps", "--wheel-dir", wheels, source, cwd=folder)
    (wheel,) = wheels.glob("*.whl")
    assert wheel.name == f"caption_feature_pipeline-{pipeline.__version__}-py3-none-any.whl"
    _install(programs, wheel)
    return programs


def _install(programs: Path, what: str | Path) -> None:
    python = programs / "python"
    install = (UV, "pip") if UV else (python, "-m", "pip", "--disable-pip-version-check")
    into = ("--python", python) if UV else ()
    constraints = PROJECT / "constraints.txt"
    _run(*install, "install", *into, "--constraint", constraints, what, cwd=programs.parent)


@pytest.fixture(scope="module")
def say(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Say:
    """Run a program of the environment in an empty folder, the same for all tests."""
    folder = tmp_path_factory.mktemp("elsewhere")
    _draw_pictures(folder)

    def call(program: str, *arguments: str, fails: bool = False) -> str:
        return _run(environment / program, *arguments, cwd=folder, path=environment, fails=fails)

    return call


def _draw_pictures(folder: Path) -> None:
    """Write pictures/0.jpg to 5.jpg, captions.csv, and what the commands of `REFUSED` read."""
    (folder / "pictures").mkdir()
    with (folder / "captions.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "caption"])
        for i in range(6):
            picture = Image.new("RGB", (80 + i, 60), (40 * i, 0, 200 - 30 * i))
            picture.save(folder / "pictures" / f"{i}.jpg")
            rows.writerow([f"{i}.jpg", f"a picture of a colour, the {i}th"])
    for name in ("phone", "model"):
        (folder / name).mkdir()
    (folder / "phone" / "0.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    transformer = '[{"idx": 0, "name": "0", "path": "", "type": "models.Transformer"}]'
    (folder / "model" / "modules.json").write_text(transformer, encoding="utf-8")


def test_each_command_of_the_plain_way(say: Say) -> None:
    assert say("pipeline", "--version").split()[-1] == pipeline.__version__
    assert "resnet152-grid" in say("pipeline", "list", "recipes")
    assert "Usage: pipeline" in say("pipeline", "--help")
    for line in (
        "prepare scenes --num-images 24 --out data/scenes",
        "extract --backbone efficientnet-lite0 --dataset data/scenes"
        " --out data/features/scenes/efficientnet-lite0-pool",
        "extract --recipe resnet152-pool --weights random:0 --images pictures --out resnet",
        "text --encoder tfidf --dataset data/scenes --out data/text/scenes/tfidf",
        "text --encoder mean --dataset data/scenes --out data/text/scenes/mean-glove-6b-50d",
        "text --encoder fv-hglmm --sample 300 --pca 20 --dataset data/scenes --out data/text/fv",
        "vectors --train word2vec --dim 10 --dataset data/scenes --out word2vec.safetensors",
        "train --experiment qian2018-baseline --dataset data/scenes --max-epochs 1",
        "embed --experiment qian2018-baseline --dataset data/scenes",
    ):
        say("pipeline", *line.split())
    embeddings = "data/embeddings/scenes/qian2018-baseline.h5"
    table = say("pipeline", "evaluate", embeddings, "--out", "evaluation")
    assert "| qian2018-baseline |" in table


@pytest.mark.parametrize("extra", EXTRAS)
def test_without_its_extra_a_command_names_it(extra: str, say: Say) -> None:
    if extra in REFUSED:
        printed = say("pipeline", *REFUSED[extra].split(), fails=True)
    else:
        need = f"from pipeline.store.extras import require; require('{extra}', 'this needs')"
        printed = say("python", "-c", need, fails=True)
    assert install_command(extra) in printed
    assert (extra not in REFUSED) == ("Traceback" in printed)


def test_a_folder_of_images_and_the_report(say: Say) -> None:
    say(
        "pipeline", "prepare", "folder", "--root", "pictures", "--captions", "captions.csv",
        "--out", "data/mine",
    )  # fmt: skip
    say(
        "pipeline", "extract", "--backbone", "efficientnet-lite0", "--dataset", "data/mine",
        "--out", "features/mine",
    )  # fmt: skip
    say("pipeline", "shards", "verify", "features/mine")
    # The templates, the published numbers and the styles are files of the package; jinja2, of the
    # extra `web`, is installed with torch.
    row = say("pipeline", "run", "qian2018-baseline", "--dataset", "data/scenes")
    assert "| qian2018-baseline |" in row
    say("pipeline", "init", "own")
    say("pipeline", "report", "--dataset", "data/scenes", "--html", "report")
    pages = """
from pathlib import Path
index = Path("report/index.html").read_text(encoding="utf-8")
assert "qian2018-baseline" in index and "<style>" in index
"""
    say("python", "-c", pages)


def test_every_module_and_public_name_loads(say: Say) -> None:
    program = """
import importlib, pkgutil, sys
import pipeline, stages
from pipeline.store.extras import EXTRAS
# pytest is there for whoever inherits the suites of pipeline.testing.
optional = {"pytest"}.union(*EXTRAS.values())
for name in pipeline.__all__:
    getattr(pipeline, name)
for package in (pipeline, stages):
    assert package.__file__.startswith(sys.prefix), package.__file__
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            assert (error.name or error.__cause__.name) in optional, module.name
"""
    say("python", "-c", program)


def test_the_wheel_holds_every_file_that_is_not_python(say: Say) -> None:
    program = """
from importlib.resources import files
def walk(at, name):
    for item in at.iterdir():
        if item.is_dir():
            walk(item, f"{name}/{item.name}")
        elif not item.name.endswith((".py", ".pyc")):
            print(f"{name}/{item.name}")
for package in ("pipeline", "stages"):
    walk(files(package), package)
"""
    ours = {
        str(path.relative_to(PROJECT))
        for package in ("pipeline", "stages")
        for path in (PROJECT / package).rglob("*.*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    assert set(say("python", "-c", program).splitlines()) == ours


def test_metadata_is_whole(say: Say) -> None:
    program = """
from importlib.metadata import distribution
print(distribution("caption-feature-pipeline").read_text("METADATA"))
"""
    metadata = message_from_string(say("python", "-c", program))
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    description = str(metadata.get_payload())
    assert (PROJECT / "README.md").read_text(encoding="utf-8").strip() in description


@pytest.fixture(scope="module")
def photos(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Say:
    """Run a program in a folder of photos; the environment has what workers need from here on."""
    folder = tmp_path_factory.mktemp("photos")
    (wheel,) = (environment.parents[1] / "wheels").glob("*.whl")
    _install(environment, f"caption-feature-pipeline[cluster] @ {wheel.as_uri()}")
    draw_photos(folder / "photos")
    (folder / "params.yaml").write_text(yaml.safe_dump(PARAMS))

    def call(line: str, fails: bool = False) -> str:
        program, *words = shlex.split(line)
        return _run(environment / program, *words, cwd=folder, path=environment, fails=fails)

    return call


TABLE = "python -c \"print(open('data/report/lines/recall.json').read())\""
FEATURES = "data/features/lines/tiny-net-pool"


def test_a_guest_package_is_installed(environment: Path, photos: Say) -> None:
    (packages,) = environment.parent.glob("lib/python*/site-packages")
    shutil.copytree(GUEST, packages, dirs_exist_ok=True)  # as pip would
    for kind in ("heads", "recipes"):
        assert "guest==1.0" in photos(f"pipeline list {kind}")
    for line in (
        "prepare lines --root photos --out data/lines",
        f"extract --recipe tiny-net-pool --dataset data/lines --workers 2 --out {FEATURES}",
        "text --encoder letters --dataset data/lines --out data/text/lines/letters",
        "train --experiment mine",
        "embed --experiment mine",
        "evaluate data/embeddings/lines/mine.h5 --out data/evaluations/lines/mine",
        "report --html pages",
    ):
        photos(f"pipeline {line}")
    hits = photos("pipeline search 'a red wall' --experiment mine").splitlines()
    assert (len(hits), all("red" in hit for hit in hits)) == (5, True), hits


def test_its_rows_outlive_it(environment: Path, photos: Say) -> None:
    (packages,) = environment.parent.glob("lib/python*/site-packages")
    shutil.rmtree(packages / "guest")
    shutil.rmtree(packages / "guest-1.0.dist-info")
    table = photos(TABLE)
    for line in (
        f"shards info {FEATURES}",
        "shards verify data/text/lines/letters",
        "evaluate data/embeddings/lines/mine.h5 --out data/evaluations/lines/mine",
        "report --html pages",
        "search --image 12.png --experiment mine",
        f"search --image 12.png --features {FEATURES}",
    ):
        photos(f"pipeline {line}")
    assert photos(TABLE) == table
    program = """
import pipeline
file = "data/embeddings/lines/mine.h5"
searcher, rows = pipeline.Searcher(file, dataset="data/lines"), pipeline.read_embeddings(file)
(hit,) = searcher.by_vector(rows.image_embeddings[0], top=1)
print(hit.score > 0.999)
"""
    assert photos(f"python -c {shlex.quote(program)}") == "True\n"
    for line, message in (
        ("search 'a red wall' --experiment mine", "one of the heads of guest==1.0, which is not"),
        (
            f"search --image photos/1.png --features {FEATURES}",
            "guest==1.0, which is not installed",
        ),
        ("embed --experiment mine --out x.h5", "no head is called 'least-squares'"),
        ("run by-path", "'guest.sides:HEAD' cannot be imported (ModuleNotFoundError"),
        ("extract --recipe tiny-net-pool --dataset data/lines --out x", "no image recipe or"),
        ("prepare lines --root photos --out x", "No such command 'lines'"),
    ):
        printed = photos(f"pipeline {line}", fails=True)
        assert (message in printed, "Traceback" in printed) == (True, False), printed
