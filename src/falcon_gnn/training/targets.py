"""What the model should say: training targets as tensors, and the loss against them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from falcon_gnn.errors import GraphError, OptionError
from falcon_gnn.evaluation import ScoreName
from falcon_gnn.graph import Graph
from falcon_gnn.labels import Task, check_labels, class_ids, infer_task, known_cells, labelled_nodes
from falcon_gnn.training.transfer import send


@dataclass(frozen=True)
class Targets:
    """Labels of some nodes, ready for the loss.

    Attributes:
        values: Classes, int64 of shape ``(n,)`` or as probabilities, float32 of shape ``(n, L)``; or values, float32 of
            shape ``(n, L)`` with NaN in unknown cells.
        task: What the labels are.
        has_unknown: Whether any cell is NaN, which then takes no part in the loss.
        weights: How much each node counts in the loss, float32, shape ``(n,)``; None for all alike.
    """

    values: Tensor
    task: Task
    has_unknown: bool = False
    weights: Tensor | None = None

    @property
    def total_weight(self) -> Tensor | float:
        """What the mean loss is a mean over: the sum of the nodes' weights, or their number."""
        return len(self) if self.weights is None else self.weights.sum(dtype=torch.float64)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return self.values.shape[0]

    def take(self, ids: Tensor) -> "Targets":
        """Return the targets of some of the nodes, shape ``(m,)``."""
        return replace(self, values=self.values[ids], weights=None if self.weights is None else self.weights[ids])

    def with_power(self, power: float) -> "Targets":
        """Return the same with the weights raised to a power; 0 leaves them out."""
        if self.weights is None or power == 1:
            return self
        return replace(self, weights=self.weights**power if power > 0 else None)

    def to(self, device: torch.device) -> "Targets":
        """Return the targets on a device."""
        weights = None if self.weights is None else send(self.weights, device)
        return replace(self, values=send(self.values, device), weights=weights)

    def rows(self, rows: slice) -> "Targets":
        """Return the targets of a range of the nodes, without a copy."""
        return replace(self, values=self.values[rows], weights=None if self.weights is None else self.weights[rows])

    @property
    def loss_weight(self) -> Tensor | float:
        """What the summed loss is divided by: the sum of the nodes' weights, or of those of their known cells."""
        if self.task == "classes":
            return len(self.values) if self.weights is None else self.weights.sum()
        weight = self._cell_weights()
        return self.values.numel() if weight is None else _at_least_something(weight.sum())

    def loss(self, logits: Tensor) -> Tensor:
        """Return the mean loss: cross-entropy (classes), binary cross-entropy (multi-label) or squared error.

        With weights it is Σ w l / Σ w over the nodes, or over their known cells.

        Args:
            logits: Outputs of the model for these nodes, shape ``(n, L)``.
        """
        return self.summed_loss(logits) / self.loss_weight

    def summed_loss(self, logits: Tensor) -> Tensor:
        """Return Σ w l; arguments as in :meth:`loss`. Of the pieces of a batch these add up."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.task == "classes":
            return self._class_loss(logits)
        weight, values = self._cell_weights(), self.values
        if self.has_unknown:
            values = values.nan_to_num(0.0)
        if self.task == "multilabel":
            return functional.binary_cross_entropy_with_logits(logits, values, weight=weight, reduction="sum")
        errors = (logits - values).square()
        return errors.sum() if weight is None else (errors * weight).sum()

    def loss_gradient(self, logits: Tensor) -> Tensor:
        """Return the gradient of :meth:`summed_loss` in the outputs, new, shape ``(n, L)``."""
        if self.task == "multilabel":
            # In three steps over the matrix, where torch goes through the loss itself first.
            wide = logits if logits.dtype == torch.float64 else logits.float()
            values = self.values.nan_to_num(0.0) if self.has_unknown else self.values
            weight, gradient = self._cell_weights(), wide.sigmoid().sub_(values)
            return (gradient if weight is None else gradient.mul_(weight)).to(logits.dtype)
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.summed_loss(leaf), leaf)
        return gradient

    def _cell_weights(self) -> Tensor | None:
        """Return how much each cell counts, shape ``(n, L)``; None for all alike."""
        weight = None if self.weights is None else self.weights[:, None].expand_as(self.values)
        if not self.has_unknown:
            return weight
        known = (~self.values.isnan()).float()
        return known if weight is None else known * weight

    def _class_loss(self, logits: Tensor) -> Tensor:
        values = self.values
        if values.dim() == 2:
            # Classes that no node of the training graph has.
            values = functional.pad(values, (0, logits.shape[1] - values.shape[1]))
        if self.weights is None:
            return functional.cross_entropy(logits, values, reduction="sum")
        losses = functional.cross_entropy(logits, values, reduction="none")
        return (losses * self.weights).sum()


def _at_least_something(total: Tensor) -> Tensor:
    """Return a sum of weights that can be divided by: 1 where nothing is known, which the zero loss then stays by."""
    return torch.where(total > 0, total, torch.ones_like(total))


def make_targets(y: NDArray[Any], task: Task) -> Targets:
    """Return the labels of all nodes as targets; unlabelled ones are class -1 or NaN.

    Args:
        y: Labels, shape ``(N,)`` or ``(N, L)``.
        task: What they are.
    """
    if task == "classes":
        return Targets(torch.from_numpy(class_ids(y)), task)
    values = y.reshape(len(y), -1).astype(np.float32)
    if task == "multilabel":
        values[~known_cells(y, task)] = np.nan
    return Targets(torch.from_numpy(values), task)


def training_nodes(graph: Graph, task: Task) -> NDArray[np.int64]:
    """Return the nodes that training learns from: in the train mask (all nodes without one) and labelled, ascending.

    Raises:
        GraphError: If there is none, or as :func:`check_training_marked`.
    """
    check_training_marked(graph)
    labels = require_labels(graph)
    chosen = labelled_nodes(labels, task)
    if graph.train_mask is not None:
        chosen = chosen & graph.train_mask
    if not chosen.any():
        msg = "graph must have a labelled training node, got none. Check train_mask and y (-1 and NaN mean unlabelled)."
        raise GraphError(msg)
    return np.flatnonzero(chosen)


def check_training_marked(graph: Graph) -> None:
    """Stop where validation or test nodes are marked and training nodes are not: all nodes would be trained on.

    Raises:
        GraphError: If it is so.
    """
    marked = [name for name in ("val_mask", "test_mask") if getattr(graph, name) is not None]
    if graph.train_mask is None and marked:
        msg = (
            f"graph must have a train_mask beside its {' and '.join(marked)}, got none: those nodes would be trained "
            "on. Load it with split='full' to train on all others, or set graph.replace(train_mask=...)."
        )
        raise GraphError(msg)


def take_targets(graph: Graph, task: Task, node_ids: NDArray[np.int64]) -> Targets:
    """Return the targets of some nodes of a graph, in the order of ``node_ids``, shape ``(n,)``.

    They are weighted by ``graph.node_weight``; classes are those of ``graph.label_distribution`` where it has one.
    """
    targets = make_targets(require_labels(graph)[node_ids], task)
    if task == "classes" and graph.label_distribution is not None:
        targets = replace(targets, values=torch.from_numpy(graph.label_distribution[node_ids].astype(np.float32)))
    if graph.node_weight is not None:
        targets = replace(targets, weights=torch.from_numpy(graph.node_weight[node_ids].astype(np.float32)))
    return replace(targets, has_unknown=task != "classes" and bool(targets.values.isnan().any()))


def resolve_task(graph: Graph, eval_graph: Graph, task: Task | None, num_classes: int | None) -> tuple[Task, int]:
    """Return what the labels are and the number of model outputs L.

    For classes, L is ``num_classes``, or the largest label of either graph + 1, and at least the columns of a
    ``label_distribution``; else the number of columns.

    Raises:
        GraphError: If a graph has no labels, or the two have a different number of columns.
        OptionError: If a class is ``num_classes`` or more.
    """
    labels, others = require_labels(graph), require_labels(eval_graph)
    resolved = infer_task(labels, task)
    is_same = graph is eval_graph or labels is others
    check_labels(others, infer_task(others, task), is_told=task is not None)
    if not is_same:
        # The means of a collapse's groups lie between 0 and 1.
        check_labels(labels, resolved, graph.train_mask, allow_shares=True, is_told=True)
    if resolved != "classes":
        widths = {int(np.prod(y.shape[1:])) for y in (labels, others)}
        if len(widths) > 1:
            msg = f"y of graph and eval_graph must have the same columns, got shapes {labels.shape} and {others.shape}."
            raise GraphError(msg)
        return resolved, widths.pop()
    largest = max(int(class_ids(y).max(initial=-1)) for y in (labels, others))
    if graph.label_distribution is not None:
        largest = max(largest, graph.label_distribution.shape[1] - 1)
    if num_classes is not None and largest >= num_classes:
        msg = f"num_classes must be above every class, got {num_classes} and a class {largest}."
        raise OptionError(msg)
    return resolved, largest + 1 if num_classes is None else num_classes


def check_metric(metric: ScoreName, graph: Graph, task: Task, num_outputs: int) -> None:
    """Stop where a score says nothing of the validation nodes, so that it cannot pick the best epoch.

    Args:
        metric: The score.
        graph: The graph that is scored.
        task: What its labels are.
        num_outputs: L.

    Raises:
        OptionError: If it is the area under the ROC curve without two classes, each with a validation node, or the
            micro-F1 of several labels, none of which a validation node has.
    """
    if metric == "roc_auc":
        _check_two_classes(graph, task, num_outputs)
    is_judged = metric == "micro_f1" and task == "multilabel" and graph.val_mask is not None
    if is_judged and not (require_labels(graph)[graph.val_mask] > 0).any():
        msg = "validation_metric='micro_f1' needs a validation node with a label, got none. Use 'accuracy'."
        raise OptionError(msg)


def _check_two_classes(graph: Graph, task: Task, num_outputs: int) -> None:
    if task != "classes" or num_outputs != 2:
        msg = f"validation_metric='roc_auc' needs two classes, got {task} with {num_outputs} outputs. Use 'accuracy'."
        raise OptionError(msg)
    if graph.val_mask is None:
        return
    counts = np.bincount(class_ids(require_labels(graph))[graph.val_mask] + 1, minlength=3)[1:3]
    if not counts.all():
        msg = (
            "validation_metric='roc_auc' needs validation nodes of both classes, got "
            f"{counts[0]} of class 0 and {counts[1]} of class 1. Use 'accuracy'."
        )
        raise OptionError(msg)


def require_labels(graph: Graph) -> NDArray[Any]:
    """Return ``graph.y``.

    Raises:
        GraphError: If the graph has none.
    """
    if graph.y is None:
        msg = (
            "graph.y must hold labels of shape (N,) or (N, L) for training, got None. Set it with graph.replace(y=...)."
        )
        raise GraphError(msg)
    return graph.y
