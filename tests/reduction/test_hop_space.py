"""Hop features of the nodes in scope in few columns, against the dense formula."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from tests.strategies import edge_lists
from tests.tracing import traced_peak

from falcon_gnn.graph import Graph
from falcon_gnn.labels import encode_labels
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.reduction import hop_space as hop_space_module
from falcon_gnn.reduction.hop_space import hop_space, join_columns, label_columns
from falcon_gnn.reduction.scope import resolve_scope


def _unit(rows):
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)


def _random_graph(num_nodes=120, num_features=40, seed=0, rank=None):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_nodes, num_features))
    if rank is not None:
        x = rng.normal(size=(num_nodes, rank)) @ rng.normal(size=(rank, num_features))
    edges = rng.integers(0, num_nodes, (2, 3 * num_nodes))
    return Graph.from_edges(edges[:, edges[0] != edges[1]], num_nodes, x=x.astype(np.float32), warn_one_way="never")


@given(edge_lists(), st.integers(1, 3), st.booleans(), st.integers(0, 2**16))
@settings(deadline=None, max_examples=50)
def test_features_that_fit_are_the_normalised_hops_themselves(edges, num_hops, is_sparse, seed):
    x = np.random.default_rng(seed).integers(0, 3, (edges.num_nodes, 4)).astype(np.float32)
    graph = Graph.from_edges(edges.array, edges.num_nodes, x=csr_array(x) if is_sparse else x)
    space = hop_space(graph.x, resolve_scope(graph, None), num_hops, 0)
    dense = normalized_csr(graph, np.float64).toarray()
    expected, block = [], x.astype(np.float64)
    for _ in range(num_hops):
        block = dense @ block
        expected.append(_unit(block))
    assert space == pytest.approx(np.concatenate(expected, axis=1), abs=1e-5)


def test_features_of_low_rank_keep_every_distance_when_projected():
    graph = _random_graph(num_features=90, rank=6)
    space = hop_space(graph.x, resolve_scope(graph, None), 2, 0, max_columns=16)
    assert space.shape == (120, 16)
    dense = normalized_csr(graph, np.float64).toarray()
    first = dense @ graph.x
    whole = np.concatenate([_unit(first), _unit(dense @ first)], axis=1)
    assert space @ space.T == pytest.approx(whole @ whole.T, abs=1e-4)


@pytest.mark.parametrize("max_columns", [8, 15, 16])
def test_a_hop_has_two_columns_however_many_hops_there_are(max_columns):
    graph = _random_graph()
    space = hop_space(graph.x, resolve_scope(graph, None), 8, 0, max_columns)
    assert space.shape == (120, 16)
    assert np.linalg.norm(space.reshape(120, 8, 2), axis=2) == pytest.approx(1, abs=1e-5)
    assert len(np.unique(space.round(6), axis=0)) == 120


def test_sparse_and_dense_features_give_the_same_space():
    graph = _random_graph()
    sparse = graph.replace(x=csr_array(graph.x))
    scope = resolve_scope(graph, None)
    assert hop_space(sparse.x, scope, 2, 0, 10) == pytest.approx(hop_space(graph.x, scope, 2, 0, 10), abs=1e-4)


@pytest.mark.parametrize("scale", [2.0**70, 2.0**-70])
def test_features_whose_squares_are_no_float32_have_the_space_of_others(scale):
    graph = _random_graph()
    scope = resolve_scope(graph, None)
    assert np.array_equal(hop_space(graph.x * scale, scope, 2, 0, 10), hop_space(graph.x, scope, 2, 0, 10))


def test_nothing_outside_the_scope_is_read():
    graph = _random_graph()
    inside = np.arange(120) < 80
    graph = graph.replace(train_mask=inside)
    x = graph.x.copy()
    x[~inside] = 1e6
    first = hop_space(graph.x, resolve_scope(graph, "train"), 2, 0, 10)
    assert np.array_equal(hop_space(x, resolve_scope(graph, "train"), 2, 0, 10), first)
    alone = graph.subgraph(np.flatnonzero(inside))
    assert np.array_equal(hop_space(alone.x, resolve_scope(alone, "train"), 2, 0, 10), first)


def test_self_weights_change_the_hops():
    graph = _random_graph(num_features=3)
    heavy = graph.replace(self_weight=np.full(120, 1e9))
    space = hop_space(heavy.x, resolve_scope(heavy, None), 2, 0)
    assert space[:, :3] == pytest.approx(_unit(graph.x), abs=1e-4)


def test_joined_columns_have_the_shares_of_the_variance():
    rng = np.random.default_rng(0)
    features, labels = (rng.normal(size=(50, w)).astype(np.float32) * s for w, s in ((4, 9.0), (2, 0.1)))
    joined = join_columns(features.copy(), labels.copy(), 0.7)
    spread = joined.var(axis=0)
    assert spread[:4].sum() == pytest.approx(0.7, rel=1e-4)
    assert spread[4:].sum() == pytest.approx(0.3, rel=1e-4)


def test_hidden_labels_do_not_move_the_label_columns():
    y = np.random.default_rng(0).integers(0, 2, (30, 5))
    visible = np.arange(30) < 20
    other = y.copy()
    other[20:] = 1 - other[20:]
    spaces = [label_columns(encode_labels(labels, "multilabel", visible=visible), 3, 0) for labels in (y, other)]
    assert np.array_equal(*spaces)
    assert not spaces[0][20:].any()


def test_the_last_node_with_edges_counts_all_of_its_weight_beside_isolated_ones():
    edges = np.array([[0, 1, 2], [4, 4, 4]])
    graph = Graph.from_edges(edges, num_nodes=7, edge_weight=[0.5, 2.0, 3.0], x=np.eye(7, dtype=np.float32))
    expected = normalized_csr(graph).toarray() @ graph.x
    assert hop_space(graph.x, resolve_scope(graph, None), 1, 0) == pytest.approx(_unit(expected), abs=1e-6)


def _resident_file_bytes():
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssFile"))


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux which pages are resident")
def test_features_of_a_mapped_file_are_let_go_of_block_by_block(tmp_path):
    graph = _random_graph(1 << 14, 64)
    scope = resolve_scope(graph, None)
    expected = hop_space(graph.x, scope, 2, 0)
    np.save(tmp_path / "x.npy", graph.x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    before = _resident_file_bytes()
    assert (hop_space(mapped, scope, 2, 0) == expected).all()
    assert _resident_file_bytes() - before < mapped.nbytes // 4


def test_label_columns_are_made_without_floats_of_all_labels(monkeypatch):
    monkeypatch.setattr(hop_space_module, "_BLOCK_VALUES", 1 << 16)
    y = np.random.default_rng(0).integers(0, 2, (20_000, 200)).astype(np.uint8)
    encoding = encode_labels(y, "multilabel")
    assert traced_peak(lambda: label_columns(encoding, 4, 0)) < 2 * y.nbytes
