"""How much more often than chance neighbors are of one class."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falcon_gnn.graph import Graph
from falcon_gnn.reduction import homophily
from falcon_gnn.reduction.falcon import collapse


def _measured(edges, y, **options):
    graph = Graph.from_edges(np.array(edges).T, len(y), y=np.array(y))
    return collapse(graph, node_budget=1.0, centrality="degree", num_clusters=1, **options).report.adjusted_homophily


def test_an_example_by_hand():
    # Of three edges two join one class; of six ends five lie in class 0: (2/3 - 26/36) / (1 - 26/36) = -1/5.
    assert _measured([(0, 1), (1, 2), (3, 2)], [0, 0, 0, 1]) == pytest.approx(-0.2)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
@settings(deadline=None, max_examples=40)
def test_it_is_the_assortativity_of_the_classes(seed, num_runs):
    rng = np.random.default_rng(seed)
    edges = sorted({tuple(sorted(pair)) for pair in rng.integers(0, 12, (30, 2)).tolist() if pair[0] != pair[1]})
    y = rng.integers(0, 3, 12)
    graph = nx.Graph(edges)
    nx.set_node_attributes(graph, dict(enumerate(y.tolist())), "y")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(homophily, "_NUM_RUNS", num_runs)
        ours = _measured(edges, y)
    if ours is not None:
        assert ours == pytest.approx(nx.attribute_assortativity_coefficient(graph, "y"))


def test_hidden_labels_do_not_count():
    edges, y = [(0, 1), (1, 2), (2, 3), (3, 4)], [0, 0, 1, 1, 0]
    graph = Graph.from_edges(np.array(edges).T, 5, y=np.array(y), train_mask=np.array([1, 1, 1, 1, 0], bool))
    full = collapse(graph, node_budget=1.0, centrality="degree", num_clusters=1, scope="full").report
    assert full.adjusted_homophily == pytest.approx(_measured(edges[:3], y[:4]))


@pytest.mark.parametrize("y", [[0, 0, 0], [0.5, 0.25, 0.75], [-1, -1, 1]])
def test_without_two_classes_on_edges_there_is_none(y):
    assert _measured([(0, 1), (1, 2)], y) is None
