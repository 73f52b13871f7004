"""An edge list, whole or in chunks, made into a clean symmetric adjacency in O(N) memory above the result."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import GraphError
from falcon_gnn.progress import tell_share
from falcon_gnn.resources import available_memory, release_pages, require_memory, scratch_array

IntArray = NDArray[np.integer[Any]]
EdgeChunk = tuple[IntArray, IntArray, NDArray[np.floating[Any]] | None]
"""Sources, targets and, where the graph is weighted, weights of some edges, each of shape ``(num_edges,)``."""

CHUNK_EDGES = 1 << 22
_PART_EDGES = 1 << 19
"""Edges of a chunk that one thread goes through; any number gives the same adjacency."""
_MOST_SHARE = 0.8
"""Of the available memory: an adjacency with which a collapse would need more is written to a file and mapped."""
_NODE_BYTES = 110
"""What a collapse holds per node beside two adjacencies, the graph's and the one of the edges that are left."""
_FEWEST_RANGE_BITS = 11
_MOST_RANGES_BITS = 12
_GROUP_ENTRIES = 1 << 27
"""Entries that are sorted between two readings of the edges: 8 bytes each, meanwhile."""


_COUNTING_SHARE, _SCATTERING_SHARE = 0.1, 0.6
"""Of the time to make an adjacency; the scattering is that of weighted edges."""


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
    """Return a function that walks an edge list in chunks, each copied as int32 or int64.

    Args:
        edge_index: Edges, shape ``(2, num_edges)``; may be memory-mapped.
        edge_weight: Weights, shape ``(num_edges,)``.
    """
    dtype: type[np.signedinteger[Any]] = np.int32 if np.can_cast(edge_index.dtype, np.int32) else np.int64

    def walk() -> Iterator[EdgeChunk]:
        for start in range(0, edge_index.shape[1], CHUNK_EDGES):
            part = slice(start, start + CHUNK_EDGES)
            source, target = np.array(edge_index[0, part], dtype), np.array(edge_index[1, part], dtype)
            release_pages(edge_index)
            yield source, target, None if edge_weight is None else edge_weight[part]

    return walk


def build_adjacency(
    walk: Callable[[], Iterator[EdgeChunk]], num_nodes: int, weight_dtype: np.dtype[Any] | None = None
) -> Adjacency:
    """Build the adjacency of an undirected graph by counting sort.

    An unweighted adjacency with which a collapse would take most of the memory lies in a file of the temporary folder
    (``TMPDIR``), which is gone when the process ends, however it ends.

    Without weights nothing is read or written at random but what lies in a core's cache: the edges are walked once to
    count, and once for each group of rows, whose entries are dealt to ranges of rows and sorted there.

    Args:
        walk: Returns a fresh iterator over the edges' chunks, the same ones each time; ids int32 or int64.
        num_nodes: N; every id must lie in ``[0, N)``.
        weight_dtype: float32 or float64 where the chunks carry weights.

    Returns:
        The clean adjacency; an edge listed one way stands in both rows.

    Raises:
        GraphError: If an id lies outside ``[0, num_nodes)``, or if the two directions of a pair carry different
            weights.
        BudgetError: If the memory does not suffice, or the place of the file.
    """
    require_memory(16 * num_nodes, f"count the degrees of {num_nodes:,} nodes")
    dtype = np.int32 if num_nodes <= 2**31 else np.int64
    if weight_dtype is None:
        return _sort_edges(walk, num_nodes, dtype)
    return _scatter_edges(walk, num_nodes, dtype, weight_dtype)


