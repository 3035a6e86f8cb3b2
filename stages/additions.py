"""What optional families add to commands: options, and jobs in a command's place.

`stages.<family>.family` names them; see `pipeline.store.families`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.store.families import all_added
from stages.command import Decorator, add_options

if TYPE_CHECKING:
    from pipeline.retrieval.evaluate import Evaluation, Judge

Job = Callable[..., Any]


def additions_to(point: str) -> list[Any]:
    """Return what the families add at a point of the commands, such as "EXTRACT"."""
    return all_added(point, "stages")


def added_options(point: str) -> Decorator:
    """Return a decorator that adds the options of all additions at a point."""
    return add_options(*(option for each in additions_to(point) for option in each.OPTIONS))


class EvaluateAddition:
    """What a family adds to `pipeline evaluate`; each method does nothing unless overridden."""

    OPTIONS: Sequence[Decorator] = ()

    @staticmethod
    def instead(params: dict[str, Any]) -> bool:
        """Evaluate another kind of file if the command line asks for it; return whether it did."""
        return False

    @staticmethod
    def judge(params: dict[str, Any]) -> "Judge | None":
        """Return the judge of relevance that the command line asks for."""
        return None

    @staticmethod
    def log(params: dict[str, Any], files: Sequence[Path]) -> None:
        """Log findings about the evaluated files."""

    @staticmethod
    def text(params: dict[str, Any], evaluations: "Mapping[str, Evaluation]") -> str:
        """Return a table to print after that of recall, or ""."""
        return ""
