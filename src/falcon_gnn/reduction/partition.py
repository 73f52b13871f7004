"""Rows cut into an exact number of groups of alike rows: K-means inside given segments, level by level (ours)."""

from heapq import heapify, heappush, heapreplace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.progress import part_of_work, tell_share
from falcon_gnn.reduction.budgets import split_budget
from falcon_gnn.reduction.grouping import IdArray, group_members

MAX_CENTERS = 200
MIN_CENTERS = 24
"""A segment of more groups is first cut into fewer parts: work grows with the centers that each row is held against.
Every cut costs some of the groups' likeness (PPI at 33 %: 8 % of the inertia from 400 to 200, 19 % from 200 to 50), so
that only graphs of millions of nodes are cut into few parts at a time."""
MAX_PRODUCTS = 1 << 26
LLOYD_STEPS, FEW_LLOYD_STEPS = 10, 4
_ROWS_PER_CENTER = 256
"""A level's centers are found on so many rows each, where a segment has more; then every row is assigned."""
_FEWEST_ROWS = 256
_DRAWS, _FEW_DRAWS = 6, 2
"""Rows tried for each center of the seeding."""
_LARGE_ROWS = 500_000
"""From so many rows on there are fewer steps and draws."""
Points = NDArray[np.float32]


def split_with_floor(sizes: IdArray, budget: int) -> IdArray:
    """Share a budget in proportion to sizes, at least one each: largest remainder among those that get more than one.

    Args:
        sizes: Rows per segment, >= 1, shape ``(num_segments,)``.
        budget: In ``[num_segments, sizes.sum()]``.

    Returns:
        Shares in ``[1, size]`` that sum to ``budget``.

    Example:
        >>> split_with_floor(np.array([90, 9, 1]), 10)
        array([8, 1, 1])
    """
    budgets = split_budget(sizes, budget)
    floored = np.zeros(len(sizes), np.bool_)
    while (budgets == 0).any():
        floored |= budgets == 0
        budgets = np.where(floored, 1, 0)
        budgets[~floored] = split_budget(sizes[~floored], budget - int(floored.sum()))
    return budgets


