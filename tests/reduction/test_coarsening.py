import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import oracles
from tests.strategies import edge_lists

from falcon_gnn.datasets.load import load_graph
from falcon_gnn.errors import BudgetError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.coarsening.config import CoarsenConfig
from falcon_gnn.reduction.coarsening.door import coarsen
from falcon_gnn.reduction.coarsening.spectrum import restricted_spectral_error

METHODS = ("variation_neighborhoods", "heavy_edge")


@st.composite
def coarsen_cases(draw):
    """Draw a graph with weights, features, classes and a training mask, a reachable budget and a method."""
    edges = draw(edge_lists())
    num_nodes = edges.num_nodes
    rng = np.random.default_rng(draw(st.integers(0, 100)))
    graph = Graph.from_edges(
        edges.array,
        num_nodes,
        edge_weight=rng.integers(1, 9, len(edges.pairs)) / 4,
        x=rng.standard_normal((num_nodes, 2)),
        y=rng.integers(-1, 3, num_nodes),
        train_mask=(np.arange(num_nodes) == draw(st.integers(0, num_nodes - 1))) | (rng.random(num_nodes) < 0.5),
    )
    num_components = len(oracles.components(edges.neighbors))
    return graph, edges, draw(st.integers(num_components, num_nodes)), draw(st.sampled_from(METHODS))


def _weights(graph):
    return graph.to_scipy().toarray().astype(np.float64)


@given(coarsen_cases())
@settings(deadline=None)
def test_the_groups_are_a_partition_of_exactly_the_budget_inside_components(case):
    graph, edges, budget, method = case
    result = coarsen(graph, node_budget=budget, method=method, scope="full")
    assert result.graph.num_nodes == budget
    assert sorted(set(result.assignment.tolist())) == list(range(budget))
    parts = oracles.components(edges.neighbors)
    assert sum(len({int(result.assignment[v]) for v in part}) for part in parts) == budget
    assert result.report.after.num_components == len(parts)
    assert result.cluster_budgets.sum() == budget


@given(coarsen_cases())
@settings(deadline=None)
def test_edge_weights_are_summed_so_that_cut_and_inner_weight_make_up_the_total(case):
    graph, _, budget, method = case
    result = coarsen(graph, node_budget=budget, method=method, scope="full")
    partition = np.eye(budget)[result.assignment]
    pooled = partition.T @ _weights(graph) @ partition
    np.testing.assert_allclose(_weights(result.graph), pooled - np.diag(np.diag(pooled)))
    assert (_weights(result.graph) == _weights(result.graph).T).all()
    assert _weights(result.graph).sum() + np.trace(pooled) == pytest.approx(_weights(graph).sum())


@given(coarsen_cases())
@settings(deadline=None)
def test_features_are_group_means_and_labels_the_majority_of_training_nodes(case):
    graph, _, budget, method = case
    result = coarsen(graph, node_budget=budget, method=method, scope="full")
    np.testing.assert_allclose(result.graph.x, oracles.group_mean(graph.x, result.assignment, budget))
    expected = oracles.group_class(graph.y, graph.train_mask, result.assignment, result.kept)
    trains = result.graph.train_mask
    assert result.graph.y[trains].tolist() == [expected[group] for group in np.flatnonzero(trains)]
    assert trains.tolist() == [bool(graph.train_mask[result.assignment == group].any()) for group in range(budget)]


@given(coarsen_cases())
@settings(deadline=None)
def test_the_kept_node_is_the_groups_member_of_highest_rank(case):
    graph, _, budget, method = case
    result = coarsen(graph, node_budget=budget, method=method, scope="full")
    for group, survivor in enumerate(result.kept):
        members = np.flatnonzero(result.assignment == group)
        assert survivor == members[np.argmax(result.rank[members])]
    assert (np.diff(result.kept) > 0).all()
    assert (np.diff(result.rank[result.removal_order]) > 0).all()
    assert sorted([*result.kept, *result.removal_order]) == list(range(graph.num_nodes))


@pytest.fixture
def digits():
    return load_graph("digits")


@pytest.mark.parametrize("method", METHODS)
def test_scope_train_sees_nothing_of_validation_and_test_nodes(digits, method):
    hidden = ~digits.train_mask
    rng = np.random.default_rng(0)
    x, y = digits.x.copy(), digits.y.copy()
    x[hidden], y[hidden] = rng.random(x[hidden].shape), rng.permutation(y[hidden])
    source, target = digits.edge_index
    inside = digits.train_mask[source] & digits.train_mask[target]
    arrays = {"x": x, "y": y, "train_mask": digits.train_mask}
    other = Graph.from_edges(digits.edge_index[:, inside], digits.num_nodes, **arrays)
    first, second = coarsen(digits, node_budget=0.7, method=method), coarsen(other, node_budget=0.7, method=method)
    assert (first.assignment == second.assignment).all()
    assert (first.assignment[hidden] == -1).all()
    for name in ("indptr", "indices", "edge_weight", "x", "y"):
        np.testing.assert_array_equal(getattr(first.graph, name), getattr(second.graph, name))


@pytest.mark.parametrize("method", METHODS)
def test_the_same_input_and_seed_give_the_same_bits(digits, method):
    first, second = (coarsen(digits, node_budget=0.6, method=method, seed=4) for _ in range(2))
    assert (first.assignment == second.assignment).all()
    assert first.graph.x.tobytes() == second.graph.x.tobytes()
    assert first.graph.edge_weight.tobytes() == second.graph.edge_weight.tobytes()
    assert first.spectral_error == second.spectral_error


def test_the_seed_decides_between_equally_heavy_edges(digits):
    assignments = [coarsen(digits, node_budget=0.6, method="heavy_edge", seed=seed).assignment for seed in (0, 1)]
    assert (assignments[0] != assignments[1]).any()


