"""The product of the normalised adjacency and a few dense columns, without making the matrix."""

import numpy as np
from numba import prange

from falcon_gnn._kernels.compiling import kernel


@kernel(parallel=True)
def propagate(indptr, indices, weight, own, scale, source, target, num_blocks):  # type: ignore[no-untyped-def]
    """Write D^(-1/2) (A + S) D^(-1/2) H into ``target``, which is not ``source``; sums in double, in row order.

    ``weight`` is empty for an unweighted graph, ``own`` holds S, ``scale`` holds D^(-1/2).
    """
    num_rows, width = target.shape
    for block in prange(num_blocks):
        total = np.empty(width)
        for row in range(block * num_rows // num_blocks, (block + 1) * num_rows // num_blocks):
            for j in range(width):
                total[j] = own[row] * scale[row] * source[row, j]
            for position in range(indptr[row], indptr[row + 1]):
                other = indices[position]
                factor = scale[other]
                if weight.size > 0:
                    factor *= weight[position]
                for j in range(width):
                    total[j] += factor * source[other, j]
            for j in range(width):
                target[row, j] = scale[row] * total[j]
