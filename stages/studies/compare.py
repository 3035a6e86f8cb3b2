"""`pipeline compare`: paired tests of two systems, and of lists of claims."""

import json
from pathlib import Path
from typing import Any

import click

from pipeline.store.errors import WrongUsage
from stages.command import Answer, option
from stages.console import CONSOLE, OUTPUT
from stages.experiment import DATASET, layout_of
from stages.options import JSON


@click.command(cls=Answer)
@click.argument("first", required=False)
@click.argument("second", required=False)
@DATASET
@option(
    "--measure",
    "Metric to compare, such as text_to_image_r1, phrase_to_region_map or cider; repeatable.  "
    "[default: rsum of embeddings; R@1, R@10, mAP and pointing of phrases; BLEU-4, CIDEr and "
    "ROUGE-L of captions]",
    name="measures",
    multiple=True,
    metavar="NAME",
)
@option("--protocol", "Embeddings: evaluation protocol, as in `pipeline evaluate`.", default="all")
@option(
    "--captions-per-image",
    "Embeddings: use the first N captions of each image; 0 uses all.",
    click.IntRange(0),
    default=5,
)
@option(
    "--claims",
    "Test a list of claims instead, with Holm's correction: a JSON file, or `papers` for the "
    "claims of the five papers.",
    metavar="FILE",
)
@option("--out", "With --claims: output folder of claims.md and claims.json.", OUTPUT)
@JSON
def compare(
    first: str | None,
    second: str | None,
    dataset: Path | None,
    measures: tuple[str, ...],
    protocol: str,
    captions_per_image: int,
    claims: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Compare two systems on the same test images by a paired test.

    Systems are names of experiments or ensembles, with all seeds trained by `pipeline run --seeds`,
    or files: embeddings, localized phrases (of `pipeline localize`), or captions. The test is a
    paired bootstrap over images, and over seeds if there are several. Fewer than 50 images yield an
    exact interval and no verdict.

    \b
    Examples:
      pipeline compare vsepp vse0 --dataset data/flickr8k
      pipeline compare mine.h5 theirs.h5 --measure image_to_text_r1
      pipeline compare wang2016-phrases-d wang2016-phrases-a --dataset data/entities
      pipeline compare mine.jsonl theirs.json --dataset data/coco
      pipeline compare --claims papers --dataset data/flickr8k --out data/claims/flickr8k
    """
    if claims is not None:
        if first is not None or measures:
            raise WrongUsage("--claims names both sides and the figures; omit the others")
        _judge(claims, dataset, out, as_json)
        return
    if first is None or second is None or out is not None:
        raise WrongUsage("pass two names or files to compare, or --claims FILE with --out")
    from pipeline.studies.claims.compare import (
        DEFAULT_MEASURES,
        ComparedFiles,
        files_of,
        kind_of_files,
        kind_of_measure,
        kind_of_names,
    )
    from pipeline.studies.claims.tables import comparison_json, line, side
    from pipeline.studies.significance.paired import compare_outputs
    from stages.params import load_params

    named_files = [Path(name) for name in (first, second) if _is_file(name)]
    default = load_params().dataset
    layout = layout_of(dataset, default) if dataset or default or len(named_files) < 2 else None
    if measures:
        kind = kind_of_measure(measures[0])
    elif named_files or layout is None:
        kind = kind_of_files(named_files)
    else:
        kind = kind_of_names((first, second), layout)
    files = ComparedFiles(
        None if layout is None else layout.dataset, protocol, captions_per_image or None
    )
    sides = [
        [Path(name)] if layout is None or _is_file(name) else files_of(name, kind, layout)
        for name in (first, second)
    ]
    ours, theirs = ([files.read(file, kind) for file in of] for of in sides)
    comparisons = [compare_outputs(ours, theirs, m) for m in measures or DEFAULT_MEASURES[kind]]
    if as_json:
        answer: dict[str, Any] = {"first": first, "second": second, "kind": kind}
        answer["measures"] = [*map(comparison_json, comparisons)]
        click.echo(json.dumps(answer, indent=2))
        return
    for comparison in comparisons:
        click.echo(side(first, comparison.first, comparison.measure))
        click.echo(side(second, comparison.second, comparison.measure))
        click.echo(line(comparison))


def _judge(claims: str, dataset: Path | None, out: Path | None, as_json: bool) -> None:
    """Test a list of claims; print the table, and write it if there is an output folder."""
    from pipeline.studies.claims import tables
    from pipeline.studies.claims.claim import read_claims
    from pipeline.studies.claims.judge import judge
    from stages.params import load_params

    default = load_params().dataset
    layout = layout_of(dataset, default) if dataset or default else None
    where = {} if layout is None else {"dataset": layout.dataset, "root": layout.root}
    judged = judge(read_claims(claims), **where, monitor=CONSOLE)
    if out is not None:
        tables.write_claims(out, judged)
    if as_json:
        click.echo(json.dumps({"claims": tables.as_json(judged)}, indent=2))
    else:
        click.echo(tables.markdown(judged), nl=False)


def _is_file(name: str) -> bool:
    return name.endswith((".h5", ".json", ".jsonl"))
