"""Edge lists and node tables in Parquet and CSV."""

import gzip
from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from falcon_gnn.datasets import tables
from falcon_gnn.datasets.load import load_graph
from falcon_gnn.datasets.tables import TableFiles, read_tables
from falcon_gnn.errors import FalconWarning, GraphError, OptionError


def _write(path, **columns):
    table = pa.table(columns)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        csv.write_csv(table, path)
    return path


@pytest.fixture(params=["parquet", "csv"])
def suffix(request):
    return request.param


def test_an_edge_list_with_a_told_size_is_a_graph(tmp_path, suffix):
    edges = _write(tmp_path / f"edges.{suffix}", source=[0, 1, 1], target=[1, 2, 1])
    graph = load_graph(edges, num_nodes=5)
    assert (graph.num_nodes, graph.num_edges, graph.cleaning.num_self_loops) == (5, 2, 1)


def test_an_edge_list_alone_does_not_tell_its_size(tmp_path, suffix):
    edges = _write(tmp_path / f"edges.{suffix}", source=[0], target=[1])
    with pytest.raises(OptionError, match=r"Pass num_nodes=, or a node table"):
        load_graph(edges)


def test_other_names_of_the_columns_and_weights_are_known(tmp_path, suffix):
    edges = _write(tmp_path / f"edges.{suffix}", weight=[0.5, 2.0], dst=[1, 2], src=[0, 0])
    graph = load_graph(edges, num_nodes=3)
    assert graph.edge_weight.tolist() == [0.5, 2.0, 0.5, 2.0]
    assert graph.degrees.tolist() == [2, 1, 1]


def test_a_folder_holds_both_tables(tmp_path, suffix):
    _write(tmp_path / f"edges.{suffix}", source=[0, 1], target=[1, 2])
    _write(
        tmp_path / f"nodes.{suffix}",
        x_1=[1.5, 2.5, 3.5],
        x_0=[0, 1, 2],
        y=[1, 0, -1],
        train_mask=[True, False, False],
        age=[30, 40, 50],
        city=["Oslo", "Rome", "Oslo"],
    )
    graph = load_graph(tmp_path)
    assert graph.x.tolist() == [[0, 1.5], [1, 2.5], [2, 3.5]]
    assert graph.y.tolist() == [1, 0, -1]
    assert graph.train_mask.tolist() == [True, False, False]
    assert graph.node_attributes["age"].tolist() == [30, 40, 50]
    assert graph.node_attributes["city"].tolist() == ["Oslo", "Rome", "Oslo"]


def test_ids_are_looked_up_in_the_node_table_and_kept(tmp_path, suffix):
    edges = _write(tmp_path / f"e.{suffix}", source=["bob", "eve"], target=["eve", "ann"])
    nodes = _write(tmp_path / f"n.{suffix}", node_id=["ann", "bob", "dan", "eve"], y=[0, 1, 0, 1])
    graph = load_graph(edges, nodes=nodes)
    assert graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].tolist() == [[0, 1], [3, 3]]
    assert graph.node_attributes["node_id"].tolist() == ["ann", "bob", "dan", "eve"]


def test_integer_ids_with_gaps_are_looked_up_and_kept(tmp_path, suffix):
    edges = _write(tmp_path / f"e.{suffix}", source=[70, 900], target=[900, 5])
    nodes = _write(tmp_path / f"n.{suffix}", node_id=[900, 5, 70])
    graph = load_graph(edges, nodes=nodes)
    assert graph.degrees.tolist() == [2, 1, 1]
    assert graph.node_attributes["node_id"].tolist() == [900, 5, 70]


def test_numbers_from_0_in_order_are_not_kept_as_ids(tmp_path, suffix):
    edges = _write(tmp_path / f"e.{suffix}", source=[0], target=[1])
    nodes = _write(tmp_path / f"n.{suffix}", node_id=[0, 1, 2], y=[0, 0, 1])
    assert not load_graph(edges, nodes=nodes).node_attributes


