"""Names that commands accept, by kind, as rows of text columns.

A function imports what its kind needs, so that the list of tokenizers does not wait for torch.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from pipeline.store.errors import UnknownName
from pipeline.store.registry import imported
from pipeline.store.wording import did_you_mean
from stages.additions import additions_to

if TYPE_CHECKING:
    from pipeline.images.recipes import Recipe

Row = Mapping[str, str]

RECOMMENDED = frozenset([
    "qian2018-baseline", "qian2018-gru-glove", "wang2016-cca",
    "wang2016-linear-bidirectional-structure", "wang2016-nonlinear-bidirectional-structure",
    "wang2016-phrases-cca", "wang2016-phrases-a-mined", "dong2018-w2vv-word2vec",
    "dong2018-w2vv-multiscale", "dong2018-video-multiscale", "dong2018-video-multiscale-sound",
    "kiros2014-linear", "kiros2014-lstm", "kiros2014-gru", "vendrov2016-order",
    "yan2019-transformer-basic", "yan2019-transformer-pooling",
    "yan2019-transformer-cross-attention", "vsepp", "scan-t2i-avg", "zero-shot", "ours-linear",
    "kiros2014-sc-nlm", "xu2015-soft-attention", "ours",
])  # fmt: skip
"""The systems that their papers recommend: the best or simplest of each; others are ablations."""

COLUMNS = {"experiments": {"name": 44, "images": 28, "captions": 24}}
"""Columns and widths of the printed table where it omits some, for lines of 100 characters; names
are never cut: a longer one moves its row to the right."""


def experiments() -> list[Row]:
    """Return the experiments of params.yaml, published systems, language models and ensembles."""
    from pipeline.heads.presets import PRESETS
    from pipeline.retrieval.ensemble import ENSEMBLES
    from stages.params import load_params

    params = load_params()

    def row(name: str, kind: str, images: str, captions: str, description: str) -> Row:
        of = "params.yaml" if name in {*params.experiments, *params.ensembles} else "published"
        return {
            "name": name, "kind": kind, "from": of, "description": description, "images": images,
            "captions": captions,
        }  # fmt: skip

    rows = []
    size = params.size if params.dataset else "small"  # as `pipeline run` chooses it
    for name, entry in params.experiments.items():
        images, captions = entry.images or "", entry.captions or ""
        description = f"head {entry.head}"
        if preset := PRESETS.get(entry.preset or name):
            default = preset.at(params.size)
            images, captions = images or default.images, captions or default.captions.name
            description = preset.source
        rows.append(row(name, "experiment", images, captions, description))
    for name, preset in PRESETS.items():
        kind = "phrases" if preset.of_phrases else "clips" if preset.of_clips else "experiment"
        default = preset.at(size)
        rows.append(row(name, kind, default.images, default.captions.name, preset.source))
    for of_family in additions_to("LIST_EXPERIMENTS"):
        rows += [row(*columns) for columns in of_family(size)]
    for name, weights in {**ENSEMBLES, **params.ensembles}.items():
        members = ", ".join(weights or ENSEMBLES[name])
        rows.append(row(name, "ensemble", "", "", f"mean of {members}"))
    # Entries of params.yaml replace published systems of the same name.
    return _first_of_each_name(rows)


def chosen_experiments(rows: Sequence[Row], paper: str | None) -> list[Row]:
    """Return the experiments of a paper, or those of params.yaml and the recommended ones."""
    if paper is not None:
        if of_paper := [row for row in rows if row["name"].startswith(paper)]:
            return of_paper
        papers = sorted({row["name"].partition("-")[0] for row in rows})
        raise UnknownName(f"no experiment begins with {paper!r}; {did_you_mean(paper, papers)}")
    return [row for row in rows if row["from"] == "params.yaml" or row["name"] in RECOMMENDED]


def encoders() -> list[Row]:
    """Return the sentence encoders."""
    from pipeline.text.encoders.registry import about
    from pipeline.text.encoders.registry import encoders as presets

    details = ("mixtures", "averaging", "vocabulary", "tag_set")
    rows = []
    for name, options in presets().items():
        values = (getattr(options, detail, None) for detail in details)
        words = [", ".join(value) if isinstance(value, tuple) else value for value in values]
        description = ", ".join([about(options.kind), *filter(None, words)])
        rows.append(_row(name, description, tokenizer=getattr(options, "tokenizer", "")))
    return [
        *rows,
        _row("open-clip:MODEL.TAG", "text tower of an open_clip model", tokenizer="its own"),
        _row("transformers:ID", "text tower of a dual encoder", tokenizer="its own"),
        _row(
            "sentence-transformer:MODEL", "a sentence transformer: folder, package or hub",
            tokenizer="its own",
        ),
    ]  # fmt: skip


def tokenizers() -> list[Row]:
    """Return the tokenizers of captions."""
    from pipeline.text.tokenizers.by_name import LEMMAS
    from pipeline.text.tokenizers.tokenizer import SPLITTERS, TOKENIZERS

    rows = []
    for name, tokenizer in TOKENIZERS.items():
        parts = [
            SPLITTERS[tokenizer.splitter].rule,
            "lower case" if tokenizer.lower_case else "case kept",
            f"punctuation {tokenizer.punctuation}",
            *(["without stop words"] if tokenizer.stop_words else []),
        ]
        rows.append(_row(name, "; ".join(parts)))
    return [*rows, _row(LEMMAS, "lemmas of treebank words without stop words, for tfidf")]


def recipes() -> list[Row]:
    """Return the recipes of images, regions, clips and sound."""
    from pipeline.images.recipes import RECIPES

    rows = [recipe_row(r.name, "images", r.shape, r.source, r.weights) for r in RECIPES.values()]
    for recipe in guest_recipes():
        rows.append(recipe_row(recipe.name, "images", recipe.shape, recipe.plugin, recipe.weights))
    for of_family in additions_to("LIST_RECIPES"):
        rows += of_family()
    torchvision = "any classification network of torchvision"
    timm = "any model of timm, also -grid and @LAYER"
    open_clip = "image tower of an open_clip model"
    transformers = "any image model of transformers, also -grid and @LAYER"
    return [
        *rows,
        recipe_row("torchvision:MODEL", "images", (), torchvision, "torchvision's"),
        recipe_row("timm:MODEL", "images", (), timm, "timm's"),
        recipe_row("open-clip:MODEL.TAG", "images", (), open_clip, "the tag's"),
        recipe_row("transformers:ID", "images", (), transformers, "of the hub or a folder"),
    ]


def guest_recipes() -> "list[Recipe]":
    """Return the default recipes of the networks of other packages, which are not built."""
    from pipeline.images.recipes.by_name import PROVIDERS, resolve_recipe

    return [resolve_recipe(name) for name in PROVIDERS.usable(guests_only=True)]


def recipe_row(name: str, of: str, shape: Sequence[int], source: str, weights: str) -> Row:
    """Return a row of the list of recipes; `of` is what the rows are features of."""
    return {
        "name": name, "of": of, "shape": " x ".join(map(str, shape)), "source": source,
        "weights": weights,
    }  # fmt: skip


def recipe_in_full(name: str, source: str | None) -> dict[str, object]:
    """Return an image recipe as JSON values; its hash is null if the weights are missing."""
    from pipeline.images.recipes import resolve_recipe
    from pipeline.images.weights import are_here, load_weights
    from pipeline.store.hashing import recipe_hash

    recipe = resolve_recipe(name)
    values = recipe.to_json()
    described = {
        **values, "imagenet_weights": recipe.weights, "source": recipe.source,
        "trained_on": recipe.trained_on,
    }  # fmt: skip
    if source is None and are_here(recipe):
        source = "imagenet"
    if source is None:
        click.echo(
            "the recipe hash depends on the weights, which are missing; pass --weights imagenet "
            "to download them, --weights PATH or --weights random:SEED",
            err=True,
        )
        return {**described, "recipe_hash": None}
    weights = load_weights(recipe, source)
    return {
        **described,
        "weights": weights.name,
        "weights_sha256": weights.sha256,
        "recipe_hash": recipe_hash(values, weights.sha256),
    }


def vectors() -> list[Row]:
    """Return the word vectors that are packaged, stored in data/vectors, or planned."""
    from pipeline.experiments.layout import DATA
    from pipeline.heads.experiments import TRAINED_VECTORS
    from pipeline.text.vectors import GLOVE_PACKAGE, STORED_SUFFIX
    from stages.params import load_params

    rows = [_row(GLOVE_PACKAGE, "GloVe 6B, 50 dimensions, from its package")]
    for file in sorted((DATA / "vectors").glob(f"*/*{STORED_SUFFIX}")):
        rows.append(_row(file.stem, f"stored in {file}"))
    planned = {**TRAINED_VECTORS, **load_params().word_vectors}
    for name, options in planned.items():
        how = " ".join(f"{key} {value}" for key, value in options.items())
        rows.append(_row(name, f"made where an experiment needs it: {how}"))
    return [
        *_first_of_each_name(rows),
        _row("FILE", "a .txt, .vec, .bin or .safetensors file"),
        _row("sentence-transformer:MODEL", "word embeddings of a sentence transformer"),
    ]


def layers(name: str) -> list[Row]:
    """Return the layers of the network of a recipe or backbone, with the shape of their output."""
    from pipeline.images.backbones.known_backbones import backbone_named
    from pipeline.images.layer_recipes import layer_outputs
    from pipeline.images.recipes import resolve_recipe

    recipe = resolve_recipe(name)
    outputs = layer_outputs(recipe, backbone_named(recipe.backbone))
    return [{"name": layer, "output": " x ".join(map(str, shape))} for layer, shape in outputs]


def backbones() -> list[Row]:
    """Return the networks with a default recipe, and the libraries with more."""
    from pipeline.images.recipes import DEFAULT_RECIPE, RECIPES

    rows = [
        backbone_row(n, recipe, RECIPES[recipe].weights) for n, recipe in DEFAULT_RECIPE.items()
    ]
    rows += [backbone_row(r.backbone, r.name, r.plugin) for r in guest_recipes()]
    for of_family in additions_to("LIST_BACKBONES"):
        rows += of_family()
    return [
        *rows,
        backbone_row(
            "torchvision:MODEL", "torchvision:MODEL", "any classification network of torchvision"
        ),
        backbone_row("timm:MODEL", "timm:MODEL", "any model of timm"),
        backbone_row("open-clip:MODEL.TAG", "open-clip:MODEL.TAG", "any model of open_clip"),
        backbone_row("transformers:ID", "transformers:ID", "any image model of transformers"),
    ]


def backbone_row(name: str, recipe: str, description: str) -> Row:
    """Return a row of the list of backbones; `recipe` is the default one."""
    return {"name": name, "recipe": recipe, "description": description}


def heads() -> list[Row]:
    """Return the heads, with the first line of their modules' docstrings."""
    from pipeline.heads.head_types import HEADS

    rows = []
    for name in HEADS.usable():
        entry = HEADS.entries()[name]
        module = import_module(entry.target.partition(":")[0])
        origin = f" ({entry.plugin})" if entry.plugin else ""
        rows.append(_row(name, f"{(module.__doc__ or '').partition(chr(10))[0]}{origin}"))
    return rows


