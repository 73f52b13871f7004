"""Herding (Welling, 2009): nodes whose running mean follows that of their cluster; a baseline, not the paper's."""

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.reduction.grouping import BoolArray, IdArray, sort_by_group
from falcon_gnn.reduction.hop_space import Points
from falcon_gnn.threads import one_thread


def select_by_herding(points: Points, clusters: IdArray, budgets: IdArray, candidates: BoolArray) -> BoolArray:
    """Return which candidates survive.

    In each cluster one node after another is taken: the one with which the mean of those taken comes nearest to the
    mean of the cluster's candidates. Each step reads the cluster once, so that the work grows with the nodes kept times
    the nodes there are.

    Args:
        points: What the means are of, shape ``(N, d)``.
        clusters: Cluster of each node, shape ``(N,)``.
        budgets: Ψ_i, candidates to keep per cluster, shape ``(num_clusters,)``.
        candidates: Nodes that may be removed, shape ``(N,)``.

    Returns:
        Bool, shape ``(N,)``; False for all other nodes.
    """
    kept = np.zeros(len(clusters), np.bool_)
    ordered = sort_by_group(candidates, clusters, np.arange(len(clusters)))
    ends = np.cumsum(np.bincount(clusters[ordered], minlength=len(budgets)))
    # One thread: the sums of a threaded BLAS depend on how many threads there are.
    with one_thread():
        for members, budget in zip(np.split(ordered, ends[:-1]), budgets, strict=True):
            kept[members[herding_order(points[members].astype(np.float64), int(budget))]] = True
    return kept


def herding_order(rows: NDArray[np.float64], budget: int) -> IdArray:
    """Return the positions of so many rows, in the order in which they are taken.

    Args:
        rows: Shape ``(n, d)``, double.
        budget: In ``[0, n]``.

    Example:
        >>> herding_order(np.array([[0.0], [1.0], [2.0], [9.0]]), 2)
        array([2, 1])
    """
    taken = np.empty(budget, np.int64)
    if budget == 0:
        return taken
    # With t rows taken and their sum s, the next one is nearest to (t + 1)·mean - s.
    half_lengths = 0.5 * np.einsum("ij,ij->i", rows, rows)
    mean = rows.mean(axis=0)
    towards_mean = rows @ mean
    gain = towards_mean - half_lengths
    for step in range(budget):
        best = int(np.argmax(gain))
        taken[step] = best
        gain += towards_mean - rows @ rows[best]
        gain[best] = -np.inf
    return taken
