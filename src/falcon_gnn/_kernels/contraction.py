"""Edge contraction by union-find and mergeable heaps (Alg. 1, lines 6 to 13), and the graphs it leaves."""

import numpy as np
from numba import prange

from falcon_gnn._kernels.compiling import kernel, subroutine
from falcon_gnn._kernels.sorting import sort_words

DROPPED = -1
PARENT, SEEN_BY, BEST = range(3)
"""What is looked up together for a node lies together: the columns of ``nodes``."""


@subroutine()
def _find(nodes, v):  # type: ignore[no-untyped-def]
    """Return the node that stands for ``v`` now, halving the path to it."""
    while v < nodes.shape[0] and nodes[v, PARENT] != v:
        above = nodes[v, PARENT]
        if above < nodes.shape[0]:
            nodes[v, PARENT] = nodes[above, PARENT]
        v = nodes[v, PARENT]
    return v


@subroutine()
def _stronger(rank, a, b):  # type: ignore[no-untyped-def]
    """Return the node of higher rank; -1 stands for no node."""
    if a == -1 or (b != -1 and rank[b] > rank[a]):
        return b
    return a


@subroutine()
def _meld(a, b, rank, target, child, sibling, strongest):  # type: ignore[no-untyped-def]
    """Return the root of two pairing heaps made one: the entry whose target is removed first."""
    if a == -1:
        return b
    if b == -1:
        return a
    if target[b] < target[a]:
        a, b = b, a
    sibling[b] = child[a]
    child[a] = b
    strongest[a] = _stronger(rank, strongest[a], strongest[b])
    return a


@subroutine()
def _pop(root, rank, target, child, sibling, strongest):  # type: ignore[no-untyped-def]
    """Return the root of a pairing heap without its root: children are melded in pairs, then into one."""
    pairs = -1
    first = child[root]
    while first != -1:
        second = sibling[first]
        rest = -1 if second == -1 else sibling[second]
        sibling[first] = -1
        if second != -1:
            sibling[second] = -1
        pair = _meld(first, second, rank, target, child, sibling, strongest)
        sibling[pair] = pairs
        pairs = pair
        first = rest
    root = -1
    while pairs != -1:
        rest = sibling[pairs]
        sibling[pairs] = -1
        root = _meld(root, pairs, rank, target, child, sibling, strongest)
        pairs = rest
    return root


@kernel(parallel=True)
def fold_survivors(indptr, indices, new_ids, start, stop, entries, nodes):  # type: ignore[no-untyped-def]
    """Write the rows of the nodes that are removed, of removed neighbors only, in new ids; fold the others into one.

    Nodes that are removed have the new ids ``range(stop.size)``. Row i is written to ``entries`` from ``start[i]`` on,
    its end to ``stop[i]``. The largest id of a survivor goes to ``nodes[i, BEST]``, -1 where there is none; the other
    columns are set for the start of :func:`contract`. Rows are read in the order they lie in.
    """
    for v in prange(new_ids.size):
        i = np.int64(new_ids[v])
        if i < stop.size:
            write = start[i]
            best = np.int64(-1)
            for position in range(indptr[v], indptr[v + 1]):
                other = np.int64(new_ids[indices[position]])
                if other < stop.size:
                    entries[write] = other
                    write += 1
                else:
                    best = max(best, other)
            stop[i] = write
            nodes[i, PARENT] = i
            nodes[i, SEEN_BY] = -1
            nodes[i, BEST] = best


