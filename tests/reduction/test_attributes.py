from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests import oracles
from tests.strategies import collapse_cases
from tests.tracing import traced_peak

from falcon_gnn.errors import FalconWarning, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.labels import encode_labels
from falcon_gnn.reduction import attributes
from falcon_gnn.reduction.attributes import Groups, group_arrays
from falcon_gnn.reduction.coarsening.door import coarsen
from falcon_gnn.reduction.falcon import collapse

STAR = np.array([[0, 0, 0, 0], [1, 2, 3, 4]])
HUB_FIRST = np.array([9.0, 1, 2, 3, 8])


def _star(**options):
    """Return nodes 1, 2 and 3 merged into the hub 0, with 4 kept beside it."""
    arrays = {name: options.pop(name) for name in ("x", "y", "train_mask", "val_mask", "test_mask") if name in options}
    graph = Graph.from_edges(STAR, 5, **arrays)
    return collapse(graph, node_budget=2, centrality=HUB_FIRST, num_clusters=1, **options)


@given(collapse_cases(), st.booleans(), st.data())
@settings(deadline=None)
def test_mean_features_are_the_means_of_the_groups(case, is_sparse, data):
    num_nodes = case.edges.num_nodes
    x = np.array(data.draw(st.lists(st.tuples(*[st.integers(0, 3)] * 2), min_size=num_nodes, max_size=num_nodes)))
    graph = case.graph.replace(x=sp.csr_array(x.astype(np.float64)) if is_sparse else x.astype(np.float64))
    result = collapse(graph, merge="mean", **case.arguments)
    found = result.graph.x.toarray() if is_sparse else result.graph.x
    expected = oracles.group_mean(x, result.assignment.tolist(), len(result.kept))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_means_of_large_groups_hold_no_second_copy_of_the_features(monkeypatch):
    monkeypatch.setattr(attributes, "_BLOCK_VALUES", 1 << 16)
    path = np.stack([np.arange(4095), np.arange(1, 4096)])
    graph = Graph.from_edges(path, 4096, x=np.ones((4096, 1024), np.float32))
    options = {"node_budget": 2, "merge": "mean", "centrality": "degree", "num_clusters": 1}
    collapse(graph, **options)
    assert traced_peak(lambda: collapse(graph, **options)) < graph.x.nbytes


@given(collapse_cases(), st.data())
@settings(deadline=None)
def test_mean_classes_are_the_majority_of_the_visible_labels(case, data):
    num_nodes = case.edges.num_nodes
    y = np.array(data.draw(st.lists(st.integers(-1, 2), min_size=num_nodes, max_size=num_nodes)))
    visible = data.draw(st.lists(st.booleans(), min_size=num_nodes, max_size=num_nodes).filter(any))
    graph = case.graph.replace(y=y, train_mask=np.array(visible))
    groups = oracles.walk_algorithm_1(
        case.edges.neighbors, oracles.rank_by_scores(case.scores, case.seed), case.clusters, case.budget,
        order=case.order, protected=set(case.protected),
    ).assignment  # fmt: skip
    assume(any(shown and group >= 0 for shown, group in zip(visible, groups, strict=True)))
    result = collapse(graph, merge="mean", scope="full", **case.arguments)
    expected = oracles.group_class(y, visible, result.assignment.tolist(), result.kept.tolist())
    assert result.graph.y.tolist() == expected
    trains = [any(visible[v] for v in np.flatnonzero(result.assignment == group)) for group in range(len(result.kept))]
    assert result.graph.train_mask.tolist() == trains


@pytest.mark.parametrize("merge", ["hub", "drop"])
def test_a_survivor_keeps_what_is_its_own(merge):
    x, y = np.arange(10.0).reshape(5, 2), np.array([3, 1, 1, 1, 0])
    result = _star(x=x, y=y, merge=merge)
    assert result.graph.x.tolist() == x[[0, 4]].tolist()
    assert result.graph.y.tolist() == [3, 0]


