"""What pages and the server add to the commands; see `stages.additions`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.additions import EvaluateAddition

if TYPE_CHECKING:
    from pipeline.retrieval.evaluate import Evaluation

TITLE = "Web"

COMMANDS = {"report": "stages.web.report:report", "serve": "stages.web.serve:serve"}
HELP = {
    "report": "Join the recall tables of all experiments; write HTML pages.",
    "serve": "Search with an experiment on a local web page.",
}
EVALUATE = {"published": "stages.web.family:EvaluatePublished"}


class EvaluatePublished(EvaluateAddition):
    """Addition of the papers' numbers to `pipeline evaluate`."""

    @staticmethod
    def text(params: dict[str, Any], evaluations: "Mapping[str, Evaluation]") -> str:
        """Return the table of published rows, where the protocol defines the captions."""
        if params["protocol"] not in ("msvd", "trecvid-vtt"):
            return ""
        from pipeline.web.report.published import beside_published

        tables = {name: evaluation.table for name, evaluation in evaluations.items()}
        return beside_published(params["protocol"], tables)
