"""What few labels say of every node: the outputs of a ridge regression (ours)."""

from dataclasses import dataclass

import numpy as np

from falcon_gnn.errors import OptionError
from falcon_gnn.labels import LabelEncoding
from falcon_gnn.reduction.partition import Points
from falcon_gnn.reduction.ridge import FloatArray, RidgeLabels, softmax


@dataclass(frozen=True)
class Teacher:
    """A fitted teacher; n nodes in scope, L classes.

    Attributes:
        outputs: Its outputs, float32, shape ``(n, L)``.
        probabilities: Their softmax, float64, shape ``(n, L)``; where a label is visible, that label.
        penalty: λ, of least squared error on labelled nodes left out.
        accuracy: Share of the labelled nodes that it names right when each is left out.
    """

    outputs: Points
    probabilities: FloatArray
    penalty: float
    accuracy: float


def fit_teacher(features: Points, encoding: LabelEncoding) -> Teacher:
    """Return a ridge regression on the labelled nodes, its outputs for all, and how good it is (:class:`RidgeLabels`).

    Args:
        features: Φ, the hop features of the nodes in scope, shape ``(n, d)``.
        encoding: Their visible classes.

    Raises:
        OptionError: If the labels are no classes, or none is visible.
    """
    if encoding.task != "classes" or not encoding.labelled.any():
        got = encoding.task if encoding.labelled.any() else "no visible label"
        msg = f"cluster_on='teacher' needs visible class labels to learn from, got {got}. Use cluster_on='hops'."
        raise OptionError(msg)
    ridge = RidgeLabels(features, encoding)
    outputs = ridge.outputs()
    probabilities = softmax(outputs.astype(np.float64) / ridge.temperature)
    probabilities[encoding.labelled] = encoding.rows(np.flatnonzero(encoding.labelled))
    return Teacher(outputs, probabilities, ridge.penalty, ridge.accuracy)
