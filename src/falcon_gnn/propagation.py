"""The normalised adjacency Ã of a graph (Eq. 3) as a SciPy matrix; without torch, so that the reduction may use it."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.adjacency import IntArray, cut_into_blocks
from falcon_gnn.graph import Graph

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_BLOCK_ENTRIES = 1 << 20


def normalized_csr(graph: Graph, dtype: Any = np.float32) -> "csr_array":
    """Return Ã = D^(-1/2) (A + S) D^(-1/2) with D = S + Σ_j A_ij, edge weights and self-weights respected.

    S is ``graph.self_weight``, 1 for every node where there is none: Eq. 3's A + I.

    Args:
        graph: Any graph.
        dtype: Type of the entries.

    Returns:
        A symmetric matrix with ascending columns in each row, shape ``(N, N)``, 2E + N entries.
    """
    return normalize_adjacency(graph.indptr, graph.indices, graph.edge_weight, graph.self_weight, dtype)


def normalize_adjacency(
    indptr: NDArray[np.int64],
    indices: IntArray,
    edge_weight: NDArray[np.floating[Any]] | None = None,
    self_weight: NDArray[np.floating[Any]] | None = None,
    dtype: Any = np.float32,
) -> "csr_array":
    """Return Ã of plain arrays; as :func:`normalized_csr` otherwise.

    Args:
        indptr: Row starts, shape ``(N + 1,)``.
        indices: Neighbors, both directions, ascending in each row, no self-loops, shape ``(2E,)``.
        edge_weight: Weights aligned with ``indices``; None for ones.
        self_weight: S, shape ``(N,)``; None for ones.
        dtype: Type of the entries.
    """
    from scipy.sparse import csr_array

    num_nodes, size = len(indptr) - 1, len(indices) + len(indptr) - 1
    scale = inverse_root_degrees(indptr, edge_weight, self_weight).astype(dtype)
    own = 1.0 if self_weight is None else self_weight.astype(np.float64)
    diagonal = indptr[:-1] + np.arange(num_nodes)
    data, columns = np.empty(size, dtype), np.empty(size, indices.dtype)
    # In blocks of rows: what is made on the way holds six times what the entries of the matrix do.
    for first, stop in cut_into_blocks(indptr, _BLOCK_ENTRIES):
        entries = slice(indptr[first], indptr[stop])
        column, row = indices[entries], np.repeat(np.arange(first, stop), np.diff(indptr[first : stop + 1]))
        values = scale[row] * scale[column]
        if edge_weight is not None:
            values *= edge_weight[entries].astype(dtype)
        # An entry moves by one place for each diagonal entry before it: one per earlier row, one more right of its own.
        places = np.arange(entries.start, entries.stop) + row + (column > row)
        data[places], columns[places] = values, column
        diagonal[first:stop] += np.bincount(row[column < row] - first, minlength=stop - first)
    data[diagonal], columns[diagonal] = scale * scale * np.asarray(own, dtype), np.arange(num_nodes)
    # SciPy keeps both kinds of ids in the wider type.
    starts = (indptr + np.arange(num_nodes + 1)).astype(np.int32 if size < 2**31 else np.int64)
    matrix = csr_array((data, columns, starts), shape=(num_nodes, num_nodes))
    matrix.has_canonical_format = True
    return matrix


def inverse_root_degrees(
    indptr: NDArray[np.int64],
    edge_weight: NDArray[np.floating[Any]] | None = None,
    self_weight: NDArray[np.floating[Any]] | None = None,
) -> NDArray[np.float64]:
    """Return the diagonal of D^(-1/2), float64, shape ``(N,)``; 0 for a node without any weight.

    Such a node has no vector to average. Arguments as in :func:`normalize_adjacency`.
    """
    degrees = np.diff(indptr).astype(np.float64)
    if edge_weight is not None:
        filled = np.flatnonzero(degrees)
        if filled.size:
            degrees[filled] = np.add.reduceat(edge_weight.astype(np.float64), indptr[filled])
    total = degrees + (1.0 if self_weight is None else self_weight.astype(np.float64))
    scale = np.zeros(len(degrees))
    np.divide(1.0, np.sqrt(total), out=scale, where=total > 0)
    return scale
