"""CSV and Parquet as other tools write them."""

import gzip

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from falcon_gnn.datasets.load import load_graph
from falcon_gnn.errors import FalconWarning, GraphError, OptionError


def _load(folder, nodes, edges="source,target\n0,1\n1,2\n"):
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    return load_graph(folder)


def test_quoted_line_breaks_past_a_block_are_read(tmp_path):
    """arrow 36037; pandas 59009."""
    rows = [f'{i},{i % 3},"first {i},\nsecond line\n{i},{i % 3},no row {"x" * 50}"\n' for i in range(20_000)]
    graph = _load(tmp_path, "node_id,y,abstract\n" + "".join(rows))
    assert graph.num_nodes == 20_000
    assert graph.node_attributes["abstract"][7].startswith("first 7,\nsecond line\n7,1,no row")


def test_line_breaks_in_other_edge_columns_are_read(tmp_path):
    edges = 'source,target,note\n0,1,"a\n2,2,b"\n1,2,c\n'
    with pytest.warns(FalconWarning, match="edge columns note were left out"):
        assert _load(tmp_path, "y\n0\n1\n0\n", edges).num_edges == 2


def test_dates_and_times_are_kept_as_the_text_they_are(tmp_path):
    graph = _load(
        tmp_path, "node_id,y,joined,seen,at\n0,1,2021-01-02,2021-01-02 10:00:00,10:00:00\n", "source,target\n0,0\n"
    )
    kept = {name: value.tolist() for name, value in graph.node_attributes.items()}
    assert kept == {"joined": ["2021-01-02"], "seen": ["2021-01-02 10:00:00"], "at": ["10:00:00"]}


_NODES = "node_id;y;x_0;x_1\n0;1;0,5;1\n1;0;1,25;2\n2;1;-3,0;3\n"


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_semicolons_tabs_and_decimal_commas_are_told_from_the_file(tmp_path, delimiter):
    edges = "source;target;weight\n0;1;0,5\n1;2;2,5\n".replace(";", delimiter)
    graph = _load(tmp_path, _NODES.replace(";", delimiter), edges)
    assert graph.x.tolist() == [[0.5, 1], [1.25, 2], [-3, 3]]
    assert graph.edge_weight.tolist() == [0.5, 0.5, 2.5, 2.5]


def test_a_byte_order_mark_and_gzip_are_read(tmp_path):
    with gzip.open(tmp_path / "nodes.csv.gz", "wb") as stream:
        stream.write("\ufeffnode_id,y,name\n01,1,é\n02,0,ü\n".encode())
    (tmp_path / "edges.csv").write_text("source,target\n01,02\n")
    graph = load_graph(tmp_path)
    assert graph.node_attributes["name"].tolist() == ["é", "ü"]
    assert graph.node_attributes["node_id"].tolist() == ["01", "02"]


def test_utf_16_is_named_with_the_fix(tmp_path):
    (tmp_path / "nodes.csv").write_text("node_id,y\n0,1\n", encoding="utf-16")
    (tmp_path / "edges.csv").write_text("source,target\n0,0\n")
    with pytest.raises(OptionError, match=r"nodes\.csv is UTF-16. Save it as UTF-8"):
        load_graph(tmp_path)


def test_decimals_and_empty_columns_are_numbers(tmp_path):
    nodes = pa.table({"y": [0, 1], "price": pa.array([1.5, None]).cast(pa.decimal128(5, 2)), "none": pa.nulls(2)})
    parquet.write_table(nodes, tmp_path / "nodes.parquet")
    parquet.write_table(
        pa.table({"source": [0], "target": [1], "weight": pa.array([2.5]).cast(pa.decimal128(5, 2))}),
        tmp_path / "edges.parquet",
    )
    graph = load_graph(tmp_path)
    assert graph.node_attributes["price"][0] == 1.5
    assert np.isnan(graph.node_attributes["none"]).all()
    assert graph.edge_weight.tolist() == [2.5, 2.5]


def test_what_is_no_attribute_is_left_out_aloud(tmp_path):
    nodes = pa.table({"y": [0, 1], "raw": [b"a", b"b"], "maps": [{"a": 1}, {"a": 2}], "texts": [["a"], ["b"]]})
    parquet.write_table(nodes, tmp_path / "nodes.parquet")
    parquet.write_table(pa.table({"source": [0], "target": [1]}), tmp_path / "edges.parquet")
    with (
        pytest.warns(FalconWarning, match="column raw was left out"),
        pytest.warns(FalconWarning, match="column maps was left out"),
        pytest.warns(FalconWarning, match="column texts was left out"),
    ):
        assert not load_graph(tmp_path).node_attributes


