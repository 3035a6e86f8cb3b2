"""`pipeline run`: all missing or stale outputs from a dataset to recall tables."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from pipeline.datasets.manifest import DATASET_FILE, read_manifest
from pipeline.experiments.layout import Layout
from pipeline.heads.training.training_options import TrainingOptions
from pipeline.store.builder.locking import WORK_FOLDER
from pipeline.store.current.record import Record, made_from
from pipeline.store.errors import PipelineError
from pipeline.store.hashing import sha256_of_json
from pipeline.store.wording import counted
from stages.command import PATH, Command, flag, option
from stages.console import (
    CONSOLE,
    FAILED,
    SOME_ROWS_FAILED,
    as_options,
    elapsed,
    log_chosen,
    log_done,
)
from stages.experiment import DATASET, LEAVE_OUT_FAILED, layout_of
from stages.experiment_name import EXPERIMENT
from stages.options import JSON
from stages.training import SEEDS, SIZES, training_options

if TYPE_CHECKING:
    from pipeline.experiments.run import FailedExperiment
    from pipeline.retrieval.tables import Row
    from pipeline.store.current.snapshot import Snapshot
    from stages.params import Params


@click.command(cls=Command)
@click.argument("names", nargs=-1, required=True, type=EXPERIMENT, metavar="NAME...|all")
@DATASET
@option(
    "--size",
    "Size of networks and trainings; docs/heads.md explains it.  [default: that of params.yaml for "
    "the dataset named there, else small]",
    SIZES,
)
@training_options
@option("--test-split", "Split to evaluate.  [default: as in params.yaml, else test, val or dev]")
@SEEDS
@option(
    "--corpus",
    "UTF-8 file with one sentence per line, for language models that are trained on plain "
    "text too, such as kiros2014-sc-nlm-corpus.",
    PATH,
)
@option(
    "--image-features",
    "Feature set with a row for each image, in place of the experiment's own features: NAME "
    "becomes NAME@FOLDER.",
    PATH,
)
@option(
    "--caption-features",
    "The same with a row for each caption, IMAGE#0 and so on: NAME becomes NAME@@FOLDER.",
    PATH,
)
@LEAVE_OUT_FAILED
@flag("--dry-run", "Print the steps that would run, with sizes, and exit.")
@JSON
@click.pass_context
def run(
    ctx: click.Context,
    names: tuple[str, ...],
    dataset: Path | None,
    size: Literal["tiny", "small", "paper"] | None,
    seeds: int,
    corpus: Path | None,
    image_features: Path | None,
    caption_features: Path | None,
    dry_run: bool,
    test_split: str | None,
    as_json: bool,
    training: TrainingOptions,
) -> None:
    """Compute what is missing or outdated for some experiments, from features to recall tables.

    Names are experiments and ensembles of params.yaml, or published systems (`pipeline list
    experiments`) and YAML files with one experiment, which need no params.yaml. NAME@RECIPE is an
    experiment on other image features, such as vsepp@resnet50-caffe-pool, and NAME@@ENCODER on
    other caption features; the name of a feature set can replace RECIPE or ENCODER. `all` omits
    systems that need clips, regions, a download, hours of computing or several networks. The files
    are byte for byte those of the single commands. The same command resumes where it stopped.

    It also updates: after images, captions or options in params.yaml have changed, prepare the
    dataset again and repeat the command. It recomputes what depends on the change and keeps the
    rest. An experiment that fails does not stop the others; the exit status is then 1, or 3 if
    the only reason is images without features.

    \b
    Examples:
      pipeline run wang2016-cca ours --dataset data/mine
      pipeline run mine.yaml --dataset data/mine
      pipeline run vsepp --dataset data/mine --image-features features/clip
      pipeline run all --dataset data/flickr8k --dry-run
    """
    from stages.params import load_params

    params = load_params()
    try:
        layout = layout_of(dataset, params.dataset)
    except PipelineError:
        _checked(params, names)  # a misspelt name is the more likely mistake
        raise
    record = made_from(
        params, training, names=names, size=size, test_split=test_split, seeds=seeds, corpus=corpus,
        image_features=image_features and os.path.realpath(image_features),
        caption_features=caption_features and os.path.realpath(caption_features),
    )  # fmt: skip
    snapshot = _snapshot(layout, names, record)
    if not dry_run and (tables := snapshot.result()) is not None:
        log_done(f"all steps of {', '.join(names)} are up to date")
        _print_result(as_json, (), tables)
        return

    # Only now: torch takes longer to import than finding that nothing is to be done.
    from pipeline.experiments.run import RunFailed
    from pipeline.experiments.run import run as run_experiments
    from stages.plan import run_options

    names = _checked(params, names)
    of_file = params.dataset != "" and layout.name == Layout.of(params.dataset).name
    if size is None:
        size = params.size if of_file else "small"
        log_chosen(size=size)
    options = run_options(params, size)
    options["test_split"] = test_split or options["test_split"]
    failed: tuple[FailedExperiment, ...] = ()
    try:
        result = run_experiments(
            names, layout.dataset, seeds=seeds, corpus=corpus, image_features=image_features,
            caption_features=caption_features, root=layout.root, training=training, dry_run=dry_run,
            monitor=CONSOLE, **options,
        )  # fmt: skip
    except RunFailed as error:
        result, failed = error.result, error.failed
    if not (dry_run or failed or result.perplexities):
        snapshot.write(result.outputs, {name: dict(row) for name, row in result.tables.items()})
    verb = "to be made" if dry_run else "made"
    _print_result(as_json, result.made, result.tables, result.perplexities, failed, verb)
    if failed:
        _log_failed(failed)
        ctx.exit(SOME_ROWS_FAILED if all(one.of_rows for one in failed) else FAILED)


def _snapshot(layout: Layout, names: Sequence[str], record: Record) -> "Snapshot":
    """Return the state of a run's inputs: its options, the dataset and its images."""
    from pipeline.store.current.snapshot import Snapshot

    name = f"run-{layout.name}-{sha256_of_json(names)[:16]}.finished"
    paths: Iterable[str] = ()
    if (layout.dataset / DATASET_FILE).is_file():
        manifest = read_manifest(layout.dataset)
        paths = (f"{manifest.image_root}/{file}" for file in manifest.packed.files)
    return Snapshot(layout.root / WORK_FOLDER / name, record, layout.dataset, paths)


