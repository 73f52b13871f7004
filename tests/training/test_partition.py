import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import edge_lists
from tests.tracing import traced_peak

from falcon_gnn.datasets.synthetic import block_graph
from falcon_gnn.errors import FalconWarning, MissingDependencyError
from falcon_gnn.graph import Graph
from falcon_gnn.training.partition import PartSizes, deal_parts, join_parts, split_graph


@pytest.mark.filterwarnings("ignore::falcon_gnn.errors.FalconWarning")
@settings(deadline=None, max_examples=50)
@given(edge_lists(), st.integers(1, 30), st.integers(0, 3))
def test_parts_hold_every_node_once_and_none_is_empty(edges, num_parts, seed):
    parts = split_graph(Graph.from_edges(edges.array, edges.num_nodes), num_parts, seed)
    assert all(part.size and (np.diff(part) > 0).all() for part in parts)
    assert np.sort(np.concatenate(parts)).tolist() == list(range(edges.num_nodes))
    assert len(parts) <= num_parts


def test_two_cliques_are_told_apart():
    clique = [(u, v) for v in range(10) for u in range(v)]
    pairs = [*clique, *[(u + 10, v + 10) for u, v in clique], (0, 10)]
    parts = split_graph(Graph.from_edges(np.array(pairs).T, 20), 2)
    assert sorted(part.tolist() for part in parts) == [list(range(10)), list(range(10, 20))]


def test_an_edge_list_of_one_direction_does_not_crash_metis():
    rng = np.random.default_rng(0)
    edges = np.unique(np.sort(rng.integers(0, 800, (2, 4000)), axis=0), axis=1)
    assert len(split_graph(Graph.from_edges(edges, 800), 40)) == 40


def test_a_graph_without_edges_is_cut_evenly():
    sizes = [part.size for part in split_graph(Graph.from_edges(np.zeros((2, 0), int), 10), 4)]
    assert sorted(sizes) == [2, 2, 3, 3]


def test_more_parts_than_nodes_are_clipped_with_a_warning(graph):
    with pytest.warns(FalconWarning, match="num_parts"):
        parts = split_graph(graph, 100)
    assert [part.size for part in parts] == [1] * 60


def test_fewer_parts_than_asked_for_are_told():
    star = Graph.from_edges(np.stack([np.zeros(39, int), np.arange(1, 40)]), 40)
    with pytest.warns(FalconWarning, match=r"METIS cut the graph into \d+ parts, 30 were asked for"):
        assert 1 < len(split_graph(star, 30)) < 30


def test_one_part_is_the_whole_graph(graph):
    assert split_graph(graph, 1)[0].tolist() == list(range(60))


def test_the_same_seed_gives_the_same_parts(make_graph):
    graph = make_graph(400)
    first, again = (split_graph(graph, 12, seed=3) for _ in range(2))
    assert [part.tolist() for part in first] == [part.tolist() for part in again]


@pytest.mark.parametrize("num_batches", [1, 3, 7, 20])
def test_batches_hold_every_part_once(graph, num_batches):
    parts = split_graph(graph, 7)
    batches = [join_parts(parts, chosen) for chosen in deal_parts(7, num_batches, seed=0, epoch=1)]
    assert len(batches) == min(num_batches, 7)
    assert np.sort(np.concatenate(batches)).tolist() == list(range(60))
    assert all(set(part) <= set(batch) or not set(part) & set(batch) for part in parts for batch in batches)


def test_a_missing_pymetis_names_the_extra_and_what_to_do_where_there_is_none(graph, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MissingDependencyError, match=r"falcon-gnn\[train\].*Windows Subsystem.*gcn, sign, qsign"):
        split_graph(graph, 3)


def test_halos_are_counted_without_a_list_of_the_nodes_around_each_part():
    graph = block_graph(10_000, 100_000, num_features=1)
    parts, is_target = np.array_split(np.arange(10_000), 100), np.ones(10_000, np.bool_)
    counted = PartSizes(graph, parts, is_target, has_halo=True)
    drawn = counted.draw(7, 2, 0)
    assert {batch.epoch for batch in drawn} == {1, 2}
    assert traced_peak(lambda: counted.draw(7, 2, 0)) < 8 * graph.num_edges
