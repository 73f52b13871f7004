"""Hop features [X, ÃX, …, Ã^k X], streamed by column block, and ÃX alone; NumPy and SciPy, so that memory maps work."""

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import GraphError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.propagation import normalized_csr

FeatureMatrix = Any  # numpy.ndarray or scipy.sparse.csr_array, float32, shape (N, F)
Readout = Any
"""Which rows of an ``(N, d)`` matrix are wanted: ids of shape ``(n,)``, or a SciPy CSR matrix ``(n, N)`` of weights."""

_BLOCK_BYTES = 256 << 20
_MAP_ABOVE_BYTES = 2 << 30
SPARSE_DENSITY = 0.05
"""Below this share of non-zeros a sparse product beats the dense one on a CPU (measured: 8 to 10 times slower per entry
at equal size, and Cora's ÃX holds 3 %)."""


def hop_features(
    graph: Graph,
    num_hops: int,
    *,
    rows: Readout | None = None,
    block_columns: int | None = None,
    out: str | Path | None = None,
    map_above: int = _MAP_ABOVE_BYTES,
    dtype: Any = np.float32,
    normalize: bool = False,
    first_hop: int = 0,
) -> NDArray[Any]:
    """Return [X, ÃX, …, Ã^k X], the input of the SIGN models (the paper's Z).

    Only one block of columns is in memory at a time, twice; the result does not depend on its width.

    Args:
        graph: A graph with features, dense, memory-mapped or sparse, shape ``(N, F)``.
        num_hops: k, >= 0.
        rows: Nodes whose features are wanted, shape ``(n,)``, or the weights of means over nodes, a CSR matrix of shape
            ``(n, N)``; by default all nodes. The products run over all nodes anyway.
        block_columns: Columns per block; by default as many as fit 256 MiB.
        out: An ``.npy`` file to write memory-mapped; by default memory, or a temporary file that vanishes with the
            array.
        map_above: Bytes of the result above which that temporary file is used.
        dtype: Type of the result; the products are in float32.
        normalize: Whether each node's row of each hop is divided by its Euclidean length (a row of zeros stays), before
            any mean over nodes. The products then run twice where X is more than one block.
        first_hop: Hops below it are left out of the result.

    Returns:
        Shape ``(n, (k + 1 - first_hop) F)``, hop after hop.

    Raises:
        GraphError: If the graph has no features or an argument is out of range.
    """
    _check_arguments(graph, num_hops, block_columns)
    num_rows, width = graph.num_nodes if rows is None else rows.shape[0], graph.num_features
    result = _allocate((num_rows, (num_hops + 1 - first_hop) * width), np.dtype(dtype), out, map_above)
    matrix = normalized_csr(graph) if num_hops else None
    scale = _hop_scales(graph, num_hops, matrix, block_columns) if normalize else None
    for start, block in _column_blocks(graph, block_columns):
        for hop, values in enumerate(_hops_of(block, num_hops, matrix)):
            if hop < first_hop:
                continue
            first = (hop - first_hop) * width + start
            shown = values if scale is None else values * scale[hop][:, None]
            result[:, first : first + block.shape[1]] = shown if rows is None else _read_out(shown, rows)
    if isinstance(result, np.memmap):
        result.flush()
    return result


def _hops_of(block: NDArray[np.float32], num_hops: int, matrix: Any) -> Iterator[NDArray[np.float32]]:
    """Yield a block of columns of X, and of ÃX, …, Ã^k X."""
    yield block
    for _ in range(num_hops):
        block = matrix @ block
        yield block


def _hop_scales(graph: Graph, num_hops: int, matrix: Any, block_columns: int | None) -> list[NDArray[np.float32]]:
    """Return 1 / length of every node's row, hop by hop; 0 for a row of zeros."""
    squares = np.zeros((num_hops + 1, graph.num_nodes))
    for _, block in _column_blocks(graph, block_columns):
        for hop, values in enumerate(_hops_of(block, num_hops, matrix)):
            squares[hop] += _squares(values)
    return [_inverse(np.sqrt(row)) for row in squares]


