"""Features, labels and splits under the names that other tools give them, and nothing taken for what it is not."""

import warnings

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy.sparse import csr_array, random_array, save_npz

from falcon_gnn.datasets.archive import read_npz, write_npz
from falcon_gnn.datasets.folders import write_folder
from falcon_gnn.datasets.load import load_graph
from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.graph import Graph


def _tables(folder, nodes, edges="source,target\n0,1\n1,2\n2,3\n"):
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder


_X = [[0.5, 0.1], [0.2, 0.3], [0.1, 0.9], [0.3, 0.3]]


@pytest.mark.parametrize(
    "nodes",
    [
        'node_id,label,feat\n0,0,"0.5, 0.1"\n1,1,"0.2, 0.3"\n2,0,"0.1, 0.9"\n3,1,"0.3, 0.3"\n',
        "node_id,labels,features\n0,0,[0.5 0.1]\n1,1,[0.2 0.3]\n2,0,[0.1 0.9]\n3,1,[0.3 0.3]\n",
        ",0,1,label\n0,0.5,0.1,0\n1,0.2,0.3,1\n2,0.1,0.9,0\n3,0.3,0.3,1\n",
        "0,1,node_label\n0.5,0.1,0\n0.2,0.3,1\n0.1,0.9,0\n0.3,0.3,1\n",
    ],
)
def test_tables_of_other_tools_keep_their_features_and_labels(tmp_path, nodes):
    graph = load_graph(_tables(tmp_path, nodes))
    assert graph.x.tolist() == _X
    assert graph.y.tolist() == [0, 1, 0, 1]
    assert not graph.node_attributes


def test_dgls_edge_columns_are_known(tmp_path):
    folder = _tables(tmp_path, "node_id,label\n0,1\n1,0\n", "src_id,dst_id\n0,1\n")
    assert load_graph(folder).num_edges == 1


def test_columns_of_any_name_can_be_told(tmp_path):
    folder = _tables(tmp_path, "key,v1,v2,age,target\na,1,2,9,0\nb,3,4,9,1\nc,5,6,9,0\n", "source,target\na,b\nb,c\n")
    told = {"label_column": "target", "feature_columns": "v*,age", "id_column": "key"}
    graph = load_graph(folder, **told)
    assert graph.x.tolist() == [[1, 2, 9], [3, 4, 9], [5, 6, 9]]
    assert graph.y.tolist() == [0, 1, 0]
    assert graph.node_attributes["node_id"].tolist() == ["a", "b", "c"]
    for name in told:
        with pytest.raises(OptionError, match=rf"{name} must name what is there \('key', .* got 'gone'"):
            load_graph(folder, **{name: "gone"})


def test_a_comma_may_be_part_of_a_columns_name(tmp_path):
    nodes = 'id,"height, cm",weight,"class, fine",class\n0,1,2,0,5\n1,3,4,1,5\n2,5,6,1,5\n'
    folder = _tables(tmp_path, nodes, "source,target\n0,1\n1,2\n")
    told = {"label_column": "class, fine", "id_column": "id"}
    for features, wanted in (("height, cm", [1]), (["height, cm", "weight"], [1, 2]), ("weight,height*", [2, 1])):
        graph = load_graph(folder, feature_columns=features, **told)
        assert graph.x.reshape(3, -1)[0].tolist() == wanted
        assert graph.y.tolist() == [0, 1, 1]
    with pytest.raises(OptionError, match=r"feature_columns must name what is there .* got 'height'"):
        load_graph(folder, feature_columns="weight,height", **told)
    with pytest.raises(OptionError, match=r"id_column must name one of what is there, got 'class\*' for "):
        load_graph(folder, id_column="class*")


def test_an_option_about_columns_needs_a_node_table(tmp_path):
    (tmp_path / "e.csv").write_text("source,target\n0,1\n")
    with pytest.raises(OptionError, match=r"label_column has no meaning for .*no node table"):
        load_graph(tmp_path / "e.csv", num_nodes=2, label_column="y")
    with pytest.raises(OptionError, match="label_column has no meaning for the data set digits"):
        load_graph("digits", label_column="y")


