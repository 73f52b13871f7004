"""The teacher of few labels, against fitting again without each node, and the groups that it labels."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from tests.tracing import traced_peak

from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.labels import encode_labels
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.reduction.teacher import fit_teacher
from falcon_gnn.training.targets import take_targets, training_nodes


def _case(num_nodes=40, num_labelled=15, seed=0):
    rng = np.random.default_rng(seed)
    y = np.concatenate([[0, 1, 2], rng.integers(0, 3, num_nodes - 3)])
    features = (np.eye(3)[y] @ rng.normal(size=(3, 6)) + 0.7 * rng.normal(size=(num_nodes, 6))).astype(np.float32)
    return features, y, np.arange(num_nodes) < num_labelled


def _graph(num_nodes=200, seed=0):
    rng = np.random.default_rng(seed)
    features, y, train = _case(num_nodes, 24, seed)
    ends = rng.integers(0, num_nodes, (2, 6 * num_nodes))
    alike = (ends[0] != ends[1]) & ((y[ends[0]] == y[ends[1]]) | (rng.random(ends.shape[1]) < 0.1))
    return Graph.from_edges(ends[:, alike], num_nodes, x=features, y=y, train_mask=train, warn_one_way="never")


def _without(features, targets, penalty, left_out):
    """Return what a fit without one node says of it; the mean of the targets is that of all, as in the closed form."""
    mean = targets.mean(axis=0)
    stays = np.arange(len(features)) != left_out
    model = Ridge(penalty, fit_intercept=False, solver="cholesky").fit(features[stays], (targets - mean)[stays])
    return model.predict(features[[left_out]])[0] + mean


def test_the_teacher_is_a_ridge_regression():
    features, y, visible = _case()
    teacher = fit_teacher(features, encode_labels(y, "classes", visible=visible))
    targets = np.eye(3)[y[visible]]
    model = Ridge(teacher.penalty, fit_intercept=False).fit(features[visible], targets - targets.mean(axis=0))
    assert teacher.outputs == pytest.approx(model.predict(features) + targets.mean(axis=0), abs=1e-4)


def test_the_penalty_and_the_accuracy_are_those_of_leaving_each_node_out():
    features, y, visible = _case()
    teacher = fit_teacher(features, encode_labels(y, "classes", visible=visible))
    known, targets = features[visible].astype(np.float64), np.eye(3)[y[visible]]

    def errors(penalty):
        guess = np.array([_without(known, targets, penalty, i) for i in range(len(known))])
        return np.square(guess - targets).mean(), np.mean(guess.argmax(axis=1) == y[visible])

    assert teacher.accuracy == pytest.approx(errors(teacher.penalty)[1])
    best = errors(teacher.penalty)[0]
    assert all(best <= errors(teacher.penalty * factor)[0] + 1e-9 for factor in (0.1, 10**-0.25, 10**0.25, 10))


def test_probabilities_sum_to_one_and_are_the_label_where_it_is_visible():
    features, y, visible = _case()
    teacher = fit_teacher(features, encode_labels(y, "classes", visible=visible))
    assert teacher.probabilities.sum(axis=1) == pytest.approx(1)
    assert np.array_equal(teacher.probabilities[visible], np.eye(3)[y[visible]])


def test_groups_have_the_mean_of_their_members_probabilities_and_all_train():
    graph = _graph()
    result = collapse(graph, node_budget=20, groups="alike", cluster_on="teacher", scope="full")
    assert np.array_equal(result.graph.y, result.graph.label_distribution.argmax(axis=1))
    expected = result.teacher[result.assignment == 7].mean(axis=0)
    assert result.graph.label_distribution[7] == pytest.approx(expected, abs=1e-6)
    assert training_nodes(result.graph, "classes").tolist() == list(range(20))
    assert take_targets(result.graph, "classes", np.arange(20)).values.shape == (20, 3)
    assert np.mean(result.teacher.argmax(axis=1) == graph.y) > 0.8
    assert 0 < result.report.teacher_accuracy <= 1


def test_hidden_labels_do_not_move_the_teacher():
    graph = _graph()
    y = np.where(graph.train_mask, graph.y, (graph.y + 1) % 3)
    options = {"node_budget": 20, "groups": "alike", "cluster_on": "teacher", "scope": "full"}
    first, second = collapse(graph, **options), collapse(graph.replace(y=y), **options)
    assert np.array_equal(first.teacher, second.teacher)
    assert np.array_equal(first.assignment, second.assignment)


def test_outside_the_scope_the_teacher_says_nothing():
    result = collapse(_graph(), node_budget=5, groups="alike", cluster_on="teacher", scope="train")
    assert np.isnan(result.teacher[24:]).all()
    assert not np.isnan(result.teacher[:24]).any()


@pytest.mark.parametrize(
    ("changes", "match"),
    [({"x": None}, "has no features"), ({"y": None}, "has no labels"), ({"y": np.full(200, -1)}, "no visible label")],
)
def test_a_graph_that_nothing_can_be_learnt_from_is_refused(changes, match):
    graph = _graph().replace(train_mask=None).replace(**changes)
    with pytest.raises(OptionError, match=match):
        collapse(graph, node_budget=20, groups="alike", cluster_on="teacher")


@pytest.mark.parametrize("selection", ["random", "herding"])
def test_selected_nodes_can_carry_what_the_teacher_says(selection):
    options = {"merge": "drop", "selection": selection, "scope": "full"}
    result = collapse(_graph(), node_budget=20, cluster_on="teacher", **options)
    assert result.graph.label_distribution == pytest.approx(result.teacher[result.kept].astype(np.float32))
    assert np.array_equal(result.clusters, result.teacher.argmax(axis=1))
    assert result.graph.train_mask is None or result.graph.train_mask.all()


def test_a_teacher_is_for_alike_groups_and_selections_that_rank_nothing():
    with pytest.raises(OptionError, match="is an option of groups='alike'"):
        CollapseConfig(0.5, cluster_on="teacher")


def test_the_penalties_that_lose_leave_nothing_in_memory():
    rng = np.random.default_rng(0)
    y, features = rng.integers(0, 40, 5_000), rng.normal(size=(5_000, 4)).astype(np.float32)
    encoding = encode_labels(y, "classes")
    assert traced_peak(lambda: fit_teacher(features, encoding)) < 16 * 8 * 5_000 * 40
