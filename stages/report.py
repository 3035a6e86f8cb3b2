"""`pipeline report`: the recall tables of all experiments in one."""

import json
from pathlib import Path

import click

from pipeline.report.tables import TableError, markdown_table, read_recall, write_joint_table
from stages.console import log_done, log_settings
from stages.evaluate import PROVENANCE_FILE
from stages.params import DATA, PARAMS_FILE, load_params


@click.command()
@click.option(
    "--reports",
    type=click.Path(path_type=Path),
    default=DATA / "reports",
    show_default=True,
    help="Folder with a folder an experiment, each with a recall.json.",
)
def report(reports: Path) -> None:
    """Join the recall tables of all experiments as recall.json, recall.csv and recall.md.

    The experiments of params.yaml come first, in its order; others follow by name.

    \b
    Example:
      pipeline report
    """
    log_settings("report", reports=reports)
    # Only `pipeline evaluate` writes a provenance; a joint table further down has none.
    found = sorted(path.parent.name for path in reports.glob(f"*/{PROVENANCE_FILE}"))
    if not found:
        raise TableError(
            f"{reports} holds no EXPERIMENT/{PROVENANCE_FILE}; run `pipeline evaluate ... --out "
            f"{reports}/EXPERIMENT` first"
        )
    known = list(load_params().experiments) if PARAMS_FILE.is_file() else []
    names = [name for name in known if name in found]
    names += [name for name in found if name not in known]
    rows = {name: {**_origin(reports / name), **read_recall(reports / name / "recall.json")}
            for name in names}  # fmt: skip
    paths = write_joint_table(reports, rows)
    log_done(f"{len(rows)} experiments in {', '.join(map(str, paths))}")
    click.echo(markdown_table(rows), nl=False)


def _origin(folder: Path) -> dict[str, str]:
    path = folder / PROVENANCE_FILE
    if not path.is_file():
        return {}
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))["provenance"]
    except (ValueError, TypeError, KeyError) as error:
        raise TableError(f"{path} is damaged ({error!r}); run `pipeline evaluate` again") from error
    try:
        origin = {
            "split": f"{facts['dataset']}/{facts['split']}",
            "image features": facts["images"]["recipe"],
            "image weights": facts["images"]["weights"],
            "caption features": facts["captions"]["recipe"],
        }
    except (TypeError, KeyError):
        # Somebody else's embedding file, which says other things or nothing of its origin.
        return {}
    return origin if all(isinstance(text, str) for text in origin.values()) else {}
