"""Which node each node ends up in, and the graph that is left (Alg. 1, lines 6 to 13)."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.adjacency import IntArray, cut_into_blocks
from falcon_gnn.progress import tell_share
from falcon_gnn.reduction.grouping import BoolArray, IdArray, group_members, sort_by_group, sort_by_rank
from falcon_gnn.resources import require_memory

Order = Literal["cluster", "global"]
EdgeWeights = Literal["none", "count", "sum"]
_BLOCK_ENTRIES = 1 << 25
"""Entries of rows that are sorted between two readings, at least: 8 bytes each, 12 where they are counted."""
_MOST_READINGS = 16
_RANGE_ENTRIES = 1 << 16
"""Entries of groups that a thread sorts together, in its cache."""
_NUM_PARTS = 64
"""Into which the nodes are cut for the threads; any number gives the same rows."""
_WEIGHTED_BLOCK_ENTRIES = 1 << 24
"""Entries of weighted rows that are merged together: scratch of 12 bytes each."""


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
        rank: Position of each node in the total order, a permutation of ``range(N)``, shape ``(N,)``.

    Returns:
        The survivor each node is part of, int64, shape ``(N,)``; -1 where a node's group had no neighbor left.
    """
    from falcon_gnn._kernels import contraction as kernels

    num_removed, dtype = len(order), indices.dtype
    survives = np.ones(len(rank), np.bool_)
    survives[order] = False
    survivors = sort_by_rank(survives, rank)
    new_ids = np.empty(len(rank), dtype)
    new_ids[order] = np.arange(num_removed)
    new_ids[survivors] = np.arange(num_removed, len(rank))
    # Only rows of removed nodes are copied.
    start = np.concatenate([[0], np.cumsum(indptr[order + 1] - indptr[order])])
    require_memory(int(start[-1]) * dtype.itemsize, f"merge {num_removed:,} nodes")
    entries, nodes, stop = (
        np.empty(start[-1], dtype),
        np.empty((num_removed, 3), dtype),
        np.empty(num_removed, np.int64),
    )
    start = start[:-1]
    tell_share(0.2)
    kernels.fold_survivors(indptr, indices, new_ids, start, stop, entries, nodes)
    tell_share(0.6)
    ranks = np.concatenate([rank[order], rank[survivors]]).astype(dtype)
    following, heap = np.full(num_removed, -1, dtype), np.full(num_removed, -1, np.int64)
    last = np.arange(num_removed, dtype=dtype)
    ends = kernels.contract(start, stop, entries, nodes, ranks, following, last, heap)
    stands_for = np.arange(len(rank))
    # The last row is for groups that were dropped.
    stands_for[order] = np.append(survivors, -1)[np.where(ends >= 0, ends - num_removed, -1)]
    return stands_for


@dataclass(frozen=True)
class MergedEdges:
    """The adjacency of groups of nodes: one edge where any edge ran between two of them.

    Attributes:
        indptr: Row starts, shape ``(num_groups + 1,)``.
        indices: Neighbors, ascending in each row, shape ``(2E',)``.
        edge_weight: What each edge stands for, aligned with ``indices``; None for ``edge_weights="none"``.
        internal_weight: Weight of the edges inside each group, counted from both their ends, shape ``(num_groups,)``.
    """

    indptr: NDArray[np.int64]
    indices: IntArray
    edge_weight: NDArray[np.floating[Any]] | None
    internal_weight: NDArray[np.float64]

    def self_weights(self, own: NDArray[np.floating[Any]] | None, assignment: IdArray) -> NDArray[np.float64]:
        """Return the self-weight of groups: their internal edges, and their members' own.

        With it and counted edges, Ã of the groups is the original's averaged over them.

        Args:
            own: Self-weights of the nodes, shape ``(N,)``; None for ones.
            assignment: Group of each node, -1 for none, shape ``(N,)``.
        """
        weight = np.ones(len(assignment)) if own is None else own.astype(np.float64)
        inside = assignment >= 0
        return self.internal_weight + np.bincount(assignment[inside], weight[inside], len(self.internal_weight))


def merge_edges(
    indptr: NDArray[np.int64],
    indices: IntArray,
    edge_weight: NDArray[np.floating[Any]] | None,
    assignment: IdArray,
    num_groups: int,
    edge_weights: str,
) -> MergedEdges:
    """Return the adjacency of the groups.

    Args:
        indptr: Row starts, shape ``(N + 1,)``.
        indices: Neighbors, shape ``(2E,)``.
        edge_weight: Weights aligned with ``indices``, or None.
        assignment: Group of each node, -1 for none, shape ``(N,)``.
        num_groups: Number of groups.
        edge_weights: ``"none"``, ``"count"`` (how many edges ran between the two) or ``"sum"`` (of their weights).

    Raises:
        BudgetError: If the memory does not suffice.
    """
    if edge_weight is None or edge_weights == "count":
        return _merge_counted(indptr, indices, assignment, num_groups, is_counted=edge_weights != "none")
    merged = _merge_weighted(indptr, indices, edge_weight, assignment, num_groups)
    return replace(merged, edge_weight=None) if edge_weights == "none" else merged


