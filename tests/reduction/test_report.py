import json

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests import oracles
from tests.strategies import edge_lists

from falcon_gnn.graph import Graph
from falcon_gnn.labels import encode_labels
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.reduction.report import (
    count_kept_by_rank,
    label_components,
    label_distribution_error,
    label_distribution_error_relative,
    summarise_features,
    summarise_graph,
    summarise_labels,
)


def _summary(before, after, task="classes", num_labels=None):
    return summarise_labels(
        encode_labels(np.array(before), task, num_labels), encode_labels(np.array(after), task, num_labels)
    )


def test_both_label_errors_by_hand():
    """Shares 4/8 2/8 2/8 become 2/4 2/4 0: differences 0, 1/4, 1/4; relative to the first shares 0, 1, 1."""
    labels = _summary([0, 0, 0, 0, 1, 1, 2, 2], [0, 0, 1, 1], num_labels=3)
    assert labels.shares_before == [0.5, 0.25, 0.25]
    assert labels.shares_after == [0.5, 0.5, 0]
    assert labels.label_distribution_error == pytest.approx((0 + 0.25 + 0.25) / 3)
    assert labels.label_distribution_error_relative == pytest.approx((0 + 1 + 1) / 3)


def test_the_relative_error_leaves_out_labels_that_no_node_had():
    before, after = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.5, 0.25])
    assert label_distribution_error(before, after) == pytest.approx(0.5 / 3)
    assert label_distribution_error_relative(before, after) == pytest.approx((0.5 + 0) / 2)


def test_multi_label_shares_are_shares_of_nodes():
    labels = _summary([[1, 1], [1, 0], [0, 0], [0, 1]], [[1, 1]], "multilabel")
    assert labels.shares_before == [0.5, 0.5]
    assert labels.label_distribution_error == 0.5


def test_shares_are_among_labelled_nodes():
    labels = _summary([0, 1, -1, -1], [0, -1], num_labels=2)
    assert (labels.shares_before, labels.shares_after) == ([0.5, 0.5], [1.0, 0.0])


def test_a_regression_target_has_no_label_error():
    labels = _summary([0.5, 1.5], [0.5], "regression")
    assert (labels.label_distribution_error, labels.label_distribution_error_relative) == (None, None)


def test_the_errors_of_a_collapse_are_those_of_its_labels():
    y = np.array([0, 0, 0, 1, 1, 2])
    graph = Graph.from_edges([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]], 6, y=y)
    result = collapse(graph, node_budget=2, centrality=[6.0, 1, 2, 5, 3, 4], num_clusters=1)
    assert result.graph.y.tolist() == [0, 1]
    labels = result.report.labels
    assert labels.shares_after == [0.5, 0.5, 0]
    assert labels.label_distribution_error == pytest.approx((0 + 1 / 6 + 1 / 6) / 3)
    assert labels.label_distribution_error_relative == pytest.approx((0 + 0.5 + 1) / 3)


@given(edge_lists())
@settings(deadline=None)
def test_sizes_degrees_and_components_are_counted(edges):
    graph = Graph.from_edges(edges.array, edges.num_nodes)
    summary = summarise_graph(graph.indptr, graph.indices, label_components(graph.indptr, graph.indices)[1])
    degrees = [len(around) for around in edges.neighbors.values()]
    assert (summary.num_nodes, summary.num_edges) == (edges.num_nodes, len(edges.pairs))
    assert summary.num_components == len(oracles.components(edges.neighbors))
    assert (summary.num_isolated, summary.max_degree) == (degrees.count(0), max(degrees))
    assert summary.mean_degree == pytest.approx(np.mean(degrees))
    assert summary.median_degree == np.median(degrees)
    assert sum(summary.degree_histogram) == edges.num_nodes


def test_degrees_are_counted_in_powers_of_two():
    star = Graph.from_edges([[0] * 5, [1, 2, 3, 4, 5]], 7)
    assert summarise_graph(star.indptr, star.indices, 2).degree_histogram == [1, 5, 0, 1]


@pytest.mark.parametrize("as_sparse", [False, True])
@given(data=st.data())
@settings(deadline=None, max_examples=30)
def test_the_shift_of_a_feature_is_in_standard_deviations(as_sparse, data):
    x = data.draw(hnp.arrays(np.float64, (6, 3), elements=st.integers(0, 4)))
    reduced = x[[0, 2]]
    kind = sp.csr_array if as_sparse else np.asarray
    summary = summarise_features(kind(x), None, kind(reduced))
    std = x.std(axis=0)
    expected = np.where(std > 0, (reduced.mean(axis=0) - x.mean(axis=0)) / np.where(std > 0, std, 1), 0)
    np.testing.assert_allclose(summary.mean_shift, expected, atol=1e-12)
    assert summary.mean_absolute_shift == pytest.approx(np.abs(expected).mean())
    assert summary.max_absolute_shift == pytest.approx(np.abs(expected).max())


def test_features_outside_the_scope_do_not_count():
    x = np.array([[0.0], [2.0], [1e6]])
    assert summarise_features(x, np.array([0, 1]), x[[1]]).mean_shift == [1.0]


def test_survivors_are_counted_by_rank_in_equal_parts():
    kept, nodes = count_kept_by_rank(np.arange(40), np.array([0, 1, 39]))
    assert kept == [2] + [0] * 18 + [1]
    assert nodes == [2] * 20
    assert count_kept_by_rank(np.array([2, 0, 1]), np.array([0])) == ([0, 0, 1], [1, 1, 1])
    path = Graph.from_edges([[0, 1], [1, 2]], 3)
    report = collapse(path, node_budget=2, centrality=[3.0, 1.0, 2.0], num_clusters=1).report
    assert (report.kept_by_rank, report.nodes_by_rank) == ([0, 1, 1], [1, 1, 1])


def test_a_report_is_json_whatever_the_numbers_came_as():
    graph = Graph.from_edges([[0, 1, 2], [1, 2, 2]], 3, x=np.ones((3, 1), np.float32), y=np.array([0, 1, 1], np.int8))
    result = collapse(graph, node_budget=np.int64(2), num_clusters=np.int32(1), gamma=np.float32(0.5))
    read = json.loads(result.report.to_json())
    assert read["config"]["node_budget"] == 2
    assert read["cleaning"]["num_self_loops"] == 1
    assert (read["before"]["num_nodes"], read["after"]["num_nodes"]) == (3, 2)
    assert read["peak_memory_bytes"] > 0


def test_scores_and_clusters_of_the_users_own_are_reported_as_such():
    graph = Graph.from_edges([[0, 1], [1, 2]], 3)
    config = collapse(graph, node_budget=1, centrality=[1.0, 2, 3], clusters=[0, 0, 0]).report.config
    assert config["centrality"] != "eigenvector"
    assert config["num_clusters"] != 100


def test_kept_and_all_nodes_per_cluster_are_reported():
    graph = Graph.from_edges([[0, 1], [1, 2]], 5)
    report = collapse(graph, node_budget=3, centrality=np.arange(5.0), clusters=[0, 0, 4, 4, 4], protect=[0]).report
    assert report.cluster_sizes == [2, 3]
    assert sum(report.cluster_kept) == 3
