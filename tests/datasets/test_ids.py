"""Ids stay what they are: zero-padded ones text, 64-bit ones whole; predictions join back."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falcon_gnn.datasets.ids import IdLookup, id_array, text_of
from falcon_gnn.datasets.load import load_graph
from falcon_gnn.errors import GraphError
from falcon_gnn.text import text_array


def _graph(folder, nodes, edges):
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return load_graph(folder)


def test_zero_padded_ids_stay_text(tmp_path):
    """COVID-19 2330: FIPS codes."""
    graph = _graph(tmp_path, "node_id,y\n01001,0\n01003,1\n36061,0\n", "source,target\n01001,01003\n01003,36061\n")
    assert graph.node_attributes["node_id"].tolist() == ["01001", "01003", "36061"]
    assert graph.degrees.tolist() == [1, 2, 1]


def test_007_and_7_are_two_nodes(tmp_path):
    graph = _graph(tmp_path, "node_id,y\n007,0\n08,1\n7,0\n", "source,target\n007,7\n08,007\n")
    assert graph.node_attributes["node_id"].tolist() == ["007", "08", "7"]
    assert graph.degrees.tolist() == [2, 1, 1]


def test_007_is_unknown_where_the_nodes_have_7(tmp_path):
    with pytest.raises(GraphError, match=r"edges.csv: column source has the id '007'.*whole numbers"):
        _graph(tmp_path, "node_id,y\n7,0\n8,1\n", "source,target\n007,8\n")


def test_ids_of_64_unsigned_bits_are_whole(tmp_path):
    top = 2**64 - 1
    graph = _graph(tmp_path, f"node_id,y\n{top - 1},0\n{top},1\n", f"source,target\n{top},{top - 1}\n")
    assert graph.node_attributes["node_id"].tolist() == [top - 1, top]
    assert graph.num_edges == 1


def test_a_padded_id_without_a_node_table_is_refused(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n01,2\n")
    with pytest.raises(GraphError, match=r"column source must hold integers, got '01' .* Pass a node table"):
        load_graph(tmp_path / "edges.csv", num_nodes=3)


def test_a_zero_padded_attribute_stays_text(tmp_path):
    graph = _graph(tmp_path, "node_id,y,zip,age\n0,1,01001,30\n1,0,90210,31\n", "source,target\n0,1\n")
    assert graph.node_attributes["zip"].tolist() == ["01001", "90210"]
    assert graph.node_attributes["age"].tolist() == [30, 31]


@given(st.lists(st.one_of(st.integers(-(2**63), 2**64 - 1).map(str), st.text("0179+-x ", min_size=1, max_size=4))))
def test_ids_are_numbers_only_where_every_text_reads_back(texts):
    ids = id_array(pa.array(texts, pa.string()), "node_id")
    assert [str(value) for value in ids.tolist()] == texts


@given(st.lists(st.text("01a ", min_size=1, max_size=3), min_size=1, max_size=8, unique=True), st.data())
def test_every_id_is_found_where_it_stands(texts, data):
    wanted = data.draw(st.lists(st.sampled_from(texts)))
    ids = id_array(pa.array(texts), "node_id")
    found = IdLookup(ids).find(pa.array(wanted, pa.string()), "source")
    assert [texts[i] for i in found] == wanted


@given(st.lists(st.text(max_size=40), max_size=20), st.integers(0, 3000))
def test_text_costs_what_it_holds(texts, length):
    array = text_of(pa.array([*texts, "é" * length, None]))
    assert array.tolist() == [*texts, "é" * length, ""]


def test_one_long_text_does_not_widen_the_others():
    array = text_array(["a"] * 100_000 + ["b" * 100_000])
    assert array.nbytes < 4_000_000
    assert np.unique(array[:-1]).tolist() == ["a"]
