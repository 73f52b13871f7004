"""Edges counted by the classes of their ends."""

import numpy as np
from numba import prange

from falcon_gnn._kernels.compiling import kernel


@kernel(parallel=True)
def count_ends_by_class(indptr, indices, label, num_classes, num_runs):  # type: ignore[no-untyped-def]
    """Return the edge ends in each class and the ends whose edge stays in its class; -1 is no class.

    Only edges between two nodes of a class count. The nodes are cut in ``num_runs`` runs for the threads.
    """
    num_nodes = indptr.size - 1
    ends = np.zeros((num_runs, num_classes), np.int64)
    same = np.zeros(num_runs, np.int64)
    for run in prange(num_runs):
        num_same = 0
        for v in range(run * num_nodes // num_runs, (run + 1) * num_nodes // num_runs):
            own = label[v]
            if own < 0:
                continue
            num_known = 0
            for position in range(indptr[v], indptr[v + 1]):
                other = label[indices[position]]
                num_known += other >= 0
                num_same += other == own
            ends[run, own] += num_known
        same[run] = num_same
    return ends.sum(axis=0), same.sum()