@kernel()
def contract(start, stop, entries, nodes, rank, following, last, heap):  # type: ignore[no-untyped-def]
    """Merge the nodes that are removed, one after the other, into their strongest current neighbor.

    Ids follow the order of removal, and after it survivors their rank, so that the larger of two survivors is the
    stronger one. A node's own row, of removed neighbors only, is read once, when its turn comes. What a group still
    needs of the rows it has absorbed is its strongest neighbor. Survivors are folded into one, the ``BEST`` of
    ``nodes``. The others stand in a list that is read again at the group's next turn, where those merged meanwhile are
    replaced by the node they are part of, and self-references and repeats fall out. A long reading that sheds less
    than a 32nd moves its entries to a heap by the time of their neighbor's removal, which knows its strongest entry:
    until that time they need no reading. So the work is O(E log E) however long the chains of merges are, and mostly
    plain list walks.

    Args:
        start: Where each removed node's row starts in ``entries``, shape ``(num_removed,)``.
        stop: Where it ends; moved forward as entries fall out.
        entries: Removed neighbors, replaced as they are merged.
        nodes: As :func:`fold_survivors` leaves them, shape ``(num_removed, 3)``.
        rank: Position in the total order by new id, shape ``(N,)``.
        following: -1 for each removed node: chains the rows of a group.
        last: Each removed node: the last row of its chain.
        heap: -1 for each removed node: the root of its heap.

    Returns:
        The survivor each removed node ends up in as a new id, DROPPED where no neighbor was left.
    """
    num_removed = nodes.shape[0]
    # The heaps' entries: the neighbor each leads to, first child, next sibling, strongest target below it.
    target = np.empty(1024, entries.dtype)
    sibling = np.empty(1024, np.int64)
    strongest = np.empty(1024, entries.dtype)
    child = np.empty(1024, np.int64)
    num_entries = 0
    free = -1
    for v in range(num_removed):
        best = np.int64(nodes[v, BEST])
        found = np.int64(-1)
        num_read = 0
        num_kept = 0
        previous = v
        member = v
        while member != -1:
            write = start[member]
            for position in range(start[member], stop[member]):
                neighbor = _find(nodes, np.int64(entries[position]))
                if neighbor >= num_removed:
                    best = max(best, neighbor)
                elif neighbor != v and nodes[neighbor, SEEN_BY] != v:
                    nodes[neighbor, SEEN_BY] = v
                    found = _stronger(rank, found, neighbor)
                    entries[write] = neighbor
                    write += 1
            after = following[member]
            if member != v:
                num_read += stop[member] - start[member]
                num_kept += write - start[member]
            stop[member] = write
            if write == start[member] and member != v:
                following[previous] = after
                if after == -1:
                    last[v] = previous
            else:
                previous = member
            member = after

        root = heap[v]
        while root != -1 and target[root] <= v:
            entry = root
            root = _pop(root, rank, target, child, sibling, strongest)
            neighbor = _find(nodes, np.int64(target[entry]))
            is_removed = neighbor < num_removed
            if not is_removed:
                best = max(best, neighbor)
            if is_removed and neighbor != v and nodes[neighbor, SEEN_BY] != v:
                nodes[neighbor, SEEN_BY] = v
                target[entry] = neighbor
                strongest[entry] = neighbor
                child[entry] = -1
                root = _meld(root, entry, rank, target, child, sibling, strongest)
            else:
                sibling[entry] = free
                free = entry
        if root != -1:
            found = _stronger(rank, found, strongest[root])
        found = _stronger(rank, found, best)
        if found == -1:
            nodes[v, PARENT] = DROPPED
            continue
        nodes[v, PARENT] = found
        if found >= num_removed:
            continue
        nodes[found, BEST] = max(np.int64(nodes[found, BEST]), best)
        if num_read > 64 and 32 * (num_read - num_kept) < num_read:
            member = following[v]
            while member != -1:
                for position in range(start[member], stop[member]):
                    if free != -1:
                        entry = free
                        free = sibling[entry]
                    else:
                        if num_entries == target.size:
                            target = np.concatenate((target, np.empty_like(target)))
                            sibling = np.concatenate((sibling, np.empty_like(sibling)))
                            strongest = np.concatenate((strongest, np.empty_like(strongest)))
                            child = np.concatenate((child, np.empty_like(child)))
                        entry = num_entries
                        num_entries += 1
                    target[entry] = entries[position]
                    strongest[entry] = entries[position]
                    child[entry] = -1
                    sibling[entry] = -1
                    root = _meld(root, entry, rank, target, child, sibling, strongest)
                member = following[member]
            following[v] = -1
            last[v] = v
        heap[found] = _meld(heap[found], root, rank, target, child, sibling, strongest)
        following[last[found]] = v
        last[found] = last[v]
    ends = np.empty(num_removed, entries.dtype)
    # Nodes are merged into later ones only.
    for v in range(num_removed - 1, -1, -1):
        above = nodes[v, PARENT]
        ends[v] = ends[above] if 0 <= above < num_removed else above
    return ends


@kernel(parallel=True)
def induce_rows(indptr, indices, ids, new_ids):  # type: ignore[no-untyped-def]
    """Return (row starts, positions in ``indices``) of the edges among ``ids``; ``new_ids`` is -1 elsewhere."""
    starts = np.zeros(ids.size + 1, np.int64)
    for i in prange(ids.size):
        width = 0
        for position in range(indptr[ids[i]], indptr[ids[i] + 1]):
            width += new_ids[indices[position]] >= 0
        starts[i + 1] = width
    for i in range(ids.size):
        starts[i + 1] += starts[i]
    positions = np.empty(starts[ids.size], np.int64)
    for i in prange(ids.size):
        write = starts[i]
        for position in range(indptr[ids[i]], indptr[ids[i] + 1]):
            if new_ids[indices[position]] >= 0:
                positions[write] = position
                write += 1
    return starts, positions


