from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falcon_gnn import adjacency as adjacencies
from falcon_gnn.adjacency import build_adjacency, split_edges
from falcon_gnn.errors import BudgetError, GraphError
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.resources import release_pages, scratch_array
from tests import oracles

_NUM_NODES = 7
_NODE = st.integers(0, _NUM_NODES - 1)
_EDGES = st.lists(st.tuples(_NODE, _NODE), max_size=30)


def _build(edges, weights=None, dtype=np.float64):
    array = np.array(edges, np.int64).reshape(-1, 2).T
    weight = None if weights is None else np.array(weights, dtype)
    return build_adjacency(split_edges(array, weight), _NUM_NODES, None if weights is None else np.dtype(dtype))


def _rows(adjacency):
    return {v: adjacency.indices[adjacency.indptr[v] : adjacency.indptr[v + 1]].tolist() for v in range(_NUM_NODES)}


@given(_EDGES)
@settings(deadline=None)
def test_every_edge_list_becomes_sorted_rows_in_both_directions(edges):
    expected = oracles.neighbor_sets(edges, _NUM_NODES)
    assert _rows(_build(edges)) == {v: sorted(around) for v, around in expected.items()}


@given(_EDGES)
@settings(deadline=None)
def test_loops_duplicates_and_one_way_pairs_are_counted(edges):
    found = _build(edges).cleaning
    listed = {edge for edge in edges if edge[0] != edge[1]}
    both = {edge for edge in listed if edge[::-1] in listed}
    assert found.num_self_loops == sum(u == v for u, v in edges)
    assert found.num_duplicates == sum(u != v for u, v in edges) - len(listed)
    assert (found.num_one_way, found.num_two_way) == (len(listed) - len(both), len(both) // 2)


@given(st.lists(st.tuples(_NODE, _NODE, st.integers(0, 3)), max_size=20))
@settings(deadline=None)
def test_weights_add_up_per_direction_and_must_agree_between_the_two(listed):
    edges, weights = [(u, v) for u, v, _ in listed], [w for *_, w in listed]
    try:
        expected = oracles.clean_edges(edges, weights)
    except ValueError:
        with pytest.raises(GraphError, match="edge_weight must be equal in both directions"):
            _build(edges, weights)
        return
    adjacency = _build(edges, weights)
    found = {
        (v, w): weight
        for v, row in _rows(adjacency).items()
        for w, weight in zip(row, adjacency.edge_weight[adjacency.indptr[v] :].tolist(), strict=False)
    }
    both_ways = {(v, u): weight for (u, v), weight in expected.weights.items()}
    assert found == expected.weights | both_ways
    counts = adjacency.cleaning
    assert (counts.num_self_loops, counts.num_duplicates) == (expected.num_self_loops, expected.num_duplicates)
    assert (counts.num_one_way, counts.num_two_way) == (expected.num_one_way, expected.num_two_way)


def test_weights_that_differ_within_rounding_are_one_edge_and_symmetric_to_the_bit():
    adjacency = _build([(0, 1), (1, 0)], [0.1, 0.1 + 1e-9])
    assert adjacency.edge_weight[0] == adjacency.edge_weight[1]


def test_weights_keep_their_precision():
    assert _build([(0, 1)], [0.1], np.float32).edge_weight.dtype == np.float32
    assert _build([(0, 1)], [0.1], np.float64).edge_weight.dtype == np.float64


@given(_EDGES)
@settings(deadline=None, max_examples=30)
def test_the_size_of_the_chunks_makes_no_difference(edges):
    whole = _build(edges)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adjacencies, "CHUNK_EDGES", 3)
        chunked = _build(edges)
    assert _rows(chunked) == _rows(whole)
    assert chunked.cleaning == whole.cleaning


