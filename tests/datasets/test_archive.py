"""The .npz layout: what is written comes back, and what cannot be read says why."""

import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from falcon_gnn.datasets.archive import read_npz, write_npz
from falcon_gnn.datasets.folders import write_folder
from falcon_gnn.datasets.layout import RESERVED_NAMES, graph_from_arrays, graph_to_arrays
from falcon_gnn.datasets.load import load_graph
from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.graph import Graph


def test_a_written_graph_comes_back_whole(tmp_path, rich_graph, assert_same):
    write_npz(rich_graph, tmp_path / "graph.npz")
    assert_same(read_npz(tmp_path / "graph.npz"), rich_graph)


def test_the_written_file_needs_no_pickle_and_numpy_reads_it(tmp_path, rich_graph):
    write_npz(rich_graph, tmp_path / "graph.npz")
    with np.load(tmp_path / "graph.npz", allow_pickle=False) as archive:
        assert archive["edges"].tolist() == [[0, 1], [0, 3], [1, 2]]
        assert archive["num_nodes"] == 5
        assert archive["train_masks"].shape == (2, 5)


def test_the_same_graph_gives_the_same_bytes(tmp_path, rich_graph):
    for name in ("a.npz", "b.npz"):
        write_npz(rich_graph, tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20))
def test_arrays_describe_the_graph_they_came_from(edges):
    graph = Graph.from_edges(np.array(edges, int).reshape(-1, 2).T, 7, warn_one_way="never")
    again = graph_from_arrays(graph_to_arrays(graph))
    assert again.edge_index.tolist() == graph.edge_index.tolist()
    assert again.num_nodes == 7


def test_sparse_features_of_other_values_than_one_keep_them_and_ones_are_not_stored(rich_graph):
    assert "x_data" in graph_to_arrays(rich_graph)
    ones = rich_graph.x.copy()
    ones.data[:] = 1
    assert "x_data" not in graph_to_arrays(rich_graph.replace(x=ones))


def test_isolated_trailing_nodes_survive(tmp_path):
    write_npz(Graph.from_edges([[0], [1]], 9), tmp_path / "graph.npz")
    assert read_npz(tmp_path / "graph.npz").num_nodes == 9


def test_a_graph_without_any_edge_survives(tmp_path):
    write_npz(Graph.from_edges(np.zeros((2, 0), int), 3), tmp_path / "graph.npz")
    assert read_npz(tmp_path / "graph.npz").num_edges == 0


@pytest.mark.parametrize("split_index", [0, 1])
@pytest.mark.parametrize("by_row", [True, False])
def test_masks_of_several_splits_are_picked_by_index_in_either_orientation(split_index, by_row):
    masks = np.array([[1, 0], [0, 1], [1, 1]], bool)
    arrays = {"num_nodes": np.array(3), "edges": np.array([[0, 1]]), "train_masks": masks.T if by_row else masks}
    graph = graph_from_arrays(arrays, split_index)
    assert graph.train_mask.tolist() == masks[:, split_index].tolist()
    assert graph.node_attributes["train_masks"].tolist() == masks.tolist()


def test_a_split_that_is_not_there_is_refused():
    arrays = {"num_nodes": np.array(3), "edges": np.array([[0, 1]]), "train_masks": np.ones((2, 3), bool)}
    with pytest.raises(OptionError, match=r"split_index must be in \[0, 2\), got 2"):
        graph_from_arrays(arrays, 2)


def test_stored_self_loops_are_counted_as_removed():
    arrays = {"num_nodes": np.array(3), "edges": np.array([[0, 1], [2, 2]]), "self_loops": np.array([0, 1])}
    assert graph_from_arrays(arrays).cleaning.num_self_loops == 3


def test_an_array_that_is_not_per_node_is_left_out_aloud():
    arrays = {"num_nodes": np.array(3), "edges": np.array([[0, 1]]), "title": np.array("x")}
    with pytest.warns(FalconWarning, match="title was left out"):
        assert not graph_from_arrays(arrays).node_attributes


def test_what_is_stored_in_two_forms_is_read_in_one_with_a_warning(tmp_path):
    path = tmp_path / "twice.npz"
    np.savez(
        path, edges=[[0, 1]], edge_index=[[1, 2], [2, 1]], x=np.ones((3, 2)), x_indptr=[0, 1, 1, 1], x_indices=[0],
        x_shape=[3, 1],
    )  # fmt: skip
    with (
        pytest.warns(FalconWarning, match="edge_index was left out: edges holds"),
        pytest.warns(FalconWarning, match="x was left out: x_indptr holds"),
    ):
        graph = read_npz(path)
    assert (graph.num_edges, graph.num_features) == (1, 1)


