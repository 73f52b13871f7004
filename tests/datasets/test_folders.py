"""Folders of .npy files stay on disk and come back whole."""

import mmap

import numpy as np
import pytest

from falcon_gnn.datasets.folders import read_folder, write_folder
from falcon_gnn.errors import GraphError, OptionError
from falcon_gnn.graph import Graph


def _save(folder, **arrays):
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def test_a_written_folder_comes_back_whole(tmp_path, rich_graph, assert_same):
    write_folder(rich_graph, tmp_path / "graph")
    assert_same(read_folder(tmp_path / "graph"), rich_graph)


def test_features_stay_memory_mapped(tmp_path):
    folder = _save(tmp_path / "graph", edge_index=np.array([[0], [1]]), x=np.ones((4, 2), np.float32))
    graph = read_folder(folder)
    owner = graph.x
    while isinstance(owner, np.ndarray):
        owner = owner.base
    assert isinstance(owner, mmap.mmap)
    assert graph.num_nodes == 4


@pytest.mark.parametrize("edges", [np.array([[0, 1, 2], [1, 2, 3]]), np.array([[0, 1], [1, 2], [2, 3]], np.uint8)])
def test_edges_may_stand_in_rows_or_columns(tmp_path, edges):
    folder = _save(tmp_path / "graph", edge_index=edges, num_nodes=np.array(6))
    assert read_folder(folder).edge_index[:, 0].tolist() == [0, 1]
    assert read_folder(folder).num_edges == 3


def test_a_square_edge_index_has_sources_in_its_first_row(tmp_path):
    folder = _save(tmp_path / "graph", edge_index=np.array([[0, 0], [1, 2]]), num_nodes=np.array(3))
    assert read_folder(folder).degrees.tolist() == [2, 1, 1]


def test_edges_without_a_size_are_refused(tmp_path):
    with pytest.raises(GraphError, match="num_nodes is missing"):
        read_folder(_save(tmp_path / "graph", edge_index=np.array([[0], [1]])))


def test_a_truncated_array_is_named(tmp_path):
    folder = _save(tmp_path / "graph", edge_index=np.array([[0], [1]]), x=np.ones((4, 200)))
    content = (folder / "x.npy").read_bytes()
    (folder / "x.npy").write_bytes(content[:-50])
    with pytest.raises(OptionError, match=r"x\.npy cannot be read"):
        read_folder(folder)


def test_pickled_arrays_are_refused(tmp_path):
    folder = _save(tmp_path / "graph", edge_index=np.array([[0], [1]]), y=np.array([1, None], object))
    with pytest.raises(OptionError, match=r"y\.npy cannot be read"):
        read_folder(folder)


def test_a_failed_write_leaves_the_old_folder(tmp_path, rich_graph, assert_same):
    write_folder(rich_graph, tmp_path / "graph")
    broken = Graph.from_edges([[0], [1]], 2, node_attributes={"tag": np.array([{}, None], object)})
    with pytest.raises(GraphError, match="Python objects"):
        write_folder(broken, tmp_path / "graph")
    assert_same(read_folder(tmp_path / "graph"), rich_graph)


def test_edges_are_written_in_blocks_of_whole_rows(tmp_path, monkeypatch, rich_graph, assert_same):
    monkeypatch.setattr("falcon_gnn.datasets.layout.CHUNK_EDGES", 3)
    write_folder(rich_graph, tmp_path / "graph")
    assert_same(read_folder(tmp_path / "graph"), rich_graph)


def test_a_graph_without_an_edge_comes_back(tmp_path):
    write_folder(Graph.from_edges(np.zeros((2, 0), np.int64), 4), tmp_path / "graph")
    assert read_folder(tmp_path / "graph").num_nodes == 4
