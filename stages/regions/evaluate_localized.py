"""`pipeline evaluate --protocol entities`: tables of localization files."""

import json
from pathlib import Path
from typing import Any

import click

from pipeline.store.errors import WrongUsage
from pipeline.store.families import has
from stages.additions import EvaluateAddition
from stages.command import option
from stages.console import CONSOLE


class EvaluateLocalized(EvaluateAddition):
    """Addition of regions to `pipeline evaluate`."""

    OPTIONS = (
        option(
            "--nms",
            "Protocol entities: threshold of non-maximum suppression before average "
            "precision.  [default: 0.3]",
            click.FloatRange(0, 1),
        ),
    )

    @staticmethod
    def instead(params: dict[str, Any]) -> bool:
        """Evaluate a localization file and print its tables, followed by those of the papers."""
        nms = params["nms"]
        if params["protocol"] != "entities":
            if nms is not None:
                raise WrongUsage("--nms needs --protocol entities")
            return False
        for name in ("leaks", "relevance"):
            if params.get(name):
                raise WrongUsage(
                    f"--{name} goes with embedding files, not with --protocol entities"
                )
        from pipeline.regions.localization.evaluate_localization import evaluate_localized, markdown
        from pipeline.regions.localization.measures import NMS

        file: Path | None = params["embeddings"]
        out: Path | None = params["out"]
        if file is None or out is None:
            raise WrongUsage(
                "--protocol entities requires a file of `pipeline localize` and --out DIR"
            )
        table = evaluate_localized(file, out, nms=NMS if nms is None else nms, monitor=CONSOLE)
        if params["as_json"]:
            click.echo(json.dumps({"tables": {file.stem: table}}, indent=2))
            return True
        published = {}
        if has("web"):
            from pipeline.web.report.published import localized_rows

            published = localized_rows()
        click.echo(markdown(table, published), nl=False)
        return True