def test_text_labels_are_kept_aloud_and_refused_when_told(tmp_path):
    folder = _tables(tmp_path, "node_id,label\n0,cat\n1,dog\n2,cat\n3,dog\n")
    with pytest.warns(FalconWarning, match="column label holds text and was kept as a node attribute"):
        assert load_graph(folder).node_attributes["label"].tolist() == ["cat", "dog", "cat", "dog"]
    with pytest.raises(GraphError, match=r"nodes.csv: column label must hold numbers .*pandas.factorize"):
        load_graph(folder, label_column="label")


def test_ids_under_another_name_are_not_ignored_silently(tmp_path):
    folder = _tables(tmp_path, "id,y\n10,0\n11,1\n12,0\n13,0\n")
    with pytest.warns(FalconWarning, match="pass id_column='id' or rename it to node_id"):
        load_graph(folder)


def test_coordinates_are_no_feature_and_no_label(tmp_path):
    folder = _tables(tmp_path, "node_id,x,y\n0,11.57,48.13\n1,11.58,48.14\n2,11.59,48.15\n3,11.6,48.1\n")
    with pytest.warns(FalconWarning, match="taken as coordinates"):
        graph = load_graph(folder)
    assert graph.x is None
    assert graph.y is None
    assert graph.node_attributes["coordinate_x"].tolist() == [11.57, 11.58, 11.59, 11.6]
    told = load_graph(folder, feature_columns="x", label_column="y")
    assert (told.num_features, told.y[0]) == (1, 48.13)


def test_a_column_of_words_is_a_split(tmp_path):
    graph = load_graph(_tables(tmp_path, "node_id,y,split\n0,1,train\n1,0,valid\n2,1,test\n3,0,\n"))
    masks = [mask.tolist() for mask in (graph.train_mask, graph.val_mask, graph.test_mask)]
    assert masks == np.eye(3, 4, dtype=bool).tolist()


def test_nodes_with_other_words_than_those_of_a_split_are_in_no_mask(tmp_path):
    words = ["train", "Valid", "test", "", "holdout", "unlabeled", "a", "b"]
    nodes = "y,partition\n" + "".join(f"1,{word}\n" for word in words)
    with pytest.warns(FalconWarning, match=r"column partition .* with 'a', 'b', 'holdout' and 1 more are in no mask"):
        graph = load_graph(_tables(tmp_path, nodes))
    masks = [mask.tolist() for mask in (graph.train_mask, graph.val_mask, graph.test_mask)]
    assert masks == np.eye(3, 8, dtype=bool).tolist()
    assert not graph.node_attributes


def test_a_vehicle_is_no_split(tmp_path):
    folder = _tables(tmp_path, "y,set\n0,train\n1,bus\n0,car\n1,train\n")
    with pytest.warns(
        FalconWarning, match=r"column set was kept .* no split: beside 'bus', 'car' it holds 'train' alone"
    ):
        graph = load_graph(folder)
    assert graph.train_mask is None
    assert graph.node_attributes["set"].tolist() == ["train", "bus", "car", "train"]


def test_a_column_of_other_words_alone_is_an_attribute(tmp_path):
    graph = load_graph(_tables(tmp_path, "y,split,set\n0,a,train\n1,b,\n0,c,\n1,d,test\n"))
    assert graph.node_attributes["split"].tolist() == list("abcd")
    assert graph.test_mask.tolist() == [False, False, False, True]


def test_a_column_called_as_a_list_of_ids_is_an_attribute(tmp_path):
    folder = _tables(tmp_path, "y,test_id,train_idx\n0,1,0\n1,1,0\n0,2,1\n1,3,0\n")
    with pytest.warns(FalconWarning, match=r"test_id, train_idx kept as node attributes.* column split"):
        graph = load_graph(folder)
    assert (graph.train_mask, graph.test_mask) == (None, None)
    assert graph.node_attributes["test_id"].tolist() == [1, 1, 2, 3]
    assert graph.node_attributes["train_idx"].tolist() == [0, 0, 1, 0]


def test_columns_of_true_and_false_are_masks_under_other_names(tmp_path):
    folder = _tables(tmp_path, "y,train_idx,valid_mask\n0,true,0\n1,false,1\n0,false,0\n1,true,0\n")
    graph = load_graph(folder)
    assert graph.train_mask.tolist() == [True, False, False, True]
    assert graph.val_mask.tolist() == [False, True, False, False]
    assert not graph.node_attributes