def _checked(params: "Params", names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the experiments to run; raise if one is unknown."""
    from pipeline.experiments.steps.kinds import experiment_kinds
    from pipeline.retrieval.ensemble import ENSEMBLES
    from stages.plan import every_name, require_experiments

    if names == ("all",):
        names = tuple(every_name(params))
    of_families = [name for kind in experiment_kinds() for name in kind.names()]
    require_experiments(params, names, [*params.ensembles, *ENSEMBLES, *of_families])
    return names


def _print_result(
    as_json: bool,
    steps: Sequence[str],
    tables: "Mapping[str, Row]",
    perplexities: Mapping[str, float] = {},
    failed: Sequence["FailedExperiment"] = (),
    verb: str = "made",
) -> None:
    """Log the computed steps, and print the tables and perplexities."""
    from pipeline.retrieval.tables import markdown_table

    log_done(f"{verb}: {', '.join(steps) or 'nothing'}; {elapsed():.1f} s")
    if as_json:
        errors = [
            {"name": f.name, "step": str(f.step), "error": as_options(str(f.error))} for f in failed
        ]
        result = {"made": steps, "tables": tables, "perplexities": perplexities, "failed": errors}
        click.echo(json.dumps(result, indent=2))
        return
    for name, perplexity in perplexities.items():
        click.echo(f"{name}: perplexity {perplexity:.2f} on the validation split")
    if tables:
        click.echo(markdown_table(tables), nl=False)


def _log_failed(failed: Sequence["FailedExperiment"]) -> None:
    """Log the table of failed experiments."""
    log_done(f"not made: {counted(len(failed), 'experiment')}")
    log_done("| experiment | step | reason |")
    log_done("| --- | --- | --- |")
    for one in failed:
        reason = as_options(str(one.error)).replace("|", chr(92) + "|")
        log_done(f"| {one.name} | {one.step} | {reason} |")
    if any(one.of_rows for one in failed):
        log_done(
            "images without features: fix or remove their files, or pass --leave-out-failed to "
            "`pipeline run`; then run the same command again"
        )
