"""Ids of 64 bits, which only graphs of more than two billion nodes use, on graphs that fit a test."""

import numpy as np
import pytest

from falcon_gnn._kernels import adjacency as adjacency_kernels
from falcon_gnn._kernels.components import label_components
from falcon_gnn._kernels.contraction import induce_rows
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
    expected = Graph.from_edges(edges, 45, warn_one_way="never")
    widths = np.zeros(45, np.int64)
    adjacency_kernels.count_ends(*edges, 45, widths)
    indptr = np.concatenate([[0], np.cumsum(widths)])
    keys = np.empty(indptr[-1], np.uint64)
    adjacency_kernels.scatter_ends(*edges, np.array([0, 20, 45]), indptr[:-1].copy(), keys)
    duplicates, one_way = adjacency_kernels.merge_rows(indptr, keys, widths)
    adjacency_kernels.close_gaps(indptr, widths, keys)
    assert (duplicates, one_way) == (expected.cleaning.num_duplicates, expected.cleaning.num_one_way)
    assert (indptr == expected.indptr).all()
    assert (keys[: indptr[-1]] == expected.indices).all()


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


def test_keys_beyond_32_bits_keep_their_high_bits():
    big = 2**33 + 5
    indptr, keys, widths = np.array([0, 2]), np.array([2 * big + 1, 2 * big], np.uint64), np.zeros(1, np.int64)
    assert adjacency_kernels.merge_rows(indptr, keys, widths) == (0, 0)
    assert keys[0] == big


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
