"""The part of the input that takes part in a collapse, and the caller's own arrays cut down to it."""

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from falcon_gnn.adjacency import IntArray
from falcon_gnn.checks import check_choice
from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.graph_checks import as_array
from falcon_gnn.labels import LabelEncoding, check_labels, class_ids, encode_labels, infer_task
from falcon_gnn.reduction.config import CollapseConfig, Scope

IdArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class ScopedGraph:
    """The part of the input that takes part: adjacency among ``ids``, and where labels may be looked at."""

    name: Scope
    ids: IdArray
    is_whole: bool
    indptr: NDArray[np.int64]
    indices: IntArray
    edge_weight: NDArray[np.floating[Any]] | None
    visible: BoolArray | None
    self_weight: NDArray[np.floating[Any]] | None = None


def choose_scope(scope: Scope | None, *, has_train_mask: bool) -> Scope:
    """Return which part of a graph takes part; None: the training nodes if there are any marked, else all.

    Raises:
        OptionError: If the scope is unknown, or it is ``"train"`` and there is no training mask.
    """
    check_choice("scope", scope, (*get_args(Scope), None))
    if scope == "train" and not has_train_mask:
        msg = "scope='train' needs a graph with a train_mask. Set one, or use scope='full'."
        raise OptionError(msg)
    return "train" if has_train_mask and scope != "full" else "full"


def part_in_scope(graph: Graph, scope: Scope | None) -> tuple[Graph, IdArray]:
    """Return the part of a graph that takes part as a graph, and which input nodes these are, ascending.

    Raises:
        OptionError: As :func:`choose_scope`.
    """
    if choose_scope(scope, has_train_mask=graph.train_mask is not None) == "full":
        return graph, np.arange(graph.num_nodes)
    assert graph.train_mask is not None
    ids = np.flatnonzero(graph.train_mask)
    return graph.subgraph(ids), ids


def resolve_scope(graph: Graph, scope: Scope | None) -> ScopedGraph:
    """Return the nodes and edges that take part in a collapse.

    Raises:
        OptionError: As :func:`choose_scope`.
    """
    if choose_scope(scope, has_train_mask=graph.train_mask is not None) == "full":
        ids = np.arange(graph.num_nodes)
        return ScopedGraph(
            "full", ids, True, graph.indptr, graph.indices, graph.edge_weight, graph.train_mask, graph.self_weight
        )
    from falcon_gnn._kernels.contraction import induce_rows

    assert graph.train_mask is not None
    ids = np.flatnonzero(graph.train_mask)
    new_ids = np.full(graph.num_nodes, -1, graph.indices.dtype)
    new_ids[ids] = np.arange(len(ids))
    indptr, positions = induce_rows(graph.indptr, graph.indices, ids, new_ids)
    weight = None if graph.edge_weight is None else graph.edge_weight[positions]
    own = None if graph.self_weight is None else graph.self_weight[ids]
    is_whole = len(ids) == graph.num_nodes
    return ScopedGraph("train", ids, is_whole, indptr, new_ids[graph.indices[positions]], weight, None, own)


def encode_scope(graph: Graph, scope: ScopedGraph, config: CollapseConfig) -> LabelEncoding | None:
    """Return the label vectors of the nodes in scope; hidden labels are zero rows."""
    if graph.y is None:
        return None
    y = graph.y if scope.is_whole else graph.y[scope.ids]
    seen = y if scope.visible is None else y[scope.visible]
    task = infer_task(seen, config.task)
    inside = np.zeros(graph.num_nodes, np.bool_)
    inside[scope.ids if scope.visible is None else scope.ids[scope.visible]] = True
    check_labels(graph.y, task, inside, is_told=config.task is not None)
    num_classes, shares = config.num_classes, graph.label_distribution
    if num_classes is None and task == "classes" and shares is not None:
        # The likeliest class of a group may be one that no node bears.
        width = shares.shape[1]
        num_classes = width if width > class_ids(seen).max(initial=0) else None
    return encode_labels(y, task, num_classes, scope.visible)


def protected_nodes(protect: ArrayLike | None, num_nodes: int) -> BoolArray:
    """Return the nodes that are never removed, given as a mask or as ids, as a mask of shape ``(num_nodes,)``.

    Raises:
        OptionError: If they are neither.
    """
    mask = np.zeros(num_nodes, np.bool_)
    if protect is None:
        return mask
    given = as_array(protect, "protect", OptionError)
    if given.dtype == np.bool_ and given.shape == (num_nodes,):
        return given
    is_ids = given.ndim == 1 and (given.size == 0 or given.dtype.kind in "iu")
    if not is_ids or (given.size and (given.min() < 0 or given.max() >= num_nodes)):
        msg = (
            f"protect must be a bool mask of shape ({num_nodes},) or ids in [0, {num_nodes}), got {given.dtype} of "
            f"shape {given.shape}."
        )
        raise OptionError(msg)
    mask[given.astype(np.int64)] = True
    if int(mask.sum()) < given.size:
        msg = "protect holds an id twice. Pass numpy.unique(protect), or protect.astype(bool) if it is a 0/1 mask."
        raise OptionError(msg)
    return mask


def given_scores(scores: ArrayLike, num_nodes: int, ids: IdArray) -> NDArray[Any]:
    """Return the caller's own centrality of the nodes in scope, shape ``(len(ids),)``, values as given.

    Raises:
        OptionError: If the shape is not ``(num_nodes,)``, or a value in scope is not finite.
    """
    given = as_array(scores, "centrality", OptionError)
    if given.shape != (num_nodes,) or given.dtype.kind not in "fiub":
        msg = f"centrality scores must be numbers of shape ({num_nodes},), got {given.dtype} of shape {given.shape}."
        raise OptionError(msg)
    inside = given[ids]
    if not np.isfinite(inside).all():
        msg = "centrality scores must be finite for every node in scope. Replace NaN and infinity first."
        raise OptionError(msg)
    return inside


def given_clusters(clusters: ArrayLike, num_nodes: int, ids: IdArray) -> IdArray:
    """Return the caller's own clusters of the nodes in scope, renumbered without gaps in the same order.

    Raises:
        OptionError: If they are not whole numbers >= 0 of shape ``(num_nodes,)``.
    """
    given = as_array(clusters, "clusters", OptionError)
    if given.shape != (num_nodes,) or given.dtype.kind not in "iu" or (given[ids] < 0).any():
        msg = f"clusters must be whole numbers >= 0 of shape ({num_nodes},), got {given.dtype} of shape {given.shape}."
        raise OptionError(msg)
    return np.unique(given[ids], return_inverse=True)[1].astype(np.int64)
