"""Every kind of output compared: embeddings, captions and localized phrases, by the same suite."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.language import LanguageError
from pipeline.language.scores.bleu import bleu
from pipeline.language.scores.table import score
from pipeline.regions import RegionError
from pipeline.regions.localization.evaluate_localization import tabulate
from pipeline.regions.localization.localized import Localized, write_localized
from pipeline.regions.localization.measures import average_precisions, by_head
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.evaluate import evaluate_protocol
from pipeline.retrieval.ranking.protocols import PROTOCOLS, Protocol
from pipeline.store.errors import PipelineError, UnknownName
from pipeline.studies import StudyError
from pipeline.studies.claims.compare import DEFAULT_MEASURES, MEASURES, Kind, compare
from pipeline.studies.claims.compare_captions import read_scored
from pipeline.studies.claims.drawn_precision import MeanAveragePrecision
from pipeline.studies.significance.compare import read_ranked
from pipeline.studies.significance.paired import figure
from tests.regions.localization.factories import localized
from tests.retrieval.factories import made, noisy, written

NUMBER = 60
KINDS: tuple[Kind, ...] = ("embeddings", "captions", "localizations")
FIGURES = [(kind, m) for kind in KINDS for m in MEASURES[kind] if "long_less" not in m]


@dataclass(frozen=True)
class Systems:
    """Two systems of a kind, their tables, and files that cannot be compared with the first."""

    good: Path
    poor: Path
    tables: Sequence[Mapping[str, float]]
    error: type[PipelineError]
    others: Mapping[Path, str] = field(default_factory=dict)  # with the message
    dataset: Path | None = None


def with_captions(e: Embeddings, rows: Sequence[int]) -> Embeddings:
    return replace(
        e,
        caption_ids=tuple(e.caption_ids[k] for k in rows),
        caption_image_ids=tuple(e.caption_image_ids[k] for k in rows),
        caption_embeddings=e.caption_embeddings[list(rows)],
    )


def embeddings(folder: Path) -> Systems:
    good, poor = noisy(NUMBER, 0.5, 1), noisy(NUMBER, 2.5, 7)
    owners = tuple(reversed(good.caption_image_ids))
    back = replace(
        good, image_ids=good.image_ids[::-1], image_embeddings=good.image_embeddings[::-1]
    )
    others = {
        "fewer": (
            with_captions(good, range(1, 120, 2)),
            "120 captions that are not the 60 of .*60 ids differ, first 'im0#0'",
        ),
        "renamed": (
            replace(good, caption_ids=("mean", *good.caption_ids[1:])),
            "2 ids differ, first 'im0#0'",
        ),
        "exchanged": (replace(good, caption_image_ids=owners), "first 'im0#0'"),
        "back": (back, "first at row 0: 'im0' and 'im59'"),
        "lacking": (noisy(59, 0.5, 1), "60 images that are not the 59"),
    }  # fmt: skip
    return Systems(
        written(folder, "good", good),
        written(folder, "poor", poor),
        [evaluate_protocol(e, PROTOCOLS["all"]).table for e in (good, poor)],
        EmbeddingsError,
        {written(folder, name, e): message for name, (e, message) in others.items()},
    )


def captions_file(file: Path, texts: Mapping[str, str | None]) -> Path:
    """Write lines, or COCO's array in another order."""
    lines = [
        {"image_id": image, **({"error": "lost"} if text is None else {"caption": text})}
        for image, text in texts.items()
    ]
    as_array = file.suffix == ".json"
    text = json.dumps(lines[::-1]) if as_array else "\n".join(map(json.dumps, lines))
    file.write_text(text)
    return file


def sentences(seed: int, number: int) -> list[str]:
    words = "a the dog cat runs sits on in grass snow red blue two small with".split()  # noqa: SIM905
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, size=rng.integers(1, 10))) for _ in range(number)]


def described(folder: Path) -> tuple[Manifest, dict[str, str | None]]:
    """Return a dataset, and captions of a reference with another word at its end."""
    texts = sentences(0, 3 * NUMBER)
    entries = tuple(
        ImageEntry(f"{k}.jpg", f"{k}.jpg", "test", tuple(texts[3 * k : 3 * k + 3]))
        for k in range(NUMBER)
    )
    manifest = Manifest("mine", folder, entries, "none", "made up", {})
    manifest.write(folder / "mine")
    return manifest, {entry.id: f"{entry.captions[0]} ball" for entry in manifest}


