"""`pipeline search`: sentences, a picture, or a picture less and plus words find their nearest."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from pipeline.canonical import canonical_json, sha256_of_file
from pipeline.datasets.manifest import MANIFEST_FILE, Manifest, check_caption, read_manifest
from pipeline.heads.files import TrainedHead, load_head
from pipeline.heads.pairs import ArrayRows, Features
from pipeline.images.extract import feature_header
from pipeline.images.network import FeatureNetwork
from pipeline.images.samples import read_sample
from pipeline.images.weights import load_weights
from pipeline.recipes import RECIPES, resolve_recipe
from pipeline.retrieval.approximate import open_index
from pipeline.retrieval.composition import around_the_mean, compose, require_composable
from pipeline.retrieval.embeddings import Embeddings, read_embeddings
from pipeline.retrieval.search import Gallery, Hits, SearchError, SideName, nearest
from pipeline.shards.format import STATUS_NAMES
from pipeline.text.features import caption_header
from pipeline.text.fitted import load_encoder
from stages.console import log_done, log_settings, printable
from stages.experiment import inputs_of
from stages.params import DATA, load_params

_SIDES: dict[str, SideName] = {"images": "images", "sentences": "captions"}


@click.command()
@click.argument("sentence", required=False)
@click.option("--experiment", required=True, help="Name of an experiment in params.yaml.")
@click.option(
    "--image", metavar="FILE_OR_ID", help="Ask with a picture: an id of the embeddings, or a file."
)
@click.option("--minus", multiple=True, metavar="WORD", help="Picture less this word; repeatable.")
@click.option("--plus", multiple=True, metavar="WORD", help="Picture plus this word; repeatable.")
@click.option(
    "--queries", type=click.Path(path_type=Path), help="File of sentences to ask with, one a line."
)
@click.option(
    "--of",
    type=click.Choice(list(_SIDES)),
    help="What is looked for.  [default: images; for a picture without words, sentences]",
)
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="How many.")
@click.option(
    "--around-mean",
    type=click.IntRange(1),
    metavar="N",
    help="Re-sort the N nearest by their distance to their mean before the first are shown.",
)
@click.option("--json", "as_json", is_flag=True, help="Results as JSON.")
@click.option(
    "--approximate",
    is_flag=True,
    help="Compare only with what an index points to, for millions of rows. It is made if need be.",
)
@click.option(
    "--embeddings",
    type=click.Path(path_type=Path),
    help="Embedding file.  [default: data/embeddings/EXPERIMENT.h5]",
)
@click.option(
    "--head",
    type=click.Path(path_type=Path),
    help="Folder of the trained head.  [default: data/heads/EXPERIMENT]",
)
@click.option("--dataset", type=click.Path(path_type=Path), help="[default: that of params.yaml]")
@click.option(
    "--encoder",
    type=click.Path(path_type=Path),
    help="Folder of the fitted sentence encoder.  [default: data/text/DATASET/NAME.encoder]",
)
@click.option(
    "--weights", help="Of the image network, for files.  [default: as the head's record says]"
)
def search(
    sentence: str | None,
    experiment: str,
    image: str | None,
    minus: tuple[str, ...],
    plus: tuple[str, ...],
    queries: Path | None,
    of: str | None,
    top: int,
    around_mean: int | None,
    as_json: bool,
    approximate: bool,
    embeddings: Path | None,
    head: Path | None,
    dataset: Path | None,
    encoder: Path | None,
    weights: str | None,
) -> None:
    """Find the images or sentences of an embedding file that are nearest to a query.

    One result a line: rank, score, id, file and first caption; of sentences rank, score, id and
    text. A greater score is nearer; ties stand in the order of the ids.

    \b
    Examples:
      pipeline search "a dog running on the grass" --experiment NAME --top 5
      pipeline search --image photo.jpg --experiment NAME
      pipeline search --image photo.jpg --minus blue --plus red --experiment NAME
    """
    if sum(given is not None for given in (sentence, queries, image)) != 1:
        raise click.UsageError("give a SENTENCE, --queries FILE or --image, one of them")
    if image is None and (minus or plus):
        raise click.UsageError("--minus and --plus go with --image")
    if around_mean is not None and around_mean < top:
        raise click.UsageError(f"--around-mean {around_mean} is fewer than --top {top}")
    composed = bool(minus or plus)
    of = of or ("images" if image is None or composed else "sentences")
    params = load_params()
    plan = params.experiment(experiment)
    dataset, _, captions = inputs_of(plan, params, dataset, None, None)
    embeddings = embeddings or DATA / "embeddings" / f"{experiment}.h5"
    head = head or DATA / "heads" / experiment
    encoder = encoder or captions.with_name(f"{captions.name}.encoder")
    log_settings(
        "search", experiment=experiment, embeddings=embeddings, head=head, dataset=dataset,
        encoder=encoder, of=of, top=top, around_mean=around_mean,
        search="approximate" if approximate else "exact",
    )  # fmt: skip
    space = _read(embeddings, experiment)
    gallery = Gallery.of(space, _SIDES[of])
    if composed or around_mean:
        require_composable(space.similarity)
    known = _facts(read_manifest(dataset), dataset, space, of)
    asker = _Asker(space, embeddings, head, encoder, weights)
    queried: list[dict[str, Any]]
    if image is None:
        texts = _lines(queries) if queries is not None else [sentence or ""]
        queried = [{"sentence": text} for text in texts]
        asking, rows = _SIDES["sentences"], asker.sentences(texts)
    else:
        queried = [{"image": image, "minus": list(minus), "plus": list(plus)}]
        asking, rows = _SIDES["images"], asker.picture(image)
        if composed:
            words = asker.sentences([*minus, *plus])
            rows = compose(rows[0], words[: len(minus)], words[len(minus) :])[None]
    own = image if of == "images" and image in gallery.ids else None
    number = max(top, around_mean or 0) + (own is not None)
    started = time.monotonic()
    if approximate:
        hits = open_index(embeddings, space, gallery.side, log_done).nearest(rows, asking, number)
    else:
        hits = nearest(gallery, rows, asking, number)
    seconds = time.monotonic() - started
    answers = [
        {
            "query": query,
            "results": [
                {"rank": rank, "score": score, "id": one, **known[one]}
                for rank, (one, score) in enumerate(best[:top], 1)
            ],
        }
        for query, best in zip(queried, _best(hits, gallery, own, around_mean), strict=True)
    ]
    if as_json:
        facts = {"experiment": experiment, "similarity": space.similarity, "of": of}
        click.echo(json.dumps({**facts, "answers": answers}, indent=2))
    else:
        _print(answers)
    if own is not None:
        log_done(f"{own} itself is left out of its results")
    log_done(
        f"queries: {len(rows)}, among {len(gallery.ids)} {of} by {space.similarity}: "
        f"{seconds:.2f} s"
    )


def _best(
    hits: Hits, gallery: Gallery, own: str | None, around_mean: int | None
) -> Iterator[list[tuple[str, float]]]:
    """Yield ids and scores for each query, in the order that is shown, less the query's own id."""
    for found, scores in zip(hits.rows, hits.scores, strict=True):
        kept = [at for at, row in enumerate(found) if gallery.ids[row] != own]
        if around_mean is not None:
            kept = kept[:around_mean]
            kept = [kept[at] for at in around_the_mean(gallery.rows[found[kept]])]
        yield [(gallery.ids[found[at]], float(scores[at])) for at in kept]


