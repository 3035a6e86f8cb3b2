"""Each option, changed alone, makes each output that depends on it stale, or changes no byte."""

from collections.abc import Callable
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

import pipeline
from pipeline.clips.recipes import resolve_clip_recipe
from pipeline.heads.training.training_options import TrainingOptions
from pipeline.images.extract import extract
from pipeline.store.current.record import Record, made_from, stale
from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.shards.format import ShardError
from pipeline.store.workers.place import Place
from pipeline.text.encode import Captions, encode
from pipeline.text.vectors.settings import Training
from pipeline.text.vectors.store import expected_vectors, store_vectors, vectors_record
from stages.params import Params
from tests.project import contents

NAME, LITE = "vsepp", "efficientnet-lite0-pool"

TRAINED = TrainingOptions(max_epochs=2)
VECTORS = Training("word2vec", dim=4, min_count=1, epochs=1)

OTHER: dict[str, Any] = {
    "precision": "bf16", "engine": "reference", "device": "cpu", "dtype": "float16",
    "resources": {"MEMORY": 1}, "scheduler": "tcp://host:1", "trainer": "fasttext",
    "algorithm": "cbow", "max_epochs": 1, "train_split": "val", "validation_split": "train",
    "weights": "random:1", "split": "val",
}  # fmt: skip
"""Another value of each option of which not any text or number will do."""


def other(option: "Field[Any]") -> Any:
    """Return a value of an option that is not its default."""
    if option.name in OTHER:
        return OTHER[option.name]
    if option.type in (bool, "bool"):
        return not option.default
    return 3 if "int" in str(option.type) else "other"


class Stopped(Exception):
    """Ends a call once the record of its output is known."""

    def __init__(self, record: Record) -> None:
        self.record = record


def record_of(call: Callable[..., object], **given: Any) -> Record:
    """Return the record of the output of a call, which is not made."""

    def stop(file: Path, record: Record, *others: Any) -> NoReturn:
        raise Stopped(record)

    with pytest.MonkeyPatch.context() as patch:
        for module in ("pipeline.images.extract", "pipeline.text.encode"):
            patch.setattr(f"{module}.Snapshot", stop)
        with pytest.raises(Stopped) as stopped:
            call(**given)
    return stopped.value.record


