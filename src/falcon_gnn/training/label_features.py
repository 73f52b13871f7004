"""Labels of removed training nodes as features: L more columns of X, which the survivors read through the hops (ours).

A collapse takes the labels of the nodes that it removes out of the training. Here they come back as input: the hops of
the unreduced graph carry them to the survivors, whose own labels stay targets and are never read. In evaluation the
labels of all training nodes are read.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from falcon_gnn.errors import FalconWarning
from falcon_gnn.graph import Graph
from falcon_gnn.labels import Task, encode_labels, infer_task, labelled_nodes
from falcon_gnn.training.configs import TrainConfig
from falcon_gnn.training.hops import allocate, require_features
from falcon_gnn.training.inference import predict
from falcon_gnn.training.targets import require_labels, resolve_task
from falcon_gnn.training.weights import ModelSpec

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class LabelFeatures:
    """Which labels of a graph a model reads while it is trained, and how.

    Attributes:
        known: All labelled training nodes, ids, ascending; their labels are read in evaluation.
        read: Those among them whose labels are no targets and read in training, at least one.
        task: What the labels are.
        num_labels: L, columns.
        value: What a label counts in training: the root mean square norm of a row of X, so that a label weighs as
            much as a node's features.
    """

    known: NDArray[np.int64]
    read: NDArray[np.int64]
    task: Task
    num_labels: int
    value: float

    @property
    def value_of_known(self) -> float:
        """What a label counts in evaluation, where more of them are read than in training.

        Less than in training by the square root of the share read there. In proportion to the share, a neighborhood
        would add up to the same, which is right where its labels repeat each other; in full is right where each of
        them is evidence of its own. Measured: in full costs up to 0.7 points where nine nodes of ten are kept.
        """
        return self.value * math.sqrt(len(self.read) / len(self.known))


def find_label_features(graph: Graph, kept: NDArray[np.int64], config: TrainConfig) -> LabelFeatures | None:
    """Return the labels that a reduction leaves free to be read, or None where they are of no use.

    They are of none for a regression target, where no labelled training node is removed, and where no training node
    has a neighbor that is not one: what is then predicted lies in other graphs (PPI), where no label is near.

    Args:
        graph: The original graph.
        kept: Ids of the survivors, ascending.
        config: The model and how it is trained.
    """
    num_labels = count_label_columns(graph, config)
    if num_labels == 0:
        return None
    task = infer_task(require_labels(graph), config.task)
    known = training_labels(graph, task)
    read = np.setdiff1d(known, kept, assume_unique=True)
    return LabelFeatures(known, read, task, num_labels, _row_norm(graph.x)) if read.size else None


def count_label_columns(graph: Graph, config: TrainConfig) -> int:
    """Return L where the labels of a graph's training nodes can be read by what is predicted on it, else 0."""
    if graph.train_mask is None:
        return 0
    task, num_labels = resolve_task(graph, graph, config.task, config.num_classes)
    if task == "regression":
        return 0
    neighbors_in_training = graph.to_scipy() @ graph.train_mask.astype(np.float32)
    return num_labels if neighbors_in_training[~graph.train_mask].any() else 0


def training_labels(graph: Graph, task: Task) -> NDArray[np.int64]:
    """Return the training nodes that have a label, ids, ascending; none without a training mask or labels."""
    if graph.train_mask is None or graph.y is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(graph.train_mask & labelled_nodes(graph.y, task))


def add_label_features(graph: Graph, labels: LabelFeatures, node_ids: NDArray[np.int64], value: float) -> Graph:
    """Return the graph with L more columns of features: ``value`` times the label vectors of some nodes, else zero.

    Args:
        graph: A graph with features, shape ``(N, F)``; dense ones become float32 or wider, memory-mapped where large.
        labels: What the labels are.
        node_ids: Nodes of ``graph`` whose labels are read, shape ``(n,)``; may be empty.
        value: What a label counts.

    Raises:
        GraphError: If the graph has no features, or labels that do not fit L.
    """
    from scipy.sparse import csr_array, hstack, issparse

    require_features(graph)
    rows, columns = _label_cells(graph, labels, node_ids)
    if issparse(graph.x):
        cells = np.full(len(rows), value, np.float32), (rows, columns)
        block = csr_array(cells, shape=(graph.num_nodes, labels.num_labels))
        return graph.replace(x=csr_array(hstack([graph.x, block], format="csr")))
    width = graph.num_features
    wider = allocate((graph.num_nodes, width + labels.num_labels), np.result_type(graph.x.dtype, np.float32))
    for start in range(0, graph.num_nodes, _ROWS_AT_ONCE):
        wider[start : start + _ROWS_AT_ONCE, :width] = graph.x[start : start + _ROWS_AT_ONCE]
    wider[:, width:] = 0
    wider[rows, width + columns] = value
    return graph.replace(x=wider)


def predict_with_labels(model: nn.Module, spec: ModelSpec, graph: Graph) -> NDArray[np.float32]:
    """Return a model's outputs for all nodes of a graph, each with the labels of the training nodes around it.

    Where the model was trained with label features, no node reads its own label: a training node reads those of the
    half of the training nodes that it is not in.

    Args:
        model: The model, in any mode.
        spec: What it is.
        graph: Any graph with the features it was trained on; its training labels are those of ``train_mask``.

    Returns:
        Shape ``(N, L)``.

    Raises:
        GraphError: If the graph has no features or others than the model was trained on.
    """
    if spec.label_value is None:
        return predict(model, spec.config, graph)
    known = training_labels(graph, spec.task)
    outputs = np.empty((graph.num_nodes, spec.num_outputs), np.float32)
    if known.size == 0:
        msg = "the model reads the labels of training nodes, but the graph has none. Give it its y and train_mask."
        warnings.warn(msg, FalconWarning, stacklevel=2)
    labels = LabelFeatures(known, known, spec.task, spec.num_outputs, spec.label_value)
    others = np.setdiff1d(np.arange(graph.num_nodes), known, assume_unique=True)
    halves = known[::2], known[1::2]
    for asked, read in [(others, known), halves, halves[::-1]]:
        if asked.size:
            value = labels.value * math.sqrt(len(known) / max(1, len(read)))
            wider = add_label_features(graph, labels, read, value)
            outputs[asked] = predict(model, spec.config, wider, node_ids=asked)
    return outputs


def _label_cells(
    graph: Graph, labels: LabelFeatures, node_ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and column of every one in the label vectors of some nodes."""
    if node_ids.size == 0:
        return node_ids, node_ids
    encoding = encode_labels(require_labels(graph)[node_ids], labels.task, labels.num_labels)
    rows, columns = np.nonzero(encoding.matrix)
    return node_ids[rows], columns


def _row_norm(x: Any) -> float:
    """Return the root mean square norm of the rows of X, 1 where all are zero."""
    from scipy.sparse import issparse

    values = x.data if issparse(x) else x
    blocks = (values[start : start + _ROWS_AT_ONCE] for start in range(0, len(values), _ROWS_AT_ONCE))
    total = sum(float(np.square(block, dtype=np.float64).sum()) for block in blocks)
    return math.sqrt(total / x.shape[0]) or 1.0
