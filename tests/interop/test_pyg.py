"""PyG Data in and out."""

import copy
import shutil

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch_geometric import EdgeIndex, transforms
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import ToSparseTensor

from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.interop.pyg import FalconCollapse, from_pyg, to_pyg
from falcon_gnn.reduction.falcon import collapse

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def _undirected(graph):
    source, target = graph.edge_index
    return sorted((int(u), int(v)) for u, v in zip(source, target, strict=True) if u < v)


def test_data_becomes_a_graph_with_all_that_is_of_nodes():
    data = Data(
        x=torch.rand(4, 3),
        edge_index=EDGES,
        edge_weight=torch.tensor([1.0, 1.0, 2.0, 2.0]),
        y=torch.tensor([0, 1, 1, -1]),
        train_mask=torch.tensor([True, False, True, False]),
        age=torch.arange(4),
        name=["a", "b", "c", "d"],
        title="a title",
    )
    graph = from_pyg(data, node_attrs=["age", "name"])
    assert _undirected(graph) == [(0, 1), (1, 2)]
    assert graph.edge_weight.tolist() == [1, 1, 2, 2]
    assert np.array_equal(graph.x, data.x.numpy())
    assert graph.y.tolist() == [0, 1, 1, -1]
    assert graph.train_mask.tolist() == [True, False, True, False]
    assert {name: value.tolist() for name, value in graph.node_attributes.items()} == {
        "age": [0, 1, 2, 3],
        "name": ["a", "b", "c", "d"],
    }


def test_tensors_are_viewed_and_not_changed():
    data = Data(x=torch.rand(4, 3), edge_index=EDGES, y=torch.zeros(4, dtype=torch.long))
    before = copy.deepcopy(data)
    graph = from_pyg(data)
    assert np.shares_memory(graph.x, data.x.numpy())
    assert all(torch.equal(data[key], before[key]) for key in data.keys())  # noqa: SIM118


@pytest.mark.parametrize("num_nodes", [4, 1000])
def test_isolated_trailing_nodes_are_kept(num_nodes):
    assert from_pyg(Data(edge_index=EDGES, num_nodes=num_nodes)).num_nodes == num_nodes


def test_a_size_that_only_edges_could_tell_is_not_guessed():
    with pytest.raises(GraphError, match=r"Set data\.num_nodes"):
        from_pyg(Data(edge_index=EDGES))


@pytest.mark.parametrize("key", ["x", "pos", "y", "train_mask"])
def test_the_size_is_told_by_any_node_level_attribute(key):
    value = torch.ones(6, dtype=torch.bool) if key == "train_mask" else torch.ones(6, 1)
    assert from_pyg(Data(edge_index=EDGES, **{key: value})).num_nodes == 6


def test_an_edge_index_object_is_read_with_its_size():
    graph = from_pyg(Data(edge_index=EdgeIndex(EDGES, sparse_size=(7, 7))))
    assert (graph.num_nodes, _undirected(graph)) == (7, [(0, 1), (1, 2)])


@pytest.mark.filterwarnings("ignore:.*CSR.*:UserWarning")
@pytest.mark.parametrize("weighted", [True, False])
def test_a_sparse_adjacency_is_read(weighted):
    weight = {"edge_weight": torch.tensor([0.5, 0.5, 2.0, 2.0])} if weighted else {}
    data = ToSparseTensor(attr="edge_weight")(Data(edge_index=EDGES, num_nodes=5, **weight))
    assert "edge_index" not in data
    graph = from_pyg(data)
    assert (graph.num_nodes, _undirected(graph)) == (5, [(0, 1), (1, 2)])
    assert graph.is_weighted == weighted
    if weighted:
        assert graph.edge_weight.tolist() == [0.5, 0.5, 2.0, 2.0]