def _merge_counted(
    indptr: NDArray[np.int64], indices: IntArray, assignment: IdArray, num_groups: int, *, is_counted: bool
) -> MergedEdges:
    """Merge edges that all weigh the same: dealt to ranges of groups, some at a time, and sorted there by counting.

    The rows are read in the order they lie in, once for each of these times, so that they may lie in a mapped file.
    """
    from falcon_gnn._kernels import contraction as kernels
    from falcon_gnn._kernels.adjacency import copy_ranges

    new_ids = assignment.astype(indices.dtype)
    id_bits = max(1, (num_groups - 1).bit_length())
    shift = max(0, id_bits - (len(indices) // _RANGE_ENTRIES).bit_length())
    counts = np.empty((_NUM_PARTS, ((num_groups - 1) >> shift) + 1), np.int64)
    kernels.count_group_ranges(indptr, new_ids, shift, counts)
    room = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
    blocks = list(cut_into_blocks(room, max(_BLOCK_ENTRIES, len(indices) // _MOST_READINGS)))
    most = max(int(room[stop] - room[first]) for first, stop in blocks)
    require_memory((8 + 4 * is_counted) * most, f"merge the edges of {num_groups:,} groups")
    words, tallies = np.empty(most, np.uint64), np.empty(most if is_counted else 0, np.uint32)
    starts, internal = np.zeros(num_groups + 1, np.int64), np.zeros(num_groups)
    merged, sums = np.empty(0, indices.dtype), np.empty(0)
    for first, stop in blocks:
        of_block = counts[:, first:stop]
        pieces = room[first:stop] - room[first] + np.cumsum(of_block, axis=0) - of_block
        ends, kept = pieces.copy(), np.empty(stop - first, np.int64)
        kernels.deal_rows(indptr, indices, new_ids, shift, id_bits, first, stop, ends, words)
        kernels.merge_group_ranges(
            words, pieces, ends, shift, id_bits, first, starts[1:], internal, tallies, kept
        )  # fmt: skip
        targets = len(merged) + np.concatenate([[0], np.cumsum(kept)])
        _lengthen(merged, int(targets[-1]))
        copy_ranges(words, pieces[0], targets, merged)
        if is_counted:
            _lengthen(sums, len(merged))
            copy_ranges(tallies, pieces[0], targets, sums)
        tell_share(int(room[stop]) / max(1, int(room[-1])))
    np.cumsum(starts, out=starts)
    return MergedEdges(starts, merged, sums if is_counted else None, internal)


def _merge_weighted(
    indptr: NDArray[np.int64],
    indices: IntArray,
    edge_weight: NDArray[np.floating[Any]],
    assignment: IdArray,
    num_groups: int,
) -> MergedEdges:
    """Merge weighted edges: every row is read twice, some groups at a time, and weights add up in row order."""
    from falcon_gnn._kernels import contraction as kernels

    group_starts, members = group_members(assignment, num_groups)
    new_ids, weight = assignment.astype(indices.dtype), edge_weight.astype(np.float64)
    # Where each group's row would start if none of its entries fell together.
    room = np.concatenate(([0], np.cumsum(np.diff(indptr)[members])))[group_starts]
    starts, internal = np.zeros(num_groups + 1, np.int64), np.empty(num_groups)
    merged, sums = np.empty(0, indices.dtype), np.empty(0)
    for first, stop in cut_into_blocks(room, _WEIGHTED_BLOCK_ENTRIES):
        own_room, widths = room[first : stop + 1] - room[first], np.empty(stop - first, np.int64)
        row, row_sums = np.empty(own_room[-1], indices.dtype), np.empty(own_room[-1])
        shape = (indptr, indices, weight, group_starts, members, new_ids, first, own_room)
        kernels.merge_rows(*shape, row, row_sums, widths, internal)
        starts[first + 1 : stop + 1] = starts[first] + np.cumsum(widths)
        for whole, block in ((merged, row), (sums, row_sums)):
            _lengthen(whole, int(starts[stop]))
            kernels.copy_rows(own_room, widths, starts[first : stop + 1], block, whole)
        tell_share(stop / num_groups)
    kernels.mirror_sums(starts, merged, sums)
    return MergedEdges(starts, merged, sums.astype(edge_weight.dtype), internal)


def _lengthen(whole: NDArray[Any], num_entries: int) -> None:
    """Make room for more entries behind those there are, in place where the system can move pages."""
    added = (num_entries - len(whole)) * whole.itemsize
    require_memory(added, f"hold {num_entries // 2:,} edges of the reduced graph")
    whole.resize(num_entries, refcheck=False)
