"""`pipeline probe`: what embeddings encode about images, and whether they detect wrong captions."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from stages.command import Answer, option
from stages.console import CONSOLE, OUTPUT
from stages.experiment import layout_of
from stages.options import JSON
from stages.searching import model_options, sources_of


@click.command(cls=Answer)
@model_options
@option("--split", "Split to evaluate.  [default: the first of test, val and dev]")
@option("--out", "Output file.  [default: data/probes/DATASET/EXPERIMENT.json]", OUTPUT)
@JSON
def probe(
    experiment: str | None, split: str | None, out: Path | None, as_json: bool, **files: Any
) -> None:
    """Probe what embeddings encode about images, and compare captions with wrong ones.

    Linear probes are fitted on the training split and evaluated on --split. Wrong captions have
    another noun, colour, number or place, the opposite relation, two swapped words, or all words
    shuffled. docs/studies.md defines each metric.

    \b
    Examples:
      pipeline probe --experiment vsepp --dataset data/scenes
      pipeline probe --experiment vsepp --dataset data/flickr8k --split dev
    """
    if experiment is None:
        raise click.UsageError("pass --experiment NAME")
    sources = sources_of(experiment, **files, split=None)
    from pipeline.datasets.image_truth import truth_of
    from pipeline.retrieval.query.searcher import Searcher
    from pipeline.studies.probes.probe import probe as probe_searcher
    from pipeline.studies.probes.probes_file import markdown, write_probes

    searcher = Searcher(**sources, monitor=CONSOLE)
    truth = truth_of(searcher.embedded.manifest)
    probes = probe_searcher(searcher, truth, split=split, monitor=CONSOLE)
    out = out or layout_of(sources["dataset"], "").probes(experiment)
    write_probes(out, probes)
    click.echo(json.dumps(asdict(probes), indent=2) if as_json else markdown(probes), nl=as_json)
