"""The product of an adjacency with a vector, many times over, which is what PageRank spends its time on."""

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.adjacency import IntArray
from falcon_gnn.resources import available_memory

ValueArray = NDArray[np.float64]

FEWEST_PACKED_NODES = 1 << 20
"""From here on (8 MiB of values) the values of all nodes fit no cache, and the rows are packed."""
BLOCK_BITS = 19
"""Nodes of a block as a power of two: 4 MiB of values. Smaller blocks cost more passes over the sums."""
_MOST_BLOCKS_BITS = 6
_NUM_PARTS = 256
_SPARE_BYTES = 1 << 31


class NeighborSums:
    """Adds up values over the neighbors of each node, in the order of its row, whichever way it is done.

    Where the values of all nodes fit no cache, each neighbor's value is a read of some 10 ns. The entries of the rows
    are then copied once, block of columns by block of columns, so that the values of a block are read from the cache:
    a fifth of the time per entry, for 4 bytes per entry meanwhile. Where that memory is not there, rows are read as
    they are. A node's neighbors come in ascending order both ways, so the sums are the same to the bit.

    Args:
        indptr: Row starts of the symmetric adjacency, shape ``(N + 1,)``.
        indices: Neighbors, ascending in each row, shape ``(2E,)``.
    """

    def __init__(self, indptr: NDArray[np.int64], indices: IntArray) -> None:
        self._indptr, self._indices = indptr, indices
        self._packed = _pack(indptr, indices) if _is_packed(len(indptr) - 1, len(indices)) else None

    def add(self, values: ValueArray, totals: ValueArray) -> None:
        """Add to each node's total the values of its neighbors.

        Args:
            values: One per node, shape ``(N,)``.
            totals: What is added to, shape ``(N,)``, changed; not ``values``.
        """
        from falcon_gnn._kernels import neighbor_sums as kernels

        if self._packed is None:
            kernels.add_neighbors(self._indptr, self._indices, values, totals)
        else:
            kernels.add_packed_neighbors(*self._packed, values, totals)


def _is_packed(num_nodes: int, num_entries: int) -> bool:
    if num_nodes < FEWEST_PACKED_NODES:
        return False
    available = available_memory()
    return available is None or available > 4 * num_entries + min(4 * num_entries, _SPARE_BYTES)


def _pack(
    indptr: NDArray[np.int64], indices: IntArray
) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64], int]:
    """Return the words of all entries, where each block's part of the rows starts in them, the parts, and the bits."""
    from falcon_gnn._kernels import neighbor_sums as kernels

    num_nodes = len(indptr) - 1
    bits = max(BLOCK_BITS, (num_nodes - 1).bit_length() - _MOST_BLOCKS_BITS)
    num_blocks = ((num_nodes - 1) >> bits) + 1
    marks = np.linspace(0, indptr[-1], _NUM_PARTS + 1).astype(np.int64)[1:-1]
    parts = np.unique([0, *np.searchsorted(indptr, marks), num_nodes])
    counts = np.empty((num_blocks, len(parts) - 1), np.int64)
    kernels.count_words(indptr, indices, parts, bits, counts)
    ends = np.cumsum(counts).reshape(counts.shape)
    starts = np.concatenate([ends[:, :1] - counts[:, :1], ends], axis=1)
    words = np.empty(int(ends[-1, -1]), np.uint32)
    kernels.pack_words(indptr, indices, parts, bits, starts, words)
    return words, starts, parts, bits
