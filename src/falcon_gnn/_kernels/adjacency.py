"""Counting sort of an edge list into a symmetric adjacency in compressed sparse row (CSR) form.

While a row is being built each entry is ``2 * neighbor + direction`` (0: the edge was listed from this
row's node, 1: it was listed towards it), so that one sort finds duplicates and one-way pairs alike.
"""

import numpy as np
from numba import get_num_threads, prange

from falcon_gnn._kernels.compiling import kernel

_WEIGHT_TOLERANCE = 1e-6


@kernel()
def count_ends(src, dst, num_nodes, degrees):  # type: ignore[no-untyped-def]
    """Add each edge's two ends to ``degrees``; return (index of the first bad edge or -1, self-loops)."""
    num_loops = 0
    for e in range(src.size):
        u, v = src[e], dst[e]
        if u < 0 or v < 0 or u >= num_nodes or v >= num_nodes:
            return e, num_loops
        if u == v:
            num_loops += 1
        else:
            degrees[u] += 1
            degrees[v] += 1
    return -1, num_loops


@kernel(parallel=True)
def scatter_ends(src, dst, bounds, cursor, keys):  # type: ignore[no-untyped-def]
    """Write each edge's ends into ``keys`` at ``cursor``, in the order listed; part p owns rows in ``bounds``."""
    for part in prange(bounds.size - 1):
        low, high = bounds[part], bounds[part + 1]
        for e in range(src.size):
            u, v = src[e], dst[e]
            if u == v:
                continue
            if low <= u < high:
                keys[cursor[u]] = 2 * v
                cursor[u] += 1
            if low <= v < high:
                keys[cursor[v]] = 2 * u + 1
                cursor[v] += 1


@kernel()
def scatter_weighted_ends(src, dst, weight, cursor, keys, values):  # type: ignore[no-untyped-def]
    """As :func:`scatter_ends` on one thread, with the weight of each edge beside its key."""
    for e in range(src.size):
        u, v = src[e], dst[e]
        if u == v:
            continue
        keys[cursor[u]] = 2 * v
        values[cursor[u]] = weight[e]
        cursor[u] += 1
        keys[cursor[v]] = 2 * u + 1
        values[cursor[v]] = weight[e]
        cursor[v] += 1


@kernel(parallel=True)
def merge_rows(indptr, keys, widths):  # type: ignore[no-untyped-def]
    """Sort each row, keep one entry per neighbor at its front; return (duplicates, one-way pairs)."""
    num_duplicates = 0
    num_one_way = 0
    for row in prange(indptr.size - 1):
        start, stop = indptr[row], indptr[row + 1]
        keys[start:stop].sort()
        write = start
        read = start
        while read < stop:
            neighbor = np.int64(keys[read] >> 1)
            listed_from = 0
            listed_to = 0
            while read < stop and np.int64(keys[read] >> 1) == neighbor:
                if keys[read] & 1:
                    listed_to += 1
                else:
                    listed_from += 1
                read += 1
            keys[write] = neighbor
            write += 1
            if np.int64(row) < neighbor:
                num_duplicates += max(listed_from - 1, 0) + max(listed_to - 1, 0)
                num_one_way += 1 if listed_from == 0 or listed_to == 0 else 0
        widths[row] = write - start
    return num_duplicates, num_one_way


@kernel(parallel=True)
def merge_weighted_rows(indptr, keys, values, widths, clash):  # type: ignore[no-untyped-def]
    """As :func:`merge_rows`; same-direction weights add up in input order.

    ``clash[row]`` becomes a neighbor whose two directions carry different weights.
    """
    num_duplicates = 0
    num_one_way = 0
    for row in prange(indptr.size - 1):
        start, stop = indptr[row], indptr[row + 1]
        order = np.argsort(keys[start:stop], kind="mergesort")
        row_keys = keys[start:stop][order]
        row_values = values[start:stop][order]
        write = start
        read = 0
        while read < row_keys.size:
            neighbor = np.int64(row_keys[read] >> 1)
            listed_from = 0
            listed_to = 0
            weight_from = 0.0
            weight_to = 0.0
            while read < row_keys.size and np.int64(row_keys[read] >> 1) == neighbor:
                if row_keys[read] & 1:
                    listed_to += 1
                    weight_to += row_values[read]
                else:
                    listed_from += 1
                    weight_from += row_values[read]
                read += 1
            if listed_from > 0 and listed_to > 0:
                if not abs(weight_from - weight_to) <= _WEIGHT_TOLERANCE * max(abs(weight_from), abs(weight_to)):
                    clash[row] = neighbor
                # The lower end's own listing counts for both rows, so that the matrix is symmetric to the bit.
                weight = weight_from if np.int64(row) < neighbor else weight_to
            else:
                weight = weight_from if listed_from > 0 else weight_to
            keys[write] = neighbor
            values[write] = weight
            write += 1
            if np.int64(row) < neighbor:
                num_duplicates += max(listed_from - 1, 0) + max(listed_to - 1, 0)
                num_one_way += 1 if listed_from == 0 or listed_to == 0 else 0
        widths[row] = write - start
    return num_duplicates, num_one_way


@kernel()
def close_gaps(indptr, widths, entries):  # type: ignore[no-untyped-def]
    """Move the first ``widths[row]`` entries of each row together in place and shrink ``indptr`` to match."""
    write = 0
    read = indptr[0]
    for row in range(widths.size):
        for offset in range(widths[row]):
            entries[write + offset] = entries[read + offset]
        read = indptr[row + 1]
        indptr[row] = write
        write += widths[row]
    indptr[widths.size] = write


@kernel(parallel=True)
def find_bad_row(indptr, indices):  # type: ignore[no-untyped-def]
    """Return a row that is not strictly ascending, holds itself or an id out of range, or lacks a reverse; else -1."""
    num_nodes = indptr.size - 1
    bad = np.int64(-1)
    for row in prange(num_nodes):
        found = False
        previous = np.int64(-1)
        for position in range(indptr[row], indptr[row + 1]):
            neighbor = np.int64(indices[position])
            if neighbor <= previous or neighbor == np.int64(row) or neighbor >= num_nodes:
                found = True
                break
            start, stop = indptr[neighbor], indptr[neighbor + 1]
            back = start + np.searchsorted(indices[start:stop], np.int64(row))
            if back >= stop or np.int64(indices[back]) != np.int64(row):
                found = True
                break
            previous = neighbor
        bad = max(bad, np.int64(row) if found else np.int64(-1))
    return bad


def num_threads() -> int:
    """Return how many threads the kernels run on."""
    return int(get_num_threads())