def _lines(path: Path) -> list[str]:
    """Return the sentences of a file, one a line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SearchError(f"{path} is not UTF-8 ({error}); save it so") from error
    return text.removesuffix("\n").split("\n")


def _read(path: Path, experiment: str) -> Embeddings:
    if not path.is_file():
        raise SearchError(
            f"{path} is not there, so {experiment!r} has no embeddings to search yet; make them "
            f"with `pipeline embed --experiment {experiment}`, or name a file with --embeddings"
        )
    return read_embeddings(path)


def _facts(
    manifest: Manifest, dataset: Path, space: Embeddings, of: str
) -> dict[str, dict[str, str]]:
    """Return what is said of each result beside its id, by the id."""
    facts: dict[str, dict[str, str]] = {}
    for entry in manifest.entries:
        file = str(manifest.image_root / entry.file)
        if of == "images":
            facts[entry.id] = {"file": file, "caption": next(iter(entry.captions), "")}
        else:
            for one, text in zip(entry.caption_ids, entry.captions, strict=True):
                facts[one] = {"sentence": text, "image": entry.id}
    ids = space.image_ids if of == "images" else space.caption_ids
    if strangers := [one for one in ids if one not in facts]:
        raise SearchError(
            f"{dataset} has not all {of} of the embedding file: {len(strangers)} ids are missing, "
            f"first {strangers[:5]}; give the dataset that was embedded with --dataset"
        )
    made_from = space.provenance.get("manifest_sha256")
    if made_from not in (None, sha256_of_file(dataset / MANIFEST_FILE)):
        log_done(f"{dataset} has changed since it was embedded; its captions may have, too")
    return facts


@dataclass(frozen=True)
class _Asker:
    """Embeds queries with the head that made an embedding file.

    Attributes
    ----------
    space, path : the embeddings, and their file.
    folder : of the trained head. encoder : of the fitted sentence encoder.
    weights : of the image network; None takes what the head's record says.
    """

    space: Embeddings
    path: Path
    folder: Path
    encoder: Path
    weights: str | None

    @cached_property
    def _trained(self) -> TrainedHead:
        trained = load_head(self.folder)
        said = self.space.provenance
        # As JSON, where a tuple is a list.
        different = [
            name
            for name, value in _facts_of(trained).items()
            if canonical_json(said.get(name)) != canonical_json(value)
        ]
        if different:
            raise SearchError(
                f"{self.path} was not made by the head in {self.folder}: it differs in "
                f"{', '.join(different)}; give the right --head or --embeddings, or run `pipeline "
                f"embed --experiment {trained.experiment}` again"
            )
        return trained

    def sentences(self, texts: Sequence[str]) -> Features:
        """Return the embeddings of sentences or words, one a row."""
        for number, text in enumerate(texts, 1):
            if fault := check_caption(text):
                raise SearchError(
                    f"sentence or word {number} of {len(texts)}, {text!r}, {fault}; each is one "
                    "line of words"
                )
        encoder = load_encoder(self.encoder, texts)
        side = self._trained.inputs.captions
        if (found := caption_header(encoder, "").recipe_hash) != side.recipe_hash:
            raise SearchError(
                f"{self.encoder} holds the encoder {encoder.name!r} (hash {found}), but the head "
                f"in {self.folder} was fitted on {side.name!r} (hash {side.recipe_hash}); give "
                "the encoder that made its caption features with --encoder, or train again"
            )
        reports = encoder.reports(texts)
        # A part that knows a word is enough: the row is not that of an unknown sentence.
        if unknown := set.intersection(*(set(r.unknown_captions) for r in reports.values())):
            first = [texts[at] for at in sorted(unknown)[:5]]
            raise SearchError(
                f"the encoder {encoder.name!r} knows no word of {len(unknown)} of {len(texts)} "
                f"queries, first {first}, so they would be searched with an empty vector; use "
                "words of its vocabulary"
            )
        for name, report in reports.items():
            if report.oov_words:
                words = ", ".join(word for word, _ in report.oov_words[:10])
                log_done(f"{name} does not know: {words}")
            for at in report.cut[:5]:
                log_done(f"{name}: too long, its last words are cut off: {texts[at]}")
        return self._trained.head.embed_captions(ArrayRows(encoder.encode(texts)))

    def picture(self, image: str) -> Features:
        """Return the embedding (1, ...) of a picture: the stored one of an id, or of a file."""
        if image in self.space.image_ids:
            return self.space.image_embeddings[[self.space.image_ids.index(image)]]
        if not Path(image).is_file():
            raise SearchError(
                f"{image!r} is neither the id of an image in {self.path} nor a file; give one of "
                f"them (ids there look like {self.space.image_ids[0]!r})"
            )
        side = self._trained.inputs.images
        if side.name not in RECIPES and not side.name.startswith("timm:"):
            raise SearchError(
                f"the head in {self.folder} was fitted on {side.name!r}, features that no recipe "
                f"here makes, so {image} cannot be embedded; ask with an id of {self.path}"
            )
        made = [str(side.recipe.get(name)) for name in ("precision", "storage")]
        recipe = resolve_recipe(side.name, *made)
        source = self.weights or (
            "imagenet" if side.weights == recipe.weights else side.weights.removeprefix("file:")
        )
        loaded = load_weights(recipe, source)
        if feature_header(recipe, loaded, "").recipe_hash != side.recipe_hash:
            raise SearchError(
                f"the recipe {recipe.name!r} with weights {loaded.name!r} is not the one that the "
                f"head in {self.folder} was fitted on (weights {side.weights!r}, hash "
                f"{side.recipe_hash}); give its weights with --weights, or ask with an id of "
                f"{self.path}"
            )
        network = FeatureNetwork(recipe, loaded.state)
        sample = read_sample(Path(image), recipe.resize, network.window)
        if sample.windows is None:
            raise SearchError(f"{image} is {STATUS_NAMES[sample.status]}: {sample.error}")
        row = network(torch.from_numpy(sample.windows[None])).numpy()
        # As the shards hold it.
        stored = row.astype(recipe.storage).astype(np.float32)
        return self._trained.head.embed_images(ArrayRows(stored))


def _facts_of(trained: TrainedHead) -> dict[str, Any]:
    """Return what an embedding file's provenance says of the head that made it."""
    return {
        "experiment": trained.experiment,
        "head": trained.kind,
        "settings": dict(trained.settings),
        "seed": trained.seed,
        "trained_on": f"{trained.dataset}/{trained.train_split}",
        "chosen_on": f"{trained.dataset}/{trained.validation_split}",
        "inputs": asdict(trained.inputs),
        "word_vectors": trained.word_vectors,
        "software": trained.created_by,
    }


def _print(answers: Sequence[dict[str, Any]]) -> None:
    """Write a line for each result, and where there are several queries one before each."""
    for answer in answers:
        if len(answers) > 1:
            click.echo(printable(answer["query"]["sentence"]))
        for result in answer["results"]:
            rank, score, *rest = result.values()
            click.echo("\t".join((str(rank), f"{score:.6g}", *map(printable, rest))))
