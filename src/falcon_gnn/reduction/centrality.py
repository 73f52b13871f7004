"""Centrality measures Φ on NetworkX's default scales (Alg. 1, line 1), for unweighted undirected graphs."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.adjacency import IntArray
from falcon_gnn.errors import ConvergenceError, OptionError
from falcon_gnn.progress import tell_share
from falcon_gnn.reduction.neighbor_sums import NeighborSums

ScoreArray = NDArray[np.float64]

DAMPING = 0.85
PAGERANK_TOLERANCE = 1e-11
PAGERANK_ITERATIONS = 1_000
_CERTAIN_SHARE = 0.1
"""Of the tolerance: a change that would be below it but for rounding counts as none."""
EIGENVECTOR_TOLERANCE = 1e-6
EIGENVECTOR_ITERATIONS = 10_000
SIGNIFICANT_DIGITS = 10
"""Digits of a score that count; what lies beyond is rounding noise."""
ZERO_SHARE = 1e-12
"""Share of the largest score below which one counts as 0."""
_RUN_NODES = 1 << 14
"""Nodes whose changes are added up together."""
_DEPENDENCY_BLOCKS = 8
_SOURCES_PER_STEP = 1024
ABBREVIATIONS = {
    "DC": "degree", "BC": "betweenness", "CC": "closeness", "PR": "pagerank", "EC": "eigenvector",
}  # fmt: skip
CENTRALITIES = ("degree", "betweenness", "closeness", "pagerank", "eigenvector", "random")


@dataclass(frozen=True)
class Sampling:
    """How many sources the distance-based centralities use, and the seed that draws them.

    Attributes:
        num_samples: Sources for betweenness; None for all of them (exact).
        closeness_samples: Sources for closeness; None (the default) for all of them (exact).
        seed: Draws the sources, and the scores of ``random``.
    """

    num_samples: int | None = 100
    closeness_samples: int | None = None
    seed: int = 0


def centrality_name(name: str) -> str:
    """Return the full name of a centrality given in full or as in the paper (DC, BC, CC, PR, EC).

    Raises:
        OptionError: If the name is unknown; suggests the nearest one.
    """
    full = ABBREVIATIONS.get(name.upper(), name.lower()) if isinstance(name, str) else None
    if full in CENTRALITIES:
        return full
    near = difflib.get_close_matches(str(name).lower(), CENTRALITIES, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    msg = f"centrality must be one of {', '.join(CENTRALITIES)} (or DC BC CC PR EC), got {name!r}.{hint}"
    raise OptionError(msg)


def compute_centrality(
    name: str, indptr: NDArray[np.int64], indices: IntArray, sampling: Sampling = Sampling()
) -> ScoreArray:
    """Return one score per node; a larger one is more central.

    Args:
        name: ``degree betweenness closeness pagerank eigenvector random`` or DC BC CC PR EC.
        indptr: Row starts of the symmetric adjacency, shape ``(N + 1,)``.
        indices: Neighbors, shape ``(2E,)``.
        sampling: Sources of the sampled measures.

    Returns:
        Scores, float64, shape ``(N,)``.

    Raises:
        OptionError: If the name is unknown.
        ConvergenceError: If PageRank or eigenvector centrality does not converge.
    """
    measures: dict[str, Callable[[], ScoreArray]] = {
        "degree": lambda: degree_centrality(indptr),
        "betweenness": lambda: betweenness_centrality(indptr, indices, sampling.num_samples, sampling.seed),
        "closeness": lambda: closeness_centrality(indptr, indices, sampling.closeness_samples, sampling.seed),
        "pagerank": lambda: pagerank(indptr, indices),
        "eigenvector": lambda: eigenvector_centrality(indptr, indices),
        "random": lambda: np.random.default_rng([sampling.seed, 1]).random(len(indptr) - 1),
    }
    return measures[centrality_name(name)]()


def degree_centrality(indptr: NDArray[np.int64]) -> ScoreArray:
    """Return degree over N - 1 (1 for a single node)."""
    num_nodes = len(indptr) - 1
    return np.diff(indptr) / (num_nodes - 1) if num_nodes > 1 else np.ones(num_nodes)


def pagerank(
    indptr: NDArray[np.int64],
    indices: IntArray,
    tolerance: float = PAGERANK_TOLERANCE,
    max_iterations: int = PAGERANK_ITERATIONS,
) -> ScoreArray:
    """Return PageRank with damping 0.85 and the mass of isolated nodes spread uniformly; sums to 1.

    Args:
        indptr: Row starts, shape ``(N + 1,)``.
        indices: Neighbors, shape ``(2E,)``.
        tolerance: Stop when the sum of absolute changes is below this, or would be but for rounding.
        max_iterations: Give up after so many steps.

    Raises:
        ConvergenceError: If the change is still above the tolerance; names it.
    """
    from falcon_gnn._kernels.centrality import finish_pagerank_step

    degrees = np.diff(indptr)
    num_nodes = len(degrees)
    isolated = np.flatnonzero(degrees == 0)
    share = np.zeros(num_nodes)
    np.divide(DAMPING, degrees, out=share, where=degrees > 0)
    del degrees
    x = np.full(num_nodes, 1 / num_nodes)
    share *= x
    totals, changes = np.zeros(num_nodes), np.empty(-(-num_nodes // _RUN_NODES))
    sums = NeighborSums(indptr, indices)
    first = None
    for step in range(max_iterations):
        base = (1 - DAMPING + DAMPING * x[isolated].sum()) / num_nodes
        sums.add(share, totals)
        finish_pagerank_step(indptr, DAMPING, base, x, share, totals, changes)
        change = float(changes.sum())
        first = first or change
        if is_converged(step, first, change, tolerance):
            scores: ScoreArray = x / x.sum()
            return scores
        tell_share(_share_converged(first, change, tolerance))
    msg = f"PageRank changes by {change:.3g} after {max_iterations} iterations; the tolerance is {tolerance:.3g}."
    raise ConvergenceError(msg)


def is_converged(step: int, first: float, change: float, tolerance: float) -> bool:
    """Whether PageRank's change is below the tolerance, or would be but for rounding.

    A step shrinks the change by the damping at least: far below the tolerance what still changes is rounding, as in a
    hub's sum over a million neighbors.

    Args:
        step: Steps before this one.
        first: What the first step changed.
        change: What this one did.
        tolerance: What is small.
    """
    return change < tolerance or first * DAMPING**step < _CERTAIN_SHARE * tolerance


def eigenvector_centrality(
    indptr: NDArray[np.int64],
    indices: IntArray,
    tolerance: float = EIGENVECTOR_TOLERANCE,
    max_iterations: int = EIGENVECTOR_ITERATIONS,
) -> ScoreArray:
    """Return eigenvector centrality by power iteration on A + I from a uniform start, L2-normalised.

    The stop rule is part of the method: on a disconnected graph, iterating further drives every component but one to
    zero and leaves the ranking there to chance.

    Args:
        indptr: Row starts, shape ``(N + 1,)``.
        indices: Neighbors, shape ``(2E,)``.
        tolerance: Stop when the sum of absolute changes is below N times this.
        max_iterations: Give up after so many steps.

    Raises:
        ConvergenceError: If the change is still above N * tolerance; names it.
    """
    num_nodes = len(indptr) - 1
    x = np.full(num_nodes, 1 / num_nodes)
    new, squares = np.empty(num_nodes), np.empty(num_nodes)
    sums = NeighborSums(indptr, indices)
    first = None
    for _ in range(max_iterations):
        np.copyto(new, x)
        sums.add(x, new)
        # numpy.linalg.norm goes through a threaded dot product, whose sum order depends on the number of threads.
        new /= np.sqrt(np.square(new, out=squares).sum())
        change = _measure_change(new, x)
        x, new = new, x
        if change < num_nodes * tolerance:
            return x
        first = first or change
        tell_share(_share_converged(first, change, num_nodes * tolerance))
    msg = (
        f"Eigenvector centrality changes by {change:.3g} after {max_iterations} iterations; the tolerance is "
        f"{num_nodes * tolerance:.3g}. Use another centrality, for example pagerank."
    )
    raise ConvergenceError(msg)


def _share_converged(first: float, change: float, tolerance: float) -> float:
    """Return how far a change is from the first one to the tolerance: it falls by a factor per iteration."""
    return float(np.log(first / change) / np.log(first / tolerance)) if 0 < tolerance < first else 0.0


def _measure_change(new: ScoreArray, old: ScoreArray) -> float:
    """Return the sum of absolute changes, in the memory of ``old``: fresh pages would cost more than the arithmetic."""
    np.subtract(new, old, out=old)
    return float(np.abs(old, out=old).sum())


def betweenness_centrality(
    indptr: NDArray[np.int64], indices: IntArray, num_samples: int | None = 100, seed: int = 0,
    sources: NDArray[np.int64] | None = None,
) -> ScoreArray:  # fmt: skip
    """Return normalised betweenness from some or all sources, scaled as NetworkX 3.6 does for the same sources.

    Args:
        indptr: Row starts, shape ``(N + 1,)``.
        indices: Neighbors, shape ``(2E,)``.
        num_samples: Sources, clipped to N; None for the exact value.
        seed: Draws the sources.
        sources: The sources themselves, distinct ids; overrides ``num_samples``.
    """
    from falcon_gnn._kernels.centrality import add_dependencies

    num_nodes = len(indptr) - 1
    if sources is None:
        sources = _draw_sources(num_nodes, num_samples, seed)
    if num_nodes <= 2:
        return np.zeros(num_nodes)
    partial = np.zeros((min(_DEPENDENCY_BLOCKS, len(sources)), num_nodes))
    # In steps, so that Ctrl-C is heard in between.
    for start in range(0, len(sources), _SOURCES_PER_STEP):
        add_dependencies(indptr, indices, sources[start : start + _SOURCES_PER_STEP], partial)
        tell_share((start + _SOURCES_PER_STEP) / len(sources))
    totals = partial.sum(axis=0)
    num_sources = len(sources)
    if num_sources == num_nodes:
        exact: ScoreArray = totals / ((num_nodes - 1) * (num_nodes - 2))
        return exact
    scores: ScoreArray = totals / (num_sources * (num_nodes - 2))
    # A source is never an inner node of its own paths, so its total comes from one source fewer.
    scores[sources] *= num_sources / (num_sources - 1) if num_sources > 1 else 0.0
    return scores


def closeness_centrality(
    indptr: NDArray[np.int64], indices: IntArray, num_samples: int | None = None, seed: int = 0
) -> ScoreArray:
    """Return closeness with the Wasserman-Faust factor: (r - 1)² / ((N - 1) · sum of distances), r nodes reachable.

    Args:
        indptr: Row starts, shape ``(N + 1,)``.
        indices: Neighbors, shape ``(2E,)``.
        num_samples: None for the exact value, O(N · E / 512). Otherwise the mean distance is estimated from so many
            sources, of which every component gets at least two; its standard error is the distances' standard
            deviation over the square root of the component's sources.
        seed: Draws the sources.
    """
    from falcon_gnn._kernels.centrality import WORDS, add_distances

    num_nodes = len(indptr) - 1
    is_exact = num_samples is None or num_samples >= num_nodes
    sources = _draw_sources(num_nodes, num_samples, seed)
    if not is_exact:
        sources = _cover_components(indptr, indices, sources)
    totals = np.zeros(num_nodes, np.int64)
    reached = np.zeros(num_nodes, np.int64)
    for start in range(0, len(sources), 64 * WORDS):
        add_distances(indptr, indices, sources[start : start + 64 * WORDS], totals, reached)
        tell_share((start + 64 * WORDS) / len(sources))
    others = reached - 1 if is_exact else _component_sizes(indptr, indices) - 1
    if not is_exact:
        is_source = np.zeros(num_nodes, np.int64)
        is_source[sources] = 1
        num_distances = reached - is_source
        mean = np.divide(totals, num_distances, out=np.zeros(num_nodes), where=num_distances > 0)
        distances = mean * others
    else:
        distances = totals.astype(np.float64)
    scores = np.zeros(num_nodes)
    np.divide(others * (others / max(num_nodes - 1, 1)), distances, out=scores, where=distances > 0)
    return scores


def _draw_sources(num_nodes: int, num_samples: int | None, seed: int) -> NDArray[np.int64]:
    if num_samples is None or num_samples >= num_nodes:
        return np.arange(num_nodes)
    return np.sort(np.random.default_rng(seed).choice(num_nodes, num_samples, replace=False)).astype(np.int64)


def _component_sizes(indptr: NDArray[np.int64], indices: IntArray) -> NDArray[np.int64]:
    from falcon_gnn._kernels.components import label_components

    labels, _ = label_components(indptr, indices)
    sizes: NDArray[np.int64] = np.bincount(labels)[labels]
    return sizes


def _cover_components(indptr: NDArray[np.int64], indices: IntArray, sources: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sources and, for components of two or more nodes with fewer than two of them, their first two nodes.

    Two, because a source says nothing about its own mean distance.
    """
    from falcon_gnn._kernels.components import label_components

    labels, num_components = label_components(indptr, indices)
    by_component = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[by_component], np.arange(num_components + 1))
    is_short = (np.bincount(labels[sources], minlength=num_components) < 2) & (np.diff(starts) >= 2)
    first_two = (starts[:-1][is_short][:, None] + [0, 1]).ravel()
    return np.union1d(sources, by_component[first_two]).astype(np.int64)


