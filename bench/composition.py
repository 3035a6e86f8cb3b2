"""How often an image minus one word plus another retrieves the scene with that change.

Run as `python -m bench.composition --experiment NAME`, with the options of `pipeline search` for
file locations. The embedding file must be of drawn scenes, whose contents are recomputed from their
seed. For every embedded image, each change of the colour or shape of one group to one that is not
in the image is a query. A hit is correct if it is another image with a group of the new shape and
colour, whatever else it contains; queries without any correct image are counted and skipped.
Baselines are the image alone, the words alone, and chance.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.composition import compose
from pipeline.retrieval.query.searcher import Searcher
from pipeline.retrieval.search import SideName
from pipeline.retrieval.similarity import Vectors
from pipeline.studies.scenes.grammar import describe
from pipeline.studies.scenes.sample import sample_scene
from pipeline.studies.scenes.words import COLOUR_WORDS, SETTING_WORDS, SHAPE_WORDS
from pipeline.studies.scenes.world import Scene
from stages.console import CONSOLE
from stages.searching import source_options, sources_of

TOP = 5
AROUND = 10
"""Nearest that are re-sorted around their mean."""

COLOURS = {colour: words[0] for colour, words in COLOUR_WORDS.items()}
SHAPES = {shape: names[0][0] for shape, names in SHAPE_WORDS.items()}
SETTINGS = {setting: phrases[0][0] for setting, phrases in SETTING_WORDS.items()}


@dataclass(frozen=True)
class Change:
    """A query: an image with one of its groups in another colour or shape.

    Attributes
    ----------
    image : id of the image.
    minus, plus : words to subtract and to add.
    wanted : the requested group as a sentence, such as "blue circle".
    """

    image: str
    minus: str
    plus: str
    wanted: str


def scenes_of(searcher: Searcher) -> dict[str, Scene]:
    """Return the groups of each embedded image, by id.

    Raises
    ------
    EmbeddingsError
        The dataset is not one that this version draws.
    """
    embedded, drawn = searcher.embedded, {}
    manifest = embedded.manifest
    for index, entry in enumerate(manifest.entries):
        rng = np.random.Generator(np.random.PCG64((manifest.notes.get("seed", 0), index)))
        drawn[entry.id] = sample_scene(rng)
        if describe(drawn[entry.id], rng) != entry.captions:
            raise EmbeddingsError(
                f"{entry.id} of {embedded.folder} is not a scene that this version draws "
                "from the dataset's seed; pass a dataset of `pipeline prepare scenes`"
            )
    return {image: drawn[image] for image in embedded.space.image_ids}


def said_of(scene: Scene) -> set[str]:
    """Return sentences such as "blue circle", one for each group."""
    return {f"{COLOURS[group.colour]} {SHAPES[group.shape]}" for group in scene.groups}


def changes(image: str, scene: Scene, of: str) -> Iterator[Change]:
    """Yield every change of the colours, or of the shapes, of an image."""
    words = COLOURS if of == "colour" else SHAPES
    present = {getattr(group, of) for group in scene.groups}
    for group in scene.groups:
        for new in (name for name in words if name not in present):
            now = {"colour": group.colour, "shape": group.shape, of: new}
            wanted = f"{COLOURS[now['colour']]} {SHAPES[now['shape']]}"
            yield Change(image, words[getattr(group, of)], words[new], wanted)


def ways_of_asking(
    vectors: dict[str, Vectors], picture: Vectors, setting: str, change: Change
) -> dict[str, tuple[Vectors, SideName, int | None]]:
    """Return the query (dim,) of each method, its side, and how many hits are re-sorted."""
    minus, plus = vectors[change.minus][None], vectors[change.plus][None]
    composed = compose(picture, minus, plus)
    unscaled = compose(picture, minus, plus, unit=False)
    return {
        "image - word + word": (composed, "images", None),
        f"the same, {AROUND} around their mean": (composed, "images", AROUND),
        "the same, without unit length": (unscaled, "images", None),
        "image + word": (compose(picture, minus[:0], plus), "images", None),
        "picture": (picture, "images", None),
        "word": (plus[0], "captions", None),
        '"blue circle"': (vectors[change.wanted], "captions", None),
        '"blue circle on the grass"': (vectors[f"{change.wanted} {setting}"], "captions", None),
    }


def ask(
    searcher: Searcher, scenes: dict[str, Scene], of: str
) -> tuple[list[Change], dict[str, npt.NDArray[np.int64]]]:
    """Return all changes, and by method the rows of the nearest scenes, (changes, TOP)."""
    things = [f"{colour} {shape}" for colour in COLOURS.values() for shape in SHAPES.values()]
    texts = [*COLOURS.values(), *SHAPES.values(), *things]
    texts += [f"{thing} {setting}" for thing in things for setting in SETTINGS.values()]
    vectors = dict(zip(texts, searcher.models.embed_sentences(texts, CONSOLE.log), strict=True))
    row = {image: at for at, image in enumerate(scenes)}
    asked: list[Change] = []
    found: dict[str, list[list[int]]] = {}
    for image, scene in scenes.items():
        picture, setting = searcher.embedded.stored(image)[0], SETTINGS[scene.setting]
        mine = list(changes(image, scene, of))
        ways = [ways_of_asking(vectors, picture, setting, change) for change in mine]
        for way, (_, side, around) in ways[0].items():
            queries = np.stack([queries_by[way][0] for queries_by in ways])
            for hits in searcher.embedded.nearest(queries, side, "images", TOP, image, around):
                found.setdefault(way, []).append([row[hit.id] for hit in hits])
        asked += mine
    return asked, {way: np.array(rows) for way, rows in found.items()}


def shares(right: npt.NDArray[np.bool_], found: npt.NDArray[np.int64]) -> list[float]:
    """Return in per cent how often the first hit, and one of the first TOP, is correct.

    Parameters
    ----------
    right : (changes, images). Whether an image is correct; changes without a correct image are
        skipped.
    found : (changes, TOP). Rows of the hits.
    """
    hit = np.take_along_axis(right, found, axis=1)[right.any(axis=1)]
    return [100 * float(hit[:, 0].mean()), 100 * float(hit.any(axis=1).mean())]


def by_chance(right: npt.NDArray[np.bool_]) -> list[float]:
    """Return the `shares` of the other images in random order."""
    others = right.shape[1] - 1
    counts = [int(count) for count in right.sum(axis=1) if count]
    return [
        100 * float(np.mean([1 - comb(others - n, top) / comb(others, top) for n in counts]))
        for top in (1, TOP)
    ]


def report(searcher: Searcher, scenes: dict[str, Scene], of: str) -> None:
    """Print the shares of every method, for all scenes and for those with one group."""
    asked, found = ask(searcher, scenes, of)
    said = [said_of(scene) for scene in scenes.values()]
    settings = {image: scene.setting for image, scene in scenes.items()}
    having = {thing: np.array([thing in things for things in said]) for thing in set().union(*said)}
    nowhere = np.zeros(len(scenes), bool)
    right = np.array([having.get(change.wanted, nowhere) for change in asked])
    here = np.array(
        [[settings[change.image] == setting for setting in settings.values()] for change in asked]
    )
    alone = np.array([len(scenes[change.image].groups) == 1 for change in asked])
    for which, kept in (("all images", np.ones_like(alone)), ("images of one thing", alone)):
        wanted, in_setting = right[kept], (right & here)[kept]
        answered, both = wanted.any(axis=1).sum(), in_setting.any(axis=1).sum()
        print(
            f"\n{of}, {which}: {kept.sum()} changes; {answered} have an answer, {both} one in the "
            f"image's setting\n{'':34} any setting: top 1 top {TOP}   the same: top 1 top {TOP}"
        )
        rows = {way: (shares(wanted, at[kept]), shares(in_setting, at[kept]))
                for way, at in found.items()}  # fmt: skip
        rows["chance"] = by_chance(wanted), by_chance(in_setting)
        for way, (anywhere, there) in rows.items():
            print(
                f"{way:34} {anywhere[0]:18.1f} {anywhere[1]:5.1f} {there[0]:17.1f} {there[1]:5.1f}"
            )


@click.command(help=__doc__)
@source_options
def main(experiment: str, **where: Any) -> None:
    """Report changes of colour, then of shape."""
    searcher = Searcher(**sources_of(experiment, **where), monitor=CONSOLE)
    scenes = scenes_of(searcher)
    print(f"{experiment}: {len(scenes)} images; answers right in per cent")
    for of in ("colour", "shape"):
        report(searcher, scenes, of)


if __name__ == "__main__":
    main()
