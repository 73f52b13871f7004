"""What few labels say of every node: ridge regression on propagated features, in closed form (ours)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import OptionError
from falcon_gnn.labels import LabelEncoding
from falcon_gnn.reduction.partition import Points
from falcon_gnn.threads import one_thread

FloatArray = NDArray[np.float64]
_PENALTIES = 10.0 ** np.arange(-4, 4.01, 0.25)
_TEMPERATURES = 2.0 ** np.arange(-6, 2.01, 0.5)
"""Ridge outputs of one-hot targets differ by far less than 1, so that the best temperature lies well below it."""


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
    """Return min_W ‖ΦW + μ - Y‖² + λ‖W‖² over the labelled nodes, its outputs for all, and how good it is.

    With the singular values s of Φ and H = Φ(ΦᵀΦ + λI)⁻¹Φᵀ, the prediction for a node that is left out is
    (fit - H_ii·y) / (1 - H_ii): every λ is judged without fitting again. The temperature of the softmax is that of
    the largest likelihood of these predictions.

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
    # One thread: the sums of a threaded BLAS depend on how many threads there are.
    with one_thread():
        truth = encoding.rows(np.flatnonzero(encoding.labelled)).astype(np.float64)
        known = features[encoding.labelled].astype(np.float64)
        mean = truth.mean(axis=0)
        left, singular, right = np.linalg.svd(known, full_matrices=False)
        target = left.T @ (truth - mean)
        # Only the best guess is held: it is as large as the labels of all nodes in doubles.
        least, penalty, guess = np.inf, 0.0, mean
        for tried in _PENALTIES:
            left_out = _leave_one_out(left, singular, target, truth - mean, tried)
            error = np.square(left_out - (truth - mean)).mean()
            if error < least:
                least, penalty, guess = error, float(tried), left_out
        guess = guess + mean
        weights = right.T @ ((singular / (singular**2 + penalty))[:, None] * target)
        outputs = (features @ weights.astype(np.float32) + mean.astype(np.float32)).astype(np.float32)
    losses = [-np.log(np.maximum(_softmax(guess / t)[truth > 0], 1e-12)).mean() for t in _TEMPERATURES]
    probabilities = _softmax(outputs.astype(np.float64) / _TEMPERATURES[int(np.argmin(losses))])
    probabilities[encoding.labelled] = truth
    is_right = guess.argmax(axis=1) == truth.argmax(axis=1)
    return Teacher(outputs, probabilities, penalty, float(is_right.mean()))


def _leave_one_out(
    left: FloatArray, singular: FloatArray, target: FloatArray, truth: FloatArray, penalty: float
) -> FloatArray:
    """Return what is predicted for each labelled node by the others, the mean not counted."""
    shrink = singular**2 / (singular**2 + penalty)
    hat = np.minimum(np.square(left) @ shrink, 1 - 1e-9)[:, None]
    predicted: FloatArray = (left @ (shrink[:, None] * target) - hat * truth) / (1 - hat)
    return predicted


def _softmax(values: FloatArray) -> FloatArray:
    shifted = np.exp(values - values.max(axis=1, keepdims=True))
    probabilities: FloatArray = shifted / shifted.sum(axis=1, keepdims=True)
    return probabilities
