"""K-means in many segments of rows at once: seeding, Lloyd's steps, the rows nearest to their group's mean."""

import numpy as np
from numba import prange

from falcon_gnn._kernels.compiling import kernel, subroutine

_FAST = {"reassoc", "contract", "nsz"}
_BLOCK_ROWS = 4096


@subroutine(inline="always")
def _square_distance(points, row, centers, center):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for j in range(points.shape[1]):
        gap = points[row, j] - centers[center, j]
        total += gap * gap
    return total


@kernel(parallel=True, fastmath=_FAST)
def fit_centers(points, order, starts, center_starts, draws, num_steps, centers):  # type: ignore[no-untyped-def]
    """Write the centers of each segment: k-means++, then at most so many of Lloyd's steps, one segment at a time.

    The rows of segment s are ``points[order[starts[s]:starts[s + 1]]]``, its centers
    ``centers[center_starts[s]:center_starts[s + 1]]``; ``draws`` holds uniform numbers, a few for each center. A
    segment as large as its number of centers has its own rows.
    """
    for s in prange(starts.size - 1):
        first, size = starts[s], starts[s + 1] - starts[s]
        low, num_centers = center_starts[s], center_starts[s + 1] - center_starts[s]
        rows = np.empty((size, points.shape[1]), np.float32)
        for i in range(size):
            rows[i] = points[order[first + i]]
        own = centers[low : low + num_centers]
        if num_centers == size:
            own[:] = rows
            continue
        _seed(rows, draws[low : low + num_centers], own)
        labels, distances = np.full(size, -1, np.int64), np.empty(size, np.float32)
        for _ in range(num_steps):
            if not _assign(rows, own, labels, distances):
                break
            _move(rows, labels, distances, own)


@subroutine(fastmath=_FAST)
def _seed(rows, draws, centers):  # type: ignore[no-untyped-def]
    """Write k-means++ centers of rows.

    Rows are drawn with the square of the distance to the nearest center before, and the one that leaves the least sum
    of these becomes a center; where all are 0, it is the first row.
    """
    size = len(rows)
    nearest = np.full(size, np.inf, np.float32)
    trial = np.empty(size, np.float32)
    best_trial = np.empty(size, np.float32)
    chosen = min(int(draws[0, 0] * size), size - 1)
    total = 0.0
    for i in range(size):
        nearest[i] = _square_distance(rows, i, rows, chosen)
        total += nearest[i]
    centers[0] = rows[chosen]
    for center in range(1, len(centers)):
        least = np.inf
        for draw in range(draws.shape[1]):
            target = draws[center, draw] * total
            candidate = 0
            reached = 0.0
            for i in range(size):
                reached += nearest[i]
                if nearest[i] > 0:
                    candidate = i
                    if reached > target:
                        break
            left = 0.0
            for i in range(size):
                distance = _square_distance(rows, i, rows, candidate)
                trial[i] = min(distance, nearest[i])
                left += trial[i]
            if left < least:
                least = left
                chosen = candidate
                trial, best_trial = best_trial, trial
        nearest, best_trial = best_trial, nearest
        total = least
        centers[center] = rows[chosen]


@subroutine(fastmath=_FAST)
def _assign(rows, centers, labels, distances):  # type: ignore[no-untyped-def]
    """Write each row's nearest center, ties to the first, and the square of the distance; return if any changed."""
    across, half = _turn(centers)
    scores = np.empty(len(centers), np.float32)
    is_changed = False
    for i in range(len(rows)):
        best = _nearest(rows, i, across, half, scores)
        is_changed |= best != labels[i]
        labels[i] = best
        distances[i] = _square_distance(rows, i, centers, best)
    return is_changed


