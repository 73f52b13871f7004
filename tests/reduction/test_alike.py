"""Groups of alike nodes as a collapse: what every collapse promises, and what this one adds."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import oracles
from tests.strategies import edge_lists

from falcon_gnn.errors import BudgetError, FalconWarning, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.reduction.alike import form_groups
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.falcon import collapse

TASKS = ("classes", "multilabel", "regression", "none")


def _labels(task, num_nodes, rng):
    if task == "classes":
        return rng.integers(-1, 3, num_nodes)
    if task == "multilabel":
        return rng.integers(0, 2, (num_nodes, 4)).astype(np.uint8)
    return rng.normal(size=num_nodes) if task == "regression" else None


def _random_graph(num_nodes=60, task="classes", seed=0, **arrays):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes, (2, 3 * num_nodes))
    x = rng.normal(size=(num_nodes, 5)).astype(np.float32)
    known = {"x": x, "y": _labels(task, num_nodes, rng), **arrays}
    return Graph.from_edges(edges[:, edges[0] != edges[1]], num_nodes, warn_one_way="never", **known)


def _alike(graph, budget, **options):
    if graph.y is not None and graph.y.ndim == 2 and graph.y.dtype == np.uint8:
        # Drawn labels may be one 1 per row, which is warned about where nobody says what they are.
        options = {"task": "multilabel", **options}
    return collapse(graph, node_budget=budget, groups="alike", **{"num_clusters": 3, **options})


@st.composite
def _cases(draw):
    edges = draw(edge_lists())
    task = draw(st.sampled_from(TASKS))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    # Few distinct rows: equal ones must not upset the budget.
    x = rng.integers(0, 2, (edges.num_nodes, 2)).astype(np.float32)
    graph = Graph.from_edges(edges.array, edges.num_nodes, x=x, y=_labels(task, edges.num_nodes, rng))
    budget = draw(st.integers(1, edges.num_nodes))
    at_most = max(0, budget - 1)
    protected = draw(st.sets(st.integers(0, edges.num_nodes - 1), max_size=min(3, at_most)))
    return graph, budget, np.array(sorted(protected), np.int64), task


@given(_cases(), st.sampled_from(["mean", "hub"]))
@settings(deadline=None, max_examples=150)
def test_every_node_has_a_group_and_the_budget_is_met_exactly(case, merge):
    graph, budget, protected, _ = case
    result = _alike(graph, budget, protect=protected, merge=merge)
    assert np.array_equal(np.unique(result.assignment), np.arange(budget))
    assert (np.diff(result.kept) > 0).all()
    assert np.array_equal(result.assignment[result.kept], np.arange(budget))
    sizes = np.bincount(result.assignment)
    assert (sizes[result.assignment[protected]] == 1).all()
    assert set(protected.tolist()) <= set(result.kept.tolist())
    assert np.array_equal(result.graph.node_weight, sizes)
    assert result.cluster_budgets.sum() == budget
    assert result.removal_order.tolist() == sorted(set(range(graph.num_nodes)) - set(result.kept.tolist()))
    assert result.report.num_dropped == 0


@given(_cases())
@settings(deadline=None, max_examples=100)
def test_contracted_counts_and_self_weights_average_the_operator(case):
    graph, budget, protected, _ = case
    result = _alike(graph, budget, protect=protected)
    dense = graph.to_scipy().toarray().astype(np.float64) + np.eye(graph.num_nodes)
    membership = np.eye(budget)[result.assignment]
    summed = membership.T @ dense @ membership
    scale = summed.sum(axis=1) ** -0.5
    assert normalized_csr(result.graph, np.float64).toarray() == pytest.approx(
        scale[:, None] * summed * scale, abs=1e-12
    )


@given(_cases())
@settings(deadline=None, max_examples=100)
def test_groups_hold_one_class_while_the_budget_allows(case):
    graph, budget, protected, task = case
    if task != "classes":
        return
    result = _alike(graph, budget, protect=protected)
    loose = np.setdiff1d(np.arange(graph.num_nodes), protected)
    if budget - len(protected) < len(np.unique(graph.y[loose])):
        return
    for group in range(budget):
        assert len(np.unique(graph.y[result.assignment == group])) == 1
    assert set(graph.y[loose].tolist()) == set(graph.y[np.intersect1d(result.kept, loose)].tolist())


def test_below_the_number_of_classes_the_largest_have_a_group_and_the_others_join_the_nearest():
    x = np.array([[1, 0], [1, 0], [1, 0.1], [0, 1], [0, 1], [0.1, 1]], np.float32)
    graph = Graph.from_edges(np.zeros((2, 0), int), 6, x=x, y=[0, 0, 2, 1, 1, 3])
    result = _alike(graph, 2)
    assert result.assignment.tolist() == [0, 0, 0, 1, 1, 1]
    assert result.graph.y.tolist() == [0, 1]


def test_a_worked_example_by_hand():
    # Two classes of three; nodes 0 and 1 look alike, so do 3 and 4; one edge inside a group, two between 0, 1 and 2.
    x = np.array([[1.0, 0], [1, 0], [0, 1], [1, 0], [1, 0], [0, 1]], np.float32)
    graph = Graph.from_edges([[0, 0, 1, 3], [1, 2, 2, 5]], 6, x=x, y=[0, 0, 0, 1, 1, 1])
    space = np.array([[1, 0], [1, 0.1], [0, 1], [1, 0], [1, 0.2], [0, 1]], np.float32)
    found = form_groups(space, graph.y, None, np.zeros(6, bool), 4, is_classes=True)
    assert found.assignment.tolist() == [0, 0, 1, 2, 2, 3]
    assert found.kept.tolist() == [0, 2, 3, 5]
    assert found.cluster_budgets.tolist() == [2, 2]
    assert found.inertia == pytest.approx(2 * 0.05**2 + 2 * 0.1**2, rel=1e-5)
    result = collapse(graph, node_budget=4, groups="alike", clusters=[0, 0, 1, 2, 2, 3])
    assert result.assignment.tolist() == found.assignment.tolist()
    assert result.graph.x.tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    assert result.graph.y.tolist() == [0, 0, 1, 1]
    assert result.graph.edge_weight.tolist() == [2, 2, 1, 1]
    assert result.graph.self_weight.tolist() == [2 + 2, 1, 2, 1]
    assert result.graph.node_weight.tolist() == [2, 1, 2, 1]


@given(st.integers(0, 2**16), st.integers(1, 9))
@settings(deadline=None, max_examples=40)
def test_the_survivor_is_the_member_nearest_to_the_mean(seed, budget):
    points = np.random.default_rng(seed).integers(0, 3, (9, 2)).astype(np.float32)
    found = form_groups(points, np.zeros(9, np.int64), None, np.zeros(9, bool), budget, is_classes=True, seed=seed)
    members = [np.flatnonzero(found.assignment == group).tolist() for group in range(budget)]
    for kept, group in zip(found.kept.tolist(), members, strict=True):
        distance = np.square(points - points[group].mean(axis=0)).sum(axis=1)
        assert kept in group
        assert distance[kept] <= distance[oracles.medoid(points, group)] + 1e-5
    assert found.inertia == pytest.approx(oracles.inertia(points, members), abs=1e-4)


@pytest.mark.parametrize("task", TASKS)
def test_the_same_input_gives_the_same_result_and_a_seed_another(task):
    graph = _random_graph(task=task)
    first, again, other = (_alike(graph, 20, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.assignment, again.assignment)
    assert np.array_equal(first.graph.x, again.graph.x)
    assert not np.array_equal(first.assignment, other.assignment)


@pytest.mark.parametrize("task", TASKS)
def test_nothing_outside_the_scope_is_looked_at(task):
    graph = _random_graph(task=task)
    train = np.arange(60) % 3 > 0
    outside = np.flatnonzero(~train)
    x, y = graph.x.copy(), None if graph.y is None else graph.y.copy()
    x[outside] = 100
    if y is not None:
        y[outside] = np.roll(y[outside], 1, axis=0)
    edges = graph.edge_index
    stays = train[edges[0]] & train[edges[1]]
    changed = Graph.from_edges(edges[:, stays], 60, x=x, y=y, train_mask=train)
    first = _alike(graph.replace(train_mask=train), 10)
    second = _alike(changed, 10)
    assert np.array_equal(first.assignment, second.assignment)
    assert np.array_equal(first.graph.x, second.graph.x)
    assert (first.assignment[outside] == -1).all()


@pytest.mark.parametrize("task", ["classes", "multilabel", "regression"])
def test_hidden_labels_are_not_looked_at(task):
    train = np.arange(60) % 3 == 0
    graph = _random_graph(task=task, train_mask=train)
    y = graph.y.copy()
    y[~train] = np.roll(y[~train], 7, axis=0)
    first, second = (_alike(g, 12, scope="full") for g in (graph, graph.replace(y=y)))
    assert np.array_equal(first.assignment, second.assignment)
    assert (first.assignment >= 0).all()


def test_nodes_without_a_visible_label_are_one_more_class():
    train = np.arange(60) % 3 == 0
    graph = _random_graph(train_mask=train, y=np.arange(60) % 2)
    result = _alike(graph, 12, scope="full")
    for group in range(12):
        assert len({bool(train[i]) for i in np.flatnonzero(result.assignment == group)}) == 1
    assert result.graph.train_mask.sum() == 4
    assert result.cluster_budgets.tolist() == [2, 2, 8]


@pytest.mark.parametrize("task", TASKS)
def test_groups_stay_inside_given_clusters(task):
    clusters = np.arange(60) % 7
    result = _alike(_random_graph(task=task), 20, clusters=clusters)
    for group in range(20):
        assert len(np.unique(clusters[result.assignment == group])) == 1


def test_a_graph_of_protected_nodes_alone_keeps_each_in_its_own_group():
    result = _alike(_random_graph(8), 8, protect=np.arange(8))
    assert result.kept.tolist() == result.assignment.tolist() == list(range(8))


def test_a_budget_that_leaves_a_given_cluster_or_the_unprotected_without_a_group_is_refused():
    graph = _random_graph()
    with pytest.raises(BudgetError, match="each of 7 clusters"):
        _alike(graph, 6, clusters=np.arange(60) % 7)
    with pytest.raises(BudgetError, match="leaves 0 groups beside 5 protected nodes"):
        _alike(graph, 5, protect=np.arange(5))


def test_means_are_over_the_group_and_hubs_keep_their_own():
    graph = _random_graph(task="multilabel")
    mean, hub, drop = (_alike(graph, 10, merge=merge) for merge in ("mean", "hub", "drop"))
    assert np.array_equal(mean.kept, hub.kept)
    assert np.array_equal(mean.kept, drop.kept)
    members = mean.assignment == 4
    assert mean.graph.x[4] == pytest.approx(graph.x[members].mean(axis=0), abs=1e-6)
    assert mean.graph.y[4] == pytest.approx(graph.y[members].mean(axis=0), abs=1e-6)
    assert np.array_equal(hub.graph.x, graph.x[hub.kept])
    assert np.array_equal(hub.graph.edge_weight, mean.graph.edge_weight)
    induced = graph.subgraph(drop.kept)
    assert np.array_equal(drop.graph.indices, induced.indices)
    assert drop.graph.node_weight is None
    assert drop.report.num_dropped == 50


def test_weights_of_the_input_add_up():
    weighted = _random_graph(node_weight=np.arange(1, 61), self_weight=np.full(60, 3.0))
    rng = np.random.default_rng(1)
    weighted = Graph.from_scipy(weighted.to_scipy() * 2.5, **weighted.take_node_arrays(np.arange(60)))
    result = _alike(weighted, 10, seed=int(rng.integers(9)))
    inside = result.assignment
    assert np.array_equal(result.graph.node_weight, np.bincount(inside, np.arange(1, 61)))
    source, target = weighted.edge_index
    internal = np.bincount(inside[source], 2.5 * (inside[source] == inside[target]), 10)
    assert result.graph.self_weight == pytest.approx(internal + 3 * np.bincount(inside))
    whole = weighted.edge_weight.sum() + weighted.self_weight.sum()
    assert result.graph.edge_weight.sum() + result.graph.self_weight.sum() == pytest.approx(whole)


def test_a_collapse_of_a_collapse_stands_for_all_nodes():
    first = _alike(_random_graph(), 20)
    second = _alike(first.graph, 5)
    assert second.graph.node_weight.sum() == 60
    total = first.graph.edge_weight.sum() + first.graph.self_weight.sum()
    assert second.graph.edge_weight.sum() + second.graph.self_weight.sum() == total


def test_without_edge_weights_the_graph_is_the_papers_simple_one():
    result = _alike(_random_graph(), 10, edge_weights="none")
    assert result.graph.edge_weight is None
    assert result.graph.self_weight is None


def test_without_features_labels_alone_decide_and_a_warning_says_so():
    with pytest.warns(FalconWarning, match="this graph has none"):
        result = _alike(_random_graph(x=None, task="multilabel"), 16)
    y = _random_graph(task="multilabel").y
    assert all(len(np.unique(y[result.assignment == g], axis=0)) == 1 for g in range(16))


def test_nothing_is_ranked():
    result = _alike(_random_graph(), 10)
    assert (result.rank == -1).all()
    assert np.isnan(result.centrality).all()
    assert result.report.kept_by_rank == []
    assert result.lift(np.arange(10)).tolist() == result.assignment.tolist()


def test_the_report_counts_the_components_of_the_reduced_graph():
    x = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32)
    graph = Graph.from_edges([[0, 2], [1, 3]], 4, x=x, y=[0, 1, 0, 1])
    report = _alike(graph, 3, protect=[3]).report
    assert (report.before.num_components, report.after.num_components) == (2, 1)


@pytest.mark.parametrize("option", [{"selection": "lowest"}, {"order": "cluster"}])
def test_options_of_the_ranking_are_refused(option):
    with pytest.raises(OptionError, match=r"is an option of groups='neighbors'"):
        CollapseConfig(0.5, groups="alike", **option)
    with pytest.raises(OptionError, match="centrality scores rank nodes"):
        _alike(_random_graph(), 10, centrality=np.arange(60))


def test_options_follow_the_way_of_grouping_where_they_are_not_given():
    config = CollapseConfig(0.5, groups="alike").resolved()
    assert (config.merge, config.edge_weights, config.selection, config.order) == ("mean", "sum", None, None)
    assert CollapseConfig(0.5, groups="alike", merge="hub").resolved().merge == "hub"
    again = dataclasses.replace(CollapseConfig(0.5), groups="alike")
    assert again.resolved().merge == "mean"


def test_stages_and_the_share_of_a_grouping_are_told(monkeypatch):
    from falcon_gnn import progress
    from falcon_gnn.reduction import partition

    monkeypatch.setattr(partition, "MAX_CENTERS", 3)
    monkeypatch.setattr(progress, "_SILENT_SECONDS", 0)
    monkeypatch.setattr(progress, "_TELLING_SECONDS", 0)
    told = []
    collapse(_random_graph(), node_budget=40, groups="alike", on_stage=told.append)
    assert [name for name in told if "," not in name] == [
        "scope", "hop features", "clustering", "grouping", "contraction", "attributes", "report",
    ]  # fmt: skip
    assert sum(name.startswith("grouping, ") for name in told) > 1
