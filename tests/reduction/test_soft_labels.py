"""Soft labels, against fitting again without each node."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import Ridge
from tests.tracing import traced_peak

from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.labels import encode_labels
from falcon_gnn.reduction import ridge as ridge_module
from falcon_gnn.reduction import soft_labels as soft_module
from falcon_gnn.reduction.attributes import Groups
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.reduction.hop_space import hop_space, node_facts
from falcon_gnn.reduction.ridge import RidgeLabels
from falcon_gnn.reduction.scope import resolve_scope
from falcon_gnn.reduction.soft_labels import SoftLabels
from falcon_gnn.training.targets import take_targets, training_nodes

ALIKE = {"node_budget": 12, "groups": "alike"}


def _graph(num_nodes=80, seed=0, **arrays):
    rng = np.random.default_rng(seed)
    y = np.concatenate([[0, 1, 2], rng.integers(0, 3, num_nodes - 3)])
    x = (np.eye(3)[y] @ rng.normal(size=(3, 6)) + rng.normal(size=(num_nodes, 6))).astype(np.float32)
    edges = rng.integers(0, num_nodes, (2, 4 * num_nodes))
    train = rng.random(num_nodes) < 0.6
    arrays = {"x": x, "y": y, "train_mask": train, **arrays}
    return Graph.from_edges(edges[:, edges[0] != edges[1]], num_nodes, warn_one_way="never", **arrays)


def _left_out(points, y, penalty):
    """Return what fits without each node say of it; the mean of the targets is that of all, as in the closed form."""
    targets = np.eye(y.max() + 1)[y]
    mean, guesses = targets.mean(axis=0), []
    for i in range(len(y)):
        stays = np.arange(len(y)) != i
        model = Ridge(penalty, fit_intercept=False, solver="cholesky").fit(points[stays], (targets - mean)[stays])
        guesses.append(model.predict(points[[i]])[0] + mean)
    return np.array(guesses)


def _spread(scope, y):
    """Return what the labelled neighbors of each node bear, from dense matrices."""
    adjacency = csr_array((np.ones(len(scope.indices)), scope.indices, scope.indptr)).toarray()
    scale = 1 / np.sqrt(np.maximum(adjacency.sum(axis=1), 1))
    rows = (scale[:, None] * adjacency * scale) @ (np.eye(y.max() + 1)[y] * (y >= 0)[:, None])
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _soft(graph, share, num_hops=2):
    """Return the nodes in scope and their soft labels, by the slow way; λ and the temperature are the fit's."""
    scope = resolve_scope(graph, None)
    y = graph.y[scope.ids]
    own = graph.x[scope.ids] / np.linalg.norm(graph.x[scope.ids], axis=1, keepdims=True)
    points = np.concatenate([own, hop_space(graph.x, scope, num_hops, 0), _spread(scope, y)], axis=1)
    fitted = RidgeLabels(points.astype(np.float32), encode_labels(y, "classes"))
    outputs = np.exp(_left_out(points, y, fitted.penalty) / fitted.temperature)
    return scope.ids, (1 - share) * np.eye(3)[y] + share * outputs / outputs.sum(axis=1, keepdims=True)


def test_a_group_has_the_mean_of_what_its_members_and_the_other_nodes_say():
    graph = _graph()
    result = collapse(graph, **ALIKE, soft_labels=0.3)
    ids, soft = _soft(graph, 0.3)
    expected = [soft[result.assignment[ids] == group].mean(axis=0) for group in range(12)]
    assert result.graph.label_distribution == pytest.approx(np.array(expected), abs=1e-5)
    assert take_targets(result.graph, "classes", np.arange(12)).values.shape == (12, 3)
    _, others = _soft(graph, 1.0)
    assert result.report.teacher_accuracy == np.mean(others.argmax(axis=1) == graph.y[ids])


@pytest.mark.parametrize("options", [{}, {"merge": "drop", "selection": "random"}, {"selection": "herding"}])
def test_a_survivor_that_keeps_its_own_label_has_its_own_soft_one(options):
    graph = _graph()
    result = collapse(graph, node_budget=12, num_clusters=4, num_hops=1, soft_labels=0.4, **options)
    ids, soft = _soft(graph, 0.4, num_hops=1)
    assert result.graph.label_distribution == pytest.approx(soft[np.searchsorted(ids, result.kept)], abs=1e-5)


def test_nothing_but_the_distribution_changes_and_the_label_stays_the_likeliest():
    graph = _graph()
    soft, hard = collapse(graph, **ALIKE, soft_labels=0.5), collapse(graph, **ALIKE)
    assert np.array_equal(soft.assignment, hard.assignment)
    assert np.array_equal(soft.graph.y, hard.graph.y)
    assert np.array_equal(soft.graph.x, hard.graph.x)
    assert hard.graph.label_distribution is None
    assert np.array_equal(soft.graph.label_distribution.argmax(axis=1), soft.graph.y)
    assert np.all(soft.graph.label_distribution.max(axis=1) < 1)


def test_a_hidden_label_says_nothing_and_its_group_does_not_train():
    graph = _graph()
    options = {**ALIKE, "scope": "full", "soft_labels": 0.3}
    other = graph.replace(y=np.where(graph.train_mask, graph.y, (graph.y + 1) % 3))
    first, second = collapse(graph, **options), collapse(other, **options)
    assert np.array_equal(first.graph.label_distribution, second.graph.label_distribution)
    silent = np.setdiff1d(np.arange(12), first.assignment[graph.train_mask])
    assert silent.size
    shares = np.bincount(graph.y[graph.train_mask]) / graph.train_mask.sum()
    assert first.graph.label_distribution[silent] == pytest.approx(np.tile(shares, (silent.size, 1)))
    assert not np.isin(silent, training_nodes(first.graph, "classes")).any()


