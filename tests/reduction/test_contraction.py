import subprocess
import sys
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import oracles
from tests.strategies import EdgeList, edge_lists

from falcon_gnn.graph import Graph
from falcon_gnn.reduction import contraction
from falcon_gnn.reduction.contraction import merge_edges, merge_into_neighbors, order_removals


def _contract(edges: EdgeList, order, rank):
    graph = Graph.from_edges(edges.array, edges.num_nodes)
    return merge_into_neighbors(graph.indptr, graph.indices, np.array(order, np.int64), np.array(rank)).tolist()


@given(edge_lists(), st.data())
@settings(deadline=None, max_examples=300)
def test_any_removal_order_gives_the_groups_of_the_literal_walk(edges, data):
    rank = data.draw(st.permutations(range(edges.num_nodes)))
    order = data.draw(st.permutations(range(edges.num_nodes)))[: data.draw(st.integers(0, edges.num_nodes - 1))]
    assert _contract(edges, order, rank) == oracles.contract(edges.neighbors, order, rank)[0]


def _random_edges(rng, num_nodes, num_edges):
    ends = rng.integers(0, num_nodes, (num_edges, 2))
    return ends[ends[:, 0] != ends[:, 1]]


def _chains_with_leaves(rng, num_nodes, _):
    """Return chains whose nodes carry leaves: what makes a group's neighbors outlive many merges."""
    half = num_nodes // 2
    chain = np.stack([np.arange(half - 1), np.arange(1, half)], axis=1)
    leaves = np.stack([rng.integers(0, max(1, half // 8), num_nodes - half), np.arange(half, num_nodes)], axis=1)
    return np.concatenate([chain, leaves])


@pytest.mark.parametrize("shape", [_random_edges, _chains_with_leaves])
@pytest.mark.parametrize("seed", range(15))
def test_larger_graphs_give_the_groups_of_the_literal_walk(shape, seed):
    rng = np.random.default_rng(seed)
    num_nodes = 240
    pairs = shape(rng, num_nodes, 60 * (1 + seed))
    edges = EdgeList(num_nodes, sorted({(int(min(pair)), int(max(pair))) for pair in pairs}))
    rank = rng.permutation(num_nodes)
    clusters = rng.integers(0, 1 + seed % 4, num_nodes)
    removed = rng.random(num_nodes) < 0.95
    order = order_removals(removed, rank, clusters, "cluster" if seed % 2 else "global")
    assert _contract(edges, order, rank) == oracles.contract(edges.neighbors, order.tolist(), rank.tolist())[0]


@pytest.mark.parametrize("seed", range(10))
def test_leaves_that_are_removed_after_long_chains_join_the_right_groups(seed):
    """Three chains drag shared leaves along from their first nodes, and end in nothing but the strongest leaf left."""
    rng = np.random.default_rng(seed)
    chains = np.arange(120).reshape(3, 40)
    links = np.stack([chains[:, :-1].ravel(), chains[:, 1:].ravel()], axis=1)
    leaves = 120 + np.arange(80)
    hangers = np.stack([chains[rng.integers(0, 3, 160), rng.integers(0, 3, 160)], np.tile(leaves, 2)], axis=1)
    edges = EdgeList(200, sorted({(int(u), int(v)) for u, v in np.concatenate([links, hangers])}))
    rank = np.concatenate([80 + np.arange(120), rng.permutation(80)])
    removed = (np.arange(200) < 120) | (rng.random(200) < (0.8, 1.0)[seed % 2])
    removed[leaves[rank[leaves].argmin()]] = False
    order = order_removals(removed, rank, (np.arange(200) >= 120).astype(np.int64), "cluster")
    assert _contract(edges, order, rank) == oracles.contract(edges.neighbors, order.tolist(), rank.tolist())[0]


def test_networkx_contracts_to_the_same_groups_and_edges():
    rng = np.random.default_rng(0)
    pairs = [(int(u), int(v)) for u, v in _random_edges(rng, 60, 90)]
    rank = rng.permutation(60).tolist()
    order = rng.permutation(60)[:45].tolist()
    graph = oracles.networkx_graph(pairs, 60)
    stands_for = oracles.networkx_contract(graph, order, rank)
    expected, left = oracles.contract(oracles.neighbor_sets(pairs, 60), order, rank)
    assert stands_for == expected
    assert {v: set(graph[v]) for v in graph} == left


def test_the_arrays_of_the_graph_are_only_read():
    graph = Graph.from_edges(np.array([[0, 1, 2], [1, 2, 3]]), 4)
    indptr, indices = graph.indptr.copy(), graph.indices.copy()
    merge_into_neighbors(indptr, indices, np.array([0, 3]), np.arange(4))
    assert (indptr == graph.indptr).all()
    assert (indices == graph.indices).all()


_MILLION_EDGES = """
import numpy as np
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.contraction import merge_into_neighbors
half = 500_000
spine = np.arange(half)
edges = np.concatenate([np.stack([spine[:-1], spine[1:]]), np.stack([{leaf_of}, spine + half])], axis=1)
graph = Graph.from_edges(edges, 2 * half)
rank = {rank}
groups = merge_into_neighbors(graph.indptr, graph.indices, {order}, rank)
assert (groups[:half] == half - 1).all()
"""
_LEAVES_WEAKEST = "np.concatenate([half + spine, spine])"


@pytest.mark.parametrize(
    ("leaf_of", "rank", "order"),
    [
        pytest.param("spine", _LEAVES_WEAKEST, "spine[:-1]", id="kept leaves along a chain"),
        pytest.param("0 * spine", _LEAVES_WEAKEST, "spine[:-1]", id="kept leaves at its start"),
        pytest.param(
            "0 * spine", _LEAVES_WEAKEST, "np.concatenate([spine[:-1], spine + half])", id="leaves removed after it"
        ),
    ],
)
def test_a_chain_of_a_million_edges_is_not_scanned_again_and_again(leaf_of, rank, order):
    """Scanning the leaves at each merge would take 10^11 steps; a kernel cannot be interrupted, a process can."""
    script = _MILLION_EDGES.format(leaf_of=leaf_of, rank=rank, order=order)
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_clusters_are_emptied_one_after_the_other_and_by_rank_inside():
    removed = np.array([True, True, False, True, True])
    rank, clusters = np.array([4, 0, 1, 3, 2]), np.array([0, 1, 0, 0, 1])
    assert order_removals(removed, rank, clusters, "cluster").tolist() == [3, 0, 1, 4]
    assert order_removals(removed, rank, clusters, "global").tolist() == [1, 4, 3, 0]


def _weighted_groups(data, edges):
    weights = data.draw(st.lists(st.integers(0, 9), min_size=len(edges.pairs), max_size=len(edges.pairs)))
    num_groups = data.draw(st.integers(1, edges.num_nodes))
    group = st.integers(-1, num_groups - 1)
    assignment = data.draw(st.lists(group, min_size=edges.num_nodes, max_size=edges.num_nodes))
    return weights, num_groups, assignment


@given(
    edge_lists(),
    st.sampled_from(["none", "count", "sum"]),
    st.sampled_from([(1, 1, 1), (5, 2, 3), (1 << 24, 1 << 16, 64)]),
    st.data(),
)
@settings(deadline=None)
def test_edges_between_groups_carry_the_count_or_sum_of_the_edges_they_stand_for(edges, edge_weights, entries, data):
    weights, num_groups, assignment = _weighted_groups(data, edges)
    graph = Graph.from_edges(edges.array, edges.num_nodes, edge_weight=np.array(weights, np.float64))
    groups = np.array(assignment)
    block, of_range, num_parts = entries
    with patch.multiple(
        contraction, _BLOCK_ENTRIES=block, _WEIGHTED_BLOCK_ENTRIES=block, _RANGE_ENTRIES=of_range, _NUM_PARTS=num_parts
    ):
        merged = merge_edges(graph.indptr, graph.indices, graph.edge_weight, groups, num_groups, edge_weights)
    indices, sums = merged.indices, merged.edge_weight
    reduced = Graph.from_csr(merged.indptr, indices, edge_weight=sums)
    given_weights = weights if edge_weights == "sum" else [1] * len(weights)
    expected = oracles.merged_weights(dict(zip(edges.pairs, given_weights, strict=True)), assignment)
    carried = np.ones(len(indices)) if sums is None else sums
    assert (sums is None) == (edge_weights == "none")
    found = {(u, v): w for u, v, w in zip(*reduced.edge_index.tolist(), carried.tolist(), strict=True)}
    assert set(found) == {pair for u, v in expected for pair in ((u, v), (v, u))}
    if sums is not None:
        assert all(found[u, v] == found[v, u] == weight for (u, v), weight in expected.items())
    inside = np.zeros(num_groups)
    for (u, v), weight in zip(edges.pairs, weights if edge_weights != "count" else [1] * len(weights), strict=True):
        if assignment[u] == assignment[v] >= 0:
            inside[assignment[u]] += 2 * weight
    assert merged.internal_weight.tolist() == inside.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_summed_weights_are_symmetric_to_the_bit_and_keep_their_type(dtype):
    rng = np.random.default_rng(0)
    pairs = np.unique(np.sort(rng.integers(0, 200, (2, 4000)), axis=0), axis=1)
    graph = Graph.from_edges(pairs, 200, edge_weight=rng.random(pairs.shape[1]).astype(dtype))
    merged = merge_edges(graph.indptr, graph.indices, graph.edge_weight, rng.integers(0, 9, 200), 9, "sum")
    matrix = Graph(merged.indptr, merged.indices, merged.edge_weight).to_scipy()
    assert matrix.dtype == dtype
    assert (matrix != matrix.T).nnz == 0
