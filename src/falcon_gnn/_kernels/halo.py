"""Nodes counted around the batches that a graph is dealt to."""

import numpy as np
from numba import prange

from falcon_gnn._kernels.compiling import kernel


@kernel(parallel=True)
def count_halo(indptr, indices, batch, num_batches, num_runs):  # type: ignore[no-untyped-def]
    """Return how many nodes outside each batch have a neighbor in it, shape ``(num_batches,)``.

    ``batch`` holds that of each node. The nodes are cut in ``num_runs`` runs for the threads.
    """
    num_nodes = indptr.size - 1
    counts = np.zeros((num_runs, num_batches), np.int64)
    for run in prange(num_runs):
        seen_by = np.full(num_batches, -1, np.int64)
        for v in range(run * num_nodes // num_runs, (run + 1) * num_nodes // num_runs):
            own = batch[v]
            for position in range(indptr[v], indptr[v + 1]):
                other = batch[indices[position]]
                if other != own and seen_by[other] != v:
                    seen_by[other] = v
                    counts[run, other] += 1
    return counts.sum(axis=0)