def test_weights_count_and_a_distribution_stands_for_the_label():
    rng = np.random.default_rng(1)
    weight, given = rng.uniform(1, 5, 80), rng.dirichlet(np.ones(3), 80)
    graph = _graph(node_weight=weight, label_distribution=given, train_mask=None)
    result = collapse(graph, **ALIKE, soft_labels=0.3)
    _, soft = _soft(graph, 1.0)
    rows = 0.7 * given + 0.3 * soft
    members = result.assignment == 5
    expected = np.average(rows[members], axis=0, weights=weight[members])
    assert result.graph.label_distribution[5] == pytest.approx(expected, abs=1e-5)


def test_a_distribution_of_other_classes_than_the_options_say_has_room():
    given = np.random.default_rng(1).dirichlet(np.ones(3), 80)
    graph = _graph(label_distribution=given)
    for num_classes, wider in ((5, given), (None, np.pad(given, ((0, 0), (0, 2))))):
        result = collapse(graph.replace(label_distribution=wider), **ALIKE, soft_labels=0.3, num_classes=num_classes)
        assert result.graph.label_distribution.shape == (12, 5)
        assert result.graph.label_distribution[:, 3:].max() < 0.1
    narrow = collapse(graph.replace(label_distribution=wider), **ALIKE, soft_labels=0.3, num_classes=3)
    assert narrow.graph.label_distribution.shape == (12, 5)


def test_wide_features_are_projected_without_loss_where_few_directions_hold_them():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(80, 3)) @ rng.normal(size=(3, 200))).astype(np.float32)
    graph = _graph(x=x)
    scope = resolve_scope(graph, None)
    encoding = encode_labels(graph.y[scope.ids], "classes")
    facts = node_facts(x, scope, hop_space(x, scope, 2, 0), encoding, 0)
    assert facts.shape == (len(scope.ids), 64 + 64 + 3)
    own = x[scope.ids] / np.linalg.norm(x[scope.ids], axis=1, keepdims=True)
    assert facts[:, :64] @ facts[:, :64].T == pytest.approx(own @ own.T, abs=1e-4)
    assert facts[:, -3:] == pytest.approx(_spread(scope, graph.y[scope.ids]), abs=1e-5)


def test_blocks_change_nothing(monkeypatch):
    graph = _graph(300)
    whole = collapse(graph, **ALIKE, soft_labels=0.3).graph.label_distribution
    monkeypatch.setattr(ridge_module, "_BLOCK_VALUES", 1)
    monkeypatch.setattr(soft_module, "_BLOCK_VALUES", 10)
    assert collapse(graph, **ALIKE, soft_labels=0.3).graph.label_distribution == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize(
    "changes", [{"x": None}, {"y": np.arange(240).reshape(80, 3) % 2}, {"y": np.arange(80) / 7}, {"y": None}]
)
@pytest.mark.filterwarnings("ignore:groups='alike' compares features")
def test_other_labels_and_graphs_without_features_stay_as_they_are(changes):
    graph = _graph().replace(**changes)
    assert collapse(graph, **ALIKE, soft_labels=0.3).graph.label_distribution is None


def test_many_classes_are_not_held_for_every_node():
    rng = np.random.default_rng(0)
    y, points = rng.integers(0, 500, 20_000), rng.normal(size=(20_000, 4)).astype(np.float32)
    encoding = encode_labels(y, "classes")
    groups = Groups(np.arange(20_000), np.arange(20_000) % 50, np.arange(50))
    graph = Graph.from_edges(np.zeros((2, 0), np.int64), 20_000)
    peak = traced_peak(
        lambda: SoftLabels(0.3, encoding, RidgeLabels(points, encoding)).of_groups(graph, groups, is_mean=True)
    )
    assert peak < 20_000 * 500 * 8


def test_what_is_known_of_nodes_of_few_classes_is_not_held_in_doubles(monkeypatch):
    monkeypatch.setattr(ridge_module, "_BLOCK_VALUES", 1 << 14)
    rng = np.random.default_rng(0)
    encoding = encode_labels(rng.integers(0, 2, 20_000), "classes")
    ridge = RidgeLabels(rng.normal(size=(20_000, 64)).astype(np.float32), encoding)
    groups = Groups(np.arange(20_000), np.arange(20_000) % 50, np.arange(50))
    graph = Graph.from_edges(np.zeros((2, 0), np.int64), 20_000)
    peak = traced_peak(lambda: SoftLabels(0.3, encoding, ridge).of_groups(graph, groups, is_mean=True))
    assert peak < 20_000 * 64 * 4


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"soft_labels": 0.6}, r"soft_labels must lie in \[0, 0.5\].*got 0.6"),
        ({"soft_labels": -0.1}, "soft_labels must lie in"),
        ({"soft_labels": float("nan")}, "soft_labels must lie in"),
        ({"soft_labels": True}, "soft_labels must lie in"),
        ({"soft_labels": 0.3, "groups": "alike", "cluster_on": "teacher"}, "has no meaning with cluster_on='teacher'"),
        ({"soft_labels": 0.3, "num_hops": 0}, "num_hops must be"),
    ],
)
def test_shares_that_cannot_be_are_refused(options, match):
    with pytest.raises(OptionError, match=match):
        CollapseConfig(0.5, **options)
