import copy
import pickle
import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from falcon_gnn.errors import FalconError, FalconWarning, GraphError, OptionError
from falcon_gnn.graph import Graph
from tests.strategies import edge_lists

PATH = np.array([[0, 1, 2, 3], [1, 2, 3, 4]])


def _path(**arrays):
    return Graph.from_edges(PATH, 5, **arrays)


def _mask(*ids):
    return np.isin(np.arange(5), ids)


# Edges in


@given(edge_lists())
@settings(deadline=None)
def test_one_way_and_two_way_lists_of_any_integer_type_give_the_same_graph(edges):
    expected = Graph.from_edges(edges.array, edges.num_nodes)
    both = np.concatenate([edges.array[::-1], edges.array], axis=1)
    for listed in (both, edges.array.astype(np.uint8), edges.array.astype(np.int32)[:, ::-1], edges.array.tolist()):
        graph = Graph.from_edges(listed, edges.num_nodes)
        assert (graph.indptr == expected.indptr).all()
        assert (graph.indices == expected.indices).all()


def test_nodes_beyond_the_last_edge_are_kept():
    """pytorch_geometric 1270, 1917, 190, 9171: N is never guessed from the edges."""
    graph = Graph.from_edges(np.array([[0], [1]]), 1767)
    assert graph.num_nodes == len(graph.degrees) == 1767
    assert graph.subgraph([0, 1700, 1766]).num_nodes == 3


def test_self_loops_and_duplicates_are_removed_and_counted():
    """pytorch_geometric 129, 1356; dgl 482: they would distort degrees."""
    graph = Graph.from_edges(np.array([[0, 0, 0, 1, 2], [1, 1, 0, 2, 2]]), 3)
    assert graph.degrees.tolist() == [1, 2, 1]
    assert (graph.cleaning.num_self_loops, graph.cleaning.num_duplicates) == (2, 1)


def test_weights_stay_with_their_edges():
    """pytorch_geometric 789, 914, 1427."""
    edges, weight = np.array([[3, 0, 2], [1, 2, 1]]), np.array([31.0, 2.0, 21.0])
    matrix = Graph.from_edges(edges, 4, edge_weight=weight).to_scipy().toarray()
    assert matrix[3, 1] == matrix[1, 3] == 31
    assert matrix[0, 2] == matrix[2, 0] == 2
    assert matrix[2, 1] == matrix[1, 2] == 21


def test_equal_weights_both_ways_are_one_edge_and_duplicates_add_up():
    graph = Graph.from_edges([[0, 1, 1, 1], [1, 0, 2, 2]], 3, edge_weight=[5, 5, 1, 2], warn_one_way="never")
    assert graph.to_scipy().toarray().tolist() == [[0, 5, 0], [5, 0, 3], [0, 3, 0]]


def test_unequal_weights_both_ways_are_refused():
    with pytest.raises(GraphError, match=r"edge_weight must be equal in both directions.*\(0, 1\) and \(1, 0\) differ"):
        Graph.from_edges([[0, 1], [1, 0]], 2, edge_weight=[1.0, 2.0])


def test_only_a_list_where_some_pairs_have_a_reverse_is_warned_about():
    with pytest.warns(FalconWarning, match="symmetrised: 1 edges had no reverse and 1 had one"):
        Graph.from_edges([[0, 1, 1], [1, 0, 2]], 3)
    _path()
    Graph.from_edges(np.concatenate([PATH, PATH[::-1]], axis=1), 5)


def test_a_reader_may_ask_for_the_warning_always_or_never():
    with pytest.warns(FalconWarning, match="symmetrised"):
        _path(warn_one_way="always")
    Graph.from_edges([[0, 1, 1], [1, 0, 2]], 3, warn_one_way="never")


