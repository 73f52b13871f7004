from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import edge_lists

from falcon_gnn.graph import Graph
from falcon_gnn.reduction import neighbor_sums
from falcon_gnn.reduction.centrality import compute_centrality
from falcon_gnn.reduction.neighbor_sums import NeighborSums


def _slow_sums(graph, values, totals):
    totals = totals.tolist()
    for v in range(graph.num_nodes):
        for neighbor in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]:
            totals[v] += float(values[neighbor])
    return totals


@given(edge_lists(), st.integers(0, 1000), st.sampled_from([None, 1, 2, 3, 29, 30]))
@settings(deadline=None)
def test_sums_are_those_of_the_rows_to_the_bit_however_the_entries_are_packed(edges, seed, bits):
    """At 29 and 30 bits of a word a step of more than 6 or 2 rows is a way of its own."""
    graph = Graph.from_edges(edges.array, edges.num_nodes)
    values, totals = np.random.default_rng(seed).normal(size=(2, edges.num_nodes))
    expected = _slow_sums(graph, values, totals)
    fewest = 1 << 30 if bits is None else 0
    with (
        patch.multiple(neighbor_sums, FEWEST_PACKED_NODES=fewest, BLOCK_BITS=bits, _MOST_BLOCKS_BITS=9, _NUM_PARTS=3),
    ):
        sums = NeighborSums(graph.indptr, graph.indices)
        sums.add(values, totals)
    assert (sums._packed is None) == (bits is None)
    assert totals.tolist() == expected


def test_a_way_longer_than_one_word_says_is_made_of_several():
    """At 16 bits, 65,535 rows at most; the ends of the edges lie 140,000 rows apart."""
    graph = Graph.from_edges(np.array([[0, 150_000], [140_000, 290_000]]), 300_000)
    values, totals = np.arange(300_000.0), np.zeros(300_000)
    with patch.multiple(neighbor_sums, FEWEST_PACKED_NODES=0, BLOCK_BITS=16, _MOST_BLOCKS_BITS=9, _NUM_PARTS=1):
        NeighborSums(graph.indptr, graph.indices).add(values, totals)
    assert np.flatnonzero(totals).tolist() == [0, 150_000, 290_000]
    assert totals[[0, 140_000, 150_000, 290_000]].tolist() == [140_000, 0, 290_000, 150_000]


@pytest.mark.parametrize("name", ["pagerank", "eigenvector"])
def test_centralities_are_the_same_to_the_bit_from_packed_rows(name):
    edges = np.random.default_rng(0).integers(0, 300, (2, 900))
    graph = Graph.from_edges(np.unique(np.sort(edges, axis=0), axis=1), 310)
    plain = compute_centrality(name, graph.indptr, graph.indices)
    with patch.multiple(neighbor_sums, FEWEST_PACKED_NODES=0, BLOCK_BITS=5):
        assert (compute_centrality(name, graph.indptr, graph.indices) == plain).all()


def test_rows_are_read_as_they_are_where_the_memory_for_a_copy_is_missing():
    graph = Graph.from_edges(np.array([[0, 1], [1, 2]]), 3)
    with patch.object(neighbor_sums, "FEWEST_PACKED_NODES", 0), patch.object(neighbor_sums, "available_memory", int):
        assert NeighborSums(graph.indptr, graph.indices)._packed is None
