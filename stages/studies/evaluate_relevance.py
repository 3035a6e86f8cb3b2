"""`pipeline evaluate --relevance`: figures by judgments of relevance."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stages.additions import EvaluateAddition
from stages.command import option

if TYPE_CHECKING:
    from pipeline.retrieval.evaluate import Evaluation, Judge


class EvaluateRelevance(EvaluateAddition):
    """Addition of relevance judgments to `pipeline evaluate`."""

    OPTIONS = (
        option(
            "--relevance",
            "Relevance judgments, such as eccv_image_to_caption.json or JSONL with query, "
            "item and grade: adds mAP@R, R-Precision and nDCG@K, and writes relevance.json.  "
            "Repeatable.",
            click.Path(path_type=Path, dir_okay=False),
            multiple=True,
            metavar="FILE",
        ),
    )

    @staticmethod
    def judge(params: dict[str, Any]) -> "Judge | None":
        """Return the judge that reads the files of --relevance."""
        if not params["relevance"]:
            return None
        from pipeline.studies.relevance.evaluate_relevance import judged_by

        return judged_by(params["relevance"])

    @staticmethod
    def text(params: dict[str, Any], evaluations: "Mapping[str, Evaluation]") -> str:
        """Return the table of all files of judgments."""
        if not params["relevance"]:
            return ""
        from pipeline.studies.relevance.evaluate_relevance import relevance_markdown

        return relevance_markdown({name: e.relevance for name, e in evaluations.items()})
