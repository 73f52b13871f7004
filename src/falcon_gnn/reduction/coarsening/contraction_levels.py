"""Which nodes a coarsening joins: level by level, in every component, down to its own number of nodes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.reduction.budgets import split_budget
from falcon_gnn.reduction.coarsening.spectrum import (
    NUM_VECTORS,
    ComponentGraph,
    FloatArray,
    IdArray,
    SpectralError,
    group_means,
    measure_error,
    normalise_signal,
    smooth_vectors,
)
from falcon_gnn.reduction.grouping import group_members
from falcon_gnn.threads import one_thread

BoolArray = NDArray[np.bool_]
_BLOCKS = 8
_STALLED_SHARE = 0.1


@dataclass(frozen=True)
class Coarsening:
    """The groups that a coarsening makes.

    Attributes:
        assignment: Group of each node, numbered by first member, int64, shape ``(N,)``.
        num_levels: Levels it took.
        error: Restricted spectral error, or None where no eigenvectors were computed.
    """

    assignment: IdArray
    num_levels: int
    error: SpectralError | None


@dataclass(frozen=True)
class _Level:
    """One level: the graph so far, the signals on it, and what is still to be done in each component."""

    graph: ComponentGraph
    signal: FloatArray | None
    left: IdArray
    stalled: BoolArray
    rng: np.random.Generator


def component_budgets(sizes: IdArray, node_budget: int) -> IdArray:
    """Share a node budget among components: one node each, the rest in proportion to the nodes beyond the first.

    Args:
        sizes: Nodes per component, shape ``(num_components,)``.
        node_budget: Nodes to keep; below the number of components it counts as that number.

    Returns:
        Nodes to keep per component, in ``[1, size]``.

    Example:
        >>> component_budgets(np.array([7, 1, 4]), 6)
        array([3, 1, 2])
    """
    return 1 + split_budget(sizes - 1, max(node_budget - len(sizes), 0))


def coarsen_components(graph: ComponentGraph, budgets: IdArray, method: str, seed: int) -> Coarsening:
    """Return groups of nodes, as many in each component as its budget says.

    A component of budget 1 is one group. The others are contracted level by level: ``variation_neighborhoods`` joins
    the neighborhoods on which the smooth signals vary least (Loukas 2019, Algorithms 1 and 2), ``heavy_edge`` matches
    nodes along the heaviest edges.

    Args:
        graph: N nodes.
        budgets: Groups wanted per component, in ``[1, size]``.
        method: ``"variation_neighborhoods"`` or ``"heavy_edge"``.
        seed: Draws the order of equal costs.
    """
    whole = _whole_components(graph, budgets == 1)
    base = graph.merge(whole, int(whole[-1]) + 1)
    left = base.sizes - budgets
    if method == "heavy_edge":
        assignment, num_levels = _run_levels(base, None, left, _match_edges, seed)
        return Coarsening(assignment[whole], num_levels, None)
    # One thread: the sums of a threaded BLAS depend on how many threads there are.
    with one_thread():
        vectors = smooth_vectors(base, np.where(left > 0, NUM_VECTORS, 0))
        assignment, num_levels = _run_levels(base, vectors, left, _vary_neighborhoods, seed)
        is_tested = np.arange(vectors.shape[1]) < np.where(left > 0, budgets - 1, 0)[base.component, None]
        error = measure_error(base, assignment, np.where(is_tested, vectors, 0.0))
    return Coarsening(assignment[whole], num_levels, error)


def _run_levels(
    graph: ComponentGraph,
    signal: FloatArray | None,
    left: IdArray,
    choose: Callable[[_Level], IdArray],
    seed: int,
) -> tuple[IdArray, int]:
    """Return the group of each node and the number of levels."""
    assignment = np.arange(graph.num_nodes)
    stalled = np.zeros(len(left), np.bool_)
    num_levels = 0
    while left.any():
        level = _Level(graph, signal, left.copy(), stalled, np.random.default_rng([seed, 5, num_levels]))
        groups = _number_groups(choose(level))
        num_groups = int(groups.max()) + 1
        if signal is not None:
            signal = group_means(signal, *group_members(groups, num_groups))
        graph = graph.merge(groups, num_groups)
        assignment = groups[assignment]
        removed = left - level.left
        stalled = removed < _STALLED_SHARE * left
        left = level.left
        num_levels += 1
    return assignment, num_levels


def _whole_components(graph: ComponentGraph, is_whole: BoolArray) -> IdArray:
    """Return groups: each marked component is one, every other node its own."""
    is_first = np.zeros(graph.num_nodes, np.bool_)
    is_first[graph.bounds[:-1]] = True
    ids: IdArray = np.cumsum(is_first | ~is_whole[graph.component]) - 1
    return ids


def _number_groups(leader: IdArray) -> IdArray:
    """Return groups numbered by ascending leader; a node without one is its own."""
    own = np.arange(len(leader))
    leader = np.where(leader < 0, own, leader)
    ids: IdArray = (np.cumsum(leader == own) - 1)[leader]
    return ids


def _vary_neighborhoods(level: _Level) -> IdArray:
    """Return the first node of the neighborhood each node is joined in; ``level.left`` is brought up to date."""
    from falcon_gnn._kernels import coarsening as kernels

    graph = level.graph
    assert level.signal is not None
    active = level.left > 0
    signal = normalise_signal(graph, level.signal, active)
    structure = (graph.indptr, graph.indices, graph.weight, graph.degree, signal)
    starts, members = kernels.close_rows(graph.indptr, graph.indices, active[graph.component])
    costs = kernels.set_costs(starts, members, *structure, _BLOCKS)
    order = np.lexsort((level.rng.permutation(len(costs)), costs))
    order = order[: int(np.isfinite(costs).sum())]
    leader: IdArray = kernels.contract_sets(
        starts, members, costs, order, graph.component, level.left, level.stalled, *structure
    )
    return leader


def _match_edges(level: _Level) -> IdArray:
    """Return the first node of the pair each node is joined in; ``level.left`` is brought up to date.

    Edges go by their weight over the largest weight at either end. Where a level got stuck, as at a star, whose
    leaves have one hub to match with, nodes left over that share their heaviest neighbor are then paired.
    """
    from falcon_gnn._kernels.coarsening import FREE, match_pairs

    graph = level.graph
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    heaviest = np.zeros(graph.num_nodes)
    np.maximum.at(heaviest, source, graph.weight)
    edge = np.flatnonzero((source < graph.indices) & (level.left > 0)[graph.component[source]])
    first, second = source[edge], graph.indices[edge]
    share = graph.weight[edge] / np.maximum(heaviest[first], heaviest[second])
    order = np.lexsort((level.rng.permutation(len(edge)), -share))
    leader = np.full(graph.num_nodes, FREE, np.int64)
    match_pairs(first[order], second[order], graph.component, level.left, leader)
    stuck = (leader == FREE) & (level.stalled & (level.left > 0))[graph.component]
    if stuck.any():
        entry = np.flatnonzero(stuck[source] & (graph.weight == heaviest[source]))
        nodes, position = np.unique(source[entry], return_index=True)
        match_pairs(*_pair_siblings(nodes, graph.indices[entry[position]]), graph.component, level.left, leader)
    return leader


def _pair_siblings(nodes: IdArray, hub: NDArray[np.integer]) -> tuple[IdArray, IdArray]:
    """Return pairs of nodes with the same hub, each node in one pair at most."""
    order = np.lexsort((nodes, hub))
    nodes, hub = nodes[order], hub[order]
    first_of_hub = np.searchsorted(hub, hub)
    is_even = (np.arange(len(nodes)) - first_of_hub) % 2 == 0
    first = np.flatnonzero(is_even[:-1] & (hub[:-1] == hub[1:]))
    return nodes[first], nodes[first + 1]
