"""Which node each node ends up in, and the graph that is left (Alg. 1, lines 6 to 13)."""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.adjacency import IntArray
from falcon_gnn.reduction.grouping import BoolArray, IdArray, group_members, sort_by_group, sort_by_rank
from falcon_gnn.resources import require_memory

Order = Literal["cluster", "global"]
EdgeWeights = Literal["none", "count", "sum"]
ORDERS: tuple[str, ...] = get_args(Order)
_BLOCKS = 8


def order_removals(removed: BoolArray, rank: IdArray, clusters: IdArray, order: str) -> IdArray:
    """Return the removed nodes in the order they are merged.

    Args:
        removed: Nodes to remove, shape ``(N,)``.
        rank: Position of each node in the total order, shape ``(N,)``.
        clusters: Cluster of each node, shape ``(N,)``.
        order: ``"cluster"`` (Alg. 1: cluster 0 first, ascending rank inside each) or ``"global"`` (ascending rank).
    """
    return sort_by_group(removed, clusters, rank) if order == "cluster" else sort_by_rank(removed, rank)


def merge_into_neighbors(indptr: NDArray[np.int64], indices: IntArray, order: IdArray, rank: IdArray) -> IdArray:
    """Merge each node of ``order`` into its strongest current neighbor (Alg. 1, lines 9 to 11).

    Args:
        indptr: Row starts of the symmetric adjacency, shape ``(N + 1,)``.
        indices: Neighbors, shape ``(2E,)``.
        order: Nodes to remove, in order.
        rank: Position of each node in the total order, shape ``(N,)``.

    Returns:
        The survivor each node is part of, int64, shape ``(N,)``; -1 where a node's group had no neighbor left.
    """
    from falcon_gnn._kernels.contraction import contract

    stands_for: IdArray = contract(indptr, indices, order, rank).astype(np.int64)
    return stands_for


def merge_self_weights(
    indptr: NDArray[np.int64],
    indices: IntArray,
    edge_weight: NDArray[np.floating[Any]] | None,
    self_weight: NDArray[np.floating[Any]] | None,
    assignment: IdArray,
    num_groups: int,
) -> NDArray[np.float64]:
    """Return the self-weight of groups: their internal edges from both ends, and their members' own.

    With it and counted edges, Ã of the groups is the original's averaged over them.

    Args:
        indptr: Row starts, shape ``(N + 1,)``.
        indices: Neighbors, shape ``(2E,)``.
        edge_weight: Weights aligned with ``indices``; None for ones.
        self_weight: Self-weights of the nodes, shape ``(N,)``; None for ones.
        assignment: Group of each node, -1 for none, shape ``(N,)``.
        num_groups: Number of groups.
    """
    from falcon_gnn._kernels.contraction import sum_internal

    weight = np.empty(0) if edge_weight is None else edge_weight.astype(np.float64)
    starts, members = group_members(assignment, num_groups)
    internal: NDArray[np.float64] = sum_internal(
        indptr, indices, weight, starts, members, assignment.astype(indices.dtype)
    )
    own = np.ones(len(assignment)) if self_weight is None else self_weight.astype(np.float64)
    inside = assignment >= 0
    return internal + np.bincount(assignment[inside], own[inside], num_groups)


def merge_edges(
    indptr: NDArray[np.int64],
    indices: IntArray,
    edge_weight: NDArray[np.floating[Any]] | None,
    assignment: IdArray,
    num_groups: int,
    edge_weights: str,
) -> tuple[NDArray[np.int64], IntArray, NDArray[np.floating[Any]] | None]:
    """Return the adjacency of the groups: one edge where any edge ran between two of them.

    Args:
        indptr: Row starts, shape ``(N + 1,)``.
        indices: Neighbors, shape ``(2E,)``.
        edge_weight: Weights aligned with ``indices``, or None.
        assignment: Group of each node, -1 for none, shape ``(N,)``.
        num_groups: Number of groups.
        edge_weights: ``"none"``, ``"count"`` (how many edges ran between the two) or ``"sum"`` (of their weights).

    Returns:
        Row starts, neighbors and weights (None for ``"none"``) of the reduced graph.

    Raises:
        BudgetError: If the memory does not suffice.
    """
    from falcon_gnn._kernels import contraction as kernels

    group_starts, members = group_members(assignment, num_groups)
    new_ids = assignment.astype(indices.dtype)
    shape = (indptr, indices, group_starts, members, new_ids, _BLOCKS)
    starts = kernels.count_merged(*shape)
    entry_bytes = indices.itemsize + (0 if edge_weights == "none" else 8)
    require_memory(int(starts[-1]) * entry_bytes, f"hold the {int(starts[-1]) // 2:,} edges of the reduced graph")
    merged = np.empty(starts[-1], indices.dtype)
    kernels.fill_merged(*shape, starts, merged)
    if edge_weights == "none":
        return starts, merged, None
    weight = np.empty(0) if edge_weight is None or edge_weights == "count" else edge_weight
    sums = np.zeros(len(merged))
    kernels.sum_merged(indptr, indices, weight.astype(np.float64), *shape[2:], starts, merged, sums)
    return starts, merged, sums if edge_weight is None else sums.astype(edge_weight.dtype)