@pytest.mark.parametrize(
    ("edge_index", "message"),
    [
        ([[0, 5], [1, 2]], r"\[0, 5\), but edge 1 is \(5, 2\)"),
        ([[0, -1], [1, 2]], r"\[0, 5\), but edge 1 is \(-1, 2\)"),
        ([[0, 2**40], [1, 2]], r"edge 1 is \(1099511627776, 2\)"),
        ([[0.0, 1.0], [1.0, 2.0]], "edge_index must hold integers, got float64"),
        (np.ones((2, 3), bool), "edge_index must hold integers, got bool"),
        (PATH.T, r"shape \(2, num_entries\), got \(4, 2\)"),
        (np.zeros((3, 4), int), r"shape \(2, num_entries\), got \(3, 4\)"),
        (np.arange(4), r"shape \(2, num_entries\), got \(4,\)"),
    ],
)
def test_an_edge_list_that_cannot_be_meant_is_refused(edge_index, message):
    with pytest.raises(GraphError, match=message):
        Graph.from_edges(edge_index, 5)


def test_edges_listed_as_rows_are_answered_with_the_fix():
    with pytest.raises(GraphError, match="Transpose it"):
        Graph.from_edges(np.array([[0, 1], [1, 2], [2, 3]]), 4)


@pytest.mark.parametrize("num_nodes", [0, -1, 2.0, None, True, "5"])
def test_a_number_of_nodes_that_is_no_count_is_refused(num_nodes):
    with pytest.raises(GraphError, match="num_nodes must be a whole number of at least 1, got"):
        Graph.from_edges(np.zeros((2, 0), int), num_nodes)


@pytest.mark.parametrize("weight", [[1, 2, 3], np.ones((4, 2)), [1, 1, 1, np.nan], [1, 1, 1, np.inf], [1, 1, 1, -1]])
def test_unusable_edge_weights_are_refused(weight):
    with pytest.raises(GraphError, match="edge_weight must be"):
        _path(edge_weight=weight)


@pytest.mark.parametrize("edges", [[], [[], []], np.zeros((2, 0)), [[0], [1]], [[0, 1, 2], [1, 2, 0]]])
def test_no_edge_one_edge_and_as_many_edges_as_nodes_are_graphs(edges):
    graph = Graph.from_edges(edges, 3)
    assert graph.num_edges == np.size(edges) // 2
    assert graph.edge_index.shape == (2, 2 * graph.num_edges)


def test_one_node_is_a_graph():
    graph = Graph.from_edges([], 1, x=[[1.0]], y=[0], train_mask=[True])
    assert (graph.num_nodes, graph.num_edges, graph.degrees.tolist()) == (1, 0, [0])


# Node arrays


@pytest.mark.parametrize("name", ["x", "y", "train_mask", "val_mask", "test_mask"])
@pytest.mark.parametrize("length", [4, 6, 0])
def test_an_array_of_a_wrong_length_is_refused_by_name(name, length):
    with pytest.raises(GraphError, match=rf"{name} must .*\(?5"):
        _path(**{name: np.ones(length, bool)})


def test_an_extra_attribute_of_a_wrong_length_is_refused_by_name():
    with pytest.raises(GraphError, match=r"node_attributes\['graph_id'\] must have one row per node \(5\)"):
        _path(node_attributes={"graph_id": np.arange(4)})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_features_must_be_finite(bad, as_sparse):
    x = np.ones((5, 2))
    x[3, 1] = bad
    with pytest.raises(GraphError, match="x must be finite, but holds NaN or infinity"):
        _path(x=sp.csr_array(x) if as_sparse else x)


@pytest.mark.parametrize("kind", [np.array, sp.csr_array, sp.csc_array, sp.coo_matrix])
def test_the_first_row_that_is_not_finite_is_named(kind):
    x = np.ones((5, 2))
    x[1] = 0
    x[3:, 1] = np.nan
    with pytest.raises(GraphError, match="first at row 3"):
        _path(x=kind(x))


@pytest.mark.parametrize(
    "x", [np.ones((5, 2), complex), np.full((5, 2), "a"), np.ones((5, 2, 2)), sp.csr_array((4, 2))]
)
def test_features_must_be_a_real_matrix_with_a_row_per_node(x):
    with pytest.raises(GraphError, match="x must be real numbers of shape"):
        _path(x=x)


def test_a_single_feature_may_be_flat():
    assert _path(x=np.arange(5.0)).x.shape == (5, 1)