def _squares(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the squared length of each row, in double: squares of large and small float32 are none."""
    return np.asarray(np.einsum("ij,ij->i", values, values, dtype=np.float64))


def _inverse(lengths: NDArray[np.float64]) -> NDArray[np.float32]:
    inverse = np.zeros_like(lengths)
    np.divide(1.0, lengths, out=inverse, where=lengths > 0)
    return inverse.astype(np.float32)


def float_features(graph: Graph, *, normalize: bool = False) -> FeatureMatrix:
    """Return X in float32, dense or as a CSR array where it is sparse enough to gain from it.

    Args:
        graph: A graph with features.
        normalize: Whether each row is divided by its Euclidean length; a row of zeros stays.

    Raises:
        GraphError: If the graph has no features.
    """
    from scipy.sparse import csr_array, issparse

    require_features(graph)
    if not issparse(graph.x):
        dense = np.ascontiguousarray(graph.x, dtype=np.float32)
        return dense * _inverse(np.sqrt(_squares(dense)))[:, None] if normalize else dense
    matrix = csr_array(graph.x, dtype=np.float32)
    if normalize:
        squares = csr_array((matrix.data.astype(np.float64) ** 2, matrix.indices, matrix.indptr), shape=matrix.shape)
        lengths = np.sqrt(np.asarray(squares.sum(axis=1), np.float64))
        matrix = csr_array(
            (matrix.data * np.repeat(_inverse(lengths), np.diff(matrix.indptr)), matrix.indices, matrix.indptr),
            shape=matrix.shape,
        )
    return matrix if _is_sparse_enough(matrix) else matrix.toarray()


def aggregate(adjacency: Any, features: FeatureMatrix) -> FeatureMatrix:
    """Return ÃX, sparse where X is and the product is sparse enough to gain from it.

    Args:
        adjacency: Ã or rows of it, SciPy CSR, shape ``(n, N)``.
        features: X, shape ``(N, F)``.

    Returns:
        Shape ``(n, F)``.
    """
    from scipy.sparse import csr_array, issparse

    product = adjacency @ features
    if not issparse(product):
        return product
    matrix = csr_array(product)
    matrix.sort_indices()
    return matrix if _is_sparse_enough(matrix) else matrix.toarray()


def require_features(graph: Graph) -> None:
    """Stop where a graph has nothing that a model could read.

    Raises:
        GraphError: If ``graph.x`` is None or has no column.
    """
    if graph.num_features == 0:
        msg = (
            "graph.x must hold features of shape (N, F) for training, got none. Give some with graph.replace(x=...), "
            "for example the degrees: numpy.log1p(graph.degrees)[:, None]."
        )
        raise GraphError(msg)


def _is_sparse_enough(matrix: Any) -> bool:
    return bool(matrix.nnz <= SPARSE_DENSITY * math.prod(matrix.shape))


def _check_arguments(graph: Graph, num_hops: int, block_columns: int | None) -> None:
    require_features(graph)
    if num_hops < 0:
        msg = f"num_hops must be a whole number of at least 0, got {num_hops!r}."
        raise OptionError(msg)
    if block_columns is not None and block_columns < 1:
        msg = f"block_columns must be at least 1 or None, got {block_columns!r}."
        raise OptionError(msg)


def _column_blocks(graph: Graph, block_columns: int | None) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield the first column of each block of X and the block, dense float32."""
    from scipy.sparse import csc_array, issparse

    fitting = max(1, _BLOCK_BYTES // (4 * graph.num_nodes))
    step = min(graph.num_features, block_columns or fitting)
    is_sparse = issparse(graph.x)
    source = csc_array(graph.x) if is_sparse and step < graph.num_features else graph.x
    for start in range(0, graph.num_features, step):
        block = source[:, start : start + step]
        yield start, np.ascontiguousarray(block.toarray() if is_sparse else block, dtype=np.float32)


def _read_out(block: NDArray[np.float32], rows: Readout) -> NDArray[np.float32]:
    chosen: NDArray[np.float32] = block[rows] if isinstance(rows, np.ndarray) else rows @ block
    return chosen


def _allocate(shape: tuple[int, int], dtype: np.dtype[Any], out: str | Path | None, map_above: int) -> NDArray[Any]:
    if out is not None:
        mapped: NDArray[Any] = np.lib.format.open_memmap(Path(out), mode="w+", dtype=dtype, shape=shape)
        return mapped
    if math.prod(shape) * dtype.itemsize <= map_above:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="falcon-hops-") as file:
        return np.memmap(file, dtype, mode="w+", shape=shape)
