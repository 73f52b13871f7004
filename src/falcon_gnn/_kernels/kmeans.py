"""K-means in many segments of rows at once: seeding, Lloyd's steps, the rows nearest to their group's mean."""

import numpy as np
from numba import njit, prange

_FAST = {"reassoc", "contract", "nsz"}


@njit(cache=True, nogil=True, inline="always")
def _square_distance(points, row, centers, center):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for j in range(points.shape[1]):
        gap = points[row, j] - centers[center, j]
        total += gap * gap
    return total


@njit(cache=True, nogil=True, parallel=True, fastmath=_FAST)
def seed_centers(points, order, starts, center_starts, draws, centers):  # type: ignore[no-untyped-def]
    """Write k-means++ centers of each segment; a segment as large as its number of centers has its own rows.

    The rows of segment s are ``points[order[starts[s]:starts[s + 1]]]``, its centers
    ``centers[center_starts[s]:center_starts[s + 1]]``; ``draws`` holds uniform numbers, a few for each center. Rows
    are drawn with the square of the distance to the nearest center before, and the one that leaves the least sum of
    these becomes a center; where all are 0, it is the first row.
    """
    for s in prange(starts.size - 1):
        first, stop = starts[s], starts[s + 1]
        low, high = center_starts[s], center_starts[s + 1]
        size = stop - first
        if high - low == size:
            for i in range(size):
                centers[low + i] = points[order[first + i]]
            continue
        nearest = np.full(size, np.inf, np.float32)
        trial = np.empty(size, np.float32)
        best_trial = np.empty(size, np.float32)
        chosen = min(int(draws[low, 0] * size), size - 1)
        total = 0.0
        for i in range(size):
            nearest[i] = _square_distance(points, order[first + i], points, order[first + chosen])
            total += nearest[i]
        centers[low] = points[order[first + chosen]]
        for center in range(low + 1, high):
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
                    distance = _square_distance(points, order[first + i], points, order[first + candidate])
                    trial[i] = min(distance, nearest[i])
                    left += trial[i]
                if left < least:
                    least = left
                    chosen = candidate
                    trial, best_trial = best_trial, trial
            nearest, best_trial = best_trial, nearest
            total = least
            centers[center] = points[order[first + chosen]]


@njit(cache=True, nogil=True, parallel=True, fastmath=_FAST)
def assign_rows(points, order, segment, centers, center_starts, labels, distances, num_blocks):  # type: ignore[no-untyped-def]
    """Write each row's nearest center of its segment, ties to the first, and the square of the distance.

    Arguments as in :func:`seed_centers`; ``segment``, ``labels`` and ``distances`` are aligned with ``order``.
    """
    num_rows = order.size
    half = np.empty(centers.shape[0], np.float32)
    for center in prange(centers.shape[0]):
        total = np.float32(0.0)
        for j in range(centers.shape[1]):
            total += centers[center, j] * centers[center, j]
        half[center] = np.float32(0.5) * total
    for block in prange(num_blocks):
        for i in range(block * num_rows // num_blocks, (block + 1) * num_rows // num_blocks):
            row = order[i]
            best = center_starts[segment[i]]
            lowest = np.float32(np.inf)
            for center in range(best, center_starts[segment[i] + 1]):
                product = np.float32(0.0)
                for j in range(points.shape[1]):
                    product += points[row, j] * centers[center, j]
                score = half[center] - product
                if score < lowest:
                    lowest = score
                    best = center
            labels[i] = best
            distances[i] = _square_distance(points, row, centers, best)


@njit(cache=True, nogil=True, parallel=True)
def move_centers(points, order, starts, center_starts, labels, distances, centers):  # type: ignore[no-untyped-def]
    """Move each center to the mean of its rows; one without rows to the row of its segment farthest from its center.

    Arguments as in :func:`assign_rows`.
    """
    width = points.shape[1]
    for s in prange(starts.size - 1):
        low, high = center_starts[s], center_starts[s + 1]
        sums = np.zeros((high - low, width))
        sizes = np.zeros(high - low, np.int64)
        for i in range(starts[s], starts[s + 1]):
            center = labels[i] - low
            sizes[center] += 1
            row = order[i]
            for j in range(width):
                sums[center, j] += points[row, j]
        for center in range(high - low):
            if sizes[center] > 0:
                for j in range(width):
                    centers[low + center, j] = sums[center, j] / sizes[center]
                continue
            farthest = starts[s]
            for i in range(starts[s], starts[s + 1]):
                if distances[i] > distances[farthest]:
                    farthest = i
            distances[farthest] = 0
            centers[low + center] = points[order[farthest]]


@njit(cache=True, nogil=True, parallel=True)
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
