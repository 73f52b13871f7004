from itertools import pairwise

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import edge_lists

from falcon_gnn._kernels import coarsening as kernels
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.coarsening.contraction_levels import coarsen_components, component_budgets
from falcon_gnn.reduction.coarsening.spectrum import sort_components

METHODS = ("variation_neighborhoods", "heavy_edge")


def dense_cost(weights, members, signal):
    """Return Loukas' local variation cost from whole matrices: ‖Π⊥ A‖² in the norm of L_C, over |C| - 1."""
    inside = np.isin(np.arange(len(weights)), members)
    ends = inside[:, None].astype(int) + inside[None, :]
    local = weights * ends * (ends > 0)
    local[(ends == 2)] /= 2
    local[(ends == 1)] *= 2
    laplacian = np.diag(local.sum(axis=1)) - local
    projection = np.eye(len(weights))
    projection[np.ix_(members, members)] = 1 / len(members)
    loss = signal - projection @ signal
    return float(np.linalg.norm(loss.T @ laplacian @ loss)) / (len(members) - 1)


def walk_greedily(sets, component, left, cuts, weights, signal):
    """Return the disjoint sets chosen by ascending cost, as a list looked through anew at every step."""
    waiting = [(dense_cost(weights, s, signal), i, list(s)) for i, s in enumerate(sets) if len(s) > 1]
    taken: set[int] = set()
    chosen = []
    while waiting:
        waiting.sort()
        _, i, members = waiting.pop(0)
        group = component[members[0]]
        free = [v for v in members if v not in taken]
        if len(free) < 2 or left[group] == 0:
            continue
        if len(free) - 1 > left[group]:
            if not cuts[group]:
                continue
            distance = np.square(signal[free] - signal[free].mean(axis=0)).sum(axis=1)
            free = sorted(free[m] for m in np.argsort(distance, kind="stable")[: left[group] + 1])
        if free == members:
            taken |= set(members)
            chosen.append(members)
            left[group] -= len(members) - 1
        else:
            waiting.append((dense_cost(weights, free, signal), i, free))
    return sorted(chosen)


@st.composite
def weighted_graphs(draw):
    """Draw a small graph sorted by component, its dense weights, and a random signal of two columns."""
    edges = draw(edge_lists())
    rng = np.random.default_rng(draw(st.integers(0, 100)))
    weight = rng.integers(1, 9, len(edges.pairs)) / 4
    graph = Graph.from_edges(edges.array, edges.num_nodes, edge_weight=weight)
    sorted_graph, _ = sort_components(graph.indptr, graph.indices, graph.edge_weight)
    return sorted_graph, sorted_graph.adjacency.toarray(), rng.standard_normal((edges.num_nodes, 2))


def _structure(graph, signal):
    return graph.indptr, graph.indices, graph.weight, graph.degree, signal


def _close(graph):
    return kernels.close_rows(graph.indptr, graph.indices, np.ones(graph.num_nodes, np.bool_))


def _sets(starts, members):
    return [members[a:b].tolist() for a, b in pairwise(starts)]


@given(weighted_graphs())
@settings(deadline=None)
def test_the_candidate_sets_are_the_closed_neighborhoods(case):
    graph, weights, _ = case
    expected = [sorted({v, *np.flatnonzero(weights[v]).tolist()}) for v in range(graph.num_nodes)]
    assert _sets(*_close(graph)) == expected


@given(weighted_graphs(), st.data())
@settings(deadline=None)
def test_the_local_variation_cost_of_any_set_is_that_of_whole_matrices(case, data):
    graph, weights, signal = case
    members = np.array(sorted(data.draw(st.sets(st.integers(0, graph.num_nodes - 1), min_size=1))), graph.indices.dtype)
    starts = np.array([0, len(members)])
    cost = kernels.set_costs(starts, members, *_structure(graph, signal), 3)[0]
    expected = dense_cost(weights, members, signal) if len(members) > 1 else np.inf
    assert cost == pytest.approx(expected, abs=1e-12)


def test_the_cost_is_right_where_a_hubs_row_is_searched_instead_of_walked():
    star = Graph.from_edges(np.array([[0] * 40, range(1, 41)]), num_nodes=41)
    graph, _ = sort_components(star.indptr, star.indices, None)
    signal = np.random.default_rng(0).standard_normal((41, 3))
    starts, members = _close(graph)
    costs = kernels.set_costs(starts, members, *_structure(graph, signal), 2)
    expected = [dense_cost(graph.adjacency.toarray(), s, signal) for s in _sets(starts, members)]
    np.testing.assert_allclose(costs, expected, rtol=1e-12)


