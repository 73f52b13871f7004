"""An edge list, whole or in chunks, made into a clean symmetric adjacency in O(N) memory above the result."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import GraphError
from falcon_gnn.resources import require_memory

IntArray = NDArray[np.integer[Any]]
EdgeChunk = tuple[IntArray, IntArray, NDArray[np.floating[Any]] | None]
"""Sources, targets and, where the graph is weighted, weights of some edges, each of shape ``(num_edges,)``."""

CHUNK_EDGES = 1 << 22
_MAX_SCATTER_PARTS = 4


@dataclass(frozen=True)
class EdgeCleaning:
    """What was removed from, or completed in, an edge list.

    Attributes:
        num_self_loops: Self-loops removed.
        num_duplicates: Repeats of an edge in the same direction, folded into one.
        num_one_way: Pairs that were listed in one direction only.
        num_two_way: Pairs that were listed in both directions.
    """

    num_self_loops: int = 0
    num_duplicates: int = 0
    num_one_way: int = 0
    num_two_way: int = 0


@dataclass(frozen=True)
class Adjacency:
    """A symmetric adjacency without self-loops or parallel edges, in CSR form.

    Attributes:
        indptr: Row starts, int64, shape ``(num_nodes + 1,)``.
        indices: Neighbors, ascending in each row, int32 (int64 from 2**31 nodes on), shape ``(2 * num_edges,)``.
        edge_weight: Weights aligned with ``indices``, or None.
        cleaning: What the edge list needed.
    """

    indptr: NDArray[np.int64]
    indices: IntArray
    edge_weight: NDArray[np.floating[Any]] | None
    cleaning: EdgeCleaning


def split_edges(
    edge_index: IntArray, edge_weight: NDArray[np.floating[Any]] | None = None
) -> Callable[[], Iterator[EdgeChunk]]:
    """Return a function that walks an edge list in chunks, each converted to contiguous int64.

    Args:
        edge_index: Edges, shape ``(2, num_edges)``; may be memory-mapped.
        edge_weight: Weights, shape ``(num_edges,)``.
    """

    def walk() -> Iterator[EdgeChunk]:
        for start in range(0, edge_index.shape[1], CHUNK_EDGES):
            part = slice(start, start + CHUNK_EDGES)
            source = np.ascontiguousarray(edge_index[0, part], dtype=np.int64)
            target = np.ascontiguousarray(edge_index[1, part], dtype=np.int64)
            yield source, target, None if edge_weight is None else edge_weight[part]

    return walk


def build_adjacency(
    walk: Callable[[], Iterator[EdgeChunk]], num_nodes: int, weight_dtype: np.dtype[Any] | None = None
) -> Adjacency:
    """Build the adjacency of an undirected graph by counting sort; the edges are walked twice.

    Args:
        walk: Returns a fresh iterator over the edges' chunks; ids int64.
        num_nodes: N; every id must lie in ``[0, N)``.
        weight_dtype: float32 or float64 where the chunks carry weights.

    Returns:
        The clean adjacency; an edge listed one way stands in both rows.

    Raises:
        GraphError: If an id lies outside ``[0, num_nodes)``, if the two directions of a pair carry different
            weights, or if the memory does not suffice.
    """
    from falcon_gnn._kernels import adjacency as kernels

    require_memory(16 * num_nodes, f"count the degrees of {num_nodes:,} nodes")
    degrees = np.zeros(num_nodes, np.int64)
    num_self_loops = _count_degrees(walk, num_nodes, degrees)
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(degrees, out=indptr[1:])
    num_entries = int(indptr[-1])
    key_dtype: type[np.unsignedinteger[Any]] = np.uint32 if num_nodes <= 2**31 else np.uint64
    weight_bytes = 0 if weight_dtype is None else weight_dtype.itemsize
    require_memory(
        num_entries * (np.dtype(key_dtype).itemsize + weight_bytes), f"hold an adjacency of {num_entries:,} entries"
    )
    keys = np.empty(num_entries, key_dtype)
    values = None if weight_dtype is None else np.empty(num_entries, weight_dtype)
    _scatter(walk, indptr, keys, values, cursor=indptr[:-1].copy())

    if values is None:
        num_duplicates, num_one_way = kernels.merge_rows(indptr, keys, degrees)
    else:
        clash = np.full(num_nodes, -1, np.int64)
        num_duplicates, num_one_way = kernels.merge_weighted_rows(indptr, keys, values, degrees, clash)
        _check_weights_agree(clash)
    keys, values = _trim(indptr, degrees, keys, values)
    id_dtype = np.int32 if key_dtype is np.uint32 else np.int64
    num_two_way = len(keys) // 2 - int(num_one_way)
    cleaning = EdgeCleaning(num_self_loops, int(num_duplicates), int(num_one_way), num_two_way)
    return Adjacency(indptr, keys.view(id_dtype), values, cleaning)


def _count_degrees(walk: Callable[[], Iterator[EdgeChunk]], num_nodes: int, degrees: NDArray[np.int64]) -> int:
    from falcon_gnn._kernels import adjacency as kernels

    num_self_loops = 0
    num_seen = 0
    for source, target, _ in walk():
        bad, loops = kernels.count_ends(source, target, num_nodes, degrees)
        if bad >= 0:
            msg = (
                f"edge_index must hold ids in [0, num_nodes) = [0, {num_nodes}), but edge {num_seen + bad} is "
                f"({source[bad]}, {target[bad]}). Pass the true num_nodes, or renumber the nodes from 0."
            )
            raise GraphError(msg)
        num_self_loops += int(loops)
        num_seen += len(source)
    return num_self_loops


def _scatter(
    walk: Callable[[], Iterator[EdgeChunk]],
    indptr: NDArray[np.int64],
    keys: NDArray[np.unsignedinteger[Any]],
    values: NDArray[np.floating[Any]] | None,
    cursor: NDArray[np.int64],
) -> None:
    from falcon_gnn._kernels import adjacency as kernels

    bounds = _balanced_rows(indptr, kernels.num_threads())
    for source, target, weight in walk():
        if values is None:
            kernels.scatter_ends(source, target, bounds, cursor, keys)
        else:
            assert weight is not None
            kernels.scatter_weighted_ends(source, target, np.asarray(weight, values.dtype), cursor, keys, values)


def _balanced_rows(indptr: NDArray[np.int64], num_threads: int) -> NDArray[np.int64]:
    """Cut the rows into parts of about equal numbers of entries, one per thread."""
    num_parts = min(num_threads, _MAX_SCATTER_PARTS)
    inner = np.searchsorted(indptr, np.arange(1, num_parts) * (int(indptr[-1]) // num_parts))
    return np.concatenate(([0], inner, [len(indptr) - 1])).astype(np.int64)


def _check_weights_agree(clash: NDArray[np.int64]) -> None:
    rows = np.flatnonzero(clash >= 0)
    if rows.size:
        u = int(rows[0])
        v = int(clash[u])
        msg = (
            f"edge_weight must be equal in both directions of an edge, but ({u}, {v}) and ({v}, {u}) differ "
            f"({rows.size // 2} such pairs at least). Average the two, or list each pair once."
        )
        raise GraphError(msg)


def _trim(
    indptr: NDArray[np.int64],
    widths: NDArray[np.int64],
    keys: NDArray[np.unsignedinteger[Any]],
    values: NDArray[np.floating[Any]] | None,
) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.floating[Any]] | None]:
    """Close the gaps that folded duplicates left in the rows; ``indptr`` is updated in place."""
    from falcon_gnn._kernels import adjacency as kernels

    num_kept = int(widths.sum())
    if num_kept == len(keys):
        return keys, values
    if values is not None:
        kernels.close_gaps(indptr.copy(), widths, values)
        values.resize(num_kept, refcheck=False)
    kernels.close_gaps(indptr, widths, keys)
    keys.resize(num_kept, refcheck=False)
    return keys, values
