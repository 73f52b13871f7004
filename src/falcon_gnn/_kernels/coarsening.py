"""Local variation costs and the greedy choice of disjoint contraction sets (Loukas 2019), and edge matching."""

import heapq

import numpy as np
from numba import prange

from falcon_gnn._kernels.compiling import kernel, subroutine

FREE = -1
_SEARCH_FACTOR = 8


@subroutine()
def _sum_inner(row, indptr, indices, weight, members, slot, centered, total):  # type: ignore[no-untyped-def]
    """Set ``total`` to the weighted sum of ``centered`` over the neighbors of ``row`` in the set; return the weight.

    Walks the shorter of the two, the row or the set, so that all neighborhoods together take O(E^1.5) steps, up to a
    logarithm, even where hubs are everywhere.
    """
    total[:] = 0.0
    inner = 0.0
    start, stop = indptr[row], indptr[row + 1]
    if stop - start <= _SEARCH_FACTOR * members.size:
        for position in range(start, stop):
            m = slot[indices[position]]
            if m >= 0:
                inner += weight[position]
                for c in range(total.size):
                    total[c] += weight[position] * centered[m, c]
        return inner
    for m in range(members.size):
        position = start + np.searchsorted(indices[start:stop], members[m])
        if position < stop and indices[position] == members[m]:
            inner += weight[position]
            for c in range(total.size):
                total[c] += weight[position] * centered[m, c]
    return inner


@subroutine()
def _set_cost(members, indptr, indices, weight, degree, signal, slot, centered, total, gram):  # type: ignore[no-untyped-def]
    """Return the local variation cost of one set; ``slot`` is -1 everywhere before and after.

    L_C has the edges inside the set once and those that leave it twice, so its row i takes
    (2 degree_i - inner_i) b_i minus the sum of w_ij b_j inside, with b the signal less its mean over the set.
    """
    num_columns = signal.shape[1]
    for c in range(num_columns):
        mean = 0.0
        for m in range(members.size):
            mean += signal[members[m], c]
        mean /= members.size
        for m in range(members.size):
            centered[m, c] = signal[members[m], c] - mean
    for m in range(members.size):
        slot[members[m]] = m
    gram[:] = 0.0
    for m in range(members.size):
        v = members[m]
        inner = _sum_inner(v, indptr, indices, weight, members, slot, centered, total)
        for c in range(num_columns):
            image = (2.0 * degree[v] - inner) * centered[m, c] - total[c]
            for d in range(num_columns):
                gram[c, d] += image * centered[m, d]
    for m in range(members.size):
        slot[members[m]] = -1
    squares = 0.0
    for c in range(num_columns):
        for d in range(num_columns):
            squares += gram[c, d] * gram[c, d]
    return np.sqrt(squares) / (members.size - 1)