@kernel(parallel=True)
def count_group_ranges(indptr, new_ids, shift, counts):  # type: ignore[no-untyped-def]
    """Set ``counts[part, range]``: entries of a part's nodes whose group lies in a range of ``2**shift`` groups."""
    num_parts = counts.shape[0]
    for part in prange(num_parts):
        counts[part] = 0
        for v in range(part * new_ids.size // num_parts, (part + 1) * new_ids.size // num_parts):
            if new_ids[v] >= 0:
                counts[part, new_ids[v] >> shift] += indptr[v + 1] - indptr[v]


@kernel(parallel=True)
def deal_rows(indptr, indices, new_ids, shift, id_bits, first, stop, cursor, words):  # type: ignore[no-untyped-def]
    """Write the entries of the groups' ranges from ``first`` to ``stop`` into ``words``, read in the order they lie in.

    A word is the group inside its range above ``id_bits`` bits of the neighbor's group. Each part of the nodes writes
    from its ``cursor`` on, which is moved.
    """
    num_parts = cursor.shape[0]
    inside = (np.int64(1) << shift) - 1
    for part in prange(num_parts):
        for v in range(part * new_ids.size // num_parts, (part + 1) * new_ids.size // num_parts):
            group = np.int64(new_ids[v])
            own = (group >> shift) - first
            if group < 0 or own < 0 or own >= stop - first:
                continue
            write = cursor[part, own]
            for position in range(indptr[v], indptr[v + 1]):
                other = np.int64(new_ids[indices[position]])
                if other >= 0:
                    words[write] = ((group & inside) << id_bits) | other
                    write += 1
            cursor[part, own] = write


@kernel(parallel=True)
def merge_group_ranges(words, starts, stops, shift, id_bits, first, widths, internal, tallies, num_kept):  # type: ignore[no-untyped-def]
    """Sort each range of groups from ``first`` on and keep one entry per pair of groups at its front.

    The words of the i-th of these ranges lie in pieces, from ``starts[part, i]`` to ``stops[part, i]``. Afterwards the
    first ``num_kept[i]`` from ``starts[0, i]`` on are neighbors, in ``tallies`` (left alone if it is empty) stands how
    many entries each is made of, in ``widths`` how many neighbors each group has, and in ``internal`` how many entries
    lie inside a group.
    """
    low = (np.uint64(1) << np.uint64(id_bits)) - np.uint64(1)
    for i in prange(num_kept.size):
        begin = starts[0, i]
        end = begin
        for part in range(starts.shape[0]):
            for position in range(starts[part, i], stops[part, i]):
                words[end] = words[position]
                end += 1
        own = words[begin:end]
        sort_words(own, np.empty(own.size, np.uint64), shift + id_bits)
        write = 0
        read = 0
        while read < own.size:
            word = own[read]
            count = 0
            while read < own.size and own[read] == word:
                count += 1
                read += 1
            group = ((first + i) << shift) + np.int64(word >> np.uint64(id_bits))
            if np.int64(word & low) == group:
                internal[group] = count
                continue
            own[write] = word & low
            if tallies.size > 0:
                tallies[begin + write] = count
            write += 1
            widths[group] += 1
        num_kept[i] = write


@kernel(parallel=True)
def merge_rows(indptr, indices, weight, group_starts, members, new_ids, first, room, row, sums, widths, internal):  # type: ignore[no-untyped-def]
    """Write the rows of some groups, from ``first`` on: their neighbors, ascending, and what lies between the two.

    The members of group g are ``members[group_starts[g]:group_starts[g + 1]]``. The row of the i-th of these groups is
    written to ``row`` from ``room[i]`` on, with the weights of the edges in ``sums`` added up in row order, its length
    to ``widths[i]``, and the weight of the entries inside the group, each edge counted from both its ends, to
    ``internal[first + i]``.
    """
    for i in prange(widths.size):
        group = first + i
        begin = room[i]
        end = begin
        inside = 0.0
        for m in range(group_starts[group], group_starts[group + 1]):
            for position in range(indptr[members[m]], indptr[members[m] + 1]):
                other = new_ids[indices[position]]
                if other == group:
                    inside += weight[position]
                elif other >= 0:
                    row[end] = other
                    end += 1
        internal[group] = inside
        row[begin:end].sort()
        width = 0
        for position in range(begin, end):
            if width == 0 or row[position] != row[begin + width - 1]:
                row[begin + width] = row[position]
                sums[begin + width] = 0.0
                width += 1
        widths[i] = width
        for m in range(group_starts[group], group_starts[group + 1]):
            for position in range(indptr[members[m]], indptr[members[m] + 1]):
                other = new_ids[indices[position]]
                if other >= 0 and other != group:
                    sums[begin + np.searchsorted(row[begin : begin + width], other)] += weight[position]


@kernel(parallel=True)
def copy_rows(room, widths, starts, row, merged):  # type: ignore[no-untyped-def]
    """Write rows that lie at ``room`` one after the other, at ``starts``, into ``merged``."""
    for i in prange(widths.size):
        merged[starts[i] : starts[i] + widths[i]] = row[room[i] : room[i] + widths[i]]


@kernel(parallel=True)
def mirror_sums(starts, merged, sums):  # type: ignore[no-untyped-def]
    """Let the smaller id's side of each edge count for both: each was added up from both sides, in two orders."""
    for group in prange(starts.size - 1):
        for position in range(starts[group], starts[group + 1]):
            other = merged[position]
            if other < group:
                low, high = starts[other], starts[other + 1]
                sums[position] = sums[low + np.searchsorted(merged[low:high], group)]
