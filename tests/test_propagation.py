"""Ã with self-weights, against the dense formula; every other property is tested with the tensors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falcon_gnn.graph import Graph
from falcon_gnn.propagation import normalized_csr
from tests.strategies import edge_lists


@given(edge_lists(), st.integers(0, 2**16))
@settings(deadline=None)
def test_self_weights_stand_on_the_diagonal(edges, seed):
    own = np.random.default_rng(seed).uniform(0.1, 5, edges.num_nodes)
    graph = Graph.from_edges(edges.array, edges.num_nodes, self_weight=own)
    dense = np.diag(own) + graph.to_scipy().toarray()
    scale = dense.sum(axis=1) ** -0.5
    assert normalized_csr(graph, np.float64).toarray() == pytest.approx(scale[:, None] * dense * scale, abs=1e-12)


def test_ones_are_the_same_as_no_self_weights():
    graph = Graph.from_edges([[0, 1], [1, 2]], 4)
    own = graph.replace(self_weight=np.ones(4))
    assert (normalized_csr(own).toarray() == normalized_csr(graph).toarray()).all()


def test_a_node_without_any_weight_has_a_row_of_zeros():
    graph = Graph.from_edges([[0], [1]], 3, self_weight=[0.0, 1.0, 0.0])
    assert normalized_csr(graph, np.float64).toarray()[2].tolist() == [0, 0, 0]
