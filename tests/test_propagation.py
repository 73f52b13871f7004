"""Ã with self-weights, against the dense formula; every other property is tested with the tensors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falcon_gnn import propagation
from falcon_gnn.datasets.synthetic import block_graph, power_law_graph
from falcon_gnn.graph import Graph
from falcon_gnn.propagation import normalized_csr
from tests.strategies import edge_lists
from tests.tracing import traced_peak


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


def test_rows_in_blocks_are_the_same_rows(monkeypatch):
    graph = power_law_graph(200, 900, seed=3)
    own = np.random.default_rng(0).uniform(0.1, 5, 200)
    graph = graph.replace(edge_weight=graph.indices + np.repeat(np.arange(200.0), graph.degrees), self_weight=own)
    whole = normalized_csr(graph)
    monkeypatch.setattr(propagation, "_BLOCK_ENTRIES", 50)
    assert (normalized_csr(graph) != whole).nnz == 0


def test_the_matrix_is_made_without_much_beside_it(monkeypatch):
    monkeypatch.setattr(propagation, "_BLOCK_ENTRIES", 1_000)
    graph = block_graph(10_000, 100_000, num_features=1)
    matrix = normalized_csr(graph)
    held = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    assert matrix.indices.dtype == np.int32
    assert traced_peak(lambda: normalized_csr(graph)) < 1.5 * held
