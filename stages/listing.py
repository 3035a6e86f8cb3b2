"""Names that commands accept, by kind, as rows of text columns.

A function imports what its kind needs, so that the list of tokenizers does not wait for torch.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

import click

from pipeline.store.errors import UnknownName
from pipeline.store.wording import did_you_mean
from stages.additions import additions_to
from stages.recipe_rows import Row, recipe_row

RECOMMENDED = frozenset(
    [
        "qian2018-baseline",
        "qian2018-gru-glove",
        "wang2016-cca",
        "wang2016-linear-bidirectional-structure",
        "wang2016-nonlinear-bidirectional-structure",
        "wang2016-phrases-cca",
        "wang2016-phrases-a-mined",
        "dong2018-w2vv-word2vec",
        "dong2018-w2vv-multiscale",
        "dong2018-video-multiscale",
        "dong2018-video-multiscale-sound",
        "kiros2014-linear",
        "kiros2014-lstm",
        "kiros2014-gru",
        "vendrov2016-order",
        "yan2019-transformer-basic",
        "yan2019-transformer-pooling",
        "yan2019-transformer-cross-attention",
        "vsepp",
        "scan-t2i-avg",
        "zero-shot",
        "ours-linear",
        "kiros2014-sc-nlm",
        "xu2015-soft-attention",
        "ours",
    ]
)
"""The systems that their papers recommend: the best or simplest of each; others are ablations."""

SHOWN = {"experiments": ("name", "images", "captions")}
"""Columns of the printed table where it has fewer than the rows, to fit 100 characters."""


def experiments() -> list[Row]:
    """Return the experiments of params.yaml, published systems, language models and ensembles."""
    from pipeline.heads.presets import PRESETS
    from pipeline.retrieval.ensemble import ENSEMBLES
    from stages.params import load_params

    params = load_params()

    def row(name: str, kind: str, images: str, captions: str, what: str) -> Row:
        of = "params.yaml" if name in {*params.experiments, *params.ensembles} else "published"
        return {
            "name": name, "kind": kind, "from": of, "description": what, "images": images,
            "captions": captions,
        }  # fmt: skip

    rows = []
    size = params.size if params.dataset else "small"  # as `pipeline run` chooses it
    for name, entry in params.experiments.items():
        what, images, captions = f"head {entry.head}", entry.images or "", entry.captions or ""
        if preset := PRESETS.get(entry.preset or name):
            made = preset.at(params.size)
            images, captions = images or made.images, captions or made.captions.name
            what = preset.source
        rows.append(row(name, "experiment", images, captions, what))
    for name, found in PRESETS.items():
        kind = "phrases" if found.of_phrases else "clips" if found.of_clips else "experiment"
        made = found.at(size)
        rows.append(row(name, kind, made.images, made.captions.name, found.source))
    for added in additions_to("LIST_EXPERIMENTS"):
        rows += [row(*each) for each in added(size)]
    for name, given in {**ENSEMBLES, **params.ensembles}.items():
        members = ", ".join(given or ENSEMBLES[name])
        rows.append(row(name, "ensemble", "", "", f"mean of {members}"))
    return _first_of_each_name(rows)


def chosen_experiments(rows: Sequence[Row], paper: str | None) -> list[Row]:
    """Return the experiments of a paper, or those of params.yaml and the recommended ones."""
    if paper is not None:
        if chosen := [row for row in rows if row["name"].startswith(paper)]:
            return chosen
        papers = sorted({row["name"].partition("-")[0] for row in rows})
        raise UnknownName(f"no experiment begins with {paper!r}; {did_you_mean(paper, papers)}")
    return [row for row in rows if row["from"] == "params.yaml" or row["name"] in RECOMMENDED]


def encoders() -> list[Row]:
    """Return the sentence encoders."""
    from pipeline.text.encoder_plans import ENCODERS

    kinds = {
        "mean": "mean of the word vectors",
        "bow": "word counts",
        "tfidf": "tf-idf of lemmas",
        "fisher": "Fisher vector of the word vectors",
        "token-ids": "ids of the words in order",
        "tags": "ids of the words' part-of-speech tags",
    }
    rows = []
    for spec in ENCODERS.values():
        details = (", ".join(spec.mixtures), spec.averaging, spec.vocabulary, spec.tag_set)
        what = ", ".join([kinds[spec.kind], *filter(None, details)])
        rows.append(_row(spec.name, what, tokenizer=spec.tokenizer or ""))
    return [
        *rows,
        _row("open-clip:MODEL.TAG", "text tower of an open_clip model", tokenizer="its own"),
        _row(
            "sentence-transformer:MODEL", "a sentence transformer: folder or package",
            tokenizer="its own",
        ),
    ]  # fmt: skip


def tokenizers() -> list[Row]:
    """Return the tokenizers of captions."""
    from pipeline.text.encoder_plans import LEMMAS
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
    for added in additions_to("LIST_RECIPES"):
        rows += added()
    return [
        *rows,
        recipe_row(
            "timm:MODEL", "images", (), "any model of timm, also -grid and @LAYER", "timm's"
        ),
        recipe_row(
            "open-clip:MODEL.TAG", "images", (), "image tower of an open_clip model", "the tag's"
        ),
    ]


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


def backbones() -> list[Row]:
    """Return the networks with a default recipe, and the libraries with more."""
    from pipeline.images.recipes import DEFAULT_RECIPE, RECIPES

    rows = [
        _row(name, RECIPES[recipe].weights, recipe=recipe)
        for name, recipe in DEFAULT_RECIPE.items()
    ]
    for added in additions_to("LIST_BACKBONES"):
        rows += added()
    return [
        *rows,
        _row("timm:MODEL", "any model of timm", recipe="timm:MODEL"),
        _row("open-clip:MODEL.TAG", "any model of open_clip", recipe="open-clip:MODEL.TAG"),
    ]


def heads() -> list[Row]:
    """Return the heads, with the first line of their modules' docstrings."""
    from pipeline.heads.head_types import HEADS

    modules = (f"pipeline.heads.architectures.{name.replace('-', '_')}" for name in HEADS)
    docs = ((import_module(module).__doc__ or "").partition("\n")[0] for module in modules)
    return [_row(name, doc) for name, doc in zip(HEADS, docs, strict=True)]


def _first_of_each_name(rows: Sequence[Row]) -> list[Row]:
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(row["name"], row)
    return [*found.values()]


def _row(name: str, description: str, **columns: str) -> Row:
    return {"name": name, **columns, "description": description}


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


def print_table(rows: Sequence[Row], shown: Sequence[str] | None = None) -> None:
    """Print rows as aligned columns under their names; `shown` are the columns, all by default."""
    columns = shown or [*rows[0]]
    lines = [columns, *([row[column] for column in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
