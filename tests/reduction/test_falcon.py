"""The collapse as a whole, against the oracle that walks Algorithm 1 literally."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import oracles
from tests.strategies import CollapseCase, collapse_cases, node_permutations

from falcon_gnn.errors import BudgetError, FalconWarning, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.centrality import round_scores
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.falcon import collapse

PATH = np.array([[0, 1, 2, 3], [1, 2, 3, 4]])


def _edges(graph):
    return {(u, v) for u, v in graph.edge_index.T.tolist() if u < v}


def _walk(case: CollapseCase, selection="lowest", **options):
    rank = oracles.rank_by_scores(case.scores, case.seed)
    return oracles.walk_algorithm_1(
        case.edges.neighbors, rank, case.clusters, case.budget, selection=selection, order=case.order,
        protected=set(case.protected), **options,
    )  # fmt: skip


# Against the literal walk


@given(collapse_cases(), st.sampled_from(["lowest", "stratified"]), st.sampled_from(["hub", "mean"]))
@settings(deadline=None, max_examples=300)
def test_the_collapse_is_algorithm_1(case, selection, merge):
    result = collapse(case.graph, selection=selection, merge=merge, **case.arguments)
    expected = _walk(case, selection)
    assert result.kept.tolist() == expected.kept
    assert result.removal_order.tolist() == expected.removal_order
    assert result.assignment.tolist() == expected.assignment
    assert _edges(result.graph) == expected.edges
    assert result.report.num_dropped == expected.assignment.count(-1)
    assert result.cluster_budgets.tolist() == [expected.budgets[i] for i in sorted(set(case.clusters))]


@given(collapse_cases())
@settings(deadline=None)
def test_a_random_selection_is_merged_as_algorithm_1_merges(case):
    result = collapse(case.graph, selection="random", **case.arguments)
    expected = _walk(case, removed=set(range(case.edges.num_nodes)) - set(result.kept.tolist()))
    assert result.removal_order.tolist() == expected.removal_order
    assert result.assignment.tolist() == expected.assignment
    assert np.bincount(np.array(case.clusters)[result.kept], minlength=3).tolist() == expected.budgets + [0] * (
        3 - len(expected.budgets)
    )


@given(collapse_cases(), st.sampled_from(["lowest", "stratified"]))
@settings(deadline=None)
def test_dropping_leaves_the_induced_subgraph_of_the_survivors(case, selection):
    result = collapse(case.graph, selection=selection, merge="drop", **case.arguments)
    kept = _walk(case, selection).kept
    assert result.kept.tolist() == kept
    assert _edges(result.graph) == oracles.induced_edges(case.edges.neighbors, kept)
    outside = np.setdiff1d(np.arange(case.edges.num_nodes), kept)
    assert (result.assignment[outside] == -1).all()


@given(collapse_cases(), st.sampled_from(["count", "sum"]), st.data())
@settings(deadline=None)
def test_weights_of_the_reduced_edges_add_up_what_ran_between_the_groups(case, edge_weights, data):
    num_pairs = len(case.edges.pairs)
    weights = data.draw(st.lists(st.integers(1, 5), min_size=num_pairs, max_size=num_pairs))
    graph = Graph.from_edges(case.edges.array, case.edges.num_nodes, edge_weight=np.array(weights, np.float64))
    reduced = collapse(graph, edge_weights=edge_weights, **case.arguments).graph
    given_weights = weights if edge_weights == "sum" else [1] * num_pairs
    of_pair = dict(zip(case.edges.pairs, given_weights, strict=True))
    expected = oracles.merged_weights(of_pair, _walk(case).assignment)
    found = {(u, v): w for u, v, w in zip(*reduced.edge_index.tolist(), reduced.edge_weight.tolist(), strict=True)}
    assert {pair: w for pair, w in found.items() if pair[0] < pair[1]} == expected


@given(collapse_cases(distinct_scores=True), st.data())
@settings(deadline=None)
def test_only_nodes_in_the_training_scope_take_part(case, data):
    """A train scope is the collapse of the induced subgraph, node for node."""
    num_nodes = case.edges.num_nodes
    ids = sorted(data.draw(st.sets(st.integers(0, num_nodes - 1), min_size=1)))
    budget = data.draw(st.integers(1, len(ids)))
    graph = case.graph.replace(train_mask=np.isin(np.arange(num_nodes), ids))
    options = {"node_budget": budget, "order": case.order, "seed": case.seed}
    scores, clusters = np.array(case.scores), np.array(case.clusters)
    whole = collapse(graph, centrality=scores, clusters=clusters, **options)
    part = collapse(case.graph.subgraph(ids), centrality=scores[ids], clusters=clusters[ids], **options)
    assert whole.kept.tolist() == np.array(ids)[part.kept].tolist()
    assert whole.removal_order.tolist() == np.array(ids)[part.removal_order].tolist()
    assert whole.assignment[ids].tolist() == part.assignment.tolist()
    assert _edges(whole.graph) == _edges(part.graph)


@pytest.mark.parametrize("name", ["degree", "betweenness", "closeness", "pagerank", "eigenvector"])
def test_the_plain_implementation_of_the_benchmark_gives_the_same_result(name):
    rng = np.random.default_rng(0)
    edges = np.unique(np.sort(rng.integers(0, 80, (2, 160)), axis=0), axis=1)
    pairs = [(u, v) for u, v in edges.T.tolist() if u != v]
    x, y = rng.random((80, 4)), rng.integers(0, 2, (80, 3))
    matrix = oracles.sklearn_matrix(x, y, 0.5)
    np.testing.assert_allclose(matrix, oracles.feature_label_matrix(x, y, [True] * 80, 0.5))
    clusters = oracles.sklearn_clusters(matrix, 5, seed=0)
    graph = oracles.networkx_graph(pairs, 80)
    rank = oracles.rank_by_scores(round_scores(oracles.networkx_centrality(graph, name)), seed=0)
    removed, _ = oracles.choose_removed(rank, clusters.tolist(), 25, set(), "lowest")
    stands_for = oracles.networkx_contract(graph, oracles.removal_order(removed, rank, clusters, "cluster"), rank)
    result = collapse(
        Graph.from_edges(edges, 80, x=x, y=y), node_budget=25, centrality=name, clusters=clusters, num_samples=None
    )
    assert result.kept.tolist() == sorted(graph)
    assert [-1 if v == -1 else result.kept.tolist().index(v) for v in stands_for] == result.assignment.tolist()


# Invariants


@given(collapse_cases(), st.sampled_from(["lowest", "stratified", "random"]))
@settings(deadline=None)
def test_an_edge_is_in_the_reduced_graph_exactly_where_one_ran_between_two_groups(case, selection):
    result = collapse(case.graph, selection=selection, **case.arguments)
    ends = result.assignment[case.edges.array]
    between = {(min(a, b), max(a, b)) for a, b in ends.T.tolist() if a != b and min(a, b) >= 0}
    assert _edges(result.graph) == between


@given(collapse_cases(), st.sampled_from(["lowest", "stratified", "random"]), st.sampled_from(["hub", "drop"]))
@settings(deadline=None)
def test_the_map_is_exact_both_ways(case, selection, merge):
    """pytorch_geometric 3535, 1574, 2139."""
    result = collapse(case.graph, selection=selection, merge=merge, **case.arguments)
    num_kept = len(result.kept)
    assert num_kept == case.budget == result.graph.num_nodes == result.cluster_budgets.sum()
    assert result.assignment[result.kept].tolist() == list(range(num_kept))
    assert (np.diff(result.kept) > 0).all()
    both = np.concatenate([result.kept, result.removal_order])
    assert sorted(both.tolist()) == list(range(case.edges.num_nodes))
    assert set(case.protected) <= set(result.kept.tolist())


@given(collapse_cases())
@settings(deadline=None)
def test_groups_are_connected_and_only_whole_components_are_dropped(case):
    result = collapse(case.graph, **case.arguments)
    neighbors = case.edges.neighbors
    for group in range(len(result.kept)):
        members = set(np.flatnonzero(result.assignment == group).tolist())
        inside = {v: neighbors[v] & members for v in members}
        assert len(oracles.components(inside)) == 1
    dropped = set(np.flatnonzero(result.assignment == -1).tolist())
    assert all(component <= dropped or not component & dropped for component in oracles.components(neighbors))


@given(collapse_cases(), st.sampled_from(["hub", "drop"]))
@settings(deadline=None)
def test_the_components_that_are_left_are_counted(case, merge):
    result = collapse(case.graph, merge=merge, **case.arguments)
    adjacency = sp.csr_array(
        (np.ones(len(result.graph.indices)), result.graph.indices, result.graph.indptr),
        shape=(result.graph.num_nodes, result.graph.num_nodes),
    )
    assert result.report.after.num_components == sp.csgraph.connected_components(adjacency)[0]


@given(collapse_cases(distinct_scores=True), st.data())
@settings(deadline=None)
def test_renumbering_the_nodes_gives_the_same_groups(case, data):
    number = np.array(data.draw(node_permutations(case.edges.num_nodes)))
    old = np.argsort(number)
    renumbered = Graph.from_edges(number[case.edges.array], case.edges.num_nodes)
    arguments = case.arguments
    arguments |= {name: arguments[name][old] for name in ("centrality", "clusters")}
    arguments["protect"] = number[case.protected]
    first, second = collapse(case.graph, **case.arguments), collapse(renumbered, **arguments)
    assert sorted(number[first.kept].tolist()) == second.kept.tolist()
    assert number[first.removal_order].tolist() == second.removal_order.tolist()
    survivor_of = {-1: -1} | dict(enumerate(number[first.kept].tolist()))
    other_survivor_of = {-1: -1} | dict(enumerate(second.kept.tolist()))
    for v in range(case.edges.num_nodes):
        assert survivor_of[first.assignment[v]] == other_survivor_of[second.assignment[number[v]]]


@given(collapse_cases())
@settings(deadline=None)
def test_a_budget_of_all_nodes_changes_nothing(case):
    arguments = case.arguments | {"node_budget": 1.0}
    result = collapse(case.graph, **arguments)
    assert (result.graph.indices == case.graph.indices).all()
    assert result.assignment.tolist() == list(range(case.edges.num_nodes))
    assert result.removal_order.size == 0


# A worked example


def _example(**options):
    r"""Return the collapse of a graph that can be followed on paper, to four of ten nodes.

    ::

        3 ─── 0 ─── 1 ─── 4        7 ─── 8        9
        │     │     │
        6     2     5

        node     0   1   2   3   4   5   6   7   8   9
        Φ       10   9   5   4   2   3   1   7   6   8
        cluster  0   0   0   1   1   1   1   0   1   0

    Cluster 0 (0 1 2 7 9, five nodes) and cluster 1 (3 4 5 6 8, five nodes) keep two each: 0 1 and 8 3.
    Cluster 0 goes first, weakest first: 2 joins 0; 7 joins 8, its only neighbor though in the other cluster; 9 has
    no neighbor and is dropped. Then cluster 1: 6 joins 3; 4 joins 1; 5 joins 1. What is left::

        3 ─── 0 ─── 1        8
    """
    edges = np.array([[3, 0, 1, 3, 0, 1, 7], [0, 1, 4, 6, 2, 5, 8]])
    scores = np.array([10, 9, 5, 4, 2, 3, 1, 7, 6, 8])
    clusters = np.array([0, 0, 0, 1, 1, 1, 1, 0, 1, 0])
    return collapse(Graph.from_edges(edges, 10), node_budget=4, centrality=scores, clusters=clusters, **options)


def test_the_worked_example_by_hand():
    result = _example()
    assert result.cluster_budgets.tolist() == [2, 2]
    assert result.kept.tolist() == [0, 1, 3, 8]
    assert result.removal_order.tolist() == [2, 7, 9, 6, 4, 5]
    assert result.assignment.tolist() == [0, 1, 0, 2, 1, 1, 2, 3, 3, -1]
    assert _edges(result.graph) == {(0, 1), (0, 2)}
    assert result.report.num_dropped == 1


def test_the_worked_example_in_global_order_removes_the_same_nodes_weakest_first():
    result = _example(order="global")
    assert result.removal_order.tolist() == [6, 4, 5, 2, 7, 9]
    assert result.kept.tolist() == [0, 1, 3, 8]


def test_the_worked_example_kept_stratified():
    """Cluster 0 by ascending Φ is 2 7 9 1 0: positions 1·5//4 = 1 and 3·5//4 = 3 are 7 and 1; cluster 1: 4 and 3."""
    assert _example(selection="stratified").kept.tolist() == [1, 3, 4, 7]