def captions(folder: Path) -> Systems:
    manifest, near = described(folder)
    random = dict(zip(near, sentences(5, NUMBER), strict=True))
    references = {entry.id: entry.captions for entry in manifest}
    theirs = captions_file(folder / "theirs.jsonl", random)
    (folder / "theirs.provenance.json").write_text('{"dataset": "theirs"}')
    fewer = dict(list(near.items())[:50])
    return Systems(
        captions_file(folder / "near.jsonl", near),
        captions_file(folder / "random.json", random),
        [score({k: v for k, v in of.items() if v}, references) for of in (near, random)],
        LanguageError,
        {
            captions_file(folder / "fewer.jsonl", fewer): "60 and 50 images.*first '50.jpg' .no "
            "caption in .*fewer.jsonl",
            captions_file(folder / "silent.jsonl", {**near, "7.jpg": None}): "first '7.jpg'",
            captions_file(folder / "strange.jsonl", {"x.jpg": "a dog"}): "1 image that the dataset "
            "'mine' lacks, first 'x.jpg'",
            theirs: "dataset 'theirs', but the references .*'mine'",
        },
        folder / "mine",
    )


def distinct(found: Localized, seed: int) -> Localized:
    """Give every proposal its own score, since copies of a photo interleave equal ones."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal(found.regions.shape).astype(np.float32)
    return replace(found, regions=rows / np.linalg.norm(rows, axis=1, keepdims=True))


def localizations(folder: Path) -> Systems:
    def file(name: str, of: Localized) -> Path:
        write_localized(folder / f"{name}.h5", of)
        return folder / f"{name}.h5"

    good = localized(images=NUMBER, proposals=8, phrases=4, seed=2)
    noise = distinct(good, 3)
    ids = ("x", *good.image_ids[1:])
    others = {
        "photos": (replace(good, image_ids=ids), "other photos .*first 'i0' and 'x'"),
        "phrases": (
            replace(good, phrase_texts=("a", *good.phrase_texts[1:])),
            "other phrases .*first of 'i0#p0'",
        ),
        "boxes": (replace(good, boxes=good.boxes + 1), "other proposals .*first of 'i0'"),
        "truth": (replace(good, truth=good.truth + 1), "other true boxes .*first of 'i0#p0'"),
    }
    return Systems(
        file("good", good),
        file("noise", noise),
        [tabulate(of, "head").rows["head"] for of in (good, noise)],
        RegionError,
        {file(name, of): message for name, (of, message) in others.items()},
    )


MAKE: Mapping[Kind, Callable[[Path], Systems]] = {
    "embeddings": embeddings, "captions": captions, "localizations": localizations
}  # fmt: skip


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Systems]:
    return {kind: make(tmp_path_factory.mktemp(kind)) for kind, make in MAKE.items()}


@pytest.mark.parametrize(("kind", "measure"), FIGURES)
def test_figures_are_those_of_the_table(
    kind: Kind, measure: str, systems: dict[Kind, Systems]
) -> None:
    """And better captions and embeddings are found better, in the direction of the figure."""
    of = systems[kind]
    found = compare(of.good, of.poor, measure=measure, dataset=of.dataset, resamples=300)
    printed = [table[measure] for table in of.tables]
    assert [found.first[0], found.second[0]] == pytest.approx(printed, rel=1e-12, abs=1e-9)
    assert found.num_images == NUMBER
    assert found.low <= found.margin <= found.high
    if kind != "localizations":
        assert found.decided
        assert (found.margin < 0) == MEASURES[kind][measure].lower_is_better
    same = compare(of.good, of.good, measure=measure, dataset=of.dataset, resamples=20)
    assert (same.differing, same.margin, same.p) == (0, 0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_differs_is_refused_by_name(kind: Kind, systems: dict[Kind, Systems]) -> None:
    of = systems[kind]
    for other, message in of.others.items():
        with pytest.raises(of.error, match=message):
            compare(other, of.good, dataset=of.dataset)
    with pytest.raises(UnknownName, match="no figure 'rsun'"):
        compare(of.good, of.poor, measure="rsun", dataset=of.dataset)
    default = compare(of.good, of.poor, dataset=of.dataset, resamples=20)
    assert default.measure == DEFAULT_MEASURES[kind][0]


def test_files_of_two_kinds_and_captions_without_references(systems: dict[Kind, Systems]) -> None:
    with pytest.raises(StudyError, match="references are in a dataset"):
        compare(systems["captions"].good, systems["captions"].poor)
    with pytest.raises(StudyError, match="only files of one kind"):
        compare(systems["captions"].good, systems["embeddings"].good)


def test_embeddings_with_ties_and_images_without_captions(tmp_path: Path) -> None:
    e = made([3, 1, 5, 2, 2, 1, 0], "cosine", integers=True)
    protocol = Protocol("all", captions_per_image=None)
    ranked, table = read_ranked(written(tmp_path, "e", e), protocol), evaluate_protocol(e, protocol)
    for kind, measure in FIGURES:
        if kind == "embeddings":
            assert figure(ranked.parts(measure)) == pytest.approx(table.table[measure])


def test_captions_may_be_in_another_order_and_uncounted_ones_may_lack(tmp_path: Path) -> None:
    whole = written(tmp_path, "whole", e := noisy(NUMBER, 0.5, 1))
    back = written(tmp_path, "back", with_captions(e, range(119, -1, -1)))
    assert compare(back, whole).differing == 0
    first = written(tmp_path, "first", with_captions(e, range(0, 120, 2)))
    assert compare(first, whole, captions_per_image=1).verdict == "equal on every image"


def test_bleu_of_drawn_images_is_that_of_copies(tmp_path: Path) -> None:
    manifest, near = described(tmp_path)
    found = read_scored(captions_file(tmp_path / "near.jsonl", near), manifest)
    times = np.random.default_rng(1).integers(0, 3, size=(4, NUMBER))
    for draw, value in zip(
        times, found.parts("bleu_4")[0].figures(times.astype(float)), strict=True
    ):
        rows = np.repeat(np.arange(NUMBER), draw)
        of_copies = bleu([found.words[k] for k in rows], [found.references[k] for k in rows])
        assert value == pytest.approx(100 * of_copies[3], rel=1e-12)


def drawn(found: Localized, times: list[int]) -> Localized:
    """Return a localization that holds each photo as often as it is drawn, as photos of its own."""
    images = [at for at, n in enumerate(times) for _ in range(n)]
    queries = [(q, new) for new, at in enumerate(images) for q in found.queries_of_image[at]]
    regions = [found.regions_of(at) for at in images]
    truths = [found.truth_of(int(q)) for q, _ in queries]
    counts = [r.stop - r.start for r in regions]
    return replace(
        found,
        image_ids=tuple(f"copy {n}" for n in range(len(images))),
        sizes=found.sizes[images],
        first_region=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        boxes=np.concatenate([found.boxes[r] for r in regions]),
        regions=np.concatenate([found.regions[r] for r in regions]),
        query_ids=tuple(f"q{n}" for n in range(len(queries))),
        query_image=np.array([new for _, new in queries]),
        query_phrase=np.array([found.query_phrase[q] for q, _ in queries]),
        query_types=tuple("" for _ in queries),
        first_truth=np.concatenate([[0], np.cumsum([len(t) for t in truths])]),
        truth=np.concatenate(truths),
    )


@pytest.mark.parametrize("seed", range(6))
def test_precision_of_drawn_photos_is_that_of_copies(seed: int) -> None:
    found = distinct(localized(images=7, proposals=12, phrases=5, seed=seed), seed)
    part = MeanAveragePrecision.of(found)
    rng = np.random.default_rng(seed)
    draws = [np.bincount(rng.integers(7, size=7), minlength=7) for _ in range(8)]
    for times in [*draws, np.ones(7, int)]:
        copies = drawn(found, times.tolist())
        expected = 100 * np.nanmean(average_precisions(copies, by_head(copies)))
        assert part.figures(times[None].astype(float))[0] == pytest.approx(expected, abs=1e-9)


def test_a_photo_without_proposals_and_a_phrase_that_nothing_finds() -> None:
    """Truth far from every proposal: the precision is 0, and no detection is left."""
    found = localized(images=4, seed=1)
    nowhere = replace(found, truth=found.truth + 1000)
    assert MeanAveragePrecision.of(nowhere).figures(np.ones((2, 4))).tolist() == [0, 0]
    assert np.isfinite(MeanAveragePrecision.of(found).figures(np.eye(4))).all()
