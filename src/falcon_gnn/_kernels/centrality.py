"""Centralities on a symmetric CSR adjacency. Every sum runs in row order, so threads never change a bit."""

import numpy as np
from numba import prange

from falcon_gnn._kernels.compiling import kernel, subroutine

WORDS = 8
"""Machine words per node in the many-source search: 64 sources each."""
_FEW = 64
"""Up to one node in so many the search moves on from a list of them, beyond by a sweep over all nodes."""
_MANY_PATHS = 1e200
_DOWN = 2.0**-600


@kernel(parallel=True)
def finish_pagerank_step(indptr, damping, base, x, share, totals, changes):  # type: ignore[no-untyped-def]
    """Set ``x`` to ``base + totals`` and make the next step's shares, in one reading.

    ``share`` becomes what each node gives to each neighbor, ``totals`` 0. The nodes are cut in one run for each value
    of ``changes``, which becomes the sum of its absolute changes, so the number of threads changes nothing.
    """
    num_nodes, num_runs = x.size, changes.size
    for run in prange(num_runs):
        change = 0.0
        for v in range(run * num_nodes // num_runs, (run + 1) * num_nodes // num_runs):
            new = base + totals[v]
            change += abs(new - x[v])
            x[v] = new
            degree = indptr[v + 1] - indptr[v]
            share[v] = new * (damping / degree) if degree > 0 else 0.0
            totals[v] = 0.0
        changes[run] = change


@subroutine(inline="always")
def _count_bits(word):  # type: ignore[no-untyped-def]
    """Return the number of set bits of a 64-bit word."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@subroutine(parallel=True)
def _advance(indptr, indices, seen, frontier, was_reached, new, is_reached, active, distance, totals, reached):  # type: ignore[no-untyped-def]
    """Move the breadth-first searches of up to 64 * WORDS sources one hop; return the number of new visits.

    Bit s of a node's words says that source s has seen it. The distance is symmetric, so the number of bits that are
    new at a node, times the distance, adds to that node's own sum.
    """
    num_visits = np.int64(0)
    for v in prange(indptr.size - 1):
        missing = np.uint64(0)
        for w in range(WORDS):
            new[v, w] = np.uint64(0)
            missing |= active[w] & ~seen[v, w]
        if missing != np.uint64(0):
            for position in range(indptr[v], indptr[v + 1]):
                neighbor = indices[position]
                if was_reached[neighbor]:
                    for w in range(WORDS):
                        new[v, w] |= frontier[neighbor, w]
            count = np.int64(0)
            for w in range(WORDS):
                new[v, w] &= ~seen[v, w]
                seen[v, w] |= new[v, w]
                count += np.int64(_count_bits(new[v, w]))
            totals[v] += count * distance
            reached[v] += count
            num_visits += count
            is_reached[v] = count > 0
        else:
            is_reached[v] = False
    return num_visits


@subroutine()
def _advance_few(  # type: ignore[no-untyped-def]
    indptr, indices, seen, frontier, was_reached, new, is_reached, nodes, following, distance, totals, reached
):
    """As ``_advance``, from the few ``nodes`` of the frontier; return how many ``following`` then holds.

    ``new`` and ``is_reached`` must be empty, and ``frontier`` and ``was_reached`` are afterwards.
    """
    num_following = 0
    for v in nodes:
        for position in range(indptr[v], indptr[v + 1]):
            neighbor = indices[position]
            for w in range(WORDS):
                bits = frontier[v, w] & ~seen[neighbor, w]
                if bits != np.uint64(0):
                    new[neighbor, w] |= bits
                    if not is_reached[neighbor]:
                        is_reached[neighbor] = True
                        following[num_following] = neighbor
                        num_following += 1
        was_reached[v] = False
        for w in range(WORDS):
            frontier[v, w] = np.uint64(0)
    for v in following[:num_following]:
        count = np.int64(0)
        for w in range(WORDS):
            seen[v, w] |= new[v, w]
            count += np.int64(_count_bits(new[v, w]))
        totals[v] += count * distance
        reached[v] += count
    return num_following


@kernel(is_threaded=True)
def add_distances(indptr, indices, sources, totals, reached):  # type: ignore[no-untyped-def]
    """Add, per node, the distances to at most 64 * WORDS ``sources`` and how many of them reach it.

    The source itself counts as reached, at distance 0.
    """
    num_nodes = indptr.size - 1
    seen = np.zeros((num_nodes, WORDS), np.uint64)
    frontier = np.zeros((num_nodes, WORDS), np.uint64)
    new = np.zeros((num_nodes, WORDS), np.uint64)
    was_reached = np.zeros(num_nodes, np.bool_)
    is_reached = np.zeros(num_nodes, np.bool_)
    active = np.zeros(WORDS, np.uint64)
    for i in range(sources.size):
        bit = np.uint64(1) << np.uint64(i & 63)
        frontier[sources[i], i >> 6] |= bit
        seen[sources[i], i >> 6] |= bit
        active[i >> 6] |= bit
        was_reached[sources[i]] = True
        reached[sources[i]] += 1
    nodes, following = np.empty(num_nodes, np.int64), np.empty(num_nodes, np.int64)
    few, distance = num_nodes // _FEW, 1
    num_visits = sources.size
    if num_visits <= few:
        nodes[:num_visits] = sources
    while num_visits > 0:
        while 0 < num_visits <= few:
            num_visits = _advance_few(
                indptr, indices, seen, frontier, was_reached, new, is_reached, nodes[:num_visits], following, distance,
                totals, reached,
            )  # fmt: skip
            frontier, new = new, frontier
            was_reached, is_reached = is_reached, was_reached
            nodes, following = following, nodes
            distance += 1
        if num_visits == 0:
            break
        while num_visits > few:
            num_visits = _advance(
                indptr, indices, seen, frontier, was_reached, new, is_reached, active, distance, totals, reached
            )
            frontier, new = new, frontier
            was_reached, is_reached = is_reached, was_reached
            distance += 1
        new[:] = np.uint64(0)
        is_reached[:] = False
        num_visits = 0
        for v in range(num_nodes):
            if was_reached[v]:
                nodes[num_visits] = v
                num_visits += 1


@subroutine()
def _add_dependencies(indptr, indices, source, hops, paths, lifts, dependency, queue, totals):  # type: ignore[no-untyped-def]
    """Add one source's dependencies (Brandes 2001) to ``totals``.

    Shortest paths grow exponentially in number on grid-like graphs, past what a float holds. A node's count is
    ``paths * 2**(600 * lifts)``, lifted when it passes 1e200: exact, and never infinite. ``hops`` must be -1 everywhere
    and is -1 again afterwards.
    """
    hops[source] = 0
    paths[source] = 1.0
    lifts[source] = 0
    dependency[source] = 0.0
    queue[0] = source
    head = 0
    tail = 1
    while head < tail:
        v = queue[head]
        head += 1
        if paths[v] > _MANY_PATHS:
            paths[v] *= _DOWN
            lifts[v] += 1
        for position in range(indptr[v], indptr[v + 1]):
            w = indices[position]
            if hops[w] == -1:
                hops[w] = hops[v] + 1
                paths[w] = 0.0
                lifts[w] = lifts[v]
                dependency[w] = 0.0
                queue[tail] = w
                tail += 1
            if hops[w] == hops[v] + 1:
                if lifts[w] == lifts[v]:
                    paths[w] += paths[v]
                elif lifts[w] < lifts[v]:
                    paths[w] = paths[v] + (paths[w] * _DOWN if lifts[v] - lifts[w] == 1 else 0.0)
                    lifts[w] = lifts[v]
                elif lifts[w] - lifts[v] == 1:
                    paths[w] += paths[v] * _DOWN
    for position_in_queue in range(tail - 1, 0, -1):
        w = queue[position_in_queue]
        share = (1.0 + dependency[w]) / paths[w]
        for position in range(indptr[w], indptr[w + 1]):
            v = indices[position]
            if hops[v] == hops[w] - 1:
                if lifts[v] == lifts[w]:
                    dependency[v] += paths[v] * share
                elif lifts[w] - lifts[v] == 1:
                    dependency[v] += paths[v] * share * _DOWN
        totals[w] += dependency[w]
    for position_in_queue in range(tail):
        hops[queue[position_in_queue]] = -1


@kernel(parallel=True)
def add_dependencies(indptr, indices, sources, totals):  # type: ignore[no-untyped-def]
    """Add the dependencies of some ``sources``, each one's own left out, to the rows of ``totals``, (blocks, N).

    The sources are cut in one run per row; the caller adds the rows in order, so the number of threads changes nothing.
    """
    num_blocks, num_nodes = totals.shape
    for block in prange(num_blocks):
        hops = np.full(num_nodes, -1, np.int32)
        paths = np.empty(num_nodes, np.float64)
        dependency = np.empty(num_nodes, np.float64)
        queue = np.empty(num_nodes, np.int64)
        lifts = np.zeros(num_nodes, np.int32)
        for i in range(block * sources.size // num_blocks, (block + 1) * sources.size // num_blocks):
            _add_dependencies(indptr, indices, sources[i], hops, paths, lifts, dependency, queue, totals[block])
