"""Sorting of an edge list into a symmetric adjacency in compressed sparse row (CSR) form.

While a row is being built each entry is ``2 * neighbor + direction`` (0: the edge was listed from this
row's node, 1: it was listed towards it), so that one sort finds duplicates and one-way pairs alike.

Without weights, entries are dealt to ranges of ``2**shift`` rows, each sorted in a cache as words of 64 bits: the row
inside the range above ``key_bits`` bits of the entry. With weights they are scattered to their rows.
"""

import numpy as np
from numba import prange

from falcon_gnn._kernels.compiling import kernel
from falcon_gnn._kernels.sorting import sort_words

_WEIGHT_TOLERANCE = 1e-6


@kernel(parallel=True)
def count_ranges(src, dst, num_nodes, shift, counts, found):  # type: ignore[no-untyped-def]
    """Count the entries that each part of the edges has for each range of rows, ``counts[part, range]``.

    ``found[part]`` becomes (the first edge with an id out of range, or -1; self-loops).
    """
    num_parts = counts.shape[0]
    for part in prange(num_parts):
        counts[part] = 0
        num_loops = 0
        bad = np.int64(-1)
        for e in range(part * src.size // num_parts, (part + 1) * src.size // num_parts):
            u, v = np.int64(src[e]), np.int64(dst[e])
            if u < 0 or v < 0 or u >= num_nodes or v >= num_nodes:
                bad = np.int64(e)
                break
            if u == v:
                num_loops += 1
            else:
                counts[part, u >> shift] += 1
                counts[part, v >> shift] += 1
        found[part, 0] = bad
        found[part, 1] = num_loops


@kernel(parallel=True)
def deal_ends(src, dst, shift, key_bits, first, stop, cursor, words):  # type: ignore[no-untyped-def]
    """Write the entries of the ranges from ``first`` to ``stop`` into ``words``, each part from its ``cursor`` on."""
    num_parts = cursor.shape[0]
    inside = (np.int64(1) << shift) - 1
    for part in prange(num_parts):
        for e in range(part * src.size // num_parts, (part + 1) * src.size // num_parts):
            u, v = np.int64(src[e]), np.int64(dst[e])
            if u == v:
                continue
            of_u, of_v = u >> shift, v >> shift
            if first <= of_u < stop:
                words[cursor[part, of_u - first]] = ((u & inside) << key_bits) | (2 * v)
                cursor[part, of_u - first] += 1
            if first <= of_v < stop:
                words[cursor[part, of_v - first]] = ((v & inside) << key_bits) | (2 * u + 1)
                cursor[part, of_v - first] += 1


@kernel(parallel=True)
def merge_ranges(words, starts, shift, key_bits, first, widths, num_kept, num_found):  # type: ignore[no-untyped-def]
    """Sort each range from ``first`` on, keep one entry per neighbor at its front, set the ``widths`` of its rows.

    The words of the i-th of these ranges are ``words[starts[i]:starts[i + 1]]``; afterwards the first ``num_kept[i]``
    of them are neighbors. ``num_found[i]`` becomes (duplicates, one-way pairs).
    """
    low = (np.uint64(1) << np.uint64(key_bits)) - np.uint64(1)
    for i in prange(num_kept.size):
        own = words[starts[i] : starts[i + 1]]
        sort_words(own, np.empty(own.size, np.uint64), shift + key_bits)
        first_row = (first + i) << shift
        num_duplicates = 0
        num_one_way = 0
        write = 0
        read = 0
        while read < own.size:
            pair = own[read] >> np.uint64(1)
            listed_from = 0
            listed_to = 0
            while read < own.size and own[read] >> np.uint64(1) == pair:
                if own[read] & np.uint64(1):
                    listed_to += 1
                else:
                    listed_from += 1
                read += 1
            row = first_row + np.int64(pair >> np.uint64(key_bits - 1))
            neighbor = np.int64((pair << np.uint64(1) & low) >> np.uint64(1))
            own[write] = neighbor
            write += 1
            widths[row] += 1
            if row < neighbor:
                num_duplicates += max(listed_from - 1, 0) + max(listed_to - 1, 0)
                num_one_way += 1 if listed_from == 0 or listed_to == 0 else 0
        num_kept[i] = write
        num_found[i, 0] = num_duplicates
        num_found[i, 1] = num_one_way


@kernel(parallel=True)
def copy_ranges(words, starts, targets, indices):  # type: ignore[no-untyped-def]
    """Write what is kept of each range one after the other, from ``targets[i]`` to ``targets[i + 1]``."""
    for i in prange(targets.size - 1):
        for offset in range(targets[i + 1] - targets[i]):
            indices[targets[i] + offset] = words[starts[i] + offset]


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


@kernel()
def scatter_weighted_ends(src, dst, weight, cursor, keys, values):  # type: ignore[no-untyped-def]
    """Write each edge's ends into ``keys`` at ``cursor``, in the order listed, with its weight beside."""
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
def merge_weighted_rows(indptr, keys, values, widths, clash):  # type: ignore[no-untyped-def]
    """Sort each row, keep one entry per neighbor at its front; return (duplicates, one-way pairs).

    Same-direction weights add up in input order. ``clash[row]`` becomes a neighbor whose two directions carry
    different weights.
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