def test_missing_edges_and_missing_size_are_named():
    with pytest.raises(GraphError, match=r"edges .* is missing; found num_nodes"):
        graph_from_arrays({"num_nodes": np.array(3)})
    with pytest.raises(GraphError, match="num_nodes is missing"):
        graph_from_arrays({"edges": np.array([[0, 1]])})


def test_edges_listed_as_rows_of_two_are_told_apart():
    with pytest.raises(GraphError, match=r"edges must have shape \(E, 2\), got \(2, 3\)"):
        graph_from_arrays({"num_nodes": np.array(3), "edges": np.zeros((2, 3), int)})


def test_broken_sparse_features_do_not_reach_scipy():
    arrays = {
        "num_nodes": np.array(2),
        "edges": np.array([[0, 1]]),
        "x_indptr": np.array([0, 1, 2]),
        "x_indices": np.array([0, 9]),
        "x_shape": np.array([2, 3]),
    }
    with pytest.raises(ValueError, match=r"indices|index values"):  # As SciPy 1.15 and 1.13 have it.
        graph_from_arrays(arrays)


def test_a_truncated_file_is_named(tmp_path, rich_graph):
    path = tmp_path / "graph.npz"
    write_npz(rich_graph, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(OptionError, match=r"graph\.npz cannot be read as an \.npz graph"):
        read_npz(path)


def test_damaged_content_is_named(tmp_path, rich_graph):
    path = tmp_path / "graph.npz"
    write_npz(rich_graph, path)
    content = bytearray(path.read_bytes())
    content[60:70] = bytes(10)
    path.write_bytes(content)
    with pytest.raises(OptionError, match=r"graph\.npz cannot be read"):
        read_npz(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(OptionError, match=r"none\.npz does not exist"):
        read_npz(tmp_path / "none.npz")


class _Bomb:
    def __reduce__(self):
        return (open, ("exploded", "w"))


def test_pickled_objects_are_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("bad.npz", num_nodes=3, edges=np.array([[0, 1]]), y=np.array([_Bomb()] * 3, object))
    with pytest.raises(OptionError, match=r"bad\.npz cannot be read"):
        read_npz("bad.npz")
    assert not (tmp_path / "exploded").exists()


def test_objects_are_not_written(tmp_path):
    graph = Graph.from_edges([[0], [1]], 2, node_attributes={"tag": np.array([{}, None], object)})
    with pytest.raises(GraphError, match=r"node_attributes\['tag'\] holds Python objects"):
        write_npz(graph, tmp_path / "graph.npz")
    assert not list(tmp_path.iterdir())


def test_a_name_of_the_layout_is_not_written_as_attribute(tmp_path):
    graph = Graph.from_edges([[0], [1]], 2, node_attributes={"edges": np.arange(2)})
    with pytest.raises(GraphError, match="must not be named edges"):
        write_npz(graph, tmp_path / "graph.npz")


_MEANINGS = [
    *("label", "feat", "features", "test_id", "valid_mask", "train_idx", "idx_test", "split_idx", "train_masks"),
    *("val_masks", "node_id", "train_images", "format", "shape", "data", "labels", "attr_matrix", "adj"),
    *("adj.data", "adj.indices", "adj.indptr", "adj.shape", "feat.utf8", "feat.starts", "feat.shape", "label.indptr"),
]
_NAMES = st.sampled_from(_MEANINGS) | st.sampled_from(sorted(RESERVED_NAMES)) | st.text(max_size=8)
_VALUES = st.sampled_from(
    [
        np.arange(3),
        np.array([0, 1, 1]),
        np.array([True, False, False]),
        np.array([0.5, np.nan, 2]),
        np.array([[1, 0], [0, 1], [0, 0]], bool),
        np.arange(12).reshape(3, 2, 2),
        np.array(["a", "", "ä"]),
        np.array(["a", "", "b" * 40], np.dtypes.StringDType()),
        csr_array(np.array([[0, 2.0], [0, 0], [1, 0]])),
    ]
)


@given(st.dictionaries(_NAMES, _VALUES, max_size=6), st.booleans())
def test_attributes_of_any_name_come_back_as_such_or_are_refused_at_once(tmp_path_factory, assert_same, named, is_full):
    known = {"x": np.ones((3, 2)), "y": np.array([0, 1, 0]), "val_mask": np.array([True, False, False])}
    graph = Graph.from_edges([[0], [1]], 3, node_attributes=named, **(known if is_full else {}))
    folder = tmp_path_factory.mktemp("any")
    for write, path in ((write_npz, folder / "graph.npz"), (write_folder, folder / "graph")):
        with suppress(GraphError):
            write(graph, path)
        if path.exists():
            assert_same(load_graph(path), graph)


def test_names_that_mean_something_in_files_of_others_are_attributes_in_our_own(tmp_path, assert_same):
    graph = Graph.from_edges([[0], [1]], 2, node_attributes=dict.fromkeys(_MEANINGS, np.arange(2)))
    write_npz(graph, tmp_path / "graph.npz")
    assert_same(load_graph(tmp_path / "graph.npz"), graph)


def test_an_attribute_called_as_a_part_of_another_is_refused(tmp_path):
    texts = np.array(["a", "b" * 40], np.dtypes.StringDType())
    graph = Graph.from_edges([[0], [1]], 2, node_attributes={"feat.utf8": np.arange(2), "feat": texts})
    with pytest.raises(GraphError, match=r"must not be named feat beside feat\.utf8: the file uses both\. Rename one"):
        write_npz(graph, tmp_path / "graph.npz")


def test_a_written_attribute_of_splits_is_no_mask_unless_it_is_told(tmp_path):
    masks = np.array([[0, 1], [0, 0], [0, 1]], bool)
    write_npz(Graph.from_edges([[0], [1]], 3, node_attributes={"train_masks": masks}), tmp_path / "graph.npz")
    assert read_npz(tmp_path / "graph.npz").train_mask is None
    assert read_npz(tmp_path / "graph.npz", split_index=1).train_mask.tolist() == [True, False, True]


def test_what_is_added_to_a_written_file_is_read_by_its_name(tmp_path):
    write_npz(Graph.from_edges([[0], [1]], 3, node_attributes={"label": np.arange(3)}), tmp_path / "graph.npz")
    with np.load(tmp_path / "graph.npz") as archive:
        np.savez(tmp_path / "more.npz", **archive, train_idx=np.array([2]), feat=np.ones((3, 2)))
    graph = read_npz(tmp_path / "more.npz")
    assert graph.y is None
    assert graph.train_mask.tolist() == [False, False, True]
    assert graph.num_features == 2


def test_a_written_attribute_can_be_told_to_be_the_labels(tmp_path):
    attributes = {"f1": np.zeros(3), "f2": np.ones(3), "label": np.arange(3)}
    write_npz(Graph.from_edges([[0], [1]], 3, node_attributes=attributes), tmp_path / "graph.npz")
    graph = load_graph(tmp_path / "graph.npz", label_column="label", feature_columns="f*")
    assert graph.y.tolist() == [0, 1, 2]
    assert graph.x.tolist() == [[0, 1]] * 3
    assert not graph.node_attributes


def test_an_interrupted_write_leaves_the_old_file(tmp_path, rich_graph, monkeypatch, assert_same):
    path = tmp_path / "graph.npz"
    write_npz(rich_graph, path)

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(np.lib.format, "write_array", stop)
    with pytest.raises(KeyboardInterrupt):
        write_npz(Graph.from_edges([[0], [1]], 2), path)
    assert [file.name for file in tmp_path.iterdir()] == ["graph.npz"]
    assert_same(read_npz(path), rich_graph)


def test_a_name_that_numpy_would_change_is_refused(tmp_path, rich_graph):
    with pytest.raises(OptionError, match=r"path must end in \.npz"):
        write_npz(rich_graph, tmp_path / "graph")


def test_ppi_has_its_published_sizes_and_its_self_loops_counted(shared_dataset):
    graph = read_npz(shared_dataset("ppi"))
    assert (graph.num_nodes, graph.num_edges, graph.cleaning.num_self_loops) == (56_944, 793_632, 25_084)
    assert [int(mask.sum()) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)] == [44_906, 6_514, 5_524]
    assert len(np.unique(graph.node_attributes["graph_id"])) == 24


def test_ten_splits_of_a_real_file_are_each_at_hand(shared_dataset):
    path = shared_dataset("het_chameleon_filtered")
    first, last = read_npz(path), read_npz(path, split_index=9)
    assert not np.array_equal(first.train_mask, last.train_mask)
    assert first.node_attributes["train_masks"].shape == (890, 10)


def test_an_archive_of_something_else_says_what_it_holds(tmp_path):
    with zipfile.ZipFile(tmp_path / "notes.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(GraphError, match=r"notes\.npz"):
        read_npz(tmp_path / "notes.npz")
