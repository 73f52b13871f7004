"""Whether neighbors are of one class more often than chance, which tells how much a reduction has to go by."""

import numpy as np

from falcon_gnn.labels import LabelEncoding
from falcon_gnn.reduction.scope import ScopedGraph

_NUM_RUNS = 64


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
    from falcon_gnn._kernels.homophily import count_ends_by_class

    ends, num_same = count_ends_by_class(scope.indptr, scope.indices, encoding.values, encoding.num_labels, _NUM_RUNS)
    if not ends.any():
        return None
    by_chance = float(np.square(ends / ends.sum()).sum())
    return None if by_chance == 1 else (int(num_same) / int(ends.sum()) - by_chance) / (1 - by_chance)