def test_text_ids_that_look_like_numbers_in_the_edge_file_stay_text(tmp_path):
    edges = _write(tmp_path / "e.csv", source=["1", "2"], target=["2", "1"])
    nodes = _write(tmp_path / "n.csv", node_id=["1", "2", "x"])
    assert load_graph(edges, nodes=nodes).num_edges == 1


def test_an_unknown_id_is_named(tmp_path, suffix):
    edges = _write(tmp_path / f"e.{suffix}", source=["a"], target=["z"])
    nodes = _write(tmp_path / f"n.{suffix}", node_id=["a", "b"])
    with pytest.raises(GraphError, match=r"column target has the id 'z'"):
        load_graph(edges, nodes=nodes)


def test_repeated_and_missing_ids_are_refused(tmp_path):
    edges = _write(tmp_path / "e.parquet", source=["a"], target=["b"])
    nodes = _write(tmp_path / "n.parquet", node_id=["a", "b", "a"])
    with pytest.raises(GraphError, match="node_id must be distinct"):
        load_graph(edges, nodes=nodes)
    holes = _write(tmp_path / "holes.parquet", source=[0, None], target=[1, 0])
    with pytest.raises(GraphError, match="must not have missing ids"):
        load_graph(holes, num_nodes=2)


def test_ids_out_of_range_are_refused(tmp_path, suffix):
    edges = _write(tmp_path / f"e.{suffix}", source=[0], target=[7])
    with pytest.raises(GraphError, match=r"e\..*ids in \[0, num_nodes\) = \[0, 3\)"):
        load_graph(edges, num_nodes=3)


def test_fractions_are_no_ids(tmp_path, suffix):
    edges = _write(tmp_path / f"e.{suffix}", source=[0.5], target=[1.0])
    with pytest.raises((GraphError, OptionError), match=rf"e\.{suffix}"):
        load_graph(edges, num_nodes=3)


def test_a_size_that_contradicts_the_node_table_is_refused(tmp_path):
    edges = _write(tmp_path / "e.csv", source=[0], target=[1])
    nodes = _write(tmp_path / "n.csv", y=[0, 1, 0])
    with pytest.raises(OptionError, match="num_nodes must be the 3 rows"):
        load_graph(edges, nodes=nodes, num_nodes=4)


def test_list_columns_are_matrices(tmp_path):
    edges = _write(tmp_path / "edges.parquet", source=[0], target=[1])
    x = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32()))
    y = pa.array([[0, 1], [1, 1]])
    nodes = _write(tmp_path / "nodes.parquet", x=x, y=y, train_masks=[[True, False]] * 2)
    graph = load_graph(edges, nodes=nodes)
    assert graph.x.dtype == np.float32
    assert graph.x.tolist() == [[1, 2], [3, 4]]
    assert graph.y.tolist() == [[0, 1], [1, 1]]
    assert graph.train_mask.tolist() == [True, True]


