"""Whether neighbors are of one class more often than chance, which tells how much a reduction has to go by."""

from itertools import pairwise

import numpy as np

from falcon_gnn.labels import LabelEncoding
from falcon_gnn.reduction.scope import ScopedGraph

_BLOCK_EDGES = 1 << 22


def adjusted_homophily(scope: ScopedGraph, encoding: LabelEncoding | None) -> float | None:
    """Return (h - Σ_c p_c²) / (1 - Σ_c p_c²): 1 where all neighbors are of one class, 0 where they are as by chance.

    h is the share of edges that join one class, p_c that of the edge ends that lie in class c (Platonov et al., 2023,
    arXiv:2209.06177). Edges between two nodes with a visible label count, without weights.

    Args:
        scope: The n nodes.
        encoding: Their visible labels.

    Returns:
        At most 1; None without classes, without an edge between labelled nodes, and where all ends lie in one class.
    """
    if encoding is None or encoding.task != "classes" or not encoding.labelled.any():
        return None
    label = np.where(encoding.labelled, encoding.matrix.argmax(axis=1), -1).astype(np.int32)
    ends = np.zeros(encoding.num_labels, np.int64)
    num_same = 0
    for rows in _row_blocks(scope):
        own = np.repeat(label[rows], np.diff(scope.indptr[rows.start : rows.stop + 1]))
        other = label[scope.indices[scope.indptr[rows.start] : scope.indptr[rows.stop]]]
        known = (own >= 0) & (other >= 0)
        ends += np.bincount(own[known], minlength=len(ends))
        num_same += int((own[known] == other[known]).sum())
    if not ends.any():
        return None
    by_chance = float(np.square(ends / ends.sum()).sum())
    return None if by_chance == 1 else (num_same / int(ends.sum()) - by_chance) / (1 - by_chance)


def _row_blocks(scope: ScopedGraph) -> list[slice]:
    """Return blocks of rows that hold about as many edges each."""
    marks = np.arange(_BLOCK_EDGES, int(scope.indptr[-1]), _BLOCK_EDGES)
    cuts = np.unique([0, *np.searchsorted(scope.indptr, marks), len(scope.ids)])
    return [slice(int(first), int(last)) for first, last in pairwise(cuts)]