def test_a_tie_of_classes_goes_to_the_survivors_own_and_then_to_the_smallest():
    assert _star(y=np.array([2, 2, 1, 1, 0]), merge="mean").graph.y.tolist() == [2, 0]
    assert _star(y=np.array([-1, 2, 1, -1, 0]), merge="mean").graph.y.tolist() == [1, 0]


def test_a_group_without_a_visible_label_keeps_the_survivors_own():
    assert _star(y=np.array([-1, -1, -1, -1, 0]), merge="mean").graph.y.tolist() == [-1, 0]


def test_multi_label_and_regression_labels_are_averaged():
    y = np.array([[1, 0], [1, 1], [0, 1], [0, 1], [1, 0]])
    assert _star(y=y, merge="mean").graph.y.tolist() == [[0.5, 0.75], [1, 0]]
    targets = np.array([0.5, 1.5, np.nan, 4.0, 2.5])
    assert _star(y=targets, merge="mean").graph.y.tolist() == [2.0, 2.5]


def test_a_missing_entry_of_a_multi_label_row_is_no_vote_against():
    y = np.array([[1, np.nan], [1, 1], [np.nan, 1], [0, np.nan], [1, np.nan]])
    np.testing.assert_allclose(_star(y=y, merge="mean").graph.y, [[2 / 3, 1], [1, np.nan]])


def test_a_survivor_alone_in_its_group_keeps_its_values_to_the_bit():
    x, y = np.full((5, 1), 0.1), np.array([0.1, 0.2, 0.3, 0.4, 0.7])
    result = collapse(Graph.from_edges(STAR, 5, x=x, y=y), node_budget=5, merge="mean", num_clusters=1)
    assert result.graph.x.tolist() == x.tolist()
    assert result.graph.y.tolist() == y.tolist()


def test_means_of_a_very_large_group_keep_their_digits():
    """A million float32 values added one by one drift by percents."""
    num_nodes = 1_000_000
    edges = np.stack([np.zeros(num_nodes - 1, np.int64), np.arange(1, num_nodes)])
    graph = Graph.from_edges(edges, num_nodes, x=np.full((num_nodes, 1), 0.1, np.float32))
    result = collapse(graph, node_budget=1, merge="mean", num_clusters=1, centrality="degree")
    assert result.graph.x[0, 0] == pytest.approx(0.1, rel=1e-5)


def test_integer_features_become_means_and_stay_integers_for_hubs():
    x = np.array([[0], [1], [1], [1], [7]])
    assert _star(x=x, merge="mean").graph.x.tolist() == [[0.75], [7]]
    assert _star(x=x).graph.x.dtype == x.dtype


@pytest.mark.parametrize("is_sparse", [False, True])
def test_mean_features_keep_their_type(is_sparse):
    x = np.ones((5, 2), np.float32)
    found = _star(x=sp.csr_array(x) if is_sparse else x, merge="mean").graph.x
    assert found.dtype == np.float32
    assert sp.issparse(found) == is_sparse


def test_a_survivor_trains_if_any_member_does_and_then_does_not_validate():
    train, val = np.array([0, 1, 0, 0, 0], bool), np.array([1, 0, 0, 0, 1], bool)
    result = _star(y=np.zeros(5, int), train_mask=train, val_mask=val, merge="mean", scope="full")
    assert result.graph.train_mask.tolist() == [True, False]
    assert result.graph.val_mask.tolist() == [False, True]


def test_masks_that_select_no_survivor_are_left_out():
    masks = {"train_mask": np.array([1, 0, 0, 0, 1], bool), "val_mask": np.array([0, 1, 0, 0, 0], bool)}
    reduced = _star(scope="full", **masks).graph
    assert reduced.train_mask.all()
    assert reduced.val_mask is None


def test_a_collapse_that_loses_every_training_node_is_refused_with_the_fix():
    with pytest.raises(OptionError, match=r"no training node survives this collapse\. Pass protect=train_mask"):
        _star(train_mask=np.array([0, 1, 0, 0, 0], bool), scope="full")


