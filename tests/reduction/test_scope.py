"""Nothing outside the scope is read: it is all changed, and nothing comes out differently."""

import numpy as np
import pytest

from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.falcon import collapse

NUM_NODES = 60
CENTRALITIES = ["degree", "betweenness", "closeness", "pagerank", "eigenvector", "random"]


def _arrays(seed=0):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, NUM_NODES, (2, 150))
    edges = np.unique(np.sort(edges, axis=0), axis=1)
    role = rng.permutation(np.repeat([0, 1, 2], [36, 12, 12]))
    return {
        "edges": edges,
        "weight": rng.random(edges.shape[1]),
        "x": rng.random((NUM_NODES, 4)),
        "y": rng.integers(0, 4, NUM_NODES),
        "train": role == 0,
        "val": role == 1,
        "test": role == 2,
    }


def _graph(arrays):
    return Graph.from_edges(
        arrays["edges"], NUM_NODES, edge_weight=arrays["weight"], x=arrays["x"], y=arrays["y"],
        train_mask=arrays["train"], val_mask=arrays["val"], test_mask=arrays["test"],
    )  # fmt: skip


def _changed_outside(arrays):
    """Change features, labels and edges of every validation and test node, and swap the two masks."""
    rng = np.random.default_rng(99)
    outside = ~arrays["train"]
    x, y = arrays["x"].copy(), arrays["y"].copy()
    x[outside] = 100 * rng.normal(size=(outside.sum(), 4))
    y[outside] = rng.integers(0, 9, outside.sum())
    inside = arrays["train"][arrays["edges"]].all(axis=0)
    new = rng.integers(0, NUM_NODES, (2, 200))
    new = np.unique(np.sort(new[:, ~arrays["train"][new].all(axis=0)], axis=0), axis=1)
    return arrays | {
        "edges": np.concatenate([arrays["edges"][:, inside], new], axis=1),
        "weight": np.concatenate([arrays["weight"][inside], rng.random(new.shape[1])]),
        "x": x, "y": y, "val": arrays["test"], "test": arrays["val"],
    }  # fmt: skip


