"""Published rows after the table of `pipeline evaluate`, where protocols define the captions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.additions import EvaluateAddition

if TYPE_CHECKING:
    from pipeline.retrieval.evaluate import Evaluation

_COMPARABLE = ("msvd", "trecvid-vtt")


class EvaluatePublished(EvaluateAddition):
    """Addition of the papers' numbers to `pipeline evaluate`."""

    @staticmethod
    def text(params: dict[str, Any], evaluations: "Mapping[str, Evaluation]") -> str:
        """Return the table of published rows of the same protocol."""
        if params["protocol"] not in _COMPARABLE:
            return ""
        from pipeline.web.report.published import beside_published

        tables = {name: evaluation.table for name, evaluation in evaluations.items()}
        return beside_published(params["protocol"], tables)