def test_a_node_merges_with_the_neighbors_its_group_has_gathered():
    """Path 0-1-2-3, Φ = 1 2 0 3, removing 0, 1: 0 joins 1; 1 with 0 in it joins 2, though 2 is weaker, and is kept."""
    graph = Graph.from_edges([[0, 1, 2], [1, 2, 3]], 4)
    result = collapse(graph, node_budget=2, centrality=[1.0, 2, 0, 3], clusters=[0] * 4, protect=[2])
    assert result.assignment.tolist() == [0, 0, 0, 1]


def test_a_neighbor_of_centrality_zero_is_still_a_neighbor():
    result = collapse(Graph.from_edges([[0], [1]], 2), node_budget=1, centrality=[0.0, 0.0], num_clusters=1)
    assert result.assignment.tolist() == [0, 0]


# Scores and ranks


@pytest.mark.parametrize("name", ["degree", "betweenness", "closeness", "pagerank", "eigenvector", "random"])
def test_ranks_follow_the_rounded_centrality(name):
    edges = np.random.default_rng(0).integers(0, 60, (2, 100))
    graph = Graph.from_edges(np.unique(np.sort(edges, axis=0), axis=1), 60)
    result = collapse(graph, node_budget=20, centrality=name, num_clusters=1, seed=3)
    assert result.rank.tolist() == oracles.rank_by_scores(round_scores(result.centrality), seed=3)
    assert set(result.removal_order.tolist()) == set(np.flatnonzero(result.rank < 40).tolist())


