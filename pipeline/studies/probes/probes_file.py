"""File and tables of probe results."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from pipeline.store.files import write_json
from pipeline.store.schema import decode
from pipeline.studies.probes.linear import Probed
from pipeline.studies.probes.probe import ProbeError, Probes


def write_probes(file: str | Path, found: Probes) -> None:
    """Write all questions and foils as JSON."""
    write_json(Path(file), asdict(found))


def read_probes(file: str | Path) -> Probes:
    """Read a file of `write_probes`.

    Raises
    ------
    ProbeError
        The file is missing or corrupt.
    """
    try:
        return decode(Path(file).read_bytes(), Probes)
    except (OSError, ValueError) as error:
        raise ProbeError(
            f"{file} is not a probe result ({error!r}); `pipeline probe` writes one"
        ) from error


def markdown(found: Probes) -> str:
    """Return two Markdown tables: linear probes by kind of question, and foils by their kind."""
    tables = []
    if found.questions:
        dims = list(dict.fromkeys(dim for q in found.questions for dim in q.auc))
        names = [f"{dim} dimensions" for dim in dims]
        kinds = dict.fromkeys(question.kind for question in found.questions)
        rows = [
            _probed(kind, [q for q in found.questions if q.kind == kind], dims) for kind in kinds
        ]
        tables.append(_table(["question", "questions", "images", *names, "chance"], rows))
    rows = [
        [kind, str(f.pairs), *(f"{x:.1f}" for x in (f.right, f.ties, 50, f.r1, f.r1_with_foils))]
        for kind, f in found.foils.items()
    ]
    columns = ["foils", "pairs", "right", "ties", "chance", "R@1", "R@1 with foils"]
    return "\n".join([*tables, _table(columns, rows)])


def _probed(kind: str, questions: Sequence[Probed], dims: Sequence[str]) -> list[str]:
    aucs = [[q.auc[dim] for q in questions if dim in q.auc] for dim in dims]
    means = [f"{sum(values) / len(values):.1f}" if values else "" for values in aucs]
    return [kind, str(len(questions)), str(max(q.test for q in questions)), *means, "50.0"]


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    ruled = "|---|" + "---:|" * (len(columns) - 1)
    lines = [f"| {' | '.join(columns)} |", ruled, *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"