def _sort_edges(
    walk: Callable[[], Iterator[EdgeChunk]], num_nodes: int, dtype: type[np.signedinteger[Any]]
) -> Adjacency:
    from falcon_gnn._kernels import adjacency as kernels

    node_bits = (num_nodes - 1).bit_length()
    shift, key_bits = max(_FEWEST_RANGE_BITS, node_bits - _MOST_RANGES_BITS), node_bits + 1
    counts, num_self_loops = _count_ranges(walk, num_nodes, shift)
    sizes = sum((own.sum(axis=0, dtype=np.int64) for own in counts), np.zeros(1, np.int64))
    num_entries = int(sizes.sum())
    room = np.concatenate([[0], np.cumsum(sizes)])
    groups = list(cut_into_blocks(room, _GROUP_ENTRIES))
    num_words = max((int(room[stop] - room[first]) for first, stop in groups), default=0)
    entry_bytes = num_entries * np.dtype(dtype).itemsize
    is_mapped = _is_mapped(entry_bytes, num_nodes)
    require_memory(8 * num_words + (0 if is_mapped else entry_bytes), f"hold an adjacency of {num_entries:,} entries")
    indices = scratch_array(num_entries, dtype) if is_mapped else np.empty(num_entries, dtype)
    words = np.empty(num_words, np.uint64)
    indptr = np.zeros(num_nodes + 1, np.int64)
    num_found = np.zeros(2, np.int64)
    num_kept = 0
    for number, (first, stop) in enumerate(groups):
        starts = room[first : stop + 1] - room[first]
        dealt = starts[:-1].copy()
        for chunk, (whole, (source, target, _)) in enumerate(zip(counts, walk(), strict=True)):
            own = whole[:, first:stop]
            # Each part begins where the one before it ends.
            cursor = dealt + np.cumsum(own, axis=0) - own
            kernels.deal_ends(source, target, shift, key_bits, first, stop, cursor, words)
            dealt += own.sum(axis=0)
            tell_share(_COUNTING_SHARE + (1 - _COUNTING_SHARE) * (number + chunk / len(counts)) / len(groups))
        kept, found = np.empty(stop - first, np.int64), np.empty((stop - first, 2), np.int64)
        kernels.merge_ranges(words, starts, shift, key_bits, first, indptr[1:], kept, found)
        targets = num_kept + np.concatenate([[0], np.cumsum(kept)])
        kernels.copy_ranges(words, starts, targets, indices)
        num_kept = int(targets[-1])
        num_found += found.sum(axis=0)
        release_pages(indices)
    np.cumsum(indptr, out=indptr)
    if is_mapped:
        indices = indices[:num_kept]
    else:
        indices.resize(num_kept, refcheck=False)
    num_duplicates, num_one_way = num_found.tolist()
    cleaning = EdgeCleaning(num_self_loops, num_duplicates, num_one_way, num_kept // 2 - num_one_way)
    return Adjacency(indptr, indices, None, cleaning)


def _is_mapped(entry_bytes: int, num_nodes: int) -> bool:
    """Whether so many bytes of neighbors lie in a file: where a collapse would take most of the memory there is."""
    available = available_memory()
    return available is not None and 2 * entry_bytes + _NODE_BYTES * num_nodes > _MOST_SHARE * available


def _count_ranges(
    walk: Callable[[], Iterator[EdgeChunk]], num_nodes: int, shift: int
) -> tuple[list[NDArray[np.int32]], int]:
    """Return the entries of each part and range of rows, shape ``(parts, ranges)`` per chunk, and the self-loops."""
    from falcon_gnn._kernels import adjacency as kernels

    counts = []
    num_self_loops = num_seen = 0
    for source, target, _ in walk():
        num_parts = -(-max(len(source), 1) // _PART_EDGES)
        own = np.empty((num_parts, ((num_nodes - 1) >> shift) + 1), np.int32)
        found = np.empty((num_parts, 2), np.int64)
        kernels.count_ranges(source, target, num_nodes, shift, own, found)
        bad = found[found[:, 0] >= 0, 0]
        if bad.size:
            _refuse_edge(source, target, int(bad[0]), num_nodes, num_seen)
        counts.append(own)
        num_self_loops += int(found[:, 1].sum())
        num_seen += len(source)
    return counts, num_self_loops


def cut_into_blocks(room: NDArray[np.int64], num_entries: int) -> Iterator[tuple[int, int]]:
    """Yield (first, stop) of neighboring ranges that hold at most so many entries together, or are a single one.

    Args:
        room: Where the entries of each range begin, and where the last one's end, shape ``(ranges + 1,)``.
        num_entries: Entries of a block.
    """
    first = 0
    while first < len(room) - 1:
        stop = int(np.searchsorted(room, room[first] + num_entries, side="right")) - 1
        stop = min(max(stop, first + 1), len(room) - 1)
        yield first, stop
        first = stop


def _refuse_edge(source: IntArray, target: IntArray, edge: int, num_nodes: int, num_before: int) -> None:
    msg = (
        f"edge_index must hold ids in [0, num_nodes) = [0, {num_nodes}), but edge {num_before + edge} is "
        f"({source[edge]}, {target[edge]}). Pass the true num_nodes, or renumber the nodes from 0."
    )
    raise GraphError(msg)


def _scatter_edges(
    walk: Callable[[], Iterator[EdgeChunk]],
    num_nodes: int,
    dtype: type[np.signedinteger[Any]],
    weight_dtype: np.dtype[Any],
) -> Adjacency:
    """Build a weighted adjacency; weights of one direction add up in the order of the list."""
    from falcon_gnn._kernels import adjacency as kernels

    degrees = np.zeros(num_nodes, np.int64)
    num_self_loops, num_seen = _count_degrees(walk, num_nodes, degrees)
    tell_share(_COUNTING_SHARE)
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(degrees, out=indptr[1:])
    num_entries = int(indptr[-1])
    keys_dtype: type[np.unsignedinteger[Any]] = np.uint32 if dtype is np.int32 else np.uint64
    require_memory(
        num_entries * (np.dtype(keys_dtype).itemsize + weight_dtype.itemsize),
        f"hold an adjacency of {num_entries:,} entries",
    )
    keys, values = np.empty(num_entries, keys_dtype), np.empty(num_entries, weight_dtype)
    cursor, num_done = indptr[:-1].copy(), 0
    for source, target, weight in walk():
        assert weight is not None
        kernels.scatter_weighted_ends(source, target, np.asarray(weight, values.dtype), cursor, keys, values)
        num_done += len(source)
        tell_share(_COUNTING_SHARE + _SCATTERING_SHARE * num_done / num_seen)
    clash = np.full(num_nodes, -1, np.int64)
    num_duplicates, num_one_way = kernels.merge_weighted_rows(indptr, keys, values, degrees, clash)
    _check_weights_agree(clash)
    _trim(indptr, degrees, keys, values)
    num_two_way = len(keys) // 2 - int(num_one_way)
    cleaning = EdgeCleaning(num_self_loops, int(num_duplicates), int(num_one_way), num_two_way)
    return Adjacency(indptr, keys.view(dtype), values, cleaning)


def _count_degrees(
    walk: Callable[[], Iterator[EdgeChunk]], num_nodes: int, degrees: NDArray[np.int64]
) -> tuple[int, int]:
    """Return the self-loops and all edges of a list; add to the degrees of their ends."""
    from falcon_gnn._kernels import adjacency as kernels

    num_self_loops = num_seen = 0
    for source, target, _ in walk():
        bad, loops = kernels.count_ends(source, target, num_nodes, degrees)
        if bad >= 0:
            _refuse_edge(source, target, bad, num_nodes, num_seen)
        num_self_loops += int(loops)
        num_seen += len(source)
    return num_self_loops, num_seen


def check_symmetric_weights(
    indptr: NDArray[np.int64], indices: IntArray, edge_weight: NDArray[np.floating[Any]]
) -> None:
    """Stop at a clean adjacency whose weights differ between the two directions of an edge.

    Args:
        indptr: Row starts, shape ``(N + 1,)``.
        indices: Neighbors, ascending in each row, both directions, shape ``(2E,)``.
        edge_weight: Shape ``(2E,)``.

    Raises:
        GraphError: If they do.
    """
    from scipy.sparse import csr_array

    num_nodes = len(indptr) - 1
    # By columns the entries of a symmetric pattern stand in the same places, each with its reverse's weight.
    reverse = csr_array((edge_weight, indices, indptr), shape=(num_nodes, num_nodes)).tocsc().data
    places = np.flatnonzero(reverse != edge_weight)
    clash = np.full(num_nodes, -1, np.int64)
    clash[np.searchsorted(indptr, places, side="right") - 1] = indices[places]
    _check_weights_agree(clash)


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
    values: NDArray[np.floating[Any]],
) -> None:
    """Close the gaps that folded duplicates left in the rows; all but ``widths`` is updated in place."""
    from falcon_gnn._kernels import adjacency as kernels

    num_kept = int(widths.sum())
    if num_kept < len(keys):
        kernels.close_gaps(indptr.copy(), widths, values)
        values.resize(num_kept, refcheck=False)
        kernels.close_gaps(indptr, widths, keys)
        keys.resize(num_kept, refcheck=False)