def _assert_same_result(first, second):
    for name in ("assignment", "kept", "removal_order", "rank", "clusters", "centrality", "cluster_budgets"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    for name in ("indptr", "indices", "edge_weight", "x", "train_mask"):
        np.testing.assert_array_equal(getattr(first.graph, name), getattr(second.graph, name), err_msg=name)
    assert (first.report.before, first.report.after) == (second.report.before, second.report.after)
    assert (first.report.labels, first.report.features) == (second.report.labels, second.report.features)


@pytest.mark.parametrize("merge", ["hub", "mean", "drop"])
@pytest.mark.parametrize("centrality", CENTRALITIES)
def test_validation_and_test_nodes_do_not_influence_a_train_scope(centrality, merge):
    options = {
        "node_budget": 0.4, "centrality": centrality, "num_clusters": 5, "merge": merge, "edge_weights": "sum",
        "num_samples": 10,
    }  # fmt: skip
    first = collapse(_graph(_arrays()), **options)
    second = collapse(_graph(_changed_outside(_arrays())), **options)
    _assert_same_result(first, second)
    np.testing.assert_array_equal(first.graph.y, second.graph.y)


def test_a_train_scope_has_no_value_outside_and_only_training_nodes_in_the_reduced_graph():
    arrays = _arrays()
    result = collapse(_graph(arrays), node_budget=0.5, num_clusters=4, edge_weights="sum")
    outside = ~arrays["train"]
    assert (result.assignment[outside] == -1).all()
    assert (result.rank[outside] == -1).all()
    assert (result.clusters[outside] == -1).all()
    assert np.isnan(result.centrality[outside]).all()
    assert sorted(result.rank[arrays["train"]]) == list(range(36))
    assert arrays["train"][result.kept].all()
    assert result.graph.train_mask.all()
    assert result.graph.val_mask is result.graph.test_mask is None


@pytest.mark.parametrize("merge", ["hub", "mean", "drop"])
@pytest.mark.parametrize("y_kind", ["classes", "multilabel", "regression"])
def test_hidden_labels_do_not_influence_a_full_scope(merge, y_kind):
    arrays = _arrays()
    rng = np.random.default_rng(5)
    new_label = {
        "classes": rng.integers(0, 9, 60),
        "multilabel": rng.integers(0, 2, (60, 3)),
        "regression": rng.random(60),
    }
    hidden = ~arrays["train"]
    first_y, second_y = new_label[y_kind], new_label[y_kind].copy()
    second_y[hidden] = 7 if y_kind == "classes" else 0.5 * (y_kind == "regression")
    options = {
        "node_budget": 0.6, "num_clusters": 6, "scope": "full", "merge": merge, "edge_weights": "sum", "task": y_kind,
    }  # fmt: skip
    first = collapse(_graph(arrays | {"y": first_y}), **options)
    second = collapse(_graph(arrays | {"y": second_y}), **options)
    _assert_same_result(first, second)
    trains = first.graph.train_mask
    np.testing.assert_array_equal(first.graph.y[trains], second.graph.y[trains])


def test_a_full_scope_takes_every_node_and_keeps_the_masks_of_survivors():
    arrays = _arrays()
    result = collapse(_graph(arrays), node_budget=0.6, num_clusters=4, scope="full", edge_weights="sum")
    assert (result.rank >= 0).all()
    for name in ("train", "val", "test"):
        assert getattr(result.graph, f"{name}_mask").tolist() == arrays[name][result.kept].tolist()


def test_protecting_the_training_nodes_of_a_full_scope_keeps_all_of_them():
    arrays = _arrays()
    result = collapse(
        _graph(arrays), node_budget=40, scope="full", protect=arrays["train"], num_clusters=4, edge_weights="sum"
    )
    assert set(np.flatnonzero(arrays["train"])) <= set(result.kept)
    assert result.cluster_budgets.sum() == 40


def test_the_scope_is_train_where_a_training_mask_exists_and_else_full_with_all_labels_visible():
    arrays = _arrays()
    options = {"node_budget": 20, "num_clusters": 4, "edge_weights": "sum"}
    assert collapse(_graph(arrays), **options).report.scope == "train"
    unsplit = _graph(arrays).replace(train_mask=None, val_mask=None, test_mask=None)
    report = collapse(unsplit, **options).report
    assert report.scope == "full"
    assert report.labels.shares_before == (np.bincount(arrays["y"]) / NUM_NODES).tolist()


def test_a_train_scope_of_all_nodes_equals_a_full_scope_without_masks():
    graph = _graph(_arrays()).replace(val_mask=None, test_mask=None, train_mask=np.ones(NUM_NODES, bool))
    options = {"node_budget": 20, "num_clusters": 4, "edge_weights": "sum"}
    first, second = collapse(graph, scope="train", **options), collapse(graph.replace(train_mask=None), **options)
    assert first.assignment.tolist() == second.assignment.tolist()


def test_a_train_scope_without_a_training_mask_is_refused():
    with pytest.raises(OptionError, match="scope='train' needs a graph with a train_mask"):
        collapse(Graph.from_edges([[0], [1]], 2), node_budget=1, scope="train")


@pytest.mark.parametrize("y", [np.array([0, -1, 1, -1]), np.array([0, np.nan, 1, np.nan])])
@pytest.mark.parametrize("merge", ["hub", "mean"])
def test_unlabelled_nodes_take_part(y, merge):
    graph = Graph.from_edges([[0, 1, 2], [1, 2, 3]], 4, x=np.arange(4.0), y=y)
    result = collapse(graph, node_budget=2, centrality=[4.0, 1, 3, 2], num_clusters=1, merge=merge)
    assert result.graph.y.tolist() == [0, 1]


def test_a_graph_without_any_label_in_scope_is_clustered_by_its_features():
    graph = Graph.from_edges([[0, 1, 2], [1, 2, 3]], 4, x=np.array([0.0, 0, 9, 9]), y=np.full(4, -1))
    result = collapse(graph, node_budget=2, num_clusters=2)
    assert result.cluster_budgets.tolist() == [1, 1]
    assert result.report.labels.label_distribution_error is None
