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

_STRENGTHS = 10.0 ** np.arange(-6, 1)
"""Candidate ridge penalties, for a total variance of 1."""

_Matrix = npt.NDArray[np.float64]
_Question = tuple[str, str]


@dataclass(frozen=True)
class Probed:
    """Result of one question.

    Attributes
    ----------
    kind, question : str. Kind and question, such as "presence" and "star".
    answers : tuple of str. Distinct answers.
    train, test : int. Number of images with an answer in each split.
    auc : mapping of str to float. Area under the ROC curve on the test images in per cent, averaged
        over answers, by the number of leading principal components or "all"; chance is 50.
    """

    kind: str
    question: str
    answers: tuple[str, ...]
    train: int
    test: int
    auc: Mapping[str, float]


def linear_probes(
    train: _Matrix,
    train_facts: Sequence[Mapping[_Question, str]],
    test: _Matrix,
    test_facts: Sequence[Mapping[_Question, str]],
) -> list[Probed]:
    """Fit a ridge regression for each question on one split, and evaluate it on another.

    One regression for each answer, 1 or 0; its penalty is the best of `_STRENGTHS` by leave-one-out
    on the training images (`sklearn.linear_model.RidgeCV`).

    Parameters
    ----------
    train, test : (images, dim) float64. Embeddings of both splits.
    train_facts, test_facts : sequence of mapping. Each image's answers by (kind, question).

    Returns
    -------
    list of Probed
        In the order of the questions. A question needs two answers with at least `FEWEST` images
        each in both splits; others are skipped.
    """
    questions = dict.fromkeys(question for facts in train_facts for question in facts)
    asked = [a for q in questions if (a := _asked(q, train_facts, test_facts)) is not None]
    aucs: list[dict[str, float]] = [{} for _ in asked]
    for name, (own, others) in _components(train, test).items():
        # Questions about the same images share a decomposition.
        for rows in {a.train.tobytes(): a.train for a in asked}.values():
            group = [at for at, a in enumerate(asked) if a.train.tobytes() == rows.tobytes()]
            truths = np.concatenate([asked[at].train_truth for at in group], axis=1)
            predict = _fit(own[rows], truths)
            first = 0
            for at in group:
                last = first + len(asked[at].answers)
                scores = predict(others[asked[at].test])[:, first:last]
                aucs[at][name] = _mean_auc(asked[at].test_truth, scores)
                first = last
    return [
        Probed(*a.question, a.answers, len(a.train), len(a.test), auc)
        for a, auc in zip(asked, aucs, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class _Asked:
    """A question, the rows of its images, and whether each answer is correct.

    `train` and `test` are (images,) int64, the truths (images, answers) bool.
    """

    question: _Question
    answers: tuple[str, ...]
    train: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]
    train_truth: npt.NDArray[np.bool_]
    test_truth: npt.NDArray[np.bool_]


def _asked(
    question: _Question,
    train: Sequence[Mapping[_Question, str]],
    test: Sequence[Mapping[_Question, str]],
) -> _Asked | None:
    said = [np.array([facts.get(question, "") for facts in split]) for split in (train, test)]
    counts = [Counter(split.tolist()) for split in said]
    answers = [a for a in sorted(counts[0]) if a and min(c[a] for c in counts) >= FEWEST]
    if len(answers) < 2:
        return None
    own, others = (np.flatnonzero(np.isin(split, answers)) for split in said)
    right = [split[:, None] == np.array(answers) for split in said]
    return _Asked(question, tuple(answers), own, others, right[0][own], right[1][others])


def _components(train: _Matrix, test: _Matrix) -> dict[str, tuple[_Matrix, _Matrix]]:
    """Return both splits projected onto the training split's leading components, by number."""
    mean = train.mean(axis=0)
    _, sizes, axes = np.linalg.svd(train - mean, full_matrices=False)
    held = sizes > sizes[0] * 1e-6
    held[0] = True  # if all images are equal
    axes = axes[held] * (np.sqrt(len(train)) / (float(np.linalg.norm(sizes)) or 1.0))
    whole = (train - mean) @ axes.T, (test - mean) @ axes.T
    some = {str(k): (whole[0][:, :k], whole[1][:, :k]) for k in DIMS if k < len(axes)}
    return {**some, "all": whole}


def _fit(rows: _Matrix, truths: npt.NDArray[np.bool_]) -> Callable[[_Matrix], _Matrix]:
    """Return a predictor from (images, components) to (images, answers)."""
    # Imported here because scikit-learn is slow to import.
    # Here, since scikit-learn takes a second to import.
    from sklearn.linear_model import RidgeCV

    alphas = len(rows) * _STRENGTHS
    fitted = RidgeCV(alphas=alphas, alpha_per_target=True).fit(rows, truths.astype(np.float64))
    return lambda others: np.asarray(fitted.predict(others))


def _mean_auc(truths: npt.NDArray[np.bool_], scores: _Matrix) -> float:
    """Return the mean area under the ROC curve over answers, (images, answers) each; per cent."""
    from sklearn.metrics import roc_auc_score

    return 100 * float(roc_auc_score(truths, scores, average="macro"))
