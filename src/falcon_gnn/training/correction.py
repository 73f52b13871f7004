"""Correct and smooth (Huang et al. 2021): mend predictions on the original graph with the labels of its training nodes.

A collapse takes the labels of the removed nodes out of the training, not out of the user's hands. On the original graph
the model's errors on all training nodes are spread along the edges and taken off the predictions around them (correct);
then labels and predictions are evened out along the edges (smooth). Both are PyG's; here is what is spread, how far,
and whether it helps.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, log
from operator import itemgetter
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from falcon_gnn.errors import FalconWarning, GraphError
from falcon_gnn.evaluation import Metrics, ScoreName, evaluate
from falcon_gnn.graph import Graph
from falcon_gnn.labels import check_labels, encode_labels, infer_task, labelled_nodes
from falcon_gnn.training.inference import predict
from falcon_gnn.training.weights import ModelSpec

CORRECT_ALPHAS = (0.0, 0.8)
SMOOTH_ALPHAS = (0.0, 0.3, 0.6, 0.8)
_LEAST_WEIGHT = 0.01
"""A propagation ends where a label's weight, α per step, has fallen below this."""
_LEAST_PROBABILITY = 1e-7


@dataclass(frozen=True)
class CorrectedScores:
    """What the training labels make of a model's predictions.

    Attributes:
        spec: The model's, with the two α that were chosen.
        validation: Scores of the corrected predictions on the validation nodes.
        test: Likewise on the test nodes, or None without any.
        labels_alone: Test scores of the labels alone, spread along the edges without a model, or None.
    """

    spec: ModelSpec
    validation: Metrics
    test: Metrics | None
    labels_alone: Metrics | None


class Corrector:
    """A model's predictions for a graph and the known labels around them.

    Args:
        graph: The graph; the labels of ``train_mask`` are known.
        logits: The model's outputs for all nodes, shape ``(N, L)``.
        spec: What the model is; classes or multi-label.
    """

    def __init__(self, graph: Graph, logits: NDArray[np.float32], spec: ModelSpec) -> None:
        self.graph, self.task = graph, spec.task
        outputs = torch.from_numpy(logits)
        self.predicted = outputs.softmax(dim=1) if self.task == "classes" else outputs.sigmoid()
        self.known = known_labels(graph, spec)
        self.truth = self._truth(spec.num_outputs)

    @cached_property
    def adjacency(self) -> Tensor:
        """The normalised adjacency S = D^(-1/2) A D^(-1/2), sparse CSR of shape ``(N, N)``."""
        matrix = self.graph.to_scipy()
        degrees = np.asarray(matrix.sum(axis=1), dtype=np.float64)
        scale = np.divide(1, np.sqrt(degrees), where=degrees > 0, out=np.zeros(len(degrees))).astype(np.float32)
        values = matrix.data.astype(np.float32, copy=False)
        values *= np.repeat(scale, np.diff(matrix.indptr))
        values *= scale[matrix.indices]
        with _quiet_sparse_tensors():
            return torch.sparse_csr_tensor(
                torch.from_numpy(matrix.indptr.astype(matrix.indices.dtype, copy=False)),
                torch.from_numpy(matrix.indices),
                torch.from_numpy(values),
                matrix.shape,
            )

    def hiding(self, node_ids: NDArray[np.int64]) -> Self:
        """Return the same without the labels of some nodes."""
        stays = ~np.isin(self.known, node_ids)
        _ = self.adjacency  # Computed once for both.
        other = copy(self)
        other.known, other.truth = self.known[stays], self.truth[torch.from_numpy(stays)]
        return other

    def logits(self, correct: float, smooth: float) -> NDArray[np.float32]:
        """Return the mended outputs, shape ``(N, L)``; an α of 0 leaves its step out."""
        return self._logits(self._smoothed(self._corrected(correct), smooth))

    def candidates(self) -> Iterator[tuple[float, float, NDArray[np.float32]]]:
        """Yield both α and the mended outputs, from none at all to the strongest."""
        for correct in CORRECT_ALPHAS:
            corrected = self._corrected(correct)
            for smooth in SMOOTH_ALPHAS:
                yield correct, smooth, self._logits(self._smoothed(corrected, smooth))

    def labels_alone(self) -> Iterator[NDArray[np.float32]]:
        """Yield what the known labels alone say of every node, spread more and more widely."""
        for alpha in SMOOTH_ALPHAS[1:]:
            yield self._logits(self._smoothed(torch.zeros_like(self.predicted), alpha))

    def _truth(self, num_outputs: int) -> Tensor:
        """Return the label vectors of the known nodes; an unknown cell is as predicted, so that it corrects nothing."""
        encoding = encode_labels(np.asarray(self.graph.y)[self.known], self.task, num_outputs)
        truth = torch.from_numpy(encoding.matrix.astype(np.float32))
        if encoding.known is None:
            return truth
        return torch.where(torch.from_numpy(encoding.known), truth, self.predicted[self.known])

    def _corrected(self, alpha: float) -> Tensor:
        if alpha == 0:
            return self.predicted
        from torch_geometric.nn.models import CorrectAndSmooth

        spread = CorrectAndSmooth(_num_steps(alpha), alpha, 0, 0.0)
        with _quiet_sparse_tensors():
            corrected: Tensor = spread.correct(*self._told(self.predicted))
        return corrected

    def _smoothed(self, predicted: Tensor, alpha: float) -> Tensor:
        if alpha == 0:
            return predicted
        from torch_geometric.nn.models import CorrectAndSmooth

        spread = CorrectAndSmooth(0, 0.0, _num_steps(alpha), alpha)
        with _quiet_sparse_tensors():
            smoothed: Tensor = spread.smooth(*self._told(predicted))
        return smoothed

    def _told(self, predicted: Tensor) -> tuple[Tensor, ...]:
        """Return PyG's arguments; the last, weights that it does not read, says that the adjacency is normalised."""
        return predicted, self.truth, torch.from_numpy(self.known), self.adjacency, torch.empty(0)

    def _logits(self, probabilities: Tensor) -> NDArray[np.float32]:
        if self.task == "classes":
            return probabilities.clamp(min=_LEAST_PROBABILITY).log().numpy()
        return probabilities.logit(eps=_LEAST_PROBABILITY).numpy()


