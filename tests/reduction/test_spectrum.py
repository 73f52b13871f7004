import numpy as np
import pytest
import scipy.sparse.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import edge_lists

from falcon_gnn.datasets.synthetic import block_graph, power_law_graph
from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.coarsening import spectrum
from falcon_gnn.reduction.coarsening.door import coarsen
from falcon_gnn.reduction.coarsening.spectrum import (
    SpectralError,
    normalise_signal,
    restricted_spectral_error,
    smooth_vectors,
    sort_components,
)


def _laplacian(graph):
    weights = graph.to_scipy().toarray().astype(np.float64)
    return np.diag(weights.sum(axis=1)) - weights


def _sorted(graph):
    return sort_components(graph.indptr, graph.indices, graph.edge_weight)[0]


def dense_error(graph, groups, num_vectors):
    """Return the largest ‖x − x̃‖_L / ‖x‖_L of a connected graph's first eigenvectors, by whole matrices."""
    laplacian = _laplacian(graph)
    values, vectors = np.linalg.eigh(laplacian)
    count = min(num_vectors, len(set(groups)))
    basis = vectors[:, 1:count] / np.sqrt(values[1:count])
    same = np.equal.outer(groups, groups)
    loss = basis - (same / same.sum(axis=1)[:, None]) @ basis
    return float(np.sqrt(np.linalg.eigvalsh(loss.T @ laplacian @ loss)[-1]))


def _connected(seed, num_nodes=24):
    rng = np.random.default_rng(seed)
    tree = np.stack([np.arange(1, num_nodes), (rng.random(num_nodes - 1) * np.arange(1, num_nodes)).astype(int)])
    edges = np.concatenate([tree, rng.integers(0, num_nodes, (2, 30))], axis=1)
    keys = np.unique(np.sort(edges[:, edges[0] != edges[1]], axis=0), axis=1)
    return Graph.from_edges(keys, num_nodes, edge_weight=rng.random(keys.shape[1]) + 0.1)


@given(edge_lists(), st.integers(0, 3))
@settings(deadline=None)
def test_sorting_by_component_keeps_every_edge_and_drops_those_of_weight_zero(edges, seed):
    weight = np.random.default_rng(seed).integers(0, 3, len(edges.pairs)).astype(np.float32)
    graph = Graph.from_edges(edges.array, edges.num_nodes, edge_weight=weight)
    sorted_graph, order = sort_components(graph.indptr, graph.indices, graph.edge_weight)
    np.testing.assert_array_equal(sorted_graph.adjacency.toarray(), graph.to_scipy().toarray()[np.ix_(order, order)])
    assert (np.diff(sorted_graph.component) >= 0).all()
    assert (sorted_graph.weight > 0).all()


@pytest.mark.parametrize("dense_nodes", [0, 1000])
def test_smooth_vectors_span_the_first_eigenvectors_by_either_solver(dense_nodes, monkeypatch):
    monkeypatch.setattr(spectrum, "DENSE_NODES", dense_nodes)
    graph = _connected(0, 60)
    expected = np.linalg.eigh(_laplacian(graph))[1][:, 1:6]
    vectors = smooth_vectors(_sorted(graph), np.array([6]))
    assert vectors.shape == (60, 5)
    np.testing.assert_allclose(np.linalg.svd(expected.T @ vectors)[1], 1, atol=1e-5)


def test_smooth_vectors_of_each_component_are_zero_outside_it_and_not_more_than_it_has():
    graph = Graph.from_edges(np.array([[0, 1, 3, 4, 5, 6], [1, 2, 4, 5, 6, 7]]), num_nodes=9)
    vectors = smooth_vectors(_sorted(graph), np.array([10, 3, 10]))
    assert (np.abs(vectors) > 1e-9).any(axis=0).tolist() == [True, True]
    np.testing.assert_allclose(vectors[:3].T @ vectors[:3], np.eye(2), atol=1e-12)
    np.testing.assert_allclose(vectors[3:8].T @ vectors[3:8], np.eye(2), atol=1e-12)
    assert not vectors[8].any()


def test_smooth_vectors_are_still_smooth_where_lanczos_does_not_converge(monkeypatch):
    def fail(*_, **__):
        raise scipy.sparse.linalg.ArpackNoConvergence("no convergence", np.zeros(0), np.zeros((60, 0)))

    monkeypatch.setattr(spectrum, "DENSE_NODES", 0)
    monkeypatch.setattr(scipy.sparse.linalg, "eigsh", fail)
    graph = _connected(0, 60)
    vectors = smooth_vectors(_sorted(graph), np.array([6]))
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(5), atol=1e-9)
    roughness = np.diag(vectors.T @ _laplacian(graph) @ vectors)
    assert roughness.max() < np.trace(_laplacian(graph)) / 60