def test_a_mask_under_another_name_is_read_beside_those_of_a_graph(tmp_path):
    folder = _tables(tmp_path, "y,train_mask,valid_mask,test_id\n0,true,0,7\n1,false,1,7\n0,false,0,7\n1,true,0,7\n")
    graph = load_graph(folder)
    assert graph.train_mask.tolist() == [True, False, False, True]
    assert graph.val_mask.tolist() == [False, True, False, False]
    assert list(graph.node_attributes) == ["test_id"]


def test_a_mask_that_shares_nodes_with_the_split_is_no_part_of_it(tmp_path):
    folder = _tables(tmp_path, "y,train_mask,valid_mask\n0,true,1\n1,false,1\n0,false,1\n1,true,1\n")
    with pytest.warns(FalconWarning, match="valid_mask was kept as a node attribute .* shares nodes with train_mask"):
        graph = load_graph(folder)
    assert graph.val_mask is None
    assert graph.node_attributes["valid_mask"].all()


def test_columns_called_as_arrays_of_a_graph_keep_their_values_under_another_name(tmp_path):
    names = ["edges", "num_nodes", "edge_weight", "self_loops", "edge_index", "x_indptr", "falcon_attributes"]
    nodes = f"y,{','.join(names)},edges_column\n" + "".join(f"{i},{','.join('1234567')},9\n" for i in range(4))
    with pytest.warns(FalconWarning) as warned:
        graph = load_graph(_tables(tmp_path, nodes))
    assert [str(warning.message).split()[1] for warning in warned] == names
    assert "kept as the node attribute num_nodes_column" in str(warned[1].message)
    first = {name: value[0] for name, value in graph.node_attributes.items()}
    others = {f"{name}_column": i for i, name in enumerate(names[1:], 2)}
    assert first == {"edges_column_column": 1, "edges_column": 9, **others}
    write_npz(graph, tmp_path / "graph.npz")


def test_a_column_that_gives_way_to_a_told_one_keeps_its_values(tmp_path):
    folder = _tables(tmp_path, "key,node_id,y,team\n0,7,5,1\n1,8,5,0\n2,9,5,1\n3,6,5,0\n")
    with (
        pytest.warns(FalconWarning, match="kept as the node attribute y_column"),
        pytest.warns(FalconWarning, match="kept as the node attribute node_id_column"),
    ):
        graph = load_graph(folder, id_column="key", label_column="team")
    assert graph.y.tolist() == [1, 0, 1, 0]
    assert {name: value.tolist() for name, value in graph.node_attributes.items()} == {
        "node_id_column": [7, 8, 9, 6],
        "y_column": [5, 5, 5, 5],
    }


def test_columns_called_as_parts_of_an_attribute_are_attributes(tmp_path):
    graph = load_graph(_tables(tmp_path, "y,a.utf8,a.starts\n0,1,0\n1,1,0\n0,2,1\n1,3,0\n"))
    assert set(graph.node_attributes) == {"a.utf8", "a.starts"}


def test_sparks_vectors_are_features(tmp_path):
    kind = pa.struct(
        [
            ("type", pa.int8()),
            ("size", pa.int32()),
            ("indices", pa.list_(pa.int32())),
            ("values", pa.list_(pa.float64())),
        ]
    )
    rows = [
        {"type": 1, "size": None, "indices": None, "values": [1.0, 0.0, 2.0]},
        {"type": 0, "size": 3, "indices": [1], "values": [5.0]},
    ]
    table = pa.table({"node_id": [0, 1], "features": pa.array(rows, kind), "label": [0.0, 1.0]})
    for name, content in (("nodes", table), ("edges", pa.table({"src": [0], "dst": [1]}))):
        folder = tmp_path / f"{name}.parquet"
        folder.mkdir()
        parquet.write_table(content, folder / "part-00000.snappy.parquet")
        (folder / "_SUCCESS").touch()
    graph = load_graph(tmp_path)
    assert graph.x.toarray().tolist() == [[1, 0, 2], [0, 5, 0]]
    assert graph.y.tolist() == [0, 1]


def _benchmark_arrays():
    rng = np.random.default_rng(0)
    adjacency = csr_array((rng.random((30, 30)) < 0.1).astype(np.float32))
    features = csr_array((rng.random((30, 5)) < 0.4).astype(np.float32))
    parts = ("data", "indices", "indptr", "shape")
    arrays = {f"adj_{part}": np.array(getattr(adjacency, part)) for part in parts}
    arrays |= {f"attr_{part}": np.array(getattr(features, part)) for part in parts}
    return adjacency, features, arrays | {"labels": np.arange(30) % 3}