@pytest.mark.filterwarnings("ignore:.*CSR.*:UserWarning")
def test_weights_beside_a_sparse_adjacency_are_left_out_aloud():
    data = ToSparseTensor(attr=None)(Data(edge_index=EDGES, num_nodes=5))
    data.edge_weight = torch.arange(EDGES.shape[1]) + 1.0
    with pytest.warns(FalconWarning, match=r"edge_weight left out.*Store the weights in the matrix"):
        graph = from_pyg(data)
    assert graph.edge_weight is None


@pytest.mark.filterwarnings("ignore:.*CSR.*:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_features_stay_sparse_both_ways(layout):
    x = torch.tensor([[1.0, 0, 0], [0, 0, 2], [0, 0, 0]])
    graph = from_pyg(Data(x=x.to_sparse(layout=layout), edge_index=EDGES))
    assert graph.x.nnz == 2
    assert graph.x.indices.dtype == graph.x.indptr.dtype == np.int32
    assert np.array_equal(graph.x.toarray(), x.numpy())
    sparse = to_pyg(graph, dense_features=False).x
    assert sparse.layout == torch.sparse_csr
    assert torch.equal(sparse.to_dense(), x)
    assert torch.equal(to_pyg(graph).x, x)


def test_edge_attributes_are_left_out_aloud():
    data = Data(edge_index=EDGES, edge_attr=torch.rand(4, 2), num_nodes=3)
    with pytest.warns(FalconWarning, match=r"edge_attr left out.*data\.edge_weight"):
        assert not from_pyg(data).is_weighted


def test_with_as_many_edges_as_nodes_names_tell_which_is_which():
    data = Data(edge_index=EDGES, edge_kind=torch.arange(4), age=torch.arange(4), num_nodes=4)
    with (
        pytest.warns(FalconWarning, match="edge_kind left out"),
        pytest.warns(FalconWarning, match="age taken for attributes of nodes"),
    ):
        assert list(from_pyg(data).node_attributes) == ["age"]


def test_a_one_way_graph_is_symmetrised_aloud():
    with pytest.warns(FalconWarning, match="symmetrised: 2 edges had no reverse"):
        graph = from_pyg(Data(edge_index=EDGES[:, [0, 2]], num_nodes=3))
    assert _undirected(graph) == [(0, 1), (1, 2)]


def test_weights_stay_with_their_edges_when_the_graph_is_symmetrised():
    data = Data(edge_index=torch.tensor([[2, 0], [1, 1]]), edge_weight=torch.tensor([5.0, 7.0]), num_nodes=3)
    with pytest.warns(FalconWarning, match="symmetrised"):
        matrix = from_pyg(data).to_scipy().toarray()
    assert matrix.tolist() == [[0, 7, 0], [7, 0, 5], [0, 5, 0]]


@pytest.mark.parametrize("split_index", [None, 0, 1])
def test_one_of_several_splits_is_used_and_all_are_kept(split_index):
    masks = torch.tensor([[True, False], [False, True], [True, True]])
    graph = from_pyg(Data(edge_index=EDGES, train_mask=masks, num_nodes=3), split_index)
    assert graph.train_mask.tolist() == masks[:, split_index or 0].tolist()
    assert graph.node_attributes["train_masks"].tolist() == masks.tolist()


def test_a_split_that_is_not_there_is_refused():
    data = Data(edge_index=EDGES, train_mask=torch.ones(3, 2, dtype=torch.bool), num_nodes=3)
    with pytest.raises(OptionError, match=r"split_index must be in \[0, 2\)"):
        from_pyg(data, 2)


@pytest.mark.parametrize("wrong", [HeteroData(), {"edge_index": EDGES}])
def test_what_is_not_homogeneous_data_is_refused(wrong):
    with pytest.raises(GraphError, match=r"data must be a homogeneous torch_geometric\.data\.Data"):
        from_pyg(wrong)


def test_a_batch_is_one_graph():
    batch = Batch.from_data_list([Data(edge_index=EDGES, num_nodes=3), Data(edge_index=EDGES, num_nodes=4)])
    graph = from_pyg(batch)
    assert _undirected(graph) == [(0, 1), (1, 2), (3, 4), (4, 5)]
    assert graph.node_attributes["batch"].tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_bfloat16_and_gradients_are_no_obstacle():
    x = torch.ones(3, 2, dtype=torch.bfloat16, requires_grad=True)
    assert from_pyg(Data(x=x, edge_index=EDGES)).x.dtype == np.float32


def test_a_graph_becomes_data_that_layers_and_losses_take():
    graph = Graph.from_edges(
        [[0, 1], [1, 2]],
        4,
        edge_weight=[0.5, 2.0],
        x=np.eye(4, dtype=np.uint8),
        y=np.array([0, 1, -1, 1], np.int16),
        val_mask=np.arange(4) == 2,
        node_attributes={"name": np.array(list("abcd")), "count": np.arange(4, dtype=np.uint16)},
    )
    data = to_pyg(graph)
    assert data.validate()
    assert (data.x.dtype, data.y.dtype, data.val_mask.dtype) == (torch.float32, torch.int64, torch.bool)
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert data.edge_weight.tolist() == [0.5, 0.5, 2.0, 2.0]
    assert data.name == ["a", "b", "c", "d"]
    assert data["count"].dtype == torch.int64
    assert data.num_nodes == 4


def test_layers_take_the_weights_of_the_edges():
    from torch_geometric.nn import GCNConv

    graph = Graph.from_edges([[0, 1], [1, 2]], 3, edge_weight=[0.5, 2.0], x=np.eye(3, dtype=np.float32))
    data = to_pyg(graph)
    first, second = GCNConv(3, 4), GCNConv(4, 2)
    assert second(first(data.x, data.edge_index, data.edge_weight), data.edge_index, data.edge_weight).shape == (3, 2)


@pytest.mark.parametrize(("kind", "expected"), [(np.float64, torch.float64), (np.float16, torch.float32)])
def test_edge_weights_are_as_precise_as_the_features_but_never_halves(kind, expected):
    graph = Graph.from_edges([[0], [1]], 2, edge_weight=[70_000.0], x=np.eye(2, dtype=kind))
    weight = to_pyg(graph).edge_weight
    assert (weight.dtype, weight.tolist()) == (expected, [70_000, 70_000])


@pytest.mark.parametrize("name", ["x", "train_mask", "edge_index", "edge_weight", "num_nodes"])
def test_a_node_attribute_does_not_take_the_place_of_another(name):
    graph = Graph.from_edges(
        [[0], [1]], 2, x=np.eye(2), train_mask=[True, False], node_attributes={name: np.array([7.0, 8.0])}
    )
    with pytest.raises(GraphError, match=f"must not be named {name}: a PyG Data uses the name for something else"):
        to_pyg(graph)


def test_multilabel_targets_are_floats():
    graph = Graph.from_edges([[0], [1]], 2, y=np.array([[0, 1], [1, 1]], np.uint8))
    assert to_pyg(graph).y.dtype == torch.float32


def test_changing_the_data_does_not_change_the_graph():
    graph = Graph.from_edges([[0], [1]], 2, x=np.ones((2, 2), np.float32))
    to_pyg(graph).x[:] = 7
    assert graph.x.max() == 1


def test_a_round_trip_changes_nothing():
    graph = Graph.from_edges(
        [[0, 1], [1, 2]],
        5,
        edge_weight=np.array([0.5, 2.0], np.float32),
        x=np.random.default_rng(0).random((5, 2), np.float32),
        y=np.array([0, 1, 2, 0, -1]),
        train_mask=np.arange(5) < 2,
        node_attributes={"age": np.arange(5)},
    )
    again = from_pyg(to_pyg(graph))
    for name in ("indptr", "indices", "edge_weight", "x", "y", "train_mask"):
        assert np.array_equal(getattr(again, name), getattr(graph, name)), name
    assert again.node_attributes["age"].tolist() == list(range(5))


def test_pygs_own_cora_equals_ours(tmp_path, shared_dataset):
    from torch_geometric.datasets import Planetoid

    from falcon_gnn.datasets.load import load_graph

    raw = shared_dataset("cora").parent / "planetoid_raw"
    if not raw.is_dir():
        pytest.skip("no planetoid_raw folder beside the data sets")
    shutil.copytree(raw, tmp_path / "Cora" / "raw")
    theirs, ours = from_pyg(Planetoid(tmp_path, "Cora")[0]), load_graph("cora", root=tmp_path)
    assert np.array_equal(theirs.indices, ours.indices)
    assert np.array_equal(theirs.x, ours.x.toarray())
    assert np.array_equal(theirs.y, ours.y)
    assert np.array_equal(theirs.test_mask, ours.test_mask)


def test_weights_of_nodes_and_soft_labels_go_there_and_back():
    carried = {
        "node_weight": np.array([1.0, 2.0, 3.0]), "self_weight": np.array([1.0, 0.0, 4.0], np.float32),
        "label_distribution": np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]),
    }  # fmt: skip
    graph = Graph.from_edges([[0, 1], [1, 2]], 3, y=[0, 1, 1], **carried)
    back = from_pyg(to_pyg(graph))
    for name, value in carried.items():
        assert np.array_equal(getattr(back, name), value)
    assert not back.node_attributes