def test_a_normalised_signal_has_unit_energy_where_wanted_and_is_zero_elsewhere():
    graph = _sorted(Graph.from_edges(np.array([[0, 1, 2, 4, 5], [1, 2, 3, 5, 6]]), num_nodes=7))
    signal = np.random.default_rng(0).standard_normal((7, 2))
    result = normalise_signal(graph, signal, np.array([True, False]))
    np.testing.assert_allclose(result.T @ graph.apply_laplacian(result), np.eye(2), atol=1e-12)
    assert not result[4:].any()


@given(st.integers(0, 50), st.integers(2, 20), st.integers(1, 8))
@settings(deadline=None, max_examples=40)
def test_the_spectral_error_is_that_of_whole_matrices(seed, num_groups, num_vectors):
    graph = _connected(seed)
    groups = np.random.default_rng(seed).integers(0, num_groups, graph.num_nodes)
    expected = dense_error(graph, groups, num_vectors) if min(num_vectors, len(set(groups))) > 1 else 0.0
    error = restricted_spectral_error(graph, groups, num_vectors)
    assert error.epsilon == pytest.approx(expected, rel=1e-9)
    assert error.mean == pytest.approx(expected, rel=1e-9)


def test_a_path_of_four_joined_in_pairs_loses_root_three_over_two_by_hand():
    """The second eigenvector is (a, b, -b, -a), a = cos(π/8), b = cos(3π/8); each node differs by (a - b)/2."""
    path = Graph.from_edges(np.array([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
    assert restricted_spectral_error(path, [0, 0, 1, 1], 2).epsilon == pytest.approx(np.sqrt(3) / 2)


def test_the_error_of_several_components_is_the_worst_and_the_mean_is_weighted_by_nodes():
    parts = [_connected(1, 10), _connected(2, 14)]
    both = Graph.from_scipy(scipy.sparse.block_diag([part.to_scipy() for part in parts]))
    groups = [np.arange(10) // 2, np.arange(14) // 3]
    errors = [dense_error(part, group, 3) for part, group in zip(parts, groups, strict=True)]
    error = restricted_spectral_error(both, np.concatenate([groups[0], 5 + groups[1]]), 3)
    assert error.epsilon == pytest.approx(max(errors))
    assert error.mean == pytest.approx((10 * errors[0] + 14 * errors[1]) / 24)
    assert error.num_nodes == 24


def test_components_left_alone_or_joined_whole_and_nodes_without_a_group_do_not_count():
    graph = Graph.from_edges(np.array([[0, 1, 3, 4, 6], [1, 2, 4, 5, 7]]), num_nodes=8)
    error = restricted_spectral_error(graph, [0, 1, 2, 3, 3, 3, -1, -1])
    assert (error.epsilon, error.mean, error.num_nodes) == (0.0, 0.0, 0)


def test_no_group_at_all_loses_nothing():
    error = restricted_spectral_error(Graph.from_edges([[0], [1]], 2), [-1, -1])
    assert error == SpectralError(0.0, 0.0, 0)


def test_a_group_across_components_is_refused():
    graph = Graph.from_edges(np.array([[0, 2], [1, 3]]), num_nodes=4)
    with pytest.raises(OptionError, match="different connected components"):
        restricted_spectral_error(graph, [0, 1, 1, 2])


@pytest.mark.parametrize(("assignment", "num_vectors"), [([0, 1], 2), ([0.0, 1.0, 1.0], 2), ([0, 1, 1], 0)])
def test_a_wrong_assignment_or_number_of_vectors_is_refused(assignment, num_vectors):
    path = Graph.from_edges(np.array([[0, 1], [1, 2]]), num_nodes=3)
    with pytest.raises(OptionError, match=r"assignment must|num_vectors must"):
        restricted_spectral_error(path, assignment, num_vectors)


def match_at_random(graph, num_groups, seed):
    """Return groups of joined random edges' ends, each node in one pair at a time, level by level."""
    rng = np.random.default_rng(seed)
    groups = np.arange(graph.num_nodes)
    left = graph.num_nodes - num_groups
    while left:
        ends = np.unique(np.sort(groups[graph.edge_index], axis=0), axis=1)
        taken: set[int] = set()
        for u, v in rng.permutation(ends[:, ends[0] != ends[1]].T).tolist():
            if left and u not in taken and v not in taken:
                groups[groups == v] = u
                taken |= {u, v}
                left -= 1
    return groups


@pytest.mark.parametrize("make", [block_graph, power_law_graph])
@pytest.mark.parametrize("share", [0.4, 0.15])
def test_variation_neighborhoods_lose_a_third_less_than_random_matching_in_one_level_or_more(make, share):
    graph = make(400, 1600, num_classes=4, homophily=0.95, seed=1)
    result = coarsen(graph, node_budget=share, scope="full")
    matched = [match_at_random(graph, len(result.kept), seed) for seed in range(3)]
    best_matching = min(restricted_spectral_error(graph, groups).epsilon for groups in matched)
    assert restricted_spectral_error(graph, result.assignment).epsilon < 0.7 * best_matching
