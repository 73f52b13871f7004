"""The one door: names, paths, formats by name and by content, options that do not fit."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csr_array

from falcon_gnn.datasets.archive import write_npz
from falcon_gnn.datasets.folders import write_folder
from falcon_gnn.datasets.load import detect_format, load_graph
from falcon_gnn.datasets.table_files import is_parquet
from falcon_gnn.errors import OptionError


@pytest.fixture
def archive(tmp_path, rich_graph):
    write_npz(rich_graph, tmp_path / "graph.npz")
    return tmp_path / "graph.npz"


def test_a_path_to_an_archive_is_read(archive, rich_graph, assert_same):
    assert_same(load_graph(archive), rich_graph)
    assert_same(load_graph(str(archive)), rich_graph)


def test_a_folder_of_arrays_is_read(tmp_path, rich_graph, assert_same):
    write_folder(rich_graph, tmp_path / "graph")
    assert_same(load_graph(tmp_path / "graph"), rich_graph)


def test_a_split_index_picks_from_the_splits_of_the_file(archive):
    assert load_graph(archive).train_mask.tolist() == [False, True, True, False, False]
    assert load_graph(archive, split_index=0).train_mask.tolist() == [True, False, True, False, False]


def test_a_random_split_replaces_the_files_masks(archive):
    graph = load_graph(archive, split="random", split_shares=(0.5, 0.25, 0.25), seed=1)
    assert [int(mask.sum()) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)] == [2, 1, 1]
    assert not graph.train_mask[2]  # unlabelled


def test_content_decides_where_the_name_does_not(archive, rich_graph, assert_same):
    renamed = archive.rename(archive.with_suffix(".backup"))
    assert detect_format(renamed) == "npz"
    assert_same(load_graph(renamed), rich_graph)


def test_an_unknown_format_lists_the_known_ones(tmp_path):
    (tmp_path / "graph.xlsx").write_text("?")
    with pytest.raises(OptionError, match=r"none of the supported formats: \.npz, \.pt"):
        load_graph(tmp_path / "graph.xlsx")


def test_a_folder_without_a_graph_says_what_it_looked_for(tmp_path):
    with pytest.raises(OptionError, match=r"neither edge_index\.npy nor edges\.parquet"):
        load_graph(tmp_path)


@pytest.mark.parametrize(("name", "close"), [("coar", "cora"), ("pubmde", "pubmed"), ("ogbn-arxive", "ogbn-arxiv")])
def test_a_misspelt_name_gets_the_nearest_one(name, close):
    with pytest.raises(OptionError, match=f"Did you mean '{close}'"):
        load_graph(name)


def test_a_name_like_none_gets_the_list():
    with pytest.raises(OptionError, match=r"one of digits, cora.* got 'zzzzz'\.$"):
        load_graph("zzzzz")


def test_a_missing_path_is_not_taken_for_a_name(tmp_path):
    with pytest.raises(OptionError, match=r"none\.npz does not exist"):
        load_graph(tmp_path / "none.npz")


def test_a_node_table_that_is_not_there_is_named(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    for source in (tmp_path, tmp_path / "edges.csv"):
        with pytest.raises(
            OptionError, match=r"^nodes must be the path of a node table, and nodez\.csv does not exist"
        ):
            load_graph(source, nodes="nodez.csv")
    with pytest.raises(OptionError, match=r"^nodes must be the path of a node table, got list"):
        load_graph(tmp_path, nodes=[0, 1])


def test_a_missing_table_is_no_endless_folder(tmp_path):
    assert is_parquet(tmp_path / "gone.parquet")
    assert not is_parquet(tmp_path / "gone.csv")


@pytest.mark.parametrize(
    ("library", "fix"),
    [
        ("torch_geometric.data.data", r"use falcon_gnn\.from_pyg\."),
        ("networkx.classes.graph", r"use falcon_gnn\.from_networkx\."),
        ("dgl.heterograph", r"use falcon_gnn\.from_dgl\."),
        ("scipy.sparse._csr", r"use falcon_gnn\.Graph\.from_scipy\."),
        ("numpy", r"use falcon_gnn\.Graph\.from_edges\."),
        ("pandas.core.frame", r"docs/data\.md names what is read\."),
    ],
)
def test_an_object_of_another_library_is_told_its_own_door(library, fix):
    kind = type("Thing", (type("Base", (), {"__module__": library}),), {"__module__": "mine"})
    with pytest.raises(OptionError, match=rf"^source must be a name or a path, got Thing; {fix}$"):
        load_graph(kind())


def test_a_matrix_and_a_list_are_no_sources():
    with pytest.raises(OptionError, match=r"got csr_array; use falcon_gnn\.Graph\.from_scipy"):
        load_graph(csr_array((2, 2)))
    with pytest.raises(OptionError, match=r"source must be a name or a path, got list"):
        load_graph([(0, 1)])


def test_names_are_known_in_any_case():
    assert load_graph("Digits").num_nodes == 1797


@pytest.mark.parametrize("option", [{"threshold": 0.5}, {"num_nodes": 5}, {"nodes": "nodes.csv"}])
def test_options_without_meaning_for_the_source_are_refused(archive, option):
    with pytest.raises(OptionError, match=f"{next(iter(option))} has no meaning for"):
        load_graph(archive, **option)


def test_a_name_takes_no_options_of_files():
    with pytest.raises(OptionError, match="num_nodes has no meaning for the data set digits"):
        load_graph("digits", num_nodes=5)


def test_a_pt_file_is_read(tmp_path):
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
    torch.save(data, tmp_path / "graph.pt")
    assert load_graph(tmp_path / "graph.pt").num_nodes == 3
    renamed = (tmp_path / "graph.pt").rename(tmp_path / "graph.bin")
    assert load_graph(renamed).num_nodes == 3


def test_reading_files_imports_neither_torch_nor_scikit_learn(archive):
    code = (
        "import sys; from falcon_gnn.datasets.load import load_graph; "
        f"load_graph({str(archive)!r}); "
        "print(sorted({'torch', 'sklearn', 'pandas', 'networkx', 'pyarrow'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_inputs_keep_their_bytes(archive):
    before = archive.read_bytes()
    graph = load_graph(archive, split="random")
    assert not graph.x.data.flags.writeable or np.array_equal(load_graph(archive).x.data, graph.x.data)
    assert archive.read_bytes() == before


def test_the_folder_of_a_collapse_is_its_graph(archive, tmp_path):
    (tmp_path / "reduced").mkdir()
    (tmp_path / "reduced" / "graph.npz").write_bytes(archive.read_bytes())
    assert load_graph(tmp_path / "reduced").num_nodes == load_graph(archive).num_nodes


@pytest.mark.parametrize("seed", [-1, "a", 1.5, True])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(OptionError, match="seed must be a whole number of at least 0, got"):
        load_graph("digits", split="random", seed=seed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("num_nodes", value) for value in ("5", 5.0, True)),
        *(("split_index", value) for value in ("1", 1.0, True, -1)),
        *(("split_shares", value) for value in (0.9, ("a", 0.1, 0.1), (True, 0, 0), None)),
        ("label_column", 3),
        ("id_column", 3),
        ("feature_columns", [1]),
        ("feature_columns", 1),
        ("threshold", "0.9"),
        ("root", 3),
    ],
)
def test_an_option_of_another_kind_is_named(archive, name, value):
    with pytest.raises(OptionError, match=f"^{name} must be"):
        load_graph(archive, **{name: value})


@pytest.mark.parametrize("told", [{"source": ""}, {"source": "edges.csv", "nodes": ""}, {"source": "cora", "root": ""}])
def test_an_empty_path_is_not_the_current_folder(told):
    with pytest.raises(OptionError, match=f"{list(told)[-1]} must be .*a path, got ''"):
        load_graph(**told)