def known_labels(graph: Graph, spec: ModelSpec) -> NDArray[np.int64]:
    """Return the training nodes whose labels can mend predictions, ids, ascending; none for a regression target."""
    if graph.train_mask is None or graph.y is None or spec.task == "regression":
        return np.empty(0, np.int64)
    return np.flatnonzero(graph.train_mask & labelled_nodes(graph.y, spec.task))


def choose_correction(
    model: nn.Module,
    spec: ModelSpec,
    graph: Graph,
    score_name: ScoreName = "accuracy",
    unseen: NDArray[np.int64] | None = None,
) -> CorrectedScores | None:
    """Return the best correction, which may be none, and its scores.

    The best by the validation score. Where a collapse has removed training nodes, by the mean of that and the score on
    these, each half of them predicted with the labels of the other half: the model has not seen them either, and there
    are many more of them than validation nodes.

    Args:
        model: The trained model, on the device to compute on.
        spec: What it is.
        graph: The original graph, with labels and masks.
        score_name: The score to choose by; of equal ones the weaker correction wins.
        unseen: Ids of training nodes that the model was not trained on, ascending.

    Returns:
        None where there is nothing to correct with or to choose by: a regression target, no labelled training node or
        no validation node.
    """
    if graph.val_mask is None or known_labels(graph, spec).size == 0:
        return None
    y, validation = np.asarray(graph.y), graph.val_mask

    def score(logits: NDArray[Any], nodes: NDArray[Any]) -> Metrics:
        return evaluate(y[nodes], logits[nodes], spec.task, spec.num_outputs)

    def rank(logits: NDArray[Any], nodes: NDArray[Any] = validation) -> float:
        return float(getattr(score(logits, nodes), score_name))

    corrector = Corrector(graph, predict(model, spec.config, graph, normalize_hops=spec.normalize_hops), spec)
    halves = _halves(corrector, unseen)

    def judged() -> Iterator[tuple[float, float, float, NDArray[np.float32]]]:
        folds = (fold.candidates() for _, fold in halves)
        for (correct, smooth, logits), *others in zip(corrector.candidates(), *folds, strict=True):
            on_validation = rank(logits)
            held_out = [rank(other, half) for (half, _), (_, _, other) in zip(halves, others, strict=True)]
            # Rounded, so that sums that are equal but for their last bits are equal.
            yield round(on_validation + float(np.mean(held_out or on_validation)), 9), correct, smooth, logits

    _, correct, smooth, logits = max(judged(), key=itemgetter(0))
    alone, test = max(corrector.labels_alone(), key=rank), graph.test_mask
    return CorrectedScores(
        spec=replace(spec, correct=correct, smooth=smooth),
        validation=score(logits, validation),
        test=None if test is None else score(logits, test),
        labels_alone=None if test is None else score(alone, test),
    )


