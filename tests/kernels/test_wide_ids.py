"""Ids of 64 bits, which only graphs of more than two billion nodes use, on graphs that fit a test."""

import numpy as np
import pytest

from falcon_gnn import adjacency as adjacencies
from falcon_gnn._kernels import adjacency as adjacency_kernels
from falcon_gnn._kernels.components import label_components
from falcon_gnn._kernels.contraction import induce_rows
from falcon_gnn.adjacency import split_edges
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.centrality import Sampling, compute_centrality
from falcon_gnn.reduction.contraction import merge_edges, merge_into_neighbors


@pytest.fixture
def graph():
    edges = np.random.default_rng(0).integers(0, 40, (2, 90))
    return Graph.from_edges(np.unique(np.sort(edges, axis=0), axis=1), 45)


@pytest.fixture
def edges():
    rng = np.random.default_rng(1)
    ends = rng.integers(0, 40, (2, 120))
    return np.concatenate([ends, ends[::-1, :50]], axis=1)


def test_an_adjacency_is_built_alike(edges):
    narrow, wide = (adjacencies._sort_edges(split_edges(edges), 45, dtype) for dtype in (np.int32, np.int64))
    assert wide.indices.dtype == np.int64
    assert wide.cleaning == narrow.cleaning
    assert (wide.indptr == narrow.indptr).all()
    assert (wide.indices == narrow.indices).all()


def test_a_weighted_adjacency_is_built_alike(edges):
    pairs = np.unique(edges, axis=1)
    weight = 1.0 + pairs.sum(axis=0)
    expected = Graph.from_edges(pairs, 45, edge_weight=weight, warn_one_way="never")
    widths = np.zeros(45, np.int64)
    adjacency_kernels.count_ends(*pairs, 45, widths)
    indptr = np.concatenate([[0], np.cumsum(widths)])
    keys, values, clash = np.empty(indptr[-1], np.uint64), np.empty(indptr[-1]), np.full(45, -1)
    adjacency_kernels.scatter_weighted_ends(*pairs, weight, indptr[:-1].copy(), keys, values)
    adjacency_kernels.merge_weighted_rows(indptr, keys, values, widths, clash)
    adjacency_kernels.close_gaps(indptr.copy(), widths, values)
    adjacency_kernels.close_gaps(indptr, widths, keys)
    assert (keys[: indptr[-1]] == expected.indices).all()
    assert (values[: indptr[-1]] == expected.edge_weight).all()


def test_words_keep_the_high_bits_of_their_keys():
    """Row 3 of the range after the first two: neighbor 2**33 + 5 twice, and one more."""
    big = 2**33 + 5
    words = np.array([(3 << 35) | key for key in (2 * big + 1, 2 * big, 2 * big - 2)], np.uint64)
    widths, kept, found = np.zeros(3 << 11, np.int64), np.empty(1, np.int64), np.empty((1, 2), np.int64)
    adjacency_kernels.merge_ranges(words, np.array([0, 3]), 11, 35, 2, widths, kept, found)
    assert (kept.tolist(), found.tolist()) == ([2], [[0, 1]])
    assert words[:2].tolist() == [big - 1, big]
    assert np.flatnonzero(widths).tolist() == [(2 << 11) + 3]
    assert widths[(2 << 11) + 3] == 2


@pytest.mark.parametrize("name", ["betweenness", "closeness", "pagerank", "eigenvector"])
def test_centralities_are_equal_to_the_bit(graph, name):
    narrow = compute_centrality(name, graph.indptr, graph.indices, Sampling(num_samples=20))
    wide = compute_centrality(name, graph.indptr, graph.indices.astype(np.int64), Sampling(num_samples=20))
    assert (narrow == wide).all()


def test_contraction_and_merged_edges_are_equal(graph):
    rng = np.random.default_rng(0)
    order, rank = rng.permutation(45)[:35], rng.permutation(45)
    found = []
    for indices in (graph.indices, graph.indices.astype(np.int64)):
        stands_for = merge_into_neighbors(graph.indptr, indices, order, rank)
        kept = np.setdiff1d(np.arange(45), order)
        groups = np.where(stands_for >= 0, np.searchsorted(kept, stands_for), -1)
        merged = merge_edges(graph.indptr, indices, None, groups, len(kept), "count")
        found.append((stands_for, *vars(merged).values()))
    for narrow, wide in zip(*found, strict=True):
        np.testing.assert_array_equal(narrow, wide)


def test_components_and_induced_rows_are_equal(graph):
    wide = graph.indices.astype(np.int64)
    assert (label_components(graph.indptr, graph.indices)[0] == label_components(graph.indptr, wide)[0]).all()
    ids = np.arange(0, 45, 2)
    new_ids = np.full(45, -1)
    new_ids[ids] = np.arange(len(ids))
    for narrow, other in zip(
        induce_rows(graph.indptr, graph.indices, ids, new_ids.astype(np.int32)),
        induce_rows(graph.indptr, wide, ids, new_ids),
        strict=True,
    ):
        assert (narrow == other).all()


def test_a_bad_row_is_found(graph):
    wide = graph.indices.astype(np.int64)
    assert adjacency_kernels.find_bad_row(graph.indptr, wide) == -1
    wide[0] = 2**40
    assert adjacency_kernels.find_bad_row(graph.indptr, wide) >= 0