def _first_of_each_name(rows: Sequence[Row]) -> list[Row]:
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(row["name"], row)
    return [*first.values()]


def _row(name: str, description: str, **columns: str) -> Row:
    return {"name": name, **columns, "description": description}


_REGISTRIES = {
    "encoders": "pipeline.text.encoders.registry:KINDS",
    "heads": "pipeline.heads.head_types:HEADS",
    "backbones": "pipeline.images.recipes.by_name:PROVIDERS",
    "recipes": "pipeline.images.recipes.by_name:PROVIDERS",
}


def faults(kind: str) -> list[str]:
    """Return why guests of a kind of names are of no use."""
    return list(imported(_REGISTRIES[kind]).faults()) if kind in _REGISTRIES else []


LISTINGS: Mapping[str, Callable[[], list[Row]]] = {
    "experiments": experiments,
    "encoders": encoders,
    "tokenizers": tokenizers,
    "recipes": recipes,
    "vectors": vectors,
    "backbones": backbones,
    "heads": heads,
}
"""Kinds of `pipeline list`; all rows of a kind have the same columns."""


def print_table(rows: Sequence[Row], columns: Mapping[str, int] | None = None) -> None:
    """Print rows as a table; `columns` selects and cuts columns, but never cuts the first."""
    most = columns or dict.fromkeys(rows[0], sys.maxsize)
    first, *others = most
    lines = [[*most], *([row[first], *(_cut(row[c], most[c]) for c in others)] for row in rows)]
    lengths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    widths = [*map(min, lengths, most.values())]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
