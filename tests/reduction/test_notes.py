"""What a collapse says in its notes."""

import numpy as np
import pytest

from falcon_gnn.graph import Graph
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.reporting.terminal import collapse_table

_EDGES = np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])


def _notes(node_budget=3, edges=_EDGES, num_nodes=6, clusters=None, **arrays):
    graph = Graph.from_edges(edges, num_nodes, **arrays)
    options = {"num_clusters": 1} if clusters is None else {"clusters": clusters}
    return collapse(graph, node_budget=node_budget, centrality="degree", **options).report.notes


_MASK = np.arange(6) < 5
_Y = np.arange(6) % 2


def test_a_graph_with_everything_needs_no_note():
    assert _notes(x=np.eye(6), y=_Y, train_mask=_MASK) == ()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"node_attributes": {"feat": _Y, "label": _Y}}, ["no features (x) and no labels (y)", "alone", "feat, label"]),
        ({"x": np.eye(6)}, ["no labels (y); clusters stand on the other alone", "attributes: none"]),
        ({"y": _Y, "train_mask": _MASK, "node_attributes": {"v": _Y}}, ["no features (x);", "attributes: v."]),
    ],
)
def test_missing_features_and_labels_are_told_with_the_names_there_are(arrays, words):
    (note,) = _notes(**arrays)
    assert all(word in note for word in words)
    assert "feature_columns= or label_column=" in note


def test_no_mask_means_that_every_node_and_label_takes_part():
    (note,) = _notes(x=np.eye(6), y=_Y)
    assert "every node takes part, with its label" in note
    assert "split='random'" in note


@pytest.mark.parametrize(("centrality", "is_told"), [("degree", True), ("eigenvector", False)])
def test_a_centrality_ranks_nothing_where_nodes_are_grouped_alike(centrality, is_told):
    graph = Graph.from_edges(_EDGES, 6, x=np.eye(6), y=_MASK.astype(int), train_mask=_MASK)
    notes = collapse(graph, node_budget=3, groups="alike", centrality=centrality).report.notes
    told = "groups='alike' ranks no nodes: centrality='degree' had no say. Leave it out, or use groups='neighbors'."
    assert notes == ((told,) if is_told else ())


def test_given_clusters_leave_options_without_effect():
    (note,) = _notes(x=np.eye(6), y=_Y, train_mask=_MASK, clusters=np.zeros(6, int))
    assert note.startswith("clusters= was given: num_clusters, gamma")


def test_groups_of_alike_nodes_stay_inside_given_clusters_and_hear_the_labels_too():
    graph = Graph.from_edges(_EDGES, 6, x=np.eye(6), y=np.array([0, 0, 0, 1, 1, 1]), train_mask=np.ones(6, bool))
    notes = collapse(graph, node_budget=4, groups="alike", clusters=np.zeros(6, int)).report.notes
    assert notes[0] == (
        "clusters= was given: groups stay inside them, and num_clusters had no say. Leave it out to merge across."
    )


def test_alike_groups_of_a_graph_whose_neighbors_are_not_are_told_so():
    def notes(y, **options):
        graph = Graph.from_edges(_EDGES, 6, x=np.eye(6), y=np.array(y), train_mask=np.ones(6, bool))
        return collapse(graph, node_budget=4, num_clusters=1, **options).report.notes

    (note,) = notes([0, 1, 0, 1, 0, 1], groups="alike")
    assert note.startswith("Neighbors are of one class hardly more often than by chance (adjusted homophily -1.00")
    assert notes([0, 0, 0, 1, 1, 1], groups="alike") == notes([0, 1, 0, 1, 0, 1]) == ()


def test_a_lost_class_and_many_dropped_nodes_are_told_with_the_fix():
    edges = np.array([[0, 0, 0, 4], [1, 2, 3, 5]])
    notes = _notes(1, edges, x=np.eye(6), y=[0, 0, 0, 0, 1, 1], train_mask=np.ones(6, bool))
    assert notes[0].startswith("2 of 6 nodes (33%) were dropped")
    assert "selection='stratified'" in notes[0]
    assert notes[1].startswith("1 of 2 labels have no survivor (1)")
    assert "node_budget" in notes[1]


def test_what_has_no_effect_is_not_advised():
    def fixes(**options):
        edges = np.array([[0, 0, 0, 4], [1, 2, 3, 5]])
        options = {"num_clusters": 2, "gamma": 0.5, **options}
        graph = Graph.from_edges(edges, 6, x=np.eye(6), y=np.array([0, 0, 0, 0, 1, 1]))
        notes = collapse(graph, node_budget=1, centrality="degree", **options).report.notes
        return [note.partition("Use ")[2] for note in notes[-2:]]

    gamma = "a larger node_budget, a smaller gamma (labels weigh more), or protect= with some of their nodes."
    other = "a larger node_budget or protect= with some of their nodes."
    assert fixes() == ["selection='stratified', or a larger node_budget.", gamma]
    assert fixes(selection="stratified") == ["a larger node_budget.", gamma]
    assert fixes(num_clusters=1)[1] == fixes(gamma=0.0)[1] == fixes(selection="herding")[1] == other
    assert fixes(groups="alike")[-1] == other


def test_notes_are_printed_with_the_table_and_kept_in_the_report():
    graph = Graph.from_edges(_EDGES, 6)
    report = collapse(graph, node_budget=3, num_clusters=1, centrality="degree").report
    assert collapse_table(report).caption.startswith("Note: The graph has no features")
    assert report.to_dict()["notes"] == report.notes
