"""`pipeline caption`: captions of given images, or of a split of a dataset."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.heads.training.training_options import TrainingOptions
from pipeline.store.devices import choose_device
from pipeline.store.errors import WrongUsage
from stages.command import COUNT, Answer, flag, option
from stages.console import CONSOLE, OUTPUT, SOME_ROWS_FAILED, log_done, printable
from stages.experiment import DATASET, project_of, require_made
from stages.experiment_name import EXPERIMENT
from stages.options import option_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.experiments.layout import Layout
    from pipeline.language.captioning.captioners import Baseline, OpenCaptioner
    from pipeline.language.captioning.captions_file import Described
    from stages.params import Params


@click.command(cls=Answer)
@click.argument("images", nargs=-1, metavar="[IMAGE]...")
@option("--experiment", "Name of a trained experiment.", EXPERIMENT, required=True)
@option(
    "--baseline",
    "Return captions of the training split instead: the nearest in the experiment's space, "
    "or the most frequent.",
    click.Choice(["nearest", "most-frequent"]),
)
@option("--split", "Split to caption without an IMAGE.  [default: test]")
@option("--limit", "Caption only the first N images of the split.", COUNT)
@option(
    "--out",
    "Output file, .jsonl, or .json in COCO's results format.  [default: for a split, "
    "data/captions/DATASET/EXPERIMENT.jsonl]",
    OUTPUT,
)
@option("--top", "Number of captions per image.", COUNT, default=5)
@option(
    "--beam", "Beam width; 1 is greedy.  [default: 1 for models with tags, 5 for others]", COUNT
)
@option(
    "--sequences", "Number of tag sequences per image, for models with tags.", COUNT, default=50
)
@option("--seed", "Seed of all random choices.", click.IntRange(0), default=0)
@flag(
    "--likelihoods",
    "Write an embedding file instead of captions, with which `pipeline evaluate` ranks "
    "images and captions of the split by likelihood.  [default of --out: "
    "data/embeddings/DATASET/EXPERIMENT.h5]",
)
@DATASET
@option("--weights", "Weights of the image network.  [default: as recorded in the head]")
@option_of(TrainingOptions, "device")
@flag("--json", "Print captions as JSON, one line per image.", name="as_json")
@click.pass_context
def caption(
    ctx: click.Context,
    images: tuple[str, ...],
    experiment: str,
    baseline: "Baseline | None",
    split: str | None,
    limit: int | None,
    out: Path | None,
    top: int,
    beam: int | None,
    sequences: int,
    seed: int,
    likelihoods: bool,
    dataset: Path | None,
    weights: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Caption images with a trained experiment; without an IMAGE, a split of a dataset.

    Prints one line per caption: file, rank, score and caption, best first. An unreadable image has
    a line with the reason, and the exit status is 3. docs/sentences.md describes the files.

    \b
    Examples:
      pipeline caption photo.jpg other.jpg --experiment kiros2014-sc-nlm
      pipeline caption --split val --experiment kiros2014-sc-nlm
      pipeline caption --split val --experiment kiros2014-linear --baseline nearest
      pipeline caption --split val --limit 100 --experiment kiros2014-mlbl --likelihoods
    """
    device = choose_device(device, CONSOLE, float64=True)
    if likelihoods:
        if images or baseline is not None:
            raise WrongUsage("--likelihoods ranks a split with a language model; omit IMAGE")
        _compare_by_likelihood(experiment, dataset, out, split, limit, device)
        return
    if images and (split or limit):
        raise WrongUsage("--split and --limit select images of a dataset; omit them with an IMAGE")
    from pipeline.language.captioning.captions_file import as_json as line_of
    from pipeline.language.captioning.captions_file import require_captions_file, write_captions
    from pipeline.language.captioning.describe import describe_pictures, describe_split

    params, layout = project_of(dataset)
    if out is not None:
        require_captions_file(out)
    opened = open_by_name(
        experiment, layout, params, baseline, {"width": beam, "sequences": sequences}, device
    )
    how: Any = {"count": top, "seed": seed, "monitor": CONSOLE}
    if not images:
        out = out or layout.captions(opened.name)
        described: Sequence[Described] = describe_split(
            opened.captioner, layout.dataset, out, images=opened.images, inputs=opened.inputs,
            split=split, limit=limit, **how,
        )  # fmt: skip
    else:
        described = describe_pictures(
            opened.captioner, opened.network(weights), [*dict.fromkeys(images)], **how
        )
        for of_image in described:
            click.echo(json.dumps(line_of(of_image)) if as_json else _lines(of_image))
        if out is not None:
            write_captions(out, described, {"seed": seed, **opened.captioner.provenance})
    if not all(of_image.captions for of_image in described):
        ctx.exit(SOME_ROWS_FAILED)


def _compare_by_likelihood(
    name: str,
    dataset: Path | None,
    out: Path | None,
    split: str | None,
    limit: int | None,
    device: str,
) -> None:
    """Write the embedding file of a language model."""
    from pipeline.language.embed_by_likelihood import embed_by_likelihood
    from stages.plan import experiment_of

    params, layout = project_of(dataset)
    require_made(layout.language(name), name, layout)
    out = out or layout.embeddings(name)
    embeddings = embed_by_likelihood(
        name, layout, out, partial(experiment_of, params), split=split, limit=limit,
        device=device, monitor=CONSOLE,
    )  # fmt: skip
    images, captions = len(embeddings.image_ids), len(embeddings.caption_ids)
    log_done(f"{out}: {images} images and {captions} captions")


def open_by_name(
    name: str,
    layout: "Layout",
    params: "Params",
    baseline: "Baseline | None" = None,
    writing: dict[str, Any] | None = None,
    device: str = "cpu",
) -> "OpenCaptioner":
    """Return the captioner of a language model, with some options of `Writing`, or a baseline."""
    from pipeline.language.captioning.captioner import Writing
    from pipeline.language.captioning.captioners import is_language_model, open_captioner
    from stages.plan import experiment_of

    if is_language_model(name, layout):
        require_made(layout.language(name), name, layout)
    elif baseline is not None:
        experiment_of(params, name)
        require_made(layout.head(name), name, layout)
    return open_captioner(
        name,
        layout,
        partial(experiment_of, params),
        baseline,
        writing=Writing(**(writing or {})),
        train_split=params.splits.train,
        device=device,
    )


def _lines(described: "Described") -> str:
    """Return one line per caption of an image, or a line with the reason for its absence."""
    rows = [(str(k), f"{c.score:.6g}", c.text) for k, c in enumerate(described.captions, 1)]
    rows = rows or [("", "", described.error)]
    return "\n".join("\t".join(map(printable, (described.image, *row))) for row in rows)