def test_any_other_node_attribute_is_carried_for_survivors():
    graph = Graph.from_edges(STAR, 5, node_attributes={"graph_id": np.arange(5), "name": np.array(list("abcde"))})
    for merge in ("hub", "mean", "drop"):
        result = collapse(graph, node_budget=2, centrality=HUB_FIRST, num_clusters=1, merge=merge)
        assert result.graph.node_attributes["graph_id"].tolist() == result.kept.tolist() == [0, 4]
        assert result.graph.node_attributes["name"].tolist() == ["a", "e"]


@pytest.mark.parametrize(
    "y",
    [np.array([1, 1, 0, -1, 1]), np.array([0.5, 1, 1, np.nan, 1]), np.array([[1, 1]] * 3 + [[np.nan] * 2] + [[1, 0]])],
)
def test_a_hidden_label_is_not_trained_on_because_an_unlabelled_member_trains(y):
    result = _star(y=y, train_mask=np.array([0, 0, 0, 1, 0], bool), merge="mean", scope="full")
    assert result.graph.train_mask.tolist() == [True, False]
    assert np.isnan(result.graph.y[0]).all() or np.all(result.graph.y[0] == -1)


@pytest.mark.parametrize("task", ["multilabel", "regression"])
@pytest.mark.parametrize("is_seen", [True, False])
def test_a_hidden_cell_is_not_trained_on_beside_known_ones(task, is_seen):
    """Node 0 survives and is a test node; node 1 trains, and knows one of its two labels at most."""
    first = 0.0 if is_seen else np.nan
    for hidden in (0.0, 1.0):
        y = np.array([[1, hidden], [first, np.nan], [0, 0], [0, 0], [1, 1]])
        masks = {"train_mask": np.arange(5) == 1, "test_mask": np.arange(5) == 0}
        for result in (
            _star(y=y, merge="mean", scope="full", task=task, **masks),
            coarsen(Graph.from_edges(STAR, 5, y=y, **masks), node_budget=1, scope="full", task=task),
        ):
            assert result.graph.train_mask[0]
            np.testing.assert_array_equal(result.graph.y[0], [first, np.nan])


@pytest.mark.parametrize("scope", ["train", "full"])
def test_classes_as_distributions_are_averaged_over_the_visible_members(scope):
    distribution = np.array([[1.0, 0], [0, 1], [0.2, 0.8], [0.5, 0.5], [1, 0]])
    visible = np.array([scope == "train", True, True, False, True])
    graph = Graph.from_edges(
        STAR, 5, y=distribution.argmax(axis=1), label_distribution=distribution,
        train_mask=visible if scope == "full" else np.ones(5, bool),
    )  # fmt: skip
    result = collapse(graph, node_budget=2, centrality=HUB_FIRST, num_clusters=1, scope=scope, merge="mean")
    members = distribution[[1, 2]] if scope == "full" else distribution[:4]
    np.testing.assert_allclose(result.graph.label_distribution, [members.mean(axis=0), [1, 0]])
    assert result.graph.y.tolist() == [1, 0]


def test_a_group_may_be_likeliest_of_a_class_that_no_node_bears():
    distribution = np.array([[0.5, 0.1, 0.4], [0.1, 0.5, 0.4], [0.1, 0.5, 0.4]])
    graph = Graph.from_edges(
        [[0, 1], [1, 2]], 3, x=np.eye(3), y=[0, 1, 1], label_distribution=distribution, node_weight=[2.0, 1, 1]
    )
    for result in (
        collapse(graph, node_budget=1, centrality="degree", num_clusters=1, merge="mean"),
        collapse(graph, node_budget=1, groups="alike", clusters=[0, 0, 0]),
        coarsen(graph, node_budget=1),
    ):
        assert result.graph.y.tolist() == [2]
        assert result.report.labels.shares_after == [0, 0, 1]


@pytest.mark.parametrize("y", [np.array([0.5, 1.5, 2.5]), np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]])])
def test_a_distribution_of_classes_does_not_take_the_place_of_other_labels(y):
    graph = Graph.from_edges([[0, 1], [1, 2]], 3, y=y, label_distribution=np.full((3, 2), 0.5))
    result = collapse(graph, node_budget=1, centrality="degree", num_clusters=1, merge="mean")
    np.testing.assert_allclose(result.graph.y[0], y.mean(axis=0))


