"""NetworkX graphs in and out."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.interop.networkx import from_networkx, to_networkx
from falcon_gnn.labels import labelled_nodes


@given(st.integers(1, 12), st.integers(0, 20), st.integers(0, 9))
def test_a_round_trip_keeps_nodes_and_edges(num_nodes, num_edges, seed):
    graph = nx.gnm_random_graph(num_nodes, num_edges, seed=seed)
    again = to_networkx(from_networkx(graph))
    assert list(again.nodes) == list(graph.nodes)
    assert nx.utils.graphs_equal(again, graph)


def test_attributes_come_along_and_back():
    graph = nx.path_graph(3)
    for i in graph:
        graph.nodes[i].update(x=np.array([i, 1.0]), y=i % 2, train_mask=i == 0, city=f"c{i}")
    ours = from_networkx(graph)
    assert ours.x.tolist() == [[0, 1], [1, 1], [2, 1]]
    assert ours.y.tolist() == [0, 1, 0]
    assert ours.train_mask.tolist() == [True, False, False]
    again = to_networkx(ours)
    assert again.nodes[2]["city"] == "c2"
    assert again.nodes[2]["x"].tolist() == [2, 1]
    assert (again.nodes[1]["y"], again.nodes[0]["train_mask"]) == (1, True)


def test_names_of_nodes_are_kept_in_order_and_come_back():
    graph = nx.Graph([("b", "a"), ("a", "c")])
    ours = from_networkx(graph)
    assert ours.node_attributes["node_id"].tolist() == ["b", "a", "c"]
    assert ours.degrees.tolist() == [1, 2, 1]
    assert nx.utils.graphs_equal(to_networkx(ours), graph)


def test_numbers_in_another_order_and_tuples_are_kept_as_they_are():
    assert from_networkx(nx.Graph([(1, 0)])).node_attributes["node_id"].tolist() == [1, 0]
    of_numpy = nx.Graph()
    of_numpy.add_edges_from(np.array([[7, 5], [5, 9]]))
    assert from_networkx(of_numpy).node_attributes["node_id"].dtype == np.int64
    grid = nx.grid_2d_graph(2, 2)
    assert set(to_networkx(from_networkx(grid)).edges) == set(grid.edges)


def test_isolated_nodes_and_an_edgeless_graph_survive():
    graph = nx.empty_graph(4)
    assert from_networkx(graph).num_nodes == 4
    assert to_networkx(from_networkx(graph)).number_of_nodes() == 4


def test_weights_follow_their_edges_by_the_name_given():
    graph = nx.Graph()
    graph.add_edge("a", "b", capacity=2.0)
    graph.add_edge("c", "a", capacity=5.0)
    ours = from_networkx(graph, weight="capacity")
    assert ours.to_scipy().toarray().tolist() == [[0, 2, 5], [2, 0, 0], [5, 0, 0]]
    assert to_networkx(ours).edges["a", "c"]["weight"] == 5.0
    assert not from_networkx(graph).is_weighted


def test_a_name_that_no_node_or_edge_has_is_refused_with_those_there():
    graph = nx.Graph()
    graph.add_nodes_from("ab", age=30.0)
    graph.add_edge("a", "b", capacity=2.0)
    with pytest.raises(OptionError, match=r"x must be one of age, None, got 'agee'\. Did you mean 'age'\?"):
        from_networkx(graph, x="agee")
    with pytest.raises(OptionError, match=r"y must be one of age, None, got \('age', 'b'\)"):
        from_networkx(graph, y=("age", "b"))
    with pytest.raises(OptionError, match="weight must be one of capacity, None, got 'cost'"):
        from_networkx(graph, weight="cost")
    with pytest.raises(OptionError, match="x must be one of None, got 'age'"):
        from_networkx(nx.path_graph(3), x="age")


def test_parallel_edges_are_folded_and_their_weights_add_up():
    graph = nx.MultiGraph()
    graph.add_weighted_edges_from([(0, 1, 1.0), (1, 0, 2.5), (1, 2, 1.0), (2, 2, 1.0)])
    ours = from_networkx(graph)
    assert ours.to_scipy()[0, 1] == 3.5
    assert (ours.num_edges, ours.cleaning.num_duplicates, ours.cleaning.num_self_loops) == (2, 1, 1)


def test_a_directed_graph_becomes_undirected():
    assert from_networkx(nx.DiGraph([(0, 1), (1, 2)])).num_edges == 2
    with pytest.warns(FalconWarning, match="symmetrised"):
        assert from_networkx(nx.DiGraph([(0, 1), (1, 0), (1, 2)])).num_edges == 2


def test_a_missing_label_is_unlabelled_and_a_missing_mask_is_outside():
    graph = nx.path_graph(3)
    graph.nodes[0].update(y=2, test_mask=True)
    ours = from_networkx(graph)
    assert ours.y.tolist() == [2, -1, -1]
    assert ours.test_mask.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.5, -1.0], [0.5, -1.0, np.nan]),
        ([1, 0.5], [1, 0.5, np.nan]),
        ([0.5, 2], [0.5, 2, np.nan]),
        ([1, 2.0], [1, 2, np.nan]),
        ([True, False], [1, 0, -1]),
        ([[1, 0], [0, 1]], [[1, 0], [0, 1], [np.nan, np.nan]]),
    ],
)
def test_a_missing_label_is_nan_beside_fractions_and_rows(values, labels):
    graph = nx.path_graph(3)
    for node, value in enumerate(values):
        graph.nodes[node]["score"] = value
    np.testing.assert_array_equal(from_networkx(graph, y="score").y, labels)


def test_a_node_without_a_quantity_is_not_labelled():
    graph = nx.path_graph(3)
    graph.nodes[0]["score"], graph.nodes[1]["score"] = 0.5, -1.0
    assert labelled_nodes(from_networkx(graph, y="score").y, "regression").tolist() == [True, True, False]


def test_features_or_weights_on_some_only_are_refused():
    graph = nx.path_graph(3)
    graph.nodes[0]["x"] = [1.0]
    with pytest.raises(GraphError, match=r"node attribute 'x'.* 2 of 3 lack it"):
        from_networkx(graph)
    graph = nx.path_graph(3)
    graph.edges[0, 1]["weight"] = 1.0
    with pytest.raises(GraphError, match=r"edge attribute 'weight'.* 1 of 2 lack it"):
        from_networkx(graph)


def test_vectors_of_unequal_length_are_refused():
    graph = nx.path_graph(2)
    graph.nodes[0]["x"], graph.nodes[1]["x"] = [1.0], [1.0, 2.0]
    with pytest.raises(GraphError, match="must have the same shape on every node"):
        from_networkx(graph)


def test_another_attribute_on_some_nodes_is_left_out_aloud():
    graph = nx.path_graph(3)
    graph.nodes[0]["age"] = 3
    with pytest.warns(FalconWarning, match="'age'.*It was left out"):
        assert not from_networkx(graph).node_attributes


def test_what_is_no_networkx_graph_is_refused():
    with pytest.raises(GraphError, match="graph must be a networkx graph, got list"):
        from_networkx([(0, 1)])


def test_the_input_is_not_changed():
    graph = nx.MultiDiGraph([(0, 1), (1, 0), (1, 1)])
    before = graph.copy()
    from_networkx(graph)
    assert nx.utils.graphs_equal(graph, before)


def test_names_that_do_not_tell_nodes_apart_are_refused():
    graph = Graph.from_edges([[0], [1]], 2, node_attributes={"node_id": np.array([7, 7])})
    with pytest.raises(GraphError, match="must be distinct"):
        to_networkx(graph)


def test_weights_of_nodes_and_soft_labels_go_there_and_back():
    carried = {
        "node_weight": np.array([1.0, 2.0]),
        "self_weight": np.array([1.0, 0.0]),
        "label_distribution": np.eye(2),
    }
    back = from_networkx(to_networkx(Graph.from_edges([[0], [1]], 2, **carried)))
    for name, value in carried.items():
        assert np.array_equal(getattr(back, name), value)
    assert not back.node_attributes


def _street(first=0.0, **marks):
    graph = nx.path_graph(3)
    for node in graph:
        graph.nodes[node].update(x=11.5 + node, y=48.0 + node + first, **marks)
    return graph


@pytest.mark.parametrize("marks", [{}, {"street_count": 3}, {"shape": "ellipse"}])
def test_coordinates_never_become_features_and_labels(marks):
    """OSMnx's nodes and Pajek's vertices have coordinates called x and y."""
    with pytest.warns(FalconWarning, match="taken as coordinates"):
        graph = from_networkx(_street(**marks))
    assert graph.x is None
    assert graph.y is None
    assert graph.node_attributes["coordinate_x"].tolist() == [11.5, 12.5, 13.5]
    assert graph.node_attributes["coordinate_y"].tolist() == [48, 49, 50]


def test_one_number_each_that_is_named_is_a_feature_and_a_label():
    graph = from_networkx(_street(0.5), x="x", y="y")
    assert (graph.x.tolist(), graph.y.tolist()) == ([[11.5], [12.5], [13.5]], [48.5, 49.5, 50.5])


def test_whole_x_and_y_name_both_readings():
    graph = nx.path_graph(2)
    for node in graph:
        graph.nodes[node].update(x=node, y=node)
    with pytest.warns(FalconWarning, match=r"If they are coordinates, pass x=None, y=None"):
        assert from_networkx(graph).y.tolist() == [0, 1]


def test_a_split_by_the_names_of_nodes_is_read():
    graph = nx.path_graph(["a", "b", "c"])
    graph.graph["split_idx"] = {"train": ["a"], "valid": ["c"], "test": ["b"]}
    found = from_networkx(graph)
    assert [m.tolist() for m in (found.train_mask, found.val_mask, found.test_mask)] == np.eye(3)[[0, 2, 1]].tolist()


def test_names_above_63_bits_stay_whole():
    assert from_networkx(nx.path_graph([2**64 - 1, 5])).node_attributes["node_id"].tolist() == [2**64 - 1, 5]


def test_weights_that_are_no_numbers_are_refused_with_the_fix():
    graph = nx.Graph()
    graph.add_edge(0, 1, weight="heavy")
    with pytest.raises(GraphError, match=r"edge attribute 'weight' must be a number .* Name another with weight="):
        from_networkx(graph)


@pytest.mark.parametrize("option", ["x", "y", "weight"])
def test_several_names_for_one_attribute_are_refused(option):
    with pytest.raises(OptionError, match=f"{option} must be the name of one attribute or None, got .*a.*b"):
        from_networkx(nx.path_graph(3), **{option: ["a", "b"]})


def test_coordinates_beside_told_features_do_not_replace_them():
    places = nx.path_graph(2)
    nx.set_node_attributes(places, {0: 0.5, 1: 1.5}, "x")
    nx.set_node_attributes(places, {0: [1.0, 2.0], 1: [3.0, 4.0]}, "feat")
    graph = from_networkx(places, x="feat")
    with pytest.raises(GraphError, match="must not be named x: a NetworkX graph uses the name for something else"):
        to_networkx(graph)