def test_masks_that_overlap_are_refused_with_both_names():
    with pytest.raises(GraphError, match=r"train_mask and test_mask overlap at 1 nodes \(first: 2\)"):
        _path(train_mask=_mask(0, 2), test_mask=_mask(2, 3))


def test_a_mask_that_selects_nothing_is_refused():
    with pytest.raises(GraphError, match="val_mask selects no node"):
        _path(val_mask=np.zeros(5, bool))


@pytest.mark.parametrize("mask", [np.array([0, 1, 2, 3, 4]), np.array([0.0, 1, 0, 0, 0]), np.ones((5, 3), bool)])
def test_a_mask_that_is_not_one_bool_per_node_is_refused(mask):
    with pytest.raises(GraphError, match="train_mask must"):
        _path(train_mask=mask)


def test_a_mask_of_zeros_and_ones_is_taken_as_bool():
    assert _path(train_mask=np.array([0, 1, 1, 0, 0], np.uint8)).train_mask.tolist() == _mask(1, 2).tolist()


@pytest.mark.parametrize("y", [np.full(5, "a"), np.array([0, 1, np.inf, 0, 1]), np.ones((5, 2, 2)), np.ones((5, 0))])
def test_unusable_labels_are_refused(y):
    with pytest.raises(GraphError, match="y must"):
        _path(y=y)


def test_labels_in_a_column_are_flattened():
    assert _path(y=np.arange(5)[:, None]).y.shape == (5,)


def test_unlabelled_nodes_are_allowed():
    assert np.isnan(_path(y=np.array([0, 1, np.nan, 2, -1])).y[2])


# Inputs are never modified