def test_ties_follow_the_seed_and_not_the_numbering():
    graph = Graph.from_edges(np.zeros((2, 0), int), 400)
    kept = [collapse(graph, node_budget=200, centrality="degree", seed=seed).kept for seed in (0, 0, 1)]
    assert kept[0].tolist() == kept[1].tolist()
    assert kept[0].tolist() != kept[2].tolist()
    assert 60 < (kept[0] < 200).sum() < 140


def test_rounding_noise_of_a_centrality_does_not_break_ties():
    """On a torus all nodes are alike; the sums of their betweenness differ in the last digit."""
    node = np.arange(49).reshape(7, 7)
    steps = [(node, np.roll(node, 1, axis)) for axis in (0, 1)]
    torus = Graph.from_edges(np.concatenate([np.stack([a.ravel(), b.ravel()]) for a, b in steps], axis=1), 49)
    result = collapse(torus, node_budget=9, centrality="betweenness", num_samples=None, num_clusters=1, seed=5)
    assert len(np.unique(result.centrality)) > 1
    assert result.rank.tolist() == oracles.rank_by_scores([0.0] * 49, seed=5)


def test_scores_of_the_users_own_are_taken_as_given():
    """Not rounded: they differ in the twelfth digit only."""
    scores = 1 + 1e-12 * np.array([4, 0, 3, 1, 2])
    result = collapse(Graph.from_edges(PATH, 5), node_budget=2, centrality=scores, num_clusters=1)
    assert result.rank.tolist() == [4, 0, 3, 1, 2]
    assert (result.centrality == scores).all()


