"""Linear probes: how well a linear function of an embedding answers questions about its image."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FEWEST = 3
"""Minimal number of images per answer in each split; rarer answers are skipped."""

DIMS = (4, 16, 64)
"""Numbers of leading principal components that are probed separately, in addition to all."""

_STRENGTHS = 10.0 ** np.arange(-6, 1)  # candidate ridge penalties, for a total variance of 1
_Matrix = npt.NDArray[np.float64]
_QuestionName = tuple[str, str]


@dataclass(frozen=True)
class Probed:
    """Result of one question."""

    kind: str  # such as "presence", with the question "star"
    question: str
    answers: tuple[str, ...]
    train: int  # numbers of images with an answer in each split
    test: int
    auc: Mapping[str, float]
    """Area under the ROC curve, per cent, mean over answers, by number of components or "all"."""


def linear_probes(
    train: _Matrix,
    train_facts: Sequence[Mapping[_QuestionName, str]],
    test: _Matrix,
    test_facts: Sequence[Mapping[_QuestionName, str]],
) -> list[Probed]:
    """Fit a ridge regression per answer on one split (images, dim), and evaluate it on another."""
    names = dict.fromkeys(question for facts in train_facts for question in facts)
    questions = [a for q in names if (a := _question_of(q, train_facts, test_facts)) is not None]
    aucs: list[dict[str, float]] = [{} for _ in questions]
    for name, (fitted, others) in _components(train, test).items():
        # Questions about the same images share a decomposition.
        for rows in {a.train.tobytes(): a.train for a in questions}.values():
            group = [at for at, a in enumerate(questions) if a.train.tobytes() == rows.tobytes()]
            truths = np.concatenate([questions[at].train_truth for at in group], axis=1)
            predict = _fit(fitted[rows], truths)
            first = 0
            for at in group:
                last = first + len(questions[at].answers)
                scores = predict(others[questions[at].test])[:, first:last]
                aucs[at][name] = _mean_auc(questions[at].test_truth, scores)
                first = last
    return [
        Probed(*a.question, a.answers, len(a.train), len(a.test), auc)
        for a, auc in zip(questions, aucs, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class _Question:
    """A question, the rows of its images, and whether each answer is correct."""

    question: _QuestionName
    answers: tuple[str, ...]
    train: npt.NDArray[np.int64]  # (images,)
    test: npt.NDArray[np.int64]
    train_truth: npt.NDArray[np.bool_]  # (images, answers)
    test_truth: npt.NDArray[np.bool_]


def _question_of(
    question: _QuestionName,
    train: Sequence[Mapping[_QuestionName, str]],
    test: Sequence[Mapping[_QuestionName, str]],
) -> _Question | None:
    answers_of = [np.array([facts.get(question, "") for facts in split]) for split in (train, test)]
    counts = [Counter(split.tolist()) for split in answers_of]
    answers = [a for a in sorted(counts[0]) if a and min(c[a] for c in counts) >= FEWEST]
    if len(answers) < 2:
        return None
    train_rows, test_rows = (np.flatnonzero(np.isin(split, answers)) for split in answers_of)
    right = [split[:, None] == np.array(answers) for split in answers_of]
    return _Question(
        question, tuple(answers), train_rows, test_rows, right[0][train_rows], right[1][test_rows]
    )


def _components(train: _Matrix, test: _Matrix) -> dict[str, tuple[_Matrix, _Matrix]]:
    """Return both splits projected onto the training split's leading components, by number."""
    mean = train.mean(axis=0)
    _, sizes, axes = np.linalg.svd(train - mean, full_matrices=False)
    above = sizes > sizes[0] * 1e-6
    above[0] = True  # if all images are equal
    axes = axes[above] * (np.sqrt(len(train)) / (float(np.linalg.norm(sizes)) or 1.0))
    whole = (train - mean) @ axes.T, (test - mean) @ axes.T
    some = {str(k): (whole[0][:, :k], whole[1][:, :k]) for k in DIMS if k < len(axes)}
    return {**some, "all": whole}


def _fit(rows: _Matrix, truths: npt.NDArray[np.bool_]) -> Callable[[_Matrix], _Matrix]:
    """Return a predictor from (images, components) to (images, answers)."""
    # Here, since scikit-learn takes a second to import.
    from sklearn.linear_model import RidgeCV

    # One regression per answer, 1 or 0; the penalty is the best by leave-one-out.
    alphas = len(rows) * _STRENGTHS
    fitted = RidgeCV(alphas=alphas, alpha_per_target=True).fit(rows, truths.astype(np.float64))
    return lambda others: np.asarray(fitted.predict(others))


def _mean_auc(truths: npt.NDArray[np.bool_], scores: _Matrix) -> float:
    """Return the mean area under the ROC curve over answers, (images, answers) each; per cent."""
    from sklearn.metrics import roc_auc_score

    return 100 * float(roc_auc_score(truths, scores, average="macro"))