def test_sparse_halves_become_single_precision_which_scipy_computes_with():
    half = sp.csr_array(np.eye(5, 3, dtype=np.float32))
    half.data = half.data.astype(np.float16)
    graph = _path(x=half, node_attributes={"tags": half})
    assert half.dtype == np.float16
    for matrix in (graph.x, graph.node_attributes["tags"]):
        assert matrix.dtype == np.float32
        assert matrix[[1, 3]].toarray().tolist() == [[0, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize("name", ["x", "y", "train_mask", "node_weight"])
def test_masked_entries_are_not_used_as_values(name):
    masked = np.ma.array([1, 0, 1, 1, 1], mask=[0, 1, 0, 0, 1])
    with pytest.raises(GraphError, match=rf"{name} must not have masked entries, .* 2 are masked"):
        _path(**{name: masked})
    assert _path(y=np.ma.array(np.arange(5))).y.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["x", "y", "node_attributes['tags']", "edge_index"])
def test_rows_of_unequal_length_are_named(name):
    ragged = [[1, 2], [3]]
    arrays = {"node_attributes": {"tags": ragged}} if name.startswith("node") else {name: ragged}
    with pytest.raises(GraphError, match=re.escape(f"{name} must have rows of one length")):
        Graph.from_edges(**{"edge_index": [[0], [1]], "num_nodes": 2, **arrays})


def _sparse_features(kind):
    """Return a matrix whose rows are unsorted and hold a repeated entry."""
    arrays = (np.array([1.0, 2, 3, 4]), np.array([2, 0, 1, 1]), np.array([0, 2, 4, 4, 4, 4]))
    return kind(arrays, shape=(5, 3))


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix])
def test_sparse_features_with_unsorted_or_repeated_entries_are_not_modified(kind):
    x = _sparse_features(kind)
    before = [x.data.copy(), x.indices.copy(), x.indptr.copy()]
    graph = _path(x=x)
    for array, old in zip((x.data, x.indices, x.indptr), before, strict=True):
        assert array.tolist() == old.tolist()
    assert graph.x.toarray().tolist() == [[2, 0, 1], [0, 7, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_read_only_inputs_are_accepted_and_the_callers_arrays_stay_writable():
    x, y, mask, edges = np.ones((5, 2)), np.arange(5), _mask(0, 1), PATH.copy()
    _path(x=x, y=y, train_mask=mask)
    assert all(array.flags.writeable for array in (x, y, mask))
    for array in (x, y, mask, edges):
        array.flags.writeable = False
    assert Graph.from_edges(edges, 5, x=x, y=y, train_mask=mask).num_edges == 4


def test_the_arrays_of_a_graph_cannot_be_written():
    graph = _path(x=np.ones((5, 2)), y=np.arange(5), train_mask=_mask(0), edge_weight=np.ones(4))
    for array in (graph.indptr, graph.indices, graph.edge_weight, graph.x, graph.y, graph.train_mask):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(FrozenInstanceError):
        graph.x = None
    with pytest.raises(TypeError):
        graph.node_attributes["new"] = 1


@pytest.mark.parametrize("key", [3, None, ("a", "b")])
def test_a_node_attribute_has_a_text_as_its_name(key):
    with pytest.raises(GraphError, match=r"node_attributes\[.*\] must have a text as its name"):
        _path(node_attributes={key: np.arange(5)})


def test_features_are_neither_copied_nor_read_into_memory(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((5, 2)))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.shares_memory(_path(x=x).x, x)


# Out, and parts


@given(edge_lists(), st.booleans())
@settings(deadline=None)
def test_scipy_and_back_is_the_same_graph(edges, is_weighted):
    weight = 1.0 + np.arange(len(edges.pairs)) if is_weighted else None
    graph = Graph.from_edges(edges.array, edges.num_nodes, edge_weight=weight)
    matrix = graph.to_scipy()
    back = Graph.from_scipy(matrix)
    assert (matrix != matrix.T).nnz == 0
    assert (back.indices == graph.indices).all()
    assert (back.edge_weight is None) == (weight is None or (weight == 1).all())
    if back.is_weighted:
        assert (back.edge_weight == graph.edge_weight).all()


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok"])
def test_every_sparse_format_and_either_triangle_is_read(form):
    full = sp.csr_array(_path().to_scipy())
    for matrix in (full, sp.triu(full), sp.tril(full)):
        assert (Graph.from_scipy(matrix.asformat(form)).indices == _path().indices).all()


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok"])
def test_entries_of_one_place_add_up_in_every_sparse_format(form):
    matrix = sp.coo_array((np.ones(3), ([0, 0, 1], [1, 1, 2])), (4, 4))
    graph = Graph.from_scipy(matrix.asformat(form))
    assert graph.indices.tolist() == [1, 0, 2, 1]
    assert graph.edge_weight.tolist() == [2, 2, 1, 1]
    none = Graph.from_scipy(sp.coo_array(([1, -1, 1], ([0, 0, 1], [1, 1, 2])), (4, 4)).asformat(form))
    assert (none.indices.tolist(), none.is_weighted) == ([2, 1], False)


def test_stored_zeros_of_a_matrix_are_no_edges():
    """``setdiag(0)``, the usual way to remove loops, leaves them behind."""
    matrix = sp.csr_array(np.ones((3, 3)))
    matrix.setdiag(0)
    matrix[0, 1] = matrix[1, 0] = 0
    graph = Graph.from_scipy(matrix)
    assert graph.num_edges == 2
    assert not graph.is_weighted


@pytest.mark.parametrize("matrix", [np.eye(3), sp.csr_array((3, 4)), None])
def test_what_is_no_square_sparse_matrix_is_refused(matrix):
    with pytest.raises(GraphError, match="matrix must be a square SciPy sparse matrix"):
        Graph.from_scipy(matrix)


def test_a_mask_of_the_nodes_makes_the_subgraph_of_its_nodes():
    graph = _path(x=np.arange(5.0)[:, None])
    mask = np.array([True, False, True, True, False])
    assert graph.subgraph([]).num_nodes == graph.subgraph(~mask & mask).num_nodes == 0
    assert graph.subgraph(mask).x[:, 0].tolist() == graph.subgraph([0, 2, 3]).x[:, 0].tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    "wrong", [[0.5, 1.7], [True, False], ["1", "2"], None, [[0, 1]], np.array([True, False, True])]
)
def test_what_is_neither_ids_nor_a_mask_makes_no_subgraph(wrong):
    with pytest.raises(OptionError, match=r"node_ids must be whole numbers of shape .* or a bool mask of shape \(5,\)"):
        _path().subgraph(wrong)


def test_weights_that_differ_between_directions_are_refused_in_a_clean_adjacency_too():
    graph = _path()
    weight = np.arange(len(graph.indices), dtype=float)
    weight[graph.edge_index[0] < graph.edge_index[1]] += 10
    with pytest.raises(GraphError, match="edge_weight must be equal in both directions of an edge, but "):
        Graph.from_csr(graph.indptr, graph.indices, edge_weight=weight)
    ends = np.sort(graph.edge_index, axis=0)
    kept = Graph.from_csr(graph.indptr, graph.indices, edge_weight=ends[0] + 2.0 * ends[1])
    assert kept.edge_weight.tolist() == (ends[0] + 2.0 * ends[1]).tolist()


def test_a_clean_adjacency_is_taken_without_a_copy():
    graph = _path()
    again = Graph.from_csr(graph.indptr, graph.indices)
    assert np.shares_memory(again.indices, graph.indices)


@pytest.mark.parametrize(
    ("indptr", "indices"),
    [
        ([0, 1, 1], [1]), ([0, 1, 2], [0, 1]), ([0, 2, 4], [1, 1, 0, 0]), ([0, 1, 2], [2, 0]), ([0, 1, 2], [-1, 0]),
        ([0, 2, 1], [1]), ([0, 1, 2], [1.0, 0.0]), ([1, 1, 2], [1, 0]), ([0, 1, 3], [1, 0]),
        ([0.0, 1.5, 2.0], [1, 0]), ([0, 1, 2], [[1], [0]]),
        ([0, 2, 3, 4], [2, 1, 0, 0]), ([0, 1, 2], np.array([2**32 + 1, 2**32])),
    ],
)  # fmt: skip
def test_an_adjacency_that_is_not_clean_is_refused(indptr, indices):
    with pytest.raises(GraphError, match=r"indptr must be|indices must (hold|lie)"):
        Graph.from_csr(indptr, np.array(indices))


@given(edge_lists(), st.data())
@settings(deadline=None)
def test_a_subgraph_holds_the_edges_among_its_nodes(edges, data):
    ids = sorted(data.draw(st.sets(st.integers(0, edges.num_nodes - 1), min_size=1)))
    weight = np.arange(1.0, 1 + len(edges.pairs))
    graph = Graph.from_edges(edges.array, edges.num_nodes, edge_weight=weight)
    assert (graph.subgraph(ids).to_scipy().toarray() == graph.to_scipy().toarray()[np.ix_(ids, ids)]).all()


def test_a_subgraph_carries_every_node_array():
    graph = _path(
        x=np.arange(10.0).reshape(5, 2), y=np.arange(5), train_mask=_mask(1, 2), val_mask=_mask(4),
        node_attributes={"graph_id": np.arange(5) * 10},
    )  # fmt: skip
    part = graph.subgraph([1, 4])
    assert part.x.tolist() == [[2, 3], [8, 9]]
    assert part.y.tolist() == [1, 4]
    assert (part.train_mask.tolist(), part.val_mask.tolist(), part.test_mask) == ([True, False], [False, True], None)
    assert part.node_attributes["graph_id"].tolist() == [10, 40]


def test_a_subgraph_may_lie_outside_a_mask():
    part = _path(train_mask=_mask(0), val_mask=_mask(1, 2)).subgraph([1, 2])
    assert part.num_nodes == 2
    assert part.train_mask is None


@pytest.mark.parametrize("ids", [[1, 0], [1, 1], [-1, 2], [3, 5]])
def test_subgraph_ids_that_are_not_ascending_ids_are_refused(ids):
    with pytest.raises(OptionError, match=r"node_ids must be distinct, ascending and in \[0, 5\)"):
        _path().subgraph(ids)


def test_a_field_is_replaced_and_checked_in_a_copy():
    graph = _path(y=np.arange(5))
    changed = graph.replace(y=None, train_mask=_mask(3))
    assert (changed.y, changed.train_mask.tolist(), graph.train_mask) == (None, _mask(3).tolist(), None)
    with pytest.raises(GraphError, match="val_mask selects no node"):
        graph.replace(val_mask=np.zeros(5, bool))
    with pytest.raises(OptionError, match=r"takes the fields .*, got labels"):
        graph.replace(labels=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_weight": np.ones(3)}, r"edge_weight must be numbers of shape \(8,\)"),
        ({"edge_weight": np.arange(8.0)}, "edge_weight must be equal in both directions"),
        ({"indices": np.zeros(8, int)}, "indices must hold, in each row, ascending ids"),
        ({"indptr": [0, 1, 2], "indices": [1, 0]}, r"x must have one row per node \(2\)"),
    ],
)
def test_a_replaced_adjacency_is_checked_and_fits_the_nodes(changes, message):
    graph = _path(x=np.ones((5, 2)))
    with pytest.raises(GraphError, match=message):
        graph.replace(**changes)
    assert graph.replace(edge_weight=np.full(8, 2)).edge_weight.tolist() == [2.0] * 8


