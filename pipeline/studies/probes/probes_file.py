"""File and tables of probe results."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pipeline.store.files import write_json
from pipeline.store.own_files import reading
from pipeline.store.schema import decode
from pipeline.store.wording import markdown_table
from pipeline.studies import StudyError
from pipeline.studies.probes.linear import Probed
from pipeline.studies.probes.probe import Probes


def write_probes(file: str | Path, probes: Probes) -> None:
    """Write all questions and foils as JSON."""
    write_json(Path(file), asdict(probes))


def read_probes(file: str | Path) -> Probes:
    """Read a file of `write_probes`."""
    with reading(Path(file), "a probe result", "`pipeline probe` writes one", StudyError):
        return decode(Path(file).read_bytes(), Probes)


def markdown(probes: Probes) -> str:
    """Return two Markdown tables: linear probes by kind of question, and foils by their kind."""
    tables = []
    if probes.questions:
        dims = list(dict.fromkeys(dim for q in probes.questions for dim in q.auc))
        names = [f"{dim} dimensions" for dim in dims]
        kinds = dict.fromkeys(question.kind for question in probes.questions)
        rows = [
            _probed(kind, [q for q in probes.questions if q.kind == kind], dims) for kind in kinds
        ]
        tables.append(markdown_table(["question", "questions", "images", *names, "chance"], rows))
    rows = [
        [kind, str(f.pairs), *(f"{x:.1f}" for x in (f.right, f.ties, 50, f.r1, f.r1_with_foils))]
        for kind, f in probes.foils.items()
    ]
    columns = ["foils", "pairs", "right", "ties", "chance", "R@1", "R@1 with foils"]
    return "\n".join([*tables, markdown_table(columns, rows)])


def _probed(kind: str, questions: Sequence[Probed], dims: Sequence[str]) -> list[str]:
    aucs = [[q.auc[dim] for q in questions if dim in q.auc] for dim in dims]
    means = [f"{sum(values) / len(values):.1f}" if values else "" for values in aucs]
    return [kind, str(len(questions)), str(max(q.test for q in questions)), *means, "50.0"]
