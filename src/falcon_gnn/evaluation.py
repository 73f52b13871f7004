"""How good predictions are: the paper's four scores, and the interval of a mean over runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from falcon_gnn.errors import OptionError
from falcon_gnn.labels import Task, class_ids, known_cells

ScoreName = Literal["accuracy", "micro_f1", "roc_auc"]


@dataclass(frozen=True)
class Metrics:
    """Scores of one set of predictions, each in [0, 1]; NaN where nothing is there to count.

    Attributes:
        num_nodes: Nodes with a label that were looked at.
        accuracy: Share of nodes whose class is right; for multi-label, share of right node-label cells.
        micro_f1: 2TP / (2TP + FP + FN), counts summed over all labels.
        micro_sensitivity: TP / (TP + FN), likewise.
        micro_specificity: TN / (TN + FP), likewise; for L classes this is 1 − (1 − accuracy) / (L − 1).
        mean_squared_error: For a regression target, where the others are NaN; NaN otherwise.
        roc_auc: For two classes and scores of both: how often a node of class 1 has a higher score for it than a node
            of class 0 has, ties counted half (the area under the ROC curve); NaN otherwise, and where a class has no
            node.
    """

    num_nodes: int
    accuracy: float = float("nan")
    micro_f1: float = float("nan")
    micro_sensitivity: float = float("nan")
    micro_specificity: float = float("nan")
    mean_squared_error: float = float("nan")
    roc_auc: float = float("nan")


def shown_score(score: float, task: Task) -> float:
    """Return a score that is higher for a better model as people read it: of a regression, its error without the minus.

    Example:
        >>> shown_score(-0.25, "regression"), shown_score(0.9, "classes")
        (0.25, 0.9)
    """
    return -score if task == "regression" else score


def score_title(metric: ScoreName, task: Task) -> str:
    """Return what people call the score that picks the best epoch; a regression goes by its error.

    Example:
        >>> score_title("micro_f1", "multilabel"), score_title("accuracy", "regression")
        ('micro-f1', 'mean squared error')
    """
    return "mean squared error" if task == "regression" else metric.replace("_", "-")


@dataclass(frozen=True)
class Confusion:
    """Counts of node-label cells: a class is compared with each of the L labels in turn (one against the rest)."""

    true_positive: int
    false_positive: int
    false_negative: int
    true_negative: int


def evaluate(
    y_true: NDArray[Any], predicted: NDArray[Any], task: Task, num_labels: int, mask: NDArray[np.bool_] | None = None
) -> Metrics:
    """Return the scores of predictions; unlabelled nodes and, for multi-label, unknown cells (-1 or NaN) do not count.

    Args:
        y_true: Labels, shape ``(N,)`` or ``(N, L)``.
        predicted: For classes, predicted ids of shape ``(N,)`` or ``(N, 1)``, or scores of shape ``(N, L)``, the
            highest of which wins. For multi-label, shape ``(N, L)``: integers or bool as given, floats as logits that
            predict a label above 0. For regression, values of the shape of ``y_true``.
        task: What the labels are.
        num_labels: L; only the specificity of classes depends on it.
        mask: Nodes to look at, bool, shape ``(N,)``; by default all.

    Raises:
        OptionError: If the shapes do not fit each other.
    """
    if task == "classes" and predicted.shape[1:] == (1,) and predicted.dtype.kind in "iu":
        predicted = predicted[:, 0]
    _check_shapes(y_true, predicted, task, num_labels)
    if mask is not None:
        y_true, predicted = y_true[mask], predicted[mask]
    if task == "regression":
        return _regression_metrics(y_true, predicted)
    if task == "multilabel":
        num_nodes, confusion = _count_cells(y_true, predicted)
    else:
        num_nodes, confusion = _count_classes(y_true, predicted, num_labels)
    metrics = metrics_of(confusion, num_nodes, task)
    if task == "classes" and predicted.shape[1:] == (2,):
        metrics = replace(metrics, roc_auc=_area_under_curve(y_true, predicted))
    return metrics


def metrics_of(confusion: Confusion, num_nodes: int, task: Task) -> Metrics:
    """Return the scores that follow from confusion counts summed over all labels.

    Args:
        confusion: The counts.
        num_nodes: Nodes they come from.
        task: ``"classes"`` (accuracy per node) or ``"multilabel"`` (accuracy per cell).
    """
    hits, misses = confusion.true_positive, confusion.false_negative
    false_alarms, rejections = confusion.false_positive, confusion.true_negative
    cells = hits + misses + false_alarms + rejections
    return Metrics(
        num_nodes=num_nodes,
        accuracy=_ratio(hits, num_nodes) if task == "classes" else _ratio(hits + rejections, cells),
        micro_f1=_ratio(2 * hits, 2 * hits + false_alarms + misses),
        micro_sensitivity=_ratio(hits, hits + misses),
        micro_specificity=_ratio(rejections, rejections + false_alarms),
    )


def confidence_interval(values: Sequence[float] | NDArray[Any], level: float = 0.95) -> tuple[float, float]:
    """Return the mean over runs and the half width of its Student t interval.

    Args:
        values: One figure per run, at least one.
        level: Confidence in (0, 1).

    Returns:
        ``(mean, half_width)``; the half width of a single run is NaN.

    Raises:
        OptionError: If there is no value or ``level`` lies outside its range.

    Example:
        >>> mean, half_width = confidence_interval([0.84, 0.86, 0.85])
        >>> round(mean, 4), round(half_width, 4)
        (0.85, 0.0248)
    """
    from scipy.special import stdtrit

    runs = np.asarray(values, dtype=np.float64)
    if runs.ndim != 1 or runs.size == 0:
        msg = f"values must hold at least one figure, in one dimension, got shape {runs.shape}."
        raise OptionError(msg)
    if not 0 < level < 1:
        msg = f"level must lie in (0, 1), for example 0.95, got {level!r}."
        raise OptionError(msg)
    mean = float(runs.mean())
    if runs.size == 1:
        return mean, float("nan")
    quantile = float(stdtrit(runs.size - 1, (1 + level) / 2))
    return mean, quantile * float(runs.std(ddof=1)) / runs.size**0.5


def _count_classes(y_true: NDArray[Any], predicted: NDArray[Any], num_labels: int) -> tuple[int, Confusion]:
    truth = class_ids(y_true)
    guess = predicted.argmax(axis=1) if predicted.ndim == 2 else predicted
    known = truth >= 0
    num_nodes = int(known.sum())
    right = int((truth[known] == guess[known]).sum())
    wrong = num_nodes - right
    return num_nodes, Confusion(right, wrong, wrong, num_nodes * (num_labels - 1) - wrong)


def _area_under_curve(y_true: NDArray[Any], scores: NDArray[Any]) -> float:
    """Return the share of pairs of the two classes that the scores put in order: the rank sum of Mann and Whitney."""
    from scipy.stats import rankdata

    truth = class_ids(y_true)
    known = truth >= 0
    is_positive = truth[known] == 1
    positives = int(is_positive.sum())
    negatives = len(is_positive) - positives
    margins = scores[known, 1].astype(np.float64) - scores[known, 0]
    surplus = float(rankdata(margins)[is_positive].sum()) - positives * (positives + 1) / 2
    return surplus / (positives * negatives) if positives and negatives else float("nan")


def _count_cells(y_true: NDArray[Any], predicted: NDArray[Any]) -> tuple[int, Confusion]:
    guess = predicted > 0
    known = known_cells(y_true, "multilabel")
    truth = (y_true > 0) & known
    hits = int((truth & guess).sum())
    positives, alarms = int(truth.sum()), int((guess & known).sum())
    rejections = int(known.sum()) - positives - alarms + hits
    return int(known.any(axis=1).sum()), Confusion(hits, alarms - hits, positives - hits, rejections)


def _regression_metrics(y_true: NDArray[Any], predicted: NDArray[Any]) -> Metrics:
    truth = y_true.reshape(len(y_true), -1).astype(np.float64)
    errors = predicted.reshape(truth.shape) - truth
    known = ~np.isnan(truth)
    squared = float((errors[known] ** 2).mean()) if known.any() else float("nan")
    return Metrics(num_nodes=int(known.any(axis=1).sum()), mean_squared_error=squared)


def _check_shapes(y_true: NDArray[Any], predicted: ArrayLike, task: Task, num_labels: int) -> None:
    shape, given = np.shape(y_true), np.shape(predicted)
    if task == "classes":
        is_one_of_several = given[1:] == (1,) and num_labels > 1
        fits = given[:1] == shape[:1] and len(given) in (1, 2) and not is_one_of_several
    else:
        is_column = {given, shape} == {shape[:1], (*shape[:1], 1)}
        fits = given == shape or (task == "regression" and is_column)
    if not fits:
        wanted = f"({shape[0]},) or ({shape[0]}, L)" if task == "classes" else f"{shape}"
        msg = f"predicted must have shape {wanted} to fit y_true of shape {shape}, got {given}."
        raise OptionError(msg)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