def test_nodes_of_a_collapse_count_by_their_weights_in_the_next_one():
    x, y, weight = np.arange(5.0)[:, None], np.array([0, 1, 1, 1, 1]), np.array([5.0, 1, 1, 1, 2])
    graph = Graph.from_edges(STAR, 5, x=x, y=y, node_weight=weight)
    result = collapse(graph, node_budget=2, centrality=HUB_FIRST, num_clusters=1, merge="mean")
    np.testing.assert_allclose(result.graph.x[:, 0], [np.average(x[:4, 0], weights=weight[:4]), 4])
    assert result.graph.y.tolist() == [0, 1]


@pytest.mark.parametrize("reduce", [partial(collapse, merge="mean", edge_weights="count", num_clusters=1), coarsen])
def test_what_survives_keeps_its_own_weights_where_nodes_are_not_grouped_alike(reduce):
    graph = Graph.from_edges(STAR, 5, x=np.eye(5), node_weight=np.arange(1.0, 6), self_weight=np.arange(5.0))
    result = reduce(graph, node_budget=2)
    assert result.graph.node_weight.tolist() == (result.kept + 1).tolist()
    assert result.graph.self_weight.tolist() == result.kept.tolist()


@pytest.mark.parametrize("groups", ["neighbors", "alike"])
def test_self_weights_go_with_the_edge_weights_that_are_left_out(groups):
    graph = Graph.from_edges(
        [[0, 1], [1, 2]], 3, x=np.arange(3.0)[:, None], edge_weight=[4.0, 5], self_weight=[3.0, 4, 5]
    )
    with pytest.warns(FalconWarning, match="leaves the edge and self-weights of the input out"):
        result = collapse(graph, node_budget=2, groups=groups, num_clusters=1, edge_weights="none")
    assert result.graph.edge_weight is result.graph.self_weight is None


def _groups_of_four(num_nodes):
    return Groups(np.arange(num_nodes), np.arange(num_nodes) // 4, np.arange(0, num_nodes, 4))


def test_means_in_blocks_are_the_same_to_the_bit(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.where(rng.random((60, 5)) < 0.2, np.nan, rng.integers(0, 2, (60, 5)))
    graph = Graph.from_edges(np.zeros((2, 0), int), 60, x=rng.normal(size=(60, 7)), y=y)
    groups, encoding = Groups(np.arange(60), rng.permutation(60) % 9, np.arange(9)), encode_labels(y, "multilabel")
    whole = group_arrays(graph, groups, encoding)
    monkeypatch.setattr(attributes, "_BLOCK_VALUES", 30)
    parts = group_arrays(graph, groups, encoding)
    assert all(parts[name].tobytes() == whole[name].tobytes() for name in ("x", "y"))


def test_means_are_taken_of_mapped_features_without_a_copy_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(attributes, "_BLOCK_VALUES", 1 << 14)
    np.save(tmp_path / "x.npy", np.ones((20_000, 64), np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    graph = Graph.from_edges(np.zeros((2, 0), int), 20_000, x=mapped)
    assert traced_peak(lambda: group_arrays(graph, _groups_of_four(20_000), None)) < 0.8 * mapped.nbytes


def test_means_of_labels_need_no_doubles_of_all_of_them(monkeypatch):
    monkeypatch.setattr(attributes, "_BLOCK_VALUES", 1 << 14)
    y = np.random.default_rng(0).integers(0, 2, (20_000, 50)).astype(np.uint8)
    graph, encoding = Graph.from_edges(np.zeros((2, 0), int), 20_000, y=y), encode_labels(y, "multilabel")
    assert traced_peak(lambda: group_arrays(graph, _groups_of_four(20_000), encoding)) < 6 * y.nbytes


def test_a_vote_on_many_classes_needs_no_cell_per_group_and_class():
    y = np.arange(20_000) % 2_000
    graph, encoding = Graph.from_edges(np.zeros((2, 0), int), 20_000, y=y), encode_labels(y, "classes")
    assert traced_peak(lambda: group_arrays(graph, _groups_of_four(20_000), encoding)) < 5_000 * 2_000
