"""Sums over the neighbors of each node, from the rows themselves or from a copy of them in blocks of columns.

In the copy an entry is one word of 32 bits: in the low ``bits`` the column inside its block, above them how many rows
it lies after the entry before it. All ones there is no entry, but a longer way down: the low bits say how far.
Entries of a block are in row order, so that a sum goes through the neighbors as it does in the rows.
"""

import numpy as np
from numba import prange

from falcon_gnn._kernels.compiling import kernel

WORD_BITS = 32


@kernel(parallel=True)
def add_neighbors(indptr, indices, values, totals):  # type: ignore[no-untyped-def]
    """Add to ``totals[v]`` the ``values`` of v's neighbors, one after the other."""
    for v in prange(indptr.size - 1):
        total = totals[v]
        for position in range(indptr[v], indptr[v + 1]):
            total += values[indices[position]]
        totals[v] = total


@kernel(parallel=True)
def count_words(indptr, indices, parts, bits, counts):  # type: ignore[no-untyped-def]
    """Set ``counts[b, p]``: the words of block b for the rows from ``parts[p]`` to ``parts[p + 1]``."""
    farthest = (1 << (WORD_BITS - bits)) - 1
    longest = (1 << bits) - 1
    for p in prange(parts.size - 1):
        latest = np.full(counts.shape[0], parts[p], np.int64)
        num_words = np.zeros(counts.shape[0], np.int64)
        for v in range(parts[p], parts[p + 1]):
            for position in range(indptr[v], indptr[v + 1]):
                block = np.int64(indices[position]) >> bits
                way = v - latest[block]
                num_words[block] += 1
                if way >= farthest:
                    num_words[block] += (way + longest - 1) // longest
                latest[block] = v
        counts[:, p] = num_words


@kernel(parallel=True)
def pack_words(indptr, indices, parts, bits, starts, words):  # type: ignore[no-untyped-def]
    """Write the words of each block and part from ``starts`` on; arguments as in :func:`count_words`."""
    farthest = (1 << (WORD_BITS - bits)) - 1
    longest = (1 << bits) - 1
    for p in prange(parts.size - 1):
        latest = np.full(starts.shape[0], parts[p], np.int64)
        write = starts[:, p].copy()
        for v in range(parts[p], parts[p + 1]):
            for position in range(indptr[v], indptr[v + 1]):
                column = np.int64(indices[position])
                block = column >> bits
                way = v - latest[block]
                if way >= farthest:
                    while way > 0:
                        step = min(way, longest)
                        words[write[block]] = np.uint32((farthest << bits) | step)
                        write[block] += 1
                        way -= step
                words[write[block]] = np.uint32((way << bits) | (column & longest))
                write[block] += 1
                latest[block] = v


@kernel(parallel=True)
def add_packed_neighbors(words, starts, parts, bits, values, totals):  # type: ignore[no-untyped-def]
    """As :func:`add_neighbors`, block after block: all threads read one block of ``values`` at a time."""
    # Unsigned: an index that cannot be negative needs no look at its sign.
    low_bits = np.uint32((1 << bits) - 1)
    farthest = np.uint32((1 << (WORD_BITS - bits)) - 1)
    for block in range(starts.shape[0]):
        first = np.uint64(block << bits)
        for p in prange(parts.size - 1):
            row = np.uint64(parts[p])
            for position in range(np.uint64(starts[block, p]), np.uint64(starts[block, p + 1])):
                word = words[position]
                way = word >> np.uint32(bits)
                low = np.uint64(word & low_bits)
                if way == farthest:
                    row += low
                else:
                    row += np.uint64(way)
                    totals[row] += values[first + low]