@pytest.mark.skipif(not hasattr(pa, "list_view"), reason="this pyarrow has no views")
def test_views_of_texts_and_lists_are_read_as_these(tmp_path):
    pytest.importorskip("pyarrow", "20", reason="some earlier versions write no views to Parquet")
    names = pa.array(["a", "b", "c"]).cast(pa.string_view())
    edges = _write(tmp_path / "edges.parquet", source=names[:2], target=names[1:])
    places, lengths = pa.array([4, 0, 2], pa.int32()), pa.array([2, 2, 2], pa.int32())
    x = pa.ListViewArray.from_arrays(places, lengths, pa.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    nodes = _write(tmp_path / "nodes.parquet", node_id=names, x=x, note=names)
    graph = load_graph(edges, nodes=nodes)
    assert graph.node_attributes["node_id"].tolist() == graph.node_attributes["note"].tolist() == ["a", "b", "c"]
    assert graph.x.tolist() == [[5, 6], [1, 2], [3, 4]]
    assert graph.num_edges == 2


def test_lists_of_unequal_length_are_refused(tmp_path):
    edges = _write(tmp_path / "edges.parquet", source=[0], target=[1])
    nodes = _write(tmp_path / "nodes.parquet", x=[[1.0], [1.0, 2.0]])
    with pytest.raises(GraphError, match="column x must have a list of the same length"):
        load_graph(edges, nodes=nodes)


def test_named_features_stay_in_the_tables_order(tmp_path, suffix):
    edges = _write(tmp_path / f"e.{suffix}", source=[0], target=[1])
    nodes = _write(tmp_path / f"n.{suffix}", feature_weight=[1, 2], feature_age=[3, 4])
    assert load_graph(edges, nodes=nodes).x.tolist() == [[1, 3], [2, 4]]


def test_features_given_twice_are_refused(tmp_path):
    edges = _write(tmp_path / "e.csv", source=[0], target=[1])
    nodes = _write(tmp_path / "n.csv", feature_age=[1, 2], x_0=[3, 4])
    with pytest.raises(GraphError, match="x must be given once"):
        load_graph(edges, nodes=nodes)


def test_two_columns_of_one_name_are_refused(tmp_path, suffix):
    edges = _write(tmp_path / f"e.{suffix}", source=[0], target=[1])
    nodes = tmp_path / f"n.{suffix}"
    table = pa.table([[0, 1]] * 4, names=["y", "z", "z", "a"])
    parquet.write_table(table, nodes) if suffix == "parquet" else csv.write_csv(table, nodes)
    with pytest.raises(
        OptionError, match=rf"n\.{suffix}: the names of its columns must be distinct, got 'z' more than"
    ):
        load_graph(edges, nodes=nodes)


def test_two_sources_are_refused_and_two_columns_that_are_not_used_left_out(tmp_path):
    (tmp_path / "e.csv").write_text("source,target,source\n0,1,0\n")
    with pytest.raises(OptionError, match=r"e\.csv: the names .* distinct, got 'source' more than once. Rename one"):
        load_graph(tmp_path / "e.csv", num_nodes=2)
    (tmp_path / "e.csv").write_text("source,target,kind,kind\n0,1,0,a\n")
    with pytest.warns(FalconWarning, match="edge columns kind, kind were left out"):
        assert load_graph(tmp_path / "e.csv", num_nodes=2).num_edges == 1


def test_large_whole_numbers_beside_empty_cells_lose_digits_aloud(tmp_path, suffix):
    edges = _write(tmp_path / f"edges.{suffix}", source=[0], target=[1])
    large = _write(tmp_path / f"large.{suffix}", parent=[2**53 + 1, None], age=[30, None])
    with pytest.warns(FalconWarning, match=r"column parent holds whole numbers of 2\*\*53 or more beside"):
        graph = load_graph(edges, nodes=large)
    np.testing.assert_array_equal(graph.node_attributes["age"], [30, np.nan])


def test_a_missing_label_is_unlabelled(tmp_path):
    edges = _write(tmp_path / "e.parquet", source=[0], target=[1])
    nodes = _write(tmp_path / "n.parquet", y=[1, None])
    assert np.isnan(load_graph(edges, nodes=nodes).y[1])


def test_other_edge_columns_are_left_out_aloud(tmp_path, suffix):
    edges = _write(tmp_path / f"e.{suffix}", source=[0], target=[1], kind=["friend"])
    with pytest.warns(FalconWarning, match="edge columns kind were left out"):
        load_graph(edges, num_nodes=2)


def test_missing_columns_are_named(tmp_path, suffix):
    edges = _write(tmp_path / f"e.{suffix}", a=[0], b=[1])
    with pytest.raises(GraphError, match=r"needs the columns source and target .* has a, b"):
        load_graph(edges, num_nodes=2)


@pytest.mark.parametrize("text", ["2020-01-01", "heavy", "true"])
def test_a_weight_of_csv_that_is_no_number_is_named_with_its_column(tmp_path, text):
    (tmp_path / "e.csv").write_text(f"source,target,weight\n0,1,2.5\n1,0,{text}\n")
    with pytest.raises(
        GraphError, match=rf"e\.csv: column weight must be a number in every row, got '{text}'\. Turn it"
    ):
        load_graph(tmp_path / "e.csv", num_nodes=2)


def test_an_id_beyond_64_bits_is_the_one_that_is_named(tmp_path):
    (tmp_path / "e.csv").write_text("source,target\n0,1\n99999999999999999999,1\n")
    with pytest.raises(GraphError, match="column source must hold integers, got '99999999999999999999'"):
        load_graph(tmp_path / "e.csv", num_nodes=2)


def test_weights_must_be_finite(tmp_path):
    edges = _write(tmp_path / "e.parquet", source=[0], target=[1], weight=[float("nan")])
    with pytest.raises(GraphError, match="column weight must be finite and not negative, got nan"):
        load_graph(edges, num_nodes=2)


@pytest.mark.parametrize("rows", [1, 1 << 20])
def test_empty_weights_are_counted(tmp_path, suffix, monkeypatch, rows):
    monkeypatch.setattr(tables, "_BATCH_ROWS", rows)
    edges = _write(tmp_path / f"e.{suffix}", source=[0, 1, 2], target=[1, 2, 0], weight=[1.0, None, None])
    with pytest.raises(GraphError, match="column weight must be a number in every row; 2 are empty"):
        load_graph(edges, num_nodes=3)


@pytest.mark.parametrize("value", [date(2024, 1, 2), timedelta(1), [1.0], "far", {"km": 1.0}])
def test_weights_that_are_no_numbers_are_refused(tmp_path, value):
    edges = _write(tmp_path / "e.parquet", source=[0], target=[1], edge_weight=[value])
    with pytest.raises(GraphError, match="column edge_weight must be a number in every row, got"):
        load_graph(edges, num_nodes=2)


@pytest.mark.parametrize("value", ["0.5", Decimal("0.5"), True])
def test_weights_of_any_kind_of_number_are_read(tmp_path, value):
    edges = _write(tmp_path / "e.parquet", source=[0], target=[1], weight=[value])
    assert load_graph(edges, num_nodes=2).edge_weight.tolist() == [float(value)] * 2


def test_many_batches_give_the_same_graph_as_one(tmp_path, monkeypatch, assert_same):
    rng = np.random.default_rng(0)
    source, target = np.sort(rng.integers(0, 50, (2, 400)), axis=0)
    path = _write(tmp_path / "e.parquet", source=source, target=target)
    whole = read_tables(TableFiles(path, num_nodes=50))
    monkeypatch.setattr(tables, "_BATCH_ROWS", 7)
    assert_same(read_tables(TableFiles(path, num_nodes=50)), whole)


def test_a_folder_of_part_files_is_one_table(tmp_path):
    folder = tmp_path / "edges.parquet"
    folder.mkdir()
    _write(folder / "part-0.parquet", source=[0], target=[1])
    _write(folder / "part-1.parquet", source=[1], target=[2])
    assert load_graph(folder, num_nodes=3).num_edges == 2


def test_gzipped_csv_is_read(tmp_path):
    with gzip.open(tmp_path / "e.csv.gz", "wt") as stream:
        stream.write("source,target\n0,1\n1,2\n")
    assert load_graph(tmp_path / "e.csv.gz", num_nodes=3).num_edges == 2


def test_truncated_and_wrong_files_are_named(tmp_path):
    path = _write(tmp_path / "e.parquet", source=list(range(100)), target=list(range(100)))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(OptionError, match=r"e\.parquet cannot be read as an edge list"):
        load_graph(path, num_nodes=100)
    (tmp_path / "e.csv").write_text("source,target\n0,1\n2\n")
    with pytest.raises(OptionError, match=r"e\.csv cannot be read as an edge list"):
        load_graph(tmp_path / "e.csv", num_nodes=3)


def test_a_node_table_may_weigh_nodes_and_give_classes_as_probabilities(tmp_path):
    parquet.write_table(pa.table({"source": [0, 1], "target": [1, 2]}), tmp_path / "edges.parquet")
    columns = {
        "node_weight": [1.0, 2.0, 3.0],
        "self_weight": [1, 5, 1],
        "label_distribution": [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]],
    }
    parquet.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    graph = load_graph(tmp_path)
    assert graph.node_weight.tolist() == [1, 2, 3]
    assert graph.self_weight.tolist() == [1, 5, 1]
    assert graph.label_distribution.tolist() == columns["label_distribution"]
    assert not graph.node_attributes