def round_scores(scores: NDArray[Any]) -> ScoreArray:
    """Return scores to 10 significant digits, with those below 1e-12 of the largest set to 0.

    Differences beyond that are rounding noise and must count as ties.
    """
    values = np.asarray(scores, np.float64).copy()
    size = np.abs(values)
    values[size < ZERO_SHARE * size.max(initial=0.0)] = 0.0
    nonzero = values != 0
    exponent = np.floor(np.log10(np.abs(values[nonzero])))
    scale = 10.0 ** (exponent - (SIGNIFICANT_DIGITS - 1))
    rounded = np.rint(values[nonzero] / scale)
    carried = np.abs(rounded) >= 10.0**SIGNIFICANT_DIGITS
    rounded[carried] /= 10
    scale[carried] = 10.0 ** (exponent[carried] - 8)
    values[nonzero] = rounded * scale
    return values


def rank_nodes(scores: NDArray[Any], seed: int) -> NDArray[np.int64]:
    """Return each node's position in the one total order: by score, ties by a seeded permutation.

    Args:
        scores: Φ, shape ``(N,)``.
        seed: Draws the permutation, so that ties do not follow the numbering of the nodes.

    Returns:
        ``rank``, a permutation of 0 … N-1, shape ``(N,)``; the largest is the strongest node.
    """
    places = np.arange(len(scores))
    rank, by_tie_break = np.empty_like(places), np.empty_like(places)
    by_tie_break[np.random.default_rng(seed).permutation(len(scores))] = places
    # One stable sort of nodes that stand in the order of the ties; a sort by two keys takes twice as long.
    rank[by_tie_break[np.argsort(scores[by_tie_break], kind="stable")]] = places
    return rank
