"""Herding: the nodes whose mean follows that of their cluster."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falcon_gnn.errors import FalconWarning, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.reduction.herding import herding_order, select_by_herding


@given(st.integers(1, 9), st.integers(0, 2**32 - 1), st.data())
@settings(deadline=None, max_examples=60)
def test_each_step_takes_the_node_that_brings_the_mean_nearest(num_rows, seed, data):
    rows = np.random.default_rng(seed).normal(size=(num_rows, 3))
    order = herding_order(rows, data.draw(st.integers(0, num_rows))).tolist()
    assert len(set(order)) == len(order)
    for step, taken in enumerate(order):
        left = [row for row in range(num_rows) if row not in order[:step]]
        means = {row: rows[[*order[:step], row]].mean(axis=0) for row in left}
        distance = {row: float(np.linalg.norm(means[row] - rows.mean(axis=0))) for row in left}
        assert distance[taken] <= min(distance.values()) + 1e-6


def test_clusters_are_herded_one_by_one_among_the_candidates():
    points = np.array([[5.0], [0.0], [4.0], [1.0], [9.0], [2.0]], np.float32)
    clusters, candidates = np.array([1, 0, 1, 0, 1, 0]), np.array([True, True, True, True, False, True])
    kept = select_by_herding(points, clusters, np.array([1, 1]), candidates)
    # Of 0, 1, 2 the mean is 1; of 5 and 4 it is 4.5, as near to both: the first.
    assert np.flatnonzero(kept).tolist() == [0, 3]


def test_an_example_by_hand():
    # The mean of 0, 1, 2, 9 is 3: first 2 (nearest to it), then of 0, 1 and 9 the one that brings (2 + x) / 2 nearest
    # to 3: 1 and 9 give 1.5 and 5.5, 0 gives 1; so 1.
    points = np.array([[0.0], [1.0], [2.0], [9.0]], np.float32)
    kept = select_by_herding(points, np.zeros(4, np.int64), np.array([2]), np.ones(4, np.bool_))
    assert np.flatnonzero(kept).tolist() == [1, 2]


def _two_classes():
    path = np.array([np.arange(39), np.arange(1, 40)])
    x = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    return Graph.from_edges(path, 40, x=x, y=np.arange(40) % 4 // 3)


def test_a_collapse_by_herding_keeps_of_each_class_its_share():
    result = collapse(_two_classes(), node_budget=12, selection="herding", merge="drop")
    assert np.bincount(result.graph.y).tolist() == [9, 3]


def test_protected_nodes_stay_and_are_no_candidates():
    result = collapse(_two_classes(), node_budget=12, selection="herding", merge="drop", protect=np.array([3, 7]))
    assert {3, 7} <= set(result.kept.tolist())
    assert len(result.kept) == 12


def test_a_graph_without_features_is_told_what_herding_goes_by():
    graph = _two_classes().replace(x=None)
    with pytest.warns(FalconWarning, match=r"selection='herding' compares features, .* or use another one"):
        collapse(graph, node_budget=12, selection="herding")


def test_herding_is_no_option_of_alike_groups():
    with pytest.raises(OptionError, match="selection is an option of groups='neighbors'"):
        CollapseConfig(0.5, groups="alike", selection="herding")
