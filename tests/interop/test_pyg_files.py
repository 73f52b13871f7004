"""PyG's .pt files are read, and no code in them runs."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData, InMemoryDataset

from falcon_gnn.datasets.load import load_graph
from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.interop.pyg_files import read_pt

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def _data(num_nodes=4):
    return Data(x=torch.ones(num_nodes, 2), edge_index=EDGES, y=torch.zeros(num_nodes, dtype=torch.long))


@pytest.mark.parametrize("form", ["data", "dict", "list", "edge index", "cached"])
def test_every_usual_form_of_one_graph_is_read(tmp_path, form):
    data = _data()
    if form == "edge index":
        data.edge_index = EdgeIndex(EDGES, sparse_size=(4, 4))
    if form == "cached":
        data.is_node_attr("x")
    stored = {"dict": data.to_dict(), "list": [data]}.get(form, data)
    torch.save(stored, tmp_path / "graph.pt")
    graph = read_pt(tmp_path / "graph.pt")
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (4, 2, 2)


@pytest.mark.parametrize("sizes", [[4], [4, 3, 5]])
def test_what_a_pyg_dataset_processed_is_read(tmp_path, sizes):
    InMemoryDataset.save([_data(size) for size in sizes], tmp_path / "data.pt")
    graph = read_pt(tmp_path / "data.pt")
    assert graph.num_nodes == sum(sizes)
    assert graph.num_edges == 2 * len(sizes)
    if len(sizes) > 1:
        assert graph.node_attributes["graph_id"].tolist() == np.repeat(range(len(sizes)), sizes).tolist()
        assert graph.edge_index.max() == 4 + 3 + 2


def test_a_split_of_several_is_picked(tmp_path):
    data = _data()
    data.train_mask = torch.tensor([[True, False], [False, True], [True, True], [False, False]])
    torch.save(data, tmp_path / "graph.pt")
    assert read_pt(tmp_path / "graph.pt", split_index=1).train_mask.tolist() == [False, True, True, False]


class _Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.parametrize("legacy", [False, True])
def test_a_malicious_file_is_refused_and_nothing_runs(tmp_path, legacy):
    data = _data()
    data.bomb = _Bomb(str(tmp_path / "exploded"))
    torch.save(data, tmp_path / "bad.pt", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(OptionError, match=r"bad\.pt: refused, since it holds more than tensors"):
        read_pt(tmp_path / "bad.pt")
    assert not (tmp_path / "exploded").exists()


class _Allowed:
    pass


def test_reading_leaves_what_torch_allows_elsewhere_alone(tmp_path):
    torch.save(_data(), tmp_path / "graph.pt")
    with torch.serialization.safe_globals([_Allowed]):
        read_pt(tmp_path / "graph.pt")
        assert _Allowed in torch.serialization.get_safe_globals()


def test_a_class_that_other_code_allowed_is_still_refused(tmp_path):
    data = _data()
    data.guest = _Allowed()
    torch.save(data, tmp_path / "guest.pt")
    with torch.serialization.safe_globals([_Allowed]), pytest.raises(OptionError, match=r"guest\.pt: refused"):
        read_pt(tmp_path / "guest.pt")


def test_truncated_empty_and_missing_files_are_named(tmp_path):
    torch.save(_data(), tmp_path / "cut.pt")
    content = (tmp_path / "cut.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(content[: len(content) // 2])
    (tmp_path / "empty.pt").write_bytes(b"")
    for name in ("cut.pt", "empty.pt", "none.pt"):
        with pytest.raises(OptionError, match=rf"{name}: "):
            read_pt(tmp_path / name)


def test_a_file_without_a_graph_says_what_it_holds(tmp_path):
    torch.save(torch.ones(3), tmp_path / "weights.pt")
    with pytest.raises(OptionError, match=r"weights\.pt: holds no graph, but Tensor"):
        read_pt(tmp_path / "weights.pt")


def test_heterogeneous_data_is_refused_as_such(tmp_path):
    data = HeteroData()
    data["author"].x = torch.ones(2, 2)
    torch.save(data, tmp_path / "hetero.pt")
    for told in ({}, {"label_attr": "y"}):
        with pytest.raises(GraphError, match="homogeneous"):
            read_pt(tmp_path / "hetero.pt", **told)


_OLD_WRITER = """
import sys, torch, torch_geometric.data.data as module
class Data: pass
Data.__module__, Data.__qualname__, module.Data = "torch_geometric.data.data", "Data", Data
data = Data()
edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
data.__dict__.update(x=torch.eye(4), edge_index=edges, edge_attr=None, y=torch.tensor([0, 1, 0, 1]))
slices = {"x": torch.tensor([0, 4]), "edge_index": torch.tensor([0, 4]), "y": torch.tensor([0, 4])}
forms = {"data": data, "processed": (data, None), "sliced": (data, slices), "list": [data]}
for name, form in forms.items():
    torch.save(form, f"{sys.argv[1]}/{name}.pt")
"""


def test_data_of_pyg_1_is_read(tmp_path):
    """pretrain-gnns 67; GPRGNN 11."""
    subprocess.run([sys.executable, "-c", _OLD_WRITER, str(tmp_path)], check=True)
    files = sorted(tmp_path.iterdir())
    assert [path.stem for path in files] == ["data", "list", "processed", "sliced"]
    for path in files:
        graph = read_pt(path)
        assert (graph.num_nodes, graph.num_edges, graph.y.tolist()) == (4, 2, [0, 1, 0, 1])


def test_numbers_and_arrays_of_numpy_inside_are_read(tmp_path):
    """ogb 509: a Data with num_classes=np.int64(2)."""
    data = _data()
    data.num_classes, data.scale, data.age = np.int64(2), np.float32(0.5), np.arange(4)
    for form in (data, data.to_dict()):
        torch.save(form, tmp_path / "numpy.pt")
        with pytest.warns(FalconWarning, match="age taken"):
            assert read_pt(tmp_path / "numpy.pt").node_attributes["age"].tolist() == [0, 1, 2, 3]


def test_labels_and_features_of_other_names_are_told(tmp_path):
    data = Data(edge_index=EDGES, feat=torch.eye(3), extra=torch.ones(3), target=torch.tensor([1, 0, 1]), num_nodes=3)
    torch.save(data, tmp_path / "named.pt")
    graph = load_graph(tmp_path / "named.pt", label_column="target", feature_columns=["feat", "extra"])
    assert (graph.num_features, graph.y.tolist()) == (4, [1, 0, 1])
    assert load_graph(tmp_path / "named.pt", label_column="tar*", feature_columns="feat,ex*").num_features == 4
    with pytest.raises(OptionError, match=r"must name what is there .* got 'gone'"):
        load_graph(tmp_path / "named.pt", label_column="gone")