@pytest.mark.parametrize("method", METHODS)
def test_fewer_nodes_than_components_are_refused_with_the_smallest_budget(method):
    graph = Graph.from_edges(np.array([[0, 1, 3], [1, 2, 4]]), num_nodes=6)
    with pytest.raises(BudgetError, match=r"node_budget must be at least 3 here, got 2: .* connected components"):
        coarsen(graph, node_budget=2, method=method)
    result = coarsen(graph, node_budget=3, method=method)
    assert result.assignment.tolist() == [0, 0, 0, 1, 1, 2]
    assert result.graph.num_edges == 0


def test_an_edge_of_weight_zero_joins_nothing():
    graph = Graph.from_edges(np.array([[0, 1, 2], [1, 2, 3]]), num_nodes=4, edge_weight=[1.0, 0.0, 1.0])
    result = coarsen(graph, node_budget=2)
    assert result.assignment.tolist() == [0, 0, 1, 1]
    assert result.clusters.tolist() == [0, 0, 1, 1]


def test_two_triangles_on_a_bridge_become_two_nodes_with_an_edge_by_hand():
    edges = np.array([[0, 0, 1, 2, 3, 3, 4], [1, 2, 2, 3, 4, 5, 5]])
    x = np.array([[0.0], [3.0], [6.0], [1.0], [1.0], [4.0]])
    result = coarsen(Graph.from_edges(edges, 6, x=x, y=np.array([1, 0, 0, 2, 2, -1])), node_budget=2)
    assert result.assignment.tolist() == [0, 0, 0, 1, 1, 1]
    assert result.kept.tolist() == [2, 3]
    assert result.graph.x.tolist() == [[3.0], [2.0]]
    assert result.graph.y.tolist() == [0, 2]
    assert (result.graph.indices.tolist(), result.graph.edge_weight.tolist()) == ([1, 0], [1.0, 1.0])
    assert result.lift(np.array([7, 8])).tolist() == [7, 7, 7, 8, 8, 8]


def test_multi_label_targets_are_the_mean_of_the_group():
    y = np.array([[1, 0], [1, 1], [0, 0], [0, 1]])
    graph = Graph.from_edges(np.array([[0, 2], [1, 3]]), num_nodes=4, y=y)
    assert coarsen(graph, node_budget=2).graph.y.tolist() == [[1.0, 0.5], [0.0, 0.5]]


def test_the_reported_error_is_that_of_the_partition(digits):
    result = coarsen(digits, node_budget=0.7)
    separate = restricted_spectral_error(digits, result.assignment)
    assert result.spectral_error.epsilon == pytest.approx(separate.epsilon, rel=1e-3)
    assert result.spectral_error.mean == pytest.approx(separate.mean, rel=1e-3)


def test_heavy_edge_computes_no_eigenvectors(digits):
    assert coarsen(digits, node_budget=0.7, method="heavy_edge").spectral_error is None


def test_the_report_names_the_options_and_the_stages(digits):
    stages = []
    result = coarsen(digits, node_budget=0.7, method="heavy_edge", seed=2, on_stage=stages.append)
    assert result.options == CoarsenConfig(0.7, "heavy_edge", seed=2)
    assert json.loads(result.report.to_json())["config"]["method"] == "heavy_edge"
    assert stages == list(result.report.seconds) == ["scope", "contraction", "attributes", "report"]


@pytest.mark.parametrize(
    ("budget", "options", "error", "message"),
    [
        (0, {}, BudgetError, "node_budget must be"),
        (1798, {}, BudgetError, r"node_budget must be an int in \[1, 1078\]"),
        (0.5, {"method": "metis"}, OptionError, "method must be one of variation_neighborhoods, heavy_edge"),
        (0.5, {"scope": "test"}, OptionError, "scope must be one of"),
        (0.5, {"seed": -1}, OptionError, "seed must be"),
        (
            0.5,
            {"gamma": 0.3},
            OptionError,
            "coarsen.. takes the options method, node_budget, num_classes, scope, seed, task",
        ),
    ],
)
def test_an_unusable_option_is_named(digits, budget, options, error, message):
    with pytest.raises(error, match=message):
        coarsen(digits, node_budget=budget, **options)


@pytest.mark.parametrize("method", METHODS)
def test_a_graph_without_edges_or_node_arrays_stays_as_it_is(method):
    result = coarsen(Graph.from_edges(np.zeros((2, 0), int), num_nodes=3), node_budget=3, method=method)
    assert result.assignment.tolist() == [0, 1, 2]


def test_cora_is_coarsened_to_the_papers_budget(shared_dataset):
    graph = load_graph(shared_dataset("cora"), split="full")
    result = coarsen(graph, node_budget=500)
    assert result.graph.num_nodes == 500
    assert 0 < result.spectral_error.mean < 3


_MEMORY_PROGRAM = """
from falcon_gnn.datasets.synthetic import power_law_graph
from falcon_gnn.reduction.coarsening.door import coarsen
from falcon_gnn.resources import peak_resident_memory
graph = power_law_graph(20_000, 100_000)
result = coarsen(graph, node_budget=0.3, scope="full")
print(result.graph.num_nodes, peak_resident_memory())
"""


def test_peak_memory_on_twenty_thousand_nodes_is_far_below_a_dense_matrix():
    """A dense bool matrix would take 381 MiB, a float32 one 1,526; the libraries take up to 360 where they compile."""
    done = subprocess.run([sys.executable, "-c", _MEMORY_PROGRAM], capture_output=True, text=True, check=True)
    num_nodes, peak = map(int, done.stdout.split())
    assert num_nodes == 6_000
    assert peak < 512 * 2**20