def predict_corrected(model: nn.Module, spec: ModelSpec, graph: Graph) -> NDArray[np.float32]:
    """Return a model's outputs for all nodes of a graph, mended as its spec says.

    Warns if the graph has no labelled training node to mend them with; the outputs are then the model's alone.

    Args:
        model: The model, in any mode.
        spec: What it is.
        graph: Any graph with the features it was trained on.

    Returns:
        Logits of shape ``(N, L)``.

    Raises:
        GraphError: If the graph has no features or others than the model was trained on, or labels of another kind that
            would mend its outputs.
    """
    if spec.is_corrected and graph.y is not None and graph.train_mask is not None:
        _check_same_labels(graph.y, graph.train_mask, spec)
    logits = predict(model, spec.config, graph, normalize_hops=spec.normalize_hops)
    if not spec.is_corrected:
        return logits
    if known_labels(graph, spec).size == 0:
        msg = (
            "the model's predictions were corrected by the labels of training nodes, but the graph has none: these are "
            "the model's alone. Give the graph its y and train_mask."
        )
        warnings.warn(msg, FalconWarning, stacklevel=2)
        return logits
    return Corrector(graph, logits, spec).logits(spec.correct, spec.smooth)


def _check_same_labels(y: NDArray[Any], visible: NDArray[np.bool_], spec: ModelSpec) -> None:
    """Compare the labels of a graph with those that a model predicts.

    Raises:
        GraphError: If they are of another kind, or in another number of columns.
    """
    if spec.task == "multilabel":
        fits, wanted = y.shape[1:] == (spec.num_outputs,), f"several labels per node, shape (N, {spec.num_outputs})"
    else:
        fits, wanted = infer_task(y) == "classes", "classes, shape (N,)"
    if not fits:
        msg = (
            f"graph.y must hold what the model was trained on and is corrected by, {wanted}, got {y.dtype} of shape "
            f"{y.shape}. Load the graph with those labels, or without any for the model's predictions alone."
        )
        raise GraphError(msg)
    check_labels(y, spec.task, visible, is_told=True)


def _halves(corrector: Corrector, unseen: NDArray[np.int64] | None) -> list[tuple[NDArray[np.int64], Corrector]]:
    """Return each half of the known nodes that the model has not seen, with the corrector that hides their labels."""
    if unseen is None:
        return []
    known = np.intersect1d(corrector.known, unseen, assume_unique=True)
    halves = [(half, corrector.hiding(half)) for half in (known[::2], known[1::2])]
    return halves if all(half.size and fold.known.size for half, fold in halves) else []


@contextmanager
def _quiet_sparse_tensors() -> Iterator[None]:
    """Keep torch from telling users that sparse CSR tensors are new and, in code of ours and PyG's, not checked."""
    unchecked = torch.sparse.check_sparse_tensor_invariants(enable=False)  # type: ignore[no-untyped-call]
    with warnings.catch_warnings(), unchecked:
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        yield


def _num_steps(alpha: float) -> int:
    return ceil(log(_LEAST_WEIGHT) / log(alpha))