def made(
    folder: Path, training: TrainingOptions = TRAINED, dry_run: bool = True, **given: Any
) -> tuple[str, ...]:
    """Return the stale steps of a run of a small head."""
    given = {"size": "tiny", **given, "root": folder / "made", "training": training}
    return pipeline.run(NAME, folder / "mine", dry_run=dry_run, **given).made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve drawn scenes, and the outputs of a run and of a training of vectors."""
    folder = tmp_path_factory.mktemp("options")
    pipeline.draw_scenes(folder / "mine", 12, seed=0).write(folder / "mine")
    assert len(made(folder, dry_run=False)) == 5
    store_vectors(folder / "mine", folder / "v.safetensors", training=VECTORS)
    return folder


def pictures(folder: Path, **given: Any) -> None:
    extract(folder / "mine", folder / "extract", recipe=LITE, **given)


def texts(folder: Path, **given: Any) -> None:
    encode(folder / "mine", folder / "text", encoder="bow", **given)


IMAGES = {"select": Selection, "storage": Storage, "compute": Compute, "place": Place}
OPTIONS = [
    (job, group, option)
    for job, groups in (
        (pictures, IMAGES),
        (texts, {"captions": Captions, "storage": Storage, "place": Place}),
    )
    for group, kind in groups.items()
    for option in fields(kind)
]


@pytest.mark.parametrize(
    ("job", "group", "option"), OPTIONS, ids=lambda one: getattr(one, "name", None)
)
def test_features_record_each_option(
    job: Callable[..., None], group: str, option: "Field[Any]", folder: Path
) -> None:
    usual = {**IMAGES, "captions": Captions}[group]()
    if option.name == "resources":
        usual = Place(scheduler="tcp://host:1")
    before = record_of(job, folder=folder, **{group: usual})
    after = record_of(job, folder=folder, **{group: replace(usual, **{option.name: other(option)})})
    assert (before != after) == option.metadata.get("recorded", True)


OUTSIDE_RECIPE = {
    "split": "selects rows", "limit": "selects rows", "leave_out_failed": "selects rows",
    "rows_per_shard": "layout of the shards", "compress": "layout of the shards",
    "weights": "their SHA-256 is hashed next to the recipe", "trained_on": "changes no feature",
    "weights_prefix": "in the header's recipe, beside the recipe of the network",
    "codebook": "of sound, whose weights it is",
    "engine": "equal up to rounding", "device": "equal up to rounding",
    "batch_size": "equal up to rounding",
}  # fmt: skip
"""Recorded options without a field of the recipe: with another one, finished rows are valid."""


def test_any_other_recorded_option_is_a_field_of_the_recipe(folder: Path) -> None:
    """Otherwise a call with another value would leave the rows of a finished output as they are."""
    usual = record_of(pictures, folder=folder)["recipe"]
    for job, group, option in OPTIONS:
        if job is pictures and option.metadata.get("recorded", True):
            given = {group: replace(IMAGES[group](), **{option.name: other(option)})}
            changed = record_of(pictures, folder=folder, **given)["recipe"] != usual
            assert changed == (option.name not in OUTSIDE_RECIPE), option.name


WITHOUT_EFFECT = [
    *(("storage", name) for name in ("add", "update", "retry_failed", "trust_stamps")),
    *(("compute", name) for name in ("threads", "readers")),
    ("place", "summary"),
]
ELSEWHERE = [("place", name) for name in ("workers", "scheduler", "resources", "retries")]
"""Options that change no byte, tested with all families in tests/store/jobs and workers."""


def test_every_unrecorded_option_is_compared_by_its_bytes() -> None:
    unrecorded = {
        (name, option.name)
        for name, kind in {**IMAGES, "captions": Captions}.items()
        for option in fields(kind)
        if not option.metadata.get("recorded", True)
    }
    assert unrecorded == {*WITHOUT_EFFECT, *ELSEWHERE}


@pytest.fixture(scope="module")
def extracted(folder: Path) -> dict[str, bytes]:
    extract(folder / "mine", folder / "as-usual", recipe=LITE, compute=Compute("random:0"))
    return contents(folder / "as-usual")


@pytest.mark.parametrize(("group", "name"), WITHOUT_EFFECT)
def test_an_unrecorded_option_changes_no_byte(
    group: str, name: str, folder: Path, extracted: dict[str, bytes], tmp_path: Path
) -> None:
    (option,) = (one for one in fields(IMAGES[group]) if one.name == name)
    value = tmp_path / "summary.json" if name == "summary" else other(option)
    given: dict[str, Any] = {"compute": Compute("random:0")}
    changed = replace(given.get(group, IMAGES[group]()), **{name: 1 if value == 3 else value})
    extract(folder / "mine", tmp_path / "out", recipe=LITE, **{**given, group: changed})
    assert contents(tmp_path / "out") == extracted


NOT_IN_FILES = {
    "device": "the last bits differ between devices, and head.json has no device",
    "leave_out_failed": "without it, the run would fail on the same images",
}


@pytest.mark.parametrize("option", fields(TrainingOptions), ids=lambda option: option.name)
def test_a_training_is_stale_by_each_option(option: "Field[Any]", folder: Path) -> None:
    if option.name == "monitor":
        return
    steps = made(folder, replace(TRAINED, **{option.name: other(option)}))
    recorded = option.metadata.get("recorded", True) and option.name not in NOT_IN_FILES
    assert bool(steps) == recorded


CHANGED: dict[str, Any] = {
    "evaluate protocol": ({"evaluate": {"protocol": "first-2"}}, "evaluate"),
    "evaluate captions_per_image": ({"evaluate": {"captions_per_image": 2}}, "evaluate"),
    "evaluate dim": ({"evaluate": {"dim": 8}}, "evaluate"),
    "test_split": ({"test_split": "val"}, "embed"),
    "precision of features": ({"extract": {"precision": "bf16"}}, "extract"),
    "storage of features": ({"extract": {"storage": "float16"}}, "extract"),
    "size": ({"size": "small"}, "train"),
}


@pytest.mark.parametrize(("given", "first"), CHANGED.values(), ids=CHANGED)
def test_a_run_is_stale_by_its_options(given: dict[str, Any], first: str, folder: Path) -> None:
    assert made(folder) == ()
    assert made(folder, **given)[0].split()[0] == first


EXPERIMENT: dict[str, Any] = {
    "settings": {"dim": 8},
    "average_captions": True,
    "precision": "bf16",
    "head": "word2visualvec",
    "word_vectors": "glove-6b-50d",
}


@pytest.mark.parametrize("name", EXPERIMENT)
def test_a_head_is_stale_by_each_field_of_its_experiment(name: str, folder: Path) -> None:
    usual = pipeline.resolve_experiment(NAME, size="tiny")
    changed = replace(usual, **{name: EXPERIMENT[name]})
    if name == "head":
        changed = replace(changed, settings={})
    steps = made(folder, experiments={NAME: changed})
    assert steps[0].split()[0] == "train"


@pytest.mark.parametrize("option", fields(Training), ids=lambda option: option.name)
def test_trained_vectors_are_stale_by_each_setting(option: "Field[Any]", folder: Path) -> None:
    changed = replace(VECTORS, **{option.name: other(option)})

    def reason(training: Training, **given: Any) -> str:
        return stale(
            folder / "v.safetensors",
            vectors_record,
            lambda: expected_vectors(folder / "mine", training=training, **given),
        )

    assert reason(VECTORS) == ""
    # Only fastText has n-grams.
    assert (reason(changed) != "") == (option.name != "buckets")
    for given in ({"tokenizer": "vsepp"}, {"split": "val"}):
        assert reason(VECTORS, **given)


@pytest.mark.parametrize("option", fields(Params), ids=lambda option: option.name)
def test_a_finished_run_records_each_option_of_the_file(option: "Field[Any]") -> None:
    changed = {"changed": 1} if "dict" in str(option.type) else "changed"
    before, after = Params(), Params()
    object.__setattr__(after, option.name, changed)
    recorded = made_from(before) != made_from(after)
    assert recorded == (option.name != "datasets")


@pytest.mark.parametrize("given", [{"frames": "every:1"}, {"over": "max"}], ids=str)
def test_clips_record_their_frames_and_what_is_kept_of_them(given: dict[str, Any]) -> None:
    usual = resolve_clip_recipe(f"{LITE}@even:8")
    assert replace(usual, **given).to_json() != usual.to_json()


def test_regions_record_each_option(folder: Path) -> None:
    """Boxes of other settings are never taken for finished ones."""
    boxes, regions = folder / "boxes", folder / "regions"

    def propose(**given: Any) -> None:
        settings = {"method": "grid", "number": 4, **given}
        pipeline.propose(folder / "mine", boxes, proposer=pipeline.Proposer(**settings))

    def extract(**given: Any) -> None:
        how: dict[str, Any] = {
            "recipe": LITE,
            "compute": Compute("random:0"),
            "select": Selection(limit=2),
        }
        cut = pipeline.Regions(boxes, **given)
        pipeline.extract_regions(folder / "mine", regions, regions=cut, **how)

    propose()
    extract()
    for job, given in (
        (propose, {"number": 5}),
        (propose, {"method": "selective-search"}),
        (extract, {"context": 0.5}),
    ):
        with pytest.raises(ShardError, match="recipe"):
            job(**given)
    propose()
    extract()