@pytest.mark.parametrize(
    ("range_bits", "group_entries", "part_edges"), [(11, 1 << 27, 1 << 19), (4, 900, 150), (0, 1, 7)]
)
def test_ranges_groups_and_parts_make_no_difference(range_bits, group_entries, part_edges, monkeypatch):
    """Skewed rows of up to some hundred entries, a third of them repeats or reverses, in several chunks."""
    rng = np.random.default_rng(0)
    edges = (300 * rng.random((2, 3000)) ** 3).astype(np.int32)
    edges[:, 2000:] = edges[::-1, :1000]
    for name, value in (
        ("CHUNK_EDGES", 700), ("_FEWEST_RANGE_BITS", range_bits), ("_MOST_RANGES_BITS", 12),
        ("_GROUP_ENTRIES", group_entries), ("_PART_EDGES", part_edges),
    ):  # fmt: skip
        monkeypatch.setattr(adjacencies, name, value)
    found = build_adjacency(split_edges(edges), 310)
    pairs = list(zip(*edges.tolist(), strict=True))
    expected = oracles.clean_edges(pairs, [0.0] * len(pairs))
    around = oracles.neighbor_sets(pairs, 310)
    assert found.indices.tolist() == [u for v in range(310) for u in sorted(around[v])]
    assert found.indptr.tolist() == np.cumsum([0] + [len(around[v]) for v in range(310)]).tolist()
    assert (found.cleaning.num_self_loops, found.cleaning.num_duplicates, found.cleaning.num_one_way) == (
        expected.num_self_loops, expected.num_duplicates, expected.num_one_way
    )  # fmt: skip


@pytest.mark.parametrize(("edge", "position"), [((0, 7), 4), ((-1, 2), 3), ((2**40, 1), 0)])
def test_an_id_out_of_range_is_named_with_its_position(edge, position, monkeypatch):
    monkeypatch.setattr(adjacencies, "CHUNK_EDGES", 3)
    for weights in (None, [1.0] * (position + 1)):
        with pytest.raises(GraphError, match=rf"ids in \[0, num_nodes\) = \[0, 7\), but edge {position} is"):
            _build([(0, 1)] * position + [edge], weights)


def test_ids_are_int32_below_two_billion_nodes():
    adjacency = _build([(0, 1)])
    assert (adjacency.indptr.dtype, adjacency.indices.dtype) == (np.int64, np.int32)


def test_a_graph_that_cannot_fit_is_refused_before_memory_is_asked_for():
    with pytest.raises(BudgetError, match=r"TiB of memory are needed to count the degrees"):
        build_adjacency(split_edges(np.zeros((2, 0), np.int64)), 2**50)


def test_the_edge_list_is_only_read():
    edges = np.array([[0, 1, 1, 1], [1, 0, 1, 2]])
    edges.flags.writeable = False
    assert build_adjacency(split_edges(edges), 3).cleaning.num_self_loops == 1


@pytest.mark.parametrize("centrality", ["pagerank", "degree"])
def test_an_adjacency_in_a_mapped_file_gives_the_same_collapse(centrality, monkeypatch):
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 400, (2, 1500))
    y = rng.integers(0, 3, 400)
    in_memory = Graph.from_edges(edges, 400, y=y, warn_one_way="never")
    monkeypatch.setattr(adjacencies, "available_memory", lambda: 1 << 10)
    mapped = Graph.from_edges(edges, 400, y=y, warn_one_way="never")
    assert isinstance(mapped.indices.base.base, np.memmap)
    assert not isinstance(in_memory.indices.base.base, np.memmap)
    results = [collapse(graph, node_budget=0.3, centrality=centrality, num_clusters=3) for graph in (in_memory, mapped)]
    for name in ("assignment", "kept", "rank", "centrality"):
        assert (getattr(results[0], name) == getattr(results[1], name)).all()
    assert (results[0].graph.indices == results[1].graph.indices).all()


def test_a_mapped_file_that_the_disk_has_no_room_for_is_refused(monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(BudgetError, match=r"4.0 KiB are needed in a file.*100.0 B left.*TMPDIR"):
        scratch_array(1024, np.int32)


def test_nothing_is_left_of_a_mapped_file(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    values = scratch_array(1024, np.int32)
    values[:] = 7
    release_pages(values)
    assert values.sum() == 7 * 1024
    del values
    assert list(tmp_path.iterdir()) == []