def _ring(num_nodes, **attributes):
    ids = torch.arange(num_nodes)
    ring = torch.stack([ids, (ids + 1) % num_nodes])
    return Data(edge_index=torch.cat([ring, ring.flip(0)], 1), num_nodes=num_nodes, **attributes)


_TRAIN, _VAL, _TEST = torch.arange(10), torch.arange(10, 15), torch.arange(15, 20)


@pytest.mark.parametrize(
    "split",
    [
        {"train_idx": _TRAIN, "val_idx": _VAL, "test_idx": _TEST},
        {"idx_train": _TRAIN, "idx_val": _VAL, "idx_test": _TEST},
        {"train_mask": None, "train_index": _TRAIN, "valid_idx": _VAL, "test_indices": _TEST},
        {"split_idx": {"train": _TRAIN, "valid": _VAL, "test": _TEST}},
        {"train_idx": _TRAIN[:, None], "valid_mask": (torch.arange(20) // 5) == 2, "test_ids": _TEST.tolist()},
    ],
)
def test_a_split_of_node_ids_is_read(split):
    """pytorch_geometric 2105; spektral 153."""
    graph = from_pyg(_ring(20, **split))
    masks = [np.flatnonzero(mask).tolist() for mask in (graph.train_mask, graph.val_mask, graph.test_mask)]
    assert masks == [_TRAIN.tolist(), _VAL.tolist(), _TEST.tolist()]
    assert not graph.node_attributes


def test_a_mask_under_another_name_is_read_beside_the_others():
    train, valid = torch.arange(20) < 10, torch.arange(20) >= 15
    graph = from_pyg(_ring(20, train_mask=train, valid_mask=valid, test_idx=_TEST))
    assert np.flatnonzero(graph.val_mask).tolist() == _TEST.tolist()
    assert graph.test_mask is None
    many = from_pyg(_ring(20, train_mask=torch.stack([train, valid], dim=1), valid_mask=valid))
    assert many.val_mask is None
    assert "valid_mask" in many.node_attributes


@pytest.mark.parametrize("split", [{"train_idx": _TRAIN}, {"train_mask": torch.arange(20) < 10}])
def test_a_dictionary_of_node_ids_gives_way_to_another_split(split):
    graph = from_pyg(_ring(20, split_idx={"train": _VAL, "test": _TEST}, **split))
    assert np.flatnonzero(graph.train_mask).tolist() == _TRAIN.tolist()
    assert graph.test_mask is None


def test_ids_outside_the_graph_are_refused():
    for ids in ([0, 5], [-1, 4]):
        with pytest.raises(GraphError, match=rf"train_idx must hold node ids in \[0, 5\), got {ids[0]} to {ids[1]}"):
            from_pyg(_ring(5, train_idx=torch.tensor(ids)))


def test_a_split_of_node_ids_becomes_masks_of_the_survivors():
    out = FalconCollapse(node_budget=6, num_clusters=1, scope="full", centrality="degree")(
        _ring(20, train_idx=_TRAIN, val_idx=_VAL, test_idx=_TEST)
    )
    assert "train_idx" not in out
    assert out.train_mask.tolist() == [node in _TRAIN for node in out.falcon_kept]


def test_what_is_told_overrides_the_guess():
    data = _ring(4, age=torch.arange(4), weights=torch.arange(8), u=torch.arange(4.0))
    with pytest.warns(FalconWarning, match="u, weights left out|weights, u left out"):
        graph = from_pyg(data, edge_attrs=["u"])
    assert list(graph.node_attributes) == ["age"]
    for option, keys, message in (
        ("node_attrs", ["weights"], "node_attrs names 'weights', which needs 4 rows, got 8"),
        ("edge_attrs", ["gone"], "edge_attrs must name attributes of data .* got gone"),
    ):
        with pytest.raises(OptionError, match=message):
            from_pyg(data, **{option: keys})


def test_a_number_per_node_that_is_called_as_node_ids_is_what_it_is_told_to_be():
    data = _ring(4, train_idx=torch.tensor([1, 0, 3, 0]))
    graph = from_pyg(data, node_attrs=["train_idx"])
    assert (graph.train_mask, graph.node_attributes["train_idx"].tolist()) == (None, [1, 0, 3, 0])


def test_a_graph_level_label_is_left_out_aloud():
    with pytest.warns(FalconWarning, match="y left out"):
        assert from_pyg(_ring(4, y=torch.tensor([1]))).y is None


def test_sparse_node_attributes_follow_their_nodes():
    x = torch.eye(6)[[0, 2, 1, 0, 5, 3]]
    data = _ring(6, x=x, words=x.to_sparse_csr())
    graph = from_pyg(data)
    assert np.array_equal(graph.node_attributes["words"].toarray(), x.numpy())
    out = FalconCollapse(node_budget=3, num_clusters=1)(data)
    assert torch.equal(out.words.to_dense(), out.x)
    assert torch.equal(to_pyg(collapse(graph, node_budget=3, num_clusters=1).graph).words.to_dense(), out.x)


@pytest.mark.parametrize("name", ["RemoveIsolatedNodes", "NormalizeFeatures", "LargestConnectedComponents"])
def test_pygs_transforms_take_sparse_features(name):
    graph = Graph.from_edges([[0, 1], [1, 2]], 4, x=csr_array(np.eye(4, dtype=np.float32)), y=np.arange(4))
    assert getattr(transforms, name)()(to_pyg(graph)).num_nodes in (3, 4)


def _citations(*, with_splits=False):
    """Return three classes of ten nodes each, of which a third trains, a third validates and a third tests."""
    rng = np.random.default_rng(0)
    y, part = np.arange(60) % 3, rng.permutation(np.arange(60) % 3)
    graph = Graph.from_edges(
        rng.integers(0, 60, (2, 200)), 60, x=np.eye(3)[y] + rng.normal(0, 0.3, (60, 3)), y=y, warn_one_way="never",
        train_mask=part == 0, val_mask=part == 1, test_mask=part == 2,
    )  # fmt: skip
    data = to_pyg(graph)
    if with_splits:
        for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
            data[name] = torch.from_numpy(np.stack([part == (number + 1) % 3, part == number], axis=1))
    return graph, data


@pytest.mark.parametrize("with_splits", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"merge": "mean", "centrality": "degree", "num_clusters": 4},
        {"merge": "hub", "centrality": "degree", "num_clusters": 4},
        {"groups": "alike"},
        {"selection": "random", "cluster_on": "teacher"},
        {"groups": "alike", "cluster_on": "teacher"},
    ],
)
def test_labels_and_masks_are_those_of_the_reduced_graph(options, with_splits):
    graph, data = _citations(with_splits=with_splits)
    split = {"split_index": 1} if with_splits else {}
    found = data.falcon_collapse(node_budget=20, scope="full", **split, **options)
    expected = collapse(graph, node_budget=20, scope="full", **options).graph
    assert found.y.tolist() == expected.y.tolist()
    for name in ("train_mask", "val_mask", "test_mask"):
        mask, wanted = found.get(name), getattr(expected, name)
        shown = None if mask is None else (mask[:, 1] if with_splits else mask).tolist()
        assert (shown or [False] * 20) == ([False] * 20 if wanted is None else wanted.tolist())


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (np.longdouble, torch.float64), (">f4", torch.float32), (">f8", torch.float64), (">i4", torch.int32),
        (np.complex64, torch.complex64), (np.clongdouble, torch.complex128), (np.uint16, torch.int64),
    ],
)  # fmt: skip
def test_numbers_of_any_kind_become_the_nearest_of_torch(given, dtype):
    values = np.array([1.5, -2.5, 3] if np.dtype(given).kind in "fc" else [1, 2, 3], given)
    data = to_pyg(Graph.from_edges([[0], [1]], 3, node_attributes={"a": values}))
    assert data.a.dtype == dtype
    assert data.a.tolist() == values.tolist()