def test_the_archives_of_gnn_benchmark_are_read(tmp_path):
    adjacency, features, arrays = _benchmark_arrays()
    np.savez(tmp_path / "citeseer.npz", **arrays)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="symmetrised")
        graph = load_graph(tmp_path / "citeseer.npz")
        expected = Graph.from_scipy(adjacency)
    assert np.array_equal(graph.indices, expected.indices)
    assert np.array_equal(graph.x.toarray(), features.toarray())
    assert graph.y.tolist() == (np.arange(30) % 3).tolist()


def test_the_archives_of_heterophilous_graphs_are_read(tmp_path):
    masks = np.arange(12).reshape(2, 6) % 3 == 0
    arrays = {"node_features": np.eye(6), "node_labels": np.arange(6) % 2, "edges": np.array([[0, 1], [2, 3]])}
    np.savez(tmp_path / "minesweeper.npz", **arrays, train_masks=masks)
    graph = load_graph(tmp_path / "minesweeper.npz")
    assert (graph.num_features, graph.y.tolist(), graph.num_edges) == (6, [0, 1] * 3, 2)
    assert graph.train_mask.tolist() == masks[0].tolist()


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_a_matrix_of_scipy_is_an_adjacency(tmp_path, form):
    matrix = csr_array(np.triu(np.arange(16).reshape(4, 4) % 3, 1).astype(float))
    save_npz(tmp_path / "matrix.npz", matrix.asformat(form))
    with pytest.warns(FalconWarning, match="taken as the adjacency: the graph has no features and no labels"):
        graph = load_graph(tmp_path / "matrix.npz")
    assert np.array_equal(graph.to_scipy().toarray(), (matrix + matrix.T).toarray())
    save_npz(tmp_path / "features.npz", random_array((4, 3), density=0.5, format="csr"))
    with pytest.raises(GraphError, match=r"must be square, got shape \(4, 3\)"):
        load_graph(tmp_path / "features.npz")


def test_arrays_of_any_name_can_be_told(tmp_path):
    arrays = {"edges": np.array([[0, 1]]), "num_nodes": np.array(3), "target": np.arange(3), "a": np.eye(3)}
    np.savez(tmp_path / "g.npz", **arrays, b=np.arange(3.0))
    graph = load_graph(tmp_path / "g.npz", label_column="target", feature_columns=("a", "b"))
    assert graph.x.shape == (3, 4)
    assert graph.y.tolist() == [0, 1, 2]


def test_a_split_of_node_ids_in_an_archive_is_read(tmp_path):
    np.savez(tmp_path / "g.npz", edges=[[0, 1]], x=np.eye(4), train_idx=[0, 1], valid_idx=[2], idx_test=[3])
    graph = load_graph(tmp_path / "g.npz")
    assert [np.flatnonzero(m).tolist() for m in (graph.train_mask, graph.val_mask, graph.test_mask)] == [
        [0, 1],
        [2],
        [3],
    ]
    assert not graph.node_attributes


def test_text_and_sparse_attributes_are_stored_and_come_back(tmp_path):
    text = np.array(["a", "b" * 5000, "é"], np.dtypes.StringDType())
    words = csr_array(np.array([[0, 1.5], [2, 0], [0, 0]]))
    graph = Graph.from_edges([[0], [1]], 3, node_attributes={"text": text, "words": words})
    write_npz(graph, tmp_path / "g.npz")
    write_folder(graph, tmp_path / "g")
    for again in (read_npz(tmp_path / "g.npz"), load_graph(tmp_path / "g")):
        assert again.node_attributes["text"].tolist() == text.tolist()
        assert np.array_equal(again.node_attributes["words"].toarray(), words.toarray())
        assert set(again.node_attributes) == {"text", "words"}


def test_pickled_arrays_beside_the_graph_are_left_out_aloud(tmp_path):
    np.savez(tmp_path / "g.npz", edges=[[0, 1]], x=np.eye(2), idx_to_node=np.array([{0: "a"}], object))
    with pytest.warns(FalconWarning, match="idx_to_node left out: they hold pickled"):
        assert load_graph(tmp_path / "g.npz").num_features == 2