def test_whole_number_scores_keep_their_order_beyond_the_digits_of_a_float():
    scores = 2**60 + np.array([4, 0, 3, 1, 2])
    result = collapse(Graph.from_edges(PATH, 5), node_budget=2, centrality=scores, num_clusters=1)
    assert result.rank.tolist() == [4, 0, 3, 1, 2]


# Inputs


def _full_graph(x=None):
    rng = np.random.default_rng(0)
    edges = np.unique(np.sort(rng.integers(0, 40, (2, 80)), axis=0), axis=1)
    role = rng.permutation(np.repeat([0, 1, 2], [24, 8, 8]))
    masks = {name: role == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    return Graph.from_edges(
        edges, 40, x=rng.random((40, 3)) if x is None else x, y=np.resize([0, 1, 2], 40),
        node_attributes={"graph_id": np.arange(40)}, edge_weight=rng.random(edges.shape[1]), **masks,
    )  # fmt: skip


@pytest.mark.parametrize("merge", ["hub", "mean", "drop"])
@pytest.mark.parametrize("scope", ["train", "full"])
def test_the_inputs_are_not_modified(merge, scope):
    graph = _full_graph()
    fields = ("indptr", "indices", "edge_weight", "x", "y", "train_mask", "val_mask", "test_mask")
    before = {name: getattr(graph, name).copy() for name in fields}
    scores, clusters, protect = np.arange(40.0), np.resize([0, 1], 40), graph.train_mask & (np.arange(40) < 9)
    given_arrays = copy.deepcopy((scores, clusters, protect))
    collapse(
        graph, node_budget=15, scope=scope, merge=merge, edge_weights="sum", centrality=scores, clusters=clusters,
        protect=protect,
    )  # fmt: skip
    collapse(graph, node_budget=15, scope=scope, merge=merge, edge_weights="sum", num_clusters=3)
    assert all((getattr(graph, name) == before[name]).all() for name in fields)
    assert all((a == b).all() for a, b in zip(given_arrays, (scores, clusters, protect), strict=True))


def test_memory_mapped_and_read_only_inputs_are_collapsed(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((40, 3)))
    mapped, plain = _full_graph(np.load(tmp_path / "x.npy", mmap_mode="r")), _full_graph(np.load(tmp_path / "x.npy"))
    scores = np.arange(40.0)
    scores.flags.writeable = False
    options = {"node_budget": 10, "num_clusters": 3, "edge_weights": "sum", "centrality": scores}
    assert (collapse(mapped, **options).graph.x == collapse(plain, **options).graph.x).all()


@pytest.mark.parametrize("as_sparse", [False, True])
def test_features_and_labels_form_the_clusters(as_sparse):
    """Two communities of features; one budget each."""
    x = np.repeat(np.eye(2), 10, axis=0)
    graph = Graph.from_edges(np.stack([np.arange(19), np.arange(1, 20)]), 20, x=sp.csr_array(x) if as_sparse else x)
    result = collapse(graph, node_budget=6, num_clusters=2)
    assert result.cluster_budgets.tolist() == [3, 3]
    assert (result.kept < 10).sum() == 3
    assert sp.issparse(result.graph.x) == as_sparse


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("merge", ["hub", "mean"])
@pytest.mark.parametrize("y", [None, np.array([0, 0, 1, 1, 1])])
def test_features_of_no_column_count_as_no_features(as_sparse, merge, y):
    x = sp.csr_array((5, 0)) if as_sparse else np.zeros((5, 0))
    options = {"node_budget": 2, "num_clusters": 2, "merge": merge}
    with_none = collapse(Graph.from_edges(PATH, 5, x=x, y=y), **options)
    assert with_none.clusters.tolist() == collapse(Graph.from_edges(PATH, 5, y=y), **options).clusters.tolist()


def test_isolated_nodes_and_trailing_nodes_are_dropped_or_kept_but_never_lost():
    result = collapse(Graph.from_edges([[0], [1]], 6), node_budget=3, centrality="degree", num_clusters=1)
    assert result.assignment.shape == (6,)
    assert result.report.num_dropped == 3
    assert result.report.before.num_isolated == 4


@pytest.mark.parametrize(("edges", "num_nodes"), [([], 1), ([], 3), ([[0], [1]], 2), ([[0, 1, 2], [1, 2, 0]], 3)])
@pytest.mark.parametrize("name", ["degree", "betweenness", "closeness", "pagerank", "eigenvector", "random"])
def test_tiny_graphs_collapse_to_one_node(edges, num_nodes, name):
    graph = Graph.from_edges(edges, num_nodes, x=np.ones((num_nodes, 1)), y=np.zeros(num_nodes, int))
    result = collapse(graph, node_budget=1, centrality=name, num_clusters=1)
    assert (result.graph.num_nodes, result.graph.num_edges) == (1, 0)


def test_a_graph_of_hundreds_of_thousands_of_nodes_needs_memory_for_its_edges_only():
    """pygod 72; OpenNE 112; pygsp 3: a dense N x N matrix would take 1.2 TiB here."""
    num_nodes = 400_000
    ring = np.stack([np.arange(num_nodes), np.roll(np.arange(num_nodes), 1)])
    result = collapse(Graph.from_edges(ring, num_nodes), node_budget=0.1, centrality="pagerank")
    assert result.graph.num_nodes == result.graph.num_edges == 40_000


# Arguments that cannot be meant


def _collapse_path(**options):
    return collapse(Graph.from_edges(PATH, 5), **({"node_budget": 2} | options))


@pytest.mark.parametrize("budget", [0, -1, 6, 0.0, 1.5, 0.01, float("nan")])
def test_a_budget_out_of_range_is_refused(budget):
    with pytest.raises(BudgetError, match=f"node_budget must be .*got {budget!r}"):
        _collapse_path(node_budget=budget)


def test_a_missing_budget_is_asked_for():
    with pytest.raises(BudgetError, match="node_budget is needed"):
        collapse(Graph.from_edges(PATH, 5))


def test_a_budget_counts_nodes_in_scope_only():
    graph = Graph.from_edges(PATH, 5, train_mask=np.array([1, 1, 1, 0, 0], bool))
    with pytest.raises(BudgetError, match=r"int in \[1, 3\]"):
        collapse(graph, node_budget=4)
    assert collapse(graph, node_budget=1.0).kept.tolist() == [0, 1, 2]


def test_a_budget_below_the_protected_nodes_is_refused():
    with pytest.raises(BudgetError, match="node_budget must be at least the 3 protected nodes in scope, got 2"):
        _collapse_path(protect=[0, 1, 2])


def test_a_budget_of_exactly_the_protected_nodes_keeps_just_them():
    assert _collapse_path(protect=np.array([0, 1, 0, 1, 0], bool)).kept.tolist() == [1, 3]


@pytest.mark.parametrize("protect", [[5], [-1], [0.5], np.ones(4, bool), [[0, 1]], np.array([0, 1, 1, 0, 0], np.uint8)])
def test_protected_nodes_that_are_neither_a_mask_nor_distinct_ids_are_refused(protect):
    with pytest.raises(OptionError, match=r"protect (must be|holds an id twice)"):
        _collapse_path(protect=protect, node_budget=4)


@pytest.mark.parametrize(
    "scores", [np.arange(4.0), np.ones((5, 1)), [1, 2, 3, 4, np.nan], [1, 2, 3, 4, -np.inf], np.ones(5, complex)]
)
def test_unusable_scores_are_refused(scores):
    with pytest.raises(OptionError, match="centrality scores must be"):
        _collapse_path(centrality=scores)


@pytest.mark.parametrize("clusters", [np.arange(4), np.ones((5, 1), int), [0, 0, 0, 0, -1], np.zeros(5)])
def test_unusable_clusters_are_refused(clusters):
    with pytest.raises(OptionError, match="clusters must be whole numbers >= 0"):
        _collapse_path(clusters=np.asarray(clusters))


def test_scores_and_clusters_outside_the_scope_may_be_anything():
    graph = Graph.from_edges(PATH, 5, train_mask=np.array([1, 1, 1, 0, 0], bool))
    scores, clusters = [1.0, 2, 3, np.nan, np.inf], [0, 0, 0, -1, -1]
    assert collapse(graph, node_budget=1, centrality=scores, clusters=np.array(clusters)).kept.tolist() == [2]


def test_an_unknown_option_is_refused_with_those_there_are():
    with pytest.raises(OptionError, match=r"collapse\(\) takes the options .*node_budget.*, got budget"):
        _collapse_path(budget=3)


def test_a_misspelt_centrality_is_answered_with_the_nearest_name():
    with pytest.raises(OptionError, match="Did you mean 'closeness'"):
        _collapse_path(centrality="closenes")


def test_keywords_override_the_config():
    config = CollapseConfig(node_budget=4, centrality="DC", seed=7)
    result = collapse(Graph.from_edges(PATH, 5), config, node_budget=2, centrality="PR")
    assert (result.config.node_budget, result.config.centrality, result.config.seed) == (2, "pagerank", 7)
    assert (config.node_budget, config.centrality) == (4, "degree")


def test_weights_that_would_be_lost_are_warned_about():
    graph = Graph.from_edges(PATH, 5, edge_weight=np.ones(4) * 2)
    with pytest.warns(FalconWarning, match="edge_weights='none' leaves the edge and self-weights of the input out"):
        assert not collapse(graph, node_budget=2).graph.is_weighted
    assert collapse(graph, node_budget=2, edge_weights="count").graph.is_weighted


def test_no_weight_and_no_loop_comes_of_contracting_many_nodes():
    """networkx 3607, 4273, 6739, 7660, 7902: what is not inside a group is still there, once."""
    rng = np.random.default_rng(0)
    pairs = np.unique(np.sort(rng.integers(0, 300, (2, 3000)), axis=0), axis=1)
    graph = Graph.from_edges(pairs, 300, edge_weight=rng.integers(1, 9, pairs.shape[1]).astype(np.float64))
    result = collapse(graph, node_budget=0.1, edge_weights="sum", num_clusters=1)
    group = result.assignment
    u, v = graph.edge_index
    is_between = (group[u] != group[v]) & (group[u] >= 0) & (group[v] >= 0)
    assert result.graph.edge_weight.sum() == graph.edge_weight[is_between].sum()
    Graph.from_csr(result.graph.indptr, result.graph.indices)


def test_stages_are_announced_in_order():
    stages = []
    result = _collapse_path(on_stage=stages.append)
    assert stages == ["scope", "centrality", "clustering", "selection", "contraction", "attributes", "report"]
    assert set(result.report.seconds) == set(stages)