def test_a_mask_with_an_empty_cell_is_named_with_the_fix(tmp_path):
    with pytest.raises(GraphError, match=r"nodes\.csv: column train_mask must be true or false in every row; 1 are"):
        _load(tmp_path, "node_id,y,train_mask\n0,1,true\n1,0,\n2,0,false\n")


@pytest.mark.parametrize("name", ["train_mask", "training_mask"])
def test_a_mask_may_be_numbers_with_a_point(tmp_path, name):
    graph = _load(tmp_path, f"node_id,y,{name}\n0,1,1.0\n1,0,0.0\n2,0,1.0\n")
    assert graph.train_mask.tolist() == [True, False, True]
    assert not graph.node_attributes


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (("1", "", "0"), "1 are empty. Fill these in"),
        (("1.0", "", ""), "2 are empty. Fill these in"),
        (("0", "2", "7"), r"got 2\. Correct it, or rename it"),
        (("0.5", "0", "1"), r"got 0\.5\. Correct it"),
        (("yes", "no", "no"), "got text such as 'yes'"),
    ],
)
@pytest.mark.parametrize("name", ["test_mask", "valid_mask"])
def test_a_mask_column_that_is_none_is_told_what_is_allowed(tmp_path, name, cells, message):
    nodes = f"node_id,y,{name}\n" + "".join(f"{i},1,{cell}\n" for i, cell in enumerate(cells))
    with pytest.raises(GraphError, match=rf"nodes\.csv: column {name} must be true or false.* in every row.*{message}"):
        _load(tmp_path, nodes)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("node_id,y,x_0\n0,1,1\n1,0,\n2,0,3\n", "x must be finite"),
        ("node_id,y,train_mask\n0,1,false\n1,0,false\n2,1,false\n", "train_mask selects no node"),
        ("node_id,y\n0,cat\n1,dog\n2,cat\n", "column y must hold numbers"),
        ("node_id,y\na,1\na,0\nb,0\n", "node_id must be distinct"),
        ("node_id,y\na,1\n,0\nb,0\n", "node_id must hold integers or strings, none of them missing"),
    ],
)
def test_what_is_wrong_in_the_node_table_is_not_laid_at_the_edges_door(tmp_path, nodes, message):
    with pytest.raises(GraphError, match=rf"nodes\.csv: {message}"):
        _load(tmp_path, nodes)


def test_part_files_may_differ_in_width_and_order(tmp_path):
    for name in ("edges", "nodes"):
        (tmp_path / f"{name}.parquet").mkdir()
        (tmp_path / f"{name}.parquet" / "_SUCCESS").touch()
    for i, kind in enumerate((pa.int32(), pa.int64())):
        ids = pa.array([2 * i, 2 * i + 1], kind)
        names = ["node_id", "y"] if i else ["y", "node_id"]
        columns = {"node_id": ids, "y": pa.array([0, 1], kind)}
        parquet.write_table(pa.table({n: columns[n] for n in names}), tmp_path / "nodes.parquet" / f"part-{i}.parquet")
        parquet.write_table(
            pa.table({"source": ids[:1], "target": ids[1:]}), tmp_path / f"edges.parquet/part-{i}.parquet"
        )
    graph = load_graph(tmp_path)
    assert (graph.num_nodes, graph.num_edges, graph.y.tolist()) == (4, 2, [0, 1, 0, 1])


def test_folders_of_csv_parts_as_spark_writes_them_are_read(tmp_path):
    for name, header in (("nodes", "node_id,y"), ("edges", "source,target")):
        folder = tmp_path / f"{name}.csv"
        folder.mkdir()
        (folder / "_SUCCESS").touch()
        (folder / ".part-0.csv.crc").write_bytes(b"\1")
        (folder / "part-0.csv").write_text("")
        for i in (1, 2):
            (folder / f"part-{i}.csv").write_text(f"{header}\n0{2 * i - 1},{0 if name == 'nodes' else f'0{2 * i}'}\n")
        if name == "nodes":
            (folder / "part-3.csv").write_text(f"{header}\n02,1\n04,1\n")
    graph = load_graph(tmp_path)
    assert graph.node_attributes["node_id"].tolist() == ["01", "03", "02", "04"]
    assert graph.num_edges == 2


def test_a_part_that_lacks_a_column_and_a_partitioned_folder_are_named(tmp_path):
    (tmp_path / "nodes.csv").write_text("y\n0\n1\n")
    edges = tmp_path / "edges.parquet"
    edges.mkdir()
    parquet.write_table(pa.table({"source": [0], "target": [1]}), edges / "part-0.parquet")
    parquet.write_table(pa.table({"source": [0]}), edges / "part-1.parquet")
    with pytest.raises(OptionError, match=r"part-1\.parquet: it must have the same columns"):
        load_graph(tmp_path)
    (edges / "day=1").mkdir()
    with pytest.raises(OptionError, match=r"edges\.parquet is partitioned \(day=1"):
        load_graph(tmp_path)
