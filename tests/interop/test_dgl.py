"""DGL graphs in and out; a stand-in with DGL's interface is used, and DGL itself where it is installed."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from falcon_gnn.errors import FalconWarning, GraphError, MissingDependencyError
from falcon_gnn.graph import Graph
from falcon_gnn.interop.dgl import from_dgl, to_dgl


class _StandIn:
    is_homogeneous = True

    def __init__(self, ends, num_nodes):
        self._ends = ends
        self._num_nodes = num_nodes
        self.ndata = {}
        self.edata = {}

    def num_nodes(self):
        return self._num_nodes

    def edges(self):
        return self._ends


@pytest.fixture(params=["stand-in", "dgl"])
def dgl(request, monkeypatch):
    if request.param == "dgl":
        return pytest.importorskip("dgl")
    module = SimpleNamespace(graph=lambda ends, num_nodes: _StandIn(ends, num_nodes))
    monkeypatch.setitem(sys.modules, "dgl", module)
    return module


def _graph(dgl):
    graph = dgl.graph((torch.tensor([0, 1, 1, 2]), torch.tensor([1, 0, 2, 1])), num_nodes=4)
    graph.ndata["feat"] = torch.rand(4, 2)
    graph.ndata["label"] = torch.tensor([0, 1, 0, 1])
    graph.ndata["train_mask"] = torch.tensor([1, 0, 0, 1], dtype=torch.uint8)
    graph.ndata["year"] = torch.tensor([1, 2, 3, 4])
    graph.edata["w"] = torch.tensor([1.0, 1.0, 3.0, 3.0])
    return graph


def test_a_dgl_graph_comes_in_with_its_data(dgl):
    graph = from_dgl(_graph(dgl))
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (4, 2, 2)
    assert graph.edge_weight.tolist() == [1, 1, 3, 3]
    assert graph.y.tolist() == [0, 1, 0, 1]
    assert np.flatnonzero(graph.train_mask).tolist() == [0, 3]
    assert graph.node_attributes["year"].tolist() == [1, 2, 3, 4]


def test_a_number_per_node_is_no_list_of_training_nodes(dgl):
    graph = _graph(dgl)
    del graph.ndata["train_mask"]
    graph.ndata["train_id"] = torch.tensor([3, 2, 0, 0])
    graph.ndata["valid_mask"] = torch.tensor([0, 1, 0, 0], dtype=torch.uint8)
    read = from_dgl(graph)
    assert read.train_mask is None
    assert np.flatnonzero(read.val_mask).tolist() == [1]
    assert read.node_attributes["train_id"].tolist() == [3, 2, 0, 0]


def test_a_round_trip_changes_nothing(dgl):
    graph = from_dgl(_graph(dgl))
    again = from_dgl(to_dgl(graph))
    for name in ("indptr", "indices", "edge_weight", "x", "y", "train_mask"):
        assert np.array_equal(getattr(again, name), getattr(graph, name)), name


def test_edge_weights_are_as_precise_as_the_features(dgl):
    graph = Graph.from_edges([[0], [1]], 2, edge_weight=[2.0], x=np.eye(2, dtype=np.float32))
    assert to_dgl(graph).edata["weight"].dtype == torch.float32


@pytest.mark.parametrize("name", ["feat", "label"])
def test_a_node_attribute_does_not_take_the_place_of_features_or_labels(dgl, name):
    graph = Graph.from_edges([[0], [1]], 2, x=np.eye(2), y=[0, 1], node_attributes={name: np.array([7, 8])})
    with pytest.raises(GraphError, match=f"must not be named {name}: a DGL graph uses the name for something else"):
        to_dgl(graph)


def test_other_edge_data_are_left_out_aloud(dgl):
    graph = _graph(dgl)
    graph.edata["kind"] = torch.arange(4)
    with pytest.warns(FalconWarning, match="edge data kind left out"):
        from_dgl(graph)


def test_a_graph_of_several_types_is_refused():
    with pytest.raises(GraphError, match=r"dgl\.to_homogeneous"):
        from_dgl(SimpleNamespace(is_homogeneous=False))


def test_what_is_no_graph_of_dgl_is_refused_by_name():
    with pytest.raises(GraphError, match=r"graph must be a dgl\.DGLGraph, got Graph"):
        from_dgl(Graph.from_edges([[0], [1]], 2))


def test_without_dgl_the_error_says_where_it_comes_from(monkeypatch):
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(MissingDependencyError, match=r"dgl\.ai"):
        to_dgl(Graph.from_edges([[0], [1]], 2))
