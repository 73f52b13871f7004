"""Nodes listed by the group they belong to, by counting sort: O(N), where comparing would be O(N log N)."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

IdArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def group_members(group: IdArray, num_groups: int) -> tuple[IdArray, IdArray]:
    """Return (starts, members): the members of group g, ascending, are ``members[starts[g]:starts[g + 1]]``.

    Args:
        group: Group of each node in ``[0, num_groups)``, -1 for none, shape ``(N,)``.
        num_groups: Number of groups.

    Example:
        >>> starts, members = group_members(np.array([1, 0, -1, 1]), 2)
        >>> starts.tolist(), members.tolist()
        ([0, 1, 3], [1, 0, 3])
    """
    from scipy.sparse import coo_array

    nodes = np.flatnonzero(group >= 0)
    # SciPy's conversion to rows is the counting sort.
    rows = coo_array((np.ones(len(nodes), np.int8), (group[nodes], nodes)), shape=(num_groups, len(group))).tocsr()
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int64)


def summing_matrix(group: IdArray, num_groups: int, node_weight: NDArray[Any] | None = None) -> "csr_array":
    """Return the sparse matrix whose product with values of nodes is their sum per group, members ascending.

    Args:
        group: As in :func:`group_members`.
        num_groups: Likewise.
        node_weight: How often each node counts, above 0, shape ``(N,)``; by default once.

    Returns:
        Shape ``(num_groups, N)``, float64.
    """
    from scipy.sparse import csr_array

    starts, members = group_members(group, num_groups)
    # In double: a float32 sum of a million members is off by a percent.
    counts = np.ones(len(members), np.float64) if node_weight is None else node_weight[members].astype(np.float64)
    return csr_array((counts, members, starts), shape=(num_groups, len(group)))


def averaging_matrix(group: IdArray, num_groups: int, node_weight: NDArray[Any] | None = None) -> "csr_array":
    """Return the float32 matrix whose product with values of nodes is their mean per group; arguments as above."""
    matrix = summing_matrix(group, num_groups, node_weight)
    matrix.data /= np.repeat(matrix.sum(axis=1), np.diff(matrix.indptr))
    return matrix.astype(np.float32)


def sort_by_group(nodes: BoolArray, group: IdArray, rank: IdArray) -> IdArray:
    """Return the chosen nodes, group 0 first, by ascending rank inside each.

    Args:
        nodes: The chosen ones, shape ``(N,)``.
        group: Group of each node, >= 0, shape ``(N,)``.
        rank: A permutation of ``range(N)``.
    """
    by_rank = sort_by_rank(nodes, rank)
    members = group_members(group[by_rank], int(group.max(initial=-1)) + 1)[1]
    return by_rank[members]


def sort_by_rank(nodes: BoolArray, rank: IdArray) -> IdArray:
    """Return the chosen nodes by ascending rank; arguments as in :func:`sort_by_group`."""
    by_rank = np.empty_like(rank)
    by_rank[rank] = np.arange(len(rank))
    return by_rank[nodes[by_rank]]