def test_a_graph_survives_pickle_and_deepcopy():
    """Spark workers, spawned processes and ``copy.deepcopy`` of a PyG transform need it."""
    graph = _path(x=np.ones((5, 2)), node_attributes={"graph_id": np.arange(5)})
    for twin in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        assert (twin.indices == graph.indices).all()
        assert twin.node_attributes["graph_id"].tolist() == [0, 1, 2, 3, 4]


def test_the_representation_shows_sizes_and_contents():
    assert repr(_path(y=np.arange(5), node_attributes={"a": np.arange(5)})) == (
        "Graph(num_nodes=5, num_edges=4, num_features=0, y, a)"
    )


def test_a_graph_error_is_a_value_error_and_a_falcon_error():
    for error in (GraphError, OptionError):
        assert issubclass(error, ValueError)
        assert issubclass(error, FalconError)


# Weights of nodes and soft labels

CARRIED = {
    "node_weight": np.array([1.0, 2.5, 3.0]),
    "self_weight": np.array([0.0, 1.0, 4.0]),
    "label_distribution": np.array([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]]),
}


def test_node_weights_follow_a_subgraph_a_copy_and_a_pickle():
    graph = Graph.from_edges([[0, 1], [1, 2]], 3, **CARRIED)
    for name, value in CARRIED.items():
        assert np.array_equal(getattr(graph.subgraph([0, 2]), name), value[[0, 2]])
        assert np.array_equal(getattr(graph.replace(y=np.zeros(3, int)), name), value)
        assert np.array_equal(getattr(pickle.loads(pickle.dumps(graph)), name), value)
        assert not getattr(graph, name).flags.writeable


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"node_weight": [1, 0, 1]}, r"node_weight must be finite and above 0, got 0.0 at node 1"),
        ({"node_weight": [1, 1]}, r"node_weight must have one row per node \(3\)"),
        ({"self_weight": [1, -1, 1]}, r"self_weight must be finite and at least 0, got -1.0 at node 1"),
        ({"self_weight": [1, np.nan, 1]}, r"self_weight must be finite"),
        ({"self_weight": np.eye(3)}, r"self_weight must be numbers of shape \(3,\)"),
        ({"label_distribution": [[1.0, 0], [0.5, 0.4], [0, 1]]}, r"rows >= 0 that sum to 1, but row 1"),
        ({"label_distribution": [[1.0, 0], [1.5, -0.5], [0, 1]]}, r"but row 1 does not"),
        ({"label_distribution": [1.0, 1.0, 1.0]}, r"label_distribution must be floats of shape \(3, L\)"),
    ],
)
def test_bad_node_weights_are_refused(arrays, match):
    with pytest.raises(GraphError, match=match):
        Graph.from_edges([[0, 1], [1, 2]], 3, **{name: np.array(value) for name, value in arrays.items()})


def test_whole_numbers_become_floating_weights():
    assert Graph.from_edges([[0], [1]], 2, node_weight=[1, 2]).node_weight.dtype == np.float64
