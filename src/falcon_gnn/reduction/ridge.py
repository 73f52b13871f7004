"""What labels say of one another: ridge regression on propagated features, in closed form (ours)."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.labels import LabelEncoding
from falcon_gnn.progress import tell_share
from falcon_gnn.reduction.grouping import IdArray
from falcon_gnn.reduction.partition import Points
from falcon_gnn.threads import one_thread

FloatArray = NDArray[np.float64]
_PENALTIES = 10.0 ** np.arange(-4, 4.01, 0.25)
_TEMPERATURES = 2.0 ** np.arange(-6, 2.01, 0.5)
"""Ridge outputs of one-hot targets differ by far less than 1, so that the best temperature lies well below it."""
_BLOCK_VALUES = 1 << 20
"""Doubles of labels or features that are worked on together."""


class RidgeLabels:
    """min_W ‖ΦW + μ - Y‖² + λ‖W‖² over the labelled nodes, and what it says of each of them when it is left out.

    With ΦᵀΦ = V S² Vᵀ and H = Φ(ΦᵀΦ + λI)⁻¹Φᵀ, the prediction for a node that is left out is
    (fit - H_ii·y) / (1 - H_ii), so that every λ is judged without fitting again. The temperature of the softmax is that
    of the largest likelihood of these predictions. Nodes are gone through in blocks.

    Attributes:
        penalty: λ, of least squared error on labelled nodes left out.
        temperature: What outputs are divided by before a softmax.
        accuracy: Share of the labelled nodes that are named right when each is left out.
    """

    def __init__(self, features: Points, encoding: LabelEncoding) -> None:
        """Fit.

        Args:
            features: Φ, float32, shape ``(n, d)``.
            encoding: Visible classes of the n nodes, at least one.
        """
        self._features, self._encoding = features, encoding
        labelled = np.flatnonzero(encoding.labelled)
        # One thread: the sums of a threaded BLAS depend on how many threads there are.
        with one_thread():
            self.mean = encoding.sums() / len(labelled)
            products = np.zeros((features.shape[1],) * 2)
            sums = np.zeros((features.shape[1], encoding.num_labels))
            for known, truth in self._blocks(labelled, 0.0, 0.1):
                products += known.T @ known
                sums += known.T @ (truth - self.mean)
            squares, self._directions = np.linalg.eigh(products)
            self._squares = np.maximum(squares, 0)
            self._targets = self._directions.T @ sums
            errors = np.zeros(len(_PENALTIES))
            for known, truth in self._blocks(labelled, 0.1, 0.9):
                turned = known @ self._directions
                squares = np.square(turned)
                errors += [np.square(self._guess(turned, squares, truth, tried) - truth).sum() for tried in _PENALTIES]
            self.penalty = float(_PENALTIES[int(np.argmin(errors))])
            losses, num_right = np.zeros(len(_TEMPERATURES)), 0
            for guess, truth in self._guesses(labelled, 0.9, 1.0):
                num_right += int((guess.argmax(axis=1) == truth.argmax(axis=1)).sum())
                losses -= [np.log(np.maximum(softmax(guess / t)[truth > 0], 1e-12)).sum() for t in _TEMPERATURES]
        self.temperature = float(_TEMPERATURES[int(np.argmin(losses))])
        self.accuracy = num_right / len(labelled)

    def outputs(self) -> Points:
        """Return ΦW + μ of all nodes, float32, shape ``(n, L)``."""
        with one_thread():
            weights = self._directions @ (self._targets / (self._squares + self.penalty)[:, None])
            return np.asarray(self._features @ weights.astype(np.float32) + self.mean.astype(np.float32))

    def left_out(self, nodes: IdArray) -> FloatArray:
        """Return the probabilities of some labelled nodes, each left out of the fit, shape ``(m, L)``."""
        probabilities, start = np.empty((len(nodes), self._encoding.num_labels)), 0
        with one_thread():
            for guess, _ in self._guesses(nodes, 0.0, 1.0):
                probabilities[start : start + len(guess)] = softmax(guess / self.temperature)
                start += len(guess)
        return probabilities

    def _guesses(self, nodes: IdArray, first: float, last: float) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield what is predicted for labelled nodes by the others, and their one-hot labels, likewise."""
        for known, truth in self._blocks(nodes, first, last):
            turned = known @ self._directions
            yield self._guess(turned, np.square(turned), truth, self.penalty), truth

    def _blocks(self, nodes: IdArray, first: float, last: float) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield the features and one-hot labels of some nodes at a time, the work from ``first`` to ``last``."""
        step = max(1, _BLOCK_VALUES // max(self._features.shape[1], self._encoding.num_labels))
        for start in range(0, len(nodes), step):
            ids = nodes[start : start + step]
            yield self._features[ids].astype(np.float64), self._encoding.rows(ids).astype(np.float64)
            tell_share(first + (last - first) * (start + len(ids)) / len(nodes))

    def _guess(self, turned: FloatArray, squares: FloatArray, truth: FloatArray, penalty: float) -> FloatArray:
        """Return what is predicted for labelled nodes by the others; ``turned`` is ΦV, ``squares`` its square."""
        shrink = 1 / (self._squares + penalty)
        hat = np.minimum(squares @ shrink, 1 - 1e-9)[:, None]
        fit = turned @ (shrink[:, None] * self._targets)
        guess: FloatArray = (fit - hat * (truth - self.mean)) / (1 - hat) + self.mean
        return guess


def softmax(values: FloatArray) -> FloatArray:
    """Return rows as probabilities."""
    shifted = np.exp(values - values.max(axis=1, keepdims=True))
    probabilities: FloatArray = shifted / shifted.sum(axis=1, keepdims=True)
    return probabilities