def split_rows(points: Points, rows: IdArray, segment: IdArray, quotas: IdArray, seed: int) -> IdArray:
    """Return groups of rows, exactly ``quotas[s]`` inside each segment s; groups of one segment are numbered in a row.

    A segment with more than a few hundred groups is cut into parts first, whose quotas follow their sizes, so that no
    row is ever held against more centers than that. Where rows are equal and K-means finds fewer groups, the largest
    are split by id.

    Args:
        points: What makes rows alike, float32, shape ``(N, d)``.
        rows: Which of them are grouped, ascending, shape ``(n,)``.
        segment: Segment of each of these, without gaps, shape ``(n,)``.
        quotas: Groups wanted per segment, in ``[1, rows of the segment]``.
        seed: Draws the seeding.

    Returns:
        Group of each row, shape ``(n,)``, in ``[0, quotas.sum())``.
    """
    if not len(rows):
        return np.zeros(0, np.int64)
    level = 0
    most = min(MAX_CENTERS, max(MIN_CENTERS, MAX_PRODUCTS // len(rows)))
    num_levels = int(_levels_of(quotas, most).max(initial=1))
    while True:
        level += 1
        parts = _parts_of(quotas, most)
        with part_of_work((level - 1) / num_levels, min(1.0, level / num_levels)):
            child = _cluster_level(points, rows, segment, parts, np.random.default_rng([seed, 6, level]))
        if (parts == quotas).all():
            return child
        sizes = np.bincount(child, minlength=int(parts.sum()))
        ends = np.cumsum(parts)
        # Most segments are whole after a level: each of their groups keeps a quota of one.
        shares = np.ones(int(ends[-1]), np.int64)
        for s in np.flatnonzero(parts < quotas):
            inside = slice(ends[s] - parts[s], ends[s])
            shares[inside] = split_with_floor(sizes[inside], int(quotas[s]))
        segment, quotas = child, shares


def _parts_of(quotas: IdArray, most: int) -> IdArray:
    """Return into how many parts each segment is cut at this level: all its groups, or a root of their number."""
    num_levels = _levels_of(quotas, most)
    parts: IdArray = np.where(num_levels > 1, np.ceil(quotas ** (1 / num_levels)), quotas).astype(np.int64)
    return parts


def _levels_of(quotas: IdArray, most: int) -> NDArray[np.float64]:
    """Return how many times each segment is cut until all its groups are there."""
    num_levels: NDArray[np.float64] = np.maximum(1, np.ceil(np.log(quotas) / np.log(most) - 1e-9))
    return num_levels


def _cluster_level(
    points: Points, rows: IdArray, segment: IdArray, parts: IdArray, rng: np.random.Generator
) -> IdArray:
    """Return the part of each row, exactly ``parts[s]`` of them in segment s."""
    from falcon_gnn._kernels import kmeans

    starts, order = group_members(segment, len(parts))
    center_starts = np.concatenate(([0], np.cumsum(parts)))
    centers = np.empty((int(center_starts[-1]), points.shape[1]), np.float32)
    is_large = len(order) > _LARGE_ROWS
    draws = rng.random((len(centers), _FEW_DRAWS if is_large else _DRAWS))
    num_steps = FEW_LLOYD_STEPS if is_large else LLOYD_STEPS
    fit_starts, fit_order = _sample(starts, rows[order], parts, rng)
    kmeans.fit_centers(points, fit_order, fit_starts, center_starts, draws, num_steps, centers)
    tell_share(0.5)
    labels = np.empty(len(order), np.int64)
    kmeans.assign_rows(points, rows[order], starts, centers, center_starts, labels)
    _fill_up(labels, starts, center_starts)
    part = np.empty(len(order), np.int64)
    part[order] = labels
    return part


def _sample(starts: IdArray, order: IdArray, parts: IdArray, rng: np.random.Generator) -> tuple[IdArray, IdArray]:
    """Return (starts, rows) of the rows that centers are found on: all, or a seeded sample of a large segment."""
    sizes = np.diff(starts)
    wanted = np.minimum(sizes, np.maximum(_ROWS_PER_CENTER * parts, _FEWEST_ROWS))
    if (wanted == sizes).all():
        return starts, order
    chosen: list[Any] = []
    for s, (first, size, count) in enumerate(zip(starts[:-1], sizes, wanted, strict=True)):
        rows = order[first : starts[s + 1]]
        chosen.append(rows if count == size else rows[np.sort(rng.choice(size, count, replace=False))])
    return np.concatenate(([0], np.cumsum(wanted))), np.concatenate(chosen)


def _fill_up(labels: IdArray, starts: IdArray, center_starts: IdArray) -> None:
    """Split the largest groups of a segment by id until none of its groups is empty; ``labels`` is changed."""
    sizes = np.bincount(labels, minlength=int(center_starts[-1]))
    for s in np.unique(np.searchsorted(center_starts, np.flatnonzero(sizes == 0), side="right") - 1):
        inside = labels[starts[s] : starts[s + 1]]
        low, high = int(center_starts[s]), int(center_starts[s + 1])
        members = {g: np.flatnonzero(inside == g) for g in range(low, high) if sizes[g]}
        heap = [(-len(rows), group) for group, rows in members.items()]
        heapify(heap)
        for empty in low + np.flatnonzero(sizes[low:high] == 0):
            group = heap[0][1]
            rows = members[group]
            half = (len(rows) + 1) // 2
            members[group], members[int(empty)] = rows[:half], rows[half:]
            heapreplace(heap, (-half, group))
            heappush(heap, (half - len(rows), int(empty)))
            inside[rows[half:]] = empty