@subroutine(fastmath=_FAST)
def _turn(centers):  # type: ignore[no-untyped-def]
    """Return centers column by column, and half of their squared lengths."""
    across = np.empty((centers.shape[1], centers.shape[0]), np.float32)
    half = np.zeros(centers.shape[0], np.float32)
    for center in range(centers.shape[0]):
        for j in range(centers.shape[1]):
            across[j, center] = centers[center, j]
            half[center] += np.float32(0.5) * centers[center, j] * centers[center, j]
    return across, half


@subroutine(inline="always")
def _nearest(points, row, across, half, scores):  # type: ignore[no-untyped-def]
    """Return the nearest of some centers, ties to the first; ``scores`` is scratch."""
    num_centers = half.size
    for center in range(num_centers):
        scores[center] = half[center]
    for j in range(across.shape[0]):
        value = points[row, j]
        for center in range(num_centers):
            scores[center] -= value * across[j, center]
    best = 0
    for center in range(1, num_centers):
        if scores[center] < scores[best]:
            best = center
    return best


@subroutine()
def _move(rows, labels, distances, centers):  # type: ignore[no-untyped-def]
    """Move each center to the mean of its rows; one without rows to the row farthest from its center."""
    sums = np.zeros(centers.shape)
    sizes = np.zeros(len(centers), np.int64)
    for i in range(len(rows)):
        sizes[labels[i]] += 1
        for j in range(rows.shape[1]):
            sums[labels[i], j] += rows[i, j]
    for center in range(len(centers)):
        if sizes[center] > 0:
            for j in range(rows.shape[1]):
                centers[center, j] = sums[center, j] / sizes[center]
            continue
        farthest = 0
        for i in range(len(rows)):
            if distances[i] > distances[farthest]:
                farthest = i
        distances[farthest] = 0
        centers[center] = rows[farthest]


@kernel(parallel=True, fastmath=_FAST)
def assign_rows(points, order, starts, centers, center_starts, labels):  # type: ignore[no-untyped-def]
    """Write each row's nearest center of its segment, ties to the first; rows in blocks of at most 4,096.

    Arguments as in :func:`fit_centers`; ``labels`` is aligned with ``order``.
    """
    num_segments = starts.size - 1
    block_starts = np.zeros(num_segments + 1, np.int64)
    for s in range(num_segments):
        block_starts[s + 1] = block_starts[s] + (starts[s + 1] - starts[s] + _BLOCK_ROWS - 1) // _BLOCK_ROWS
    for block in prange(block_starts[-1]):
        s = np.searchsorted(block_starts, block, side="right") - 1
        first = starts[s] + (block - block_starts[s]) * _BLOCK_ROWS
        across, half = _turn(centers[center_starts[s] : center_starts[s + 1]])
        scores = np.empty(half.size, np.float32)
        for i in range(first, min(first + _BLOCK_ROWS, starts[s + 1])):
            labels[i] = center_starts[s] + _nearest(points, order[i], across, half, scores)


@kernel(parallel=True)
def find_medoids(points, starts, members):  # type: ignore[no-untyped-def]
    """Return each group's member nearest to the group's mean, ties to the first; and its squared distances' sum.

    The members of group g are ``members[starts[g]:starts[g + 1]]``.
    """
    num_groups, width = starts.size - 1, points.shape[1]
    medoids = np.empty(num_groups, np.int64)
    inertia = np.empty(num_groups)
    for group in prange(num_groups):
        first, stop = starts[group], starts[group + 1]
        mean = np.zeros(width)
        for i in range(first, stop):
            for j in range(width):
                mean[j] += points[members[i], j]
        for j in range(width):
            mean[j] /= stop - first
        lowest = np.inf
        total = 0.0
        medoids[group] = members[first]
        for i in range(first, stop):
            distance = 0.0
            for j in range(width):
                gap = points[members[i], j] - mean[j]
                distance += gap * gap
            total += distance
            # Rounding must not tell apart what is equally near: the two members of any pair are.
            if distance < lowest * (1 - 1e-9):
                lowest = distance
                medoids[group] = members[i]
        inertia[group] = total
    return medoids, inertia