def test_features_in_long_double_or_another_byte_order_become_floats():
    for kind in (np.longdouble, ">f8"):
        data = to_pyg(Graph.from_edges([[0], [1]], 2, x=np.array([[0.5], [1.5]], kind)))
        assert (data.x.dtype, data.x.tolist()) == (torch.float64, [[0.5], [1.5]])


def test_one_attribute_may_be_named_without_a_list():
    data = Data(edge_index=EDGES, num_nodes=4, score=torch.arange(4.0), s=torch.arange(4))
    with pytest.warns(FalconWarning, match="^s left out"):
        graph = from_pyg(data, node_attrs="score", edge_attrs="s")
    assert list(graph.node_attributes) == ["score"]
    assert FalconCollapse(node_budget=2, node_attrs="score").told["node_attrs"] == ("score",)


@pytest.mark.parametrize("names", [3, [3], None])
def test_what_is_no_name_of_an_attribute_is_refused(names):
    with pytest.raises(OptionError, match="node_attrs must be a name or a sequence of names"):
        from_pyg(Data(edge_index=EDGES, num_nodes=4), node_attrs=names)


@pytest.mark.parametrize("name", ["x", "edge_weight", "node_weight"])
def test_tensors_with_gradients_or_in_bfloat16_make_a_graph(name):
    values = torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16, requires_grad=True)
    graph = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 0]]), 3, **{name: values})
    assert getattr(graph, name).dtype == np.float32
    assert sorted(set(getattr(graph, name).ravel().tolist())) == [1, 2, 4]


def test_sparse_halves_of_torch_are_read():
    data = Data(x=torch.eye(3, dtype=torch.float16).to_sparse(), edge_index=torch.tensor([[0, 1], [1, 2]]))
    with pytest.warns(FalconWarning, match="symmetrised"):
        assert from_pyg(data).x.dtype == np.float32


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_tensors_are_sparse_features(layout):
    dense = torch.tensor([[0.0, 1.5], [2.5, 0.0]])
    graph = Graph.from_edges([[0], [1]], 2, x=dense.to_sparse(layout=layout), node_attributes={"a": dense.to_sparse()})
    for matrix in (graph.x, graph.node_attributes["a"]):
        assert matrix.format == "csr"
        assert matrix.toarray().tolist() == dense.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_models_output_is_lifted_and_ranks_nodes(dtype):
    scores = torch.tensor([3.0, 1.0, 2.0], dtype=dtype, requires_grad=True)
    result = collapse(Graph.from_edges([[0, 1], [1, 2]], 3), node_budget=2, centrality=scores, num_clusters=1)
    assert result.kept.tolist() == [0, 2]
    lifted = result.lift(scores[:2])
    assert lifted.dtype == np.float32
    assert lifted[[0, 2]].tolist() == [3, 1]