@kernel(parallel=True)
def set_costs(starts, members, indptr, indices, weight, degree, signal, num_blocks):  # type: ignore[no-untyped-def]
    """Return the local variation cost of each set ``members[starts[s]:starts[s + 1]]``; inf for less than two nodes."""
    num_sets = starts.size - 1
    num_columns = signal.shape[1]
    costs = np.full(num_sets, np.inf)
    widest = np.int64(1)
    for s in range(num_sets):
        widest = max(widest, starts[s + 1] - starts[s])
    for block in prange(num_blocks):
        slot = np.full(indptr.size - 1, FREE, np.int32)
        centered = np.empty((widest, num_columns))
        total = np.empty(num_columns)
        gram = np.empty((num_columns, num_columns))
        for s in range(block * num_sets // num_blocks, (block + 1) * num_sets // num_blocks):
            if starts[s + 1] - starts[s] > 1:
                own = members[starts[s] : starts[s + 1]]
                costs[s] = _set_cost(own, indptr, indices, weight, degree, signal, slot, centered, total, gram)
    return costs


@subroutine()
def _drop_taken(own, leader):  # type: ignore[no-untyped-def]
    """Move the members that are still free to the front, in order; return their number."""
    size = 0
    for m in range(own.size):
        if leader[own[m]] == FREE:
            own[size] = own[m]
            size += 1
    return size


@subroutine()
def _keep_nearest(own, size, signal):  # type: ignore[no-untyped-def]
    """Move the ``size`` members whose signal is nearest to the set's mean to the front, in order."""
    distance = np.zeros(own.size)
    for c in range(signal.shape[1]):
        mean = 0.0
        for m in range(own.size):
            mean += signal[own[m], c]
        mean /= own.size
        for m in range(own.size):
            distance[m] += (signal[own[m], c] - mean) ** 2
    chosen = np.sort(np.argsort(distance, kind="mergesort")[:size])
    for m in range(size):
        own[m] = own[chosen[m]]


@kernel()
def contract_sets(starts, members, costs, order, component, left, cuts, indptr, indices, weight, degree, signal):  # type: ignore[no-untyped-def]
    """Choose disjoint sets by ascending cost until each component has lost ``left`` nodes; both are updated in place.

    A set that meets a node already taken goes on with the rest of it at a new cost. A set that would take too many
    nodes is passed over, or, in components marked in ``cuts``, goes on with as many as may go.

    ``order`` holds the sets by ascending cost, ties as wanted, without those to leave out; ``members`` of each set are
    ascending and used up; the last five arrays are what costs are computed from.

    Returns:
        First node of the set each node is in, FREE if in none, shape ``(N,)``.
    """
    num_columns = signal.shape[1]
    leader = np.full(indptr.size - 1, FREE, indices.dtype)
    slot = np.full(indptr.size - 1, FREE, np.int32)
    sizes = np.diff(starts)
    widest = np.int64(1)
    place = np.empty(starts.size - 1, np.int64)
    for i in range(order.size):
        place[order[i]] = i
        widest = max(widest, sizes[order[i]])
    centered = np.empty((widest, num_columns))
    total = np.empty(num_columns)
    gram = np.empty((num_columns, num_columns))
    # Sets that go on wait in the heap; the others are read off in order, so the heap stays small.
    again = [(0.0, np.int64(0))]
    again.pop()
    turn = 0
    while turn < order.size or len(again) > 0:
        if turn == order.size or (len(again) > 0 and again[0] < (costs[order[turn]], np.int64(turn))):
            s = order[heapq.heappop(again)[1]]
        else:
            s = order[turn]
            turn += 1
        own = members[starts[s] : starts[s] + sizes[s]]
        group = component[own[0]]
        if left[group] == 0:
            continue
        size = _drop_taken(own, leader)
        if size < 2:
            continue
        if size - 1 > left[group]:
            if not cuts[group]:
                continue
            _keep_nearest(own[:size], left[group] + 1, signal)
            size = left[group] + 1
        if size == sizes[s]:
            for m in range(size):
                leader[own[m]] = own[0]
            left[group] -= size - 1
            continue
        sizes[s] = size
        cost = _set_cost(own[:size], indptr, indices, weight, degree, signal, slot, centered, total, gram)
        heapq.heappush(again, (cost, place[s]))
    return leader


@kernel()
def match_pairs(first, second, component, left, leader):  # type: ignore[no-untyped-def]
    """Join the pairs, in order, whose two nodes are still free, until each component has lost ``left`` nodes."""
    for pair in range(first.size):
        u, v = first[pair], second[pair]
        if leader[u] == FREE and leader[v] == FREE and left[component[u]] > 0:
            leader[u] = leader[v] = min(u, v)
            left[component[u]] -= 1


@kernel()
def close_rows(indptr, indices, wanted):  # type: ignore[no-untyped-def]
    """Return (starts, members): each wanted node's neighbors and itself, ascending; no members for the others."""
    num_nodes = indptr.size - 1
    starts = np.zeros(num_nodes + 1, np.int64)
    for v in range(num_nodes):
        width = indptr[v + 1] - indptr[v] + 1 if wanted[v] else 0
        starts[v + 1] = starts[v] + width
    members = np.empty(starts[num_nodes], indices.dtype)
    for v in range(num_nodes):
        if wanted[v]:
            row = indices[indptr[v] : indptr[v + 1]]
            own = members[starts[v] : starts[v + 1]]
            smaller = np.searchsorted(row, v)
            own[:smaller] = row[:smaller]
            own[smaller] = v
            own[smaller + 1 :] = row[smaller:]
    return starts, members