@given(weighted_graphs(), st.data())
@settings(deadline=None)
def test_the_sets_are_those_of_the_literal_greedy_walk(case, data):
    graph, weights, signal = case
    left = [data.draw(st.integers(0, int(size) - 1)) for size in graph.sizes]
    cuts = [data.draw(st.booleans()) for _ in left]
    sets = sorted({tuple(members) for members in _sets(*_close(graph))})
    starts = np.cumsum([0, *map(len, sets)])
    members = np.concatenate(sets).astype(graph.indices.dtype)
    costs = kernels.set_costs(starts, members, *_structure(graph, signal), 1)
    order = np.argsort(costs)[: int(np.isfinite(costs).sum())]
    leader = kernels.contract_sets(
        starts, members, costs, order, graph.component, np.array(left), np.array(cuts), *_structure(graph, signal)
    )
    chosen = [np.flatnonzero(leader == first).tolist() for first in np.unique(leader[leader >= 0])]
    assert chosen == walk_greedily(sets, graph.component, list(left), cuts, weights, signal)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_every_component_keeps_at_least_one_node_and_a_proportional_share(sizes, data):
    sizes = np.array(sizes)
    budget = data.draw(st.integers(len(sizes), int(sizes.sum())))
    budgets = component_budgets(sizes, budget)
    assert budgets.sum() == budget
    assert ((budgets >= 1) & (budgets <= sizes)).all()
    ideal = 1 + (sizes - 1) * (budget - len(sizes)) / max(sizes.sum() - len(sizes), 1)
    assert (np.abs(budgets - ideal) < 1).all()


@given(weighted_graphs(), st.data(), st.sampled_from(METHODS))
@settings(deadline=None)
def test_each_component_ends_with_exactly_the_groups_it_may_keep(case, data, method):
    graph, _, _ = case
    budgets = np.array([data.draw(st.integers(1, int(size))) for size in graph.sizes])
    groups = coarsen_components(graph, budgets, method, seed=1).assignment
    for c, budget in enumerate(budgets):
        members = groups[graph.component == c]
        assert len(np.unique(members)) == budget
        assert not np.isin(members, groups[graph.component != c]).any()


@pytest.mark.parametrize("method", METHODS)
def test_components_of_budget_one_take_no_level(method):
    paths = Graph.from_edges(np.array([[0, 1, 2, 4], [1, 2, 3, 5]]), num_nodes=6)
    graph, _ = sort_components(paths.indptr, paths.indices, None)
    coarsening = coarsen_components(graph, np.array([1, 1]), method, seed=0)
    assert (coarsening.assignment.tolist(), coarsening.num_levels) == ([0, 0, 0, 0, 1, 1], 0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_star_takes_few_levels_although_all_its_edges_share_one_end(method, share):
    star = Graph.from_edges(np.array([[0] * 2000, range(1, 2001)]), num_nodes=2001)
    graph, _ = sort_components(star.indptr, star.indices, None)
    budget = int(2001 * (1 - share))
    assert coarsen_components(graph, np.array([budget]), method, seed=0).num_levels <= 8


def test_heavy_edge_joins_the_ends_of_the_heaviest_edges():
    path = Graph.from_edges(np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]), num_nodes=6, edge_weight=[5, 1, 1, 1, 9])
    graph, _ = sort_components(path.indptr, path.indices, path.edge_weight)
    assert coarsen_components(graph, np.array([4]), "heavy_edge", seed=0).assignment.tolist() == [0, 0, 1, 2, 3, 3]


def test_variation_neighborhoods_join_each_of_two_cliques_on_a_bridge():
    cliques = [(u, v) for first in (0, 4) for u in range(first, first + 4) for v in range(first, u)]
    two = Graph.from_edges(np.array([*cliques, (3, 4)]).T, num_nodes=8)
    graph, _ = sort_components(two.indptr, two.indices, None)
    coarsening = coarsen_components(graph, np.array([2]), "variation_neighborhoods", seed=0)
    assert coarsening.assignment.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("method", METHODS)
def test_the_groups_do_not_depend_on_the_number_of_threads(method):
    ends = np.random.default_rng(0).integers(0, 600, (2, 2000))
    dense = Graph.from_edges(ends, num_nodes=600, warn_one_way="never")
    graph, _ = sort_components(dense.indptr, dense.indices, None)
    budgets = component_budgets(graph.sizes, 200)
    first = coarsen_components(graph, budgets, method, seed=3)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        again = coarsen_components(graph, budgets, method, seed=3)
    finally:
        numba.set_num_threads(threads)
    assert (first.assignment == again.assignment).all()
    assert first.error == again.error
