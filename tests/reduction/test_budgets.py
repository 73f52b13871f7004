import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import oracles

from falcon_gnn.errors import BudgetError
from falcon_gnn.reduction.budgets import resolve_budget, select_kept, split_budget

_SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any)


@given(_SIZES, st.data())
def test_budgets_are_largest_remainder_shares(sizes, data):
    budget = data.draw(st.integers(0, sum(sizes)))
    assert split_budget(np.array(sizes), budget).tolist() == oracles.split_budget(sizes, budget)


@given(_SIZES, st.data())
def test_budgets_sum_exactly_and_never_exceed_a_cluster(sizes, data):
    budget = data.draw(st.integers(0, sum(sizes)))
    budgets = split_budget(np.array(sizes), budget)
    assert budgets.sum() == budget
    assert ((budgets >= 0) & (budgets <= sizes)).all()


def test_equal_remainders_go_to_the_smaller_cluster_id():
    assert split_budget(np.array([1, 1, 1, 1]), 2).tolist() == [1, 1, 0, 0]


def test_budgets_of_a_billion_nodes_do_not_overflow():
    assert split_budget(np.array([10**9, 2 * 10**9]), 15 * 10**8).tolist() == [5 * 10**8, 10**9]


@pytest.mark.parametrize("budget", [-1, 4])
def test_a_budget_that_the_clusters_cannot_hold_is_refused(budget):
    with pytest.raises(BudgetError, match=r"node_budget must lie in \[0, 3\]"):
        split_budget(np.array([1, 2]), budget)


@pytest.mark.parametrize(
    ("node_budget", "num_nodes", "expected"),
    [
        (0.5, 5, 3), (0.3, 5, 2), (0.29, 5, 1), (1.0, 7, 7), (1, 7, 1), (7, 7, 7),
        (np.int32(3), 7, 3), (np.float32(0.5), 8, 4), (0.34, 44_906, 15_268),
    ],
)  # fmt: skip
def test_a_budget_is_a_count_or_a_share_rounded_half_up(node_budget, num_nodes, expected):
    assert resolve_budget(node_budget, num_nodes) == expected


@pytest.mark.parametrize("node_budget", [0, -1, 8, 0.0, -0.5, 1.5, 0.01, float("nan"), float("inf"), True, "3", None])
def test_a_budget_out_of_range_is_refused_with_the_range_and_the_value(node_budget):
    with pytest.raises(BudgetError, match=r"node_budget must be an int in \[1, 7\]") as caught:
        resolve_budget(node_budget, 7)
    assert repr(node_budget) in str(caught.value)


@given(st.integers(1, 60), st.data())
def test_stratified_selection_keeps_the_positions_of_the_formula(size, data):
    budget = data.draw(st.integers(0, size))
    kept = select_kept(
        np.arange(size), np.zeros(size, int), np.array([budget]), np.ones(size, bool), "stratified", seed=0
    )
    assert np.flatnonzero(kept).tolist() == oracles.stratified_positions(size, budget)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30), st.sampled_from(["lowest", "stratified", "random"]), st.data()
)
@settings(deadline=None)
def test_every_selection_keeps_the_budget_of_each_cluster_from_the_candidates(clusters, selection, data):
    num_nodes = len(clusters)
    candidates = np.array(data.draw(st.lists(st.booleans(), min_size=num_nodes, max_size=num_nodes)))
    rank = np.array(data.draw(st.permutations(range(num_nodes))))
    cluster = np.array(clusters)
    sizes = np.bincount(cluster[candidates], minlength=4)
    budgets = np.array([data.draw(st.integers(0, size)) for size in sizes.tolist()])
    kept = select_kept(rank, cluster, budgets, candidates, selection, seed=3)
    assert not (kept & ~candidates).any()
    assert np.bincount(cluster[kept], minlength=4).tolist() == budgets.tolist()


def test_lowest_keeps_the_strongest_of_each_cluster():
    rank, clusters = np.array([3, 0, 4, 1, 2]), np.array([0, 0, 0, 1, 1])
    kept = select_kept(rank, clusters, np.array([2, 1]), np.ones(5, bool), "lowest", seed=0)
    assert np.flatnonzero(kept).tolist() == [0, 2, 4]


def test_a_random_selection_follows_its_seed_and_not_the_rank():
    draw = [
        select_kept(rank, np.zeros(99, int), np.array([50]), np.ones(99, bool), "random", seed)
        for rank, seed in [(np.arange(99), 0), (np.arange(99)[::-1], 0), (np.arange(99), 1)]
    ]
    assert (draw[0] == draw[1]).all()
    assert (draw[0] != draw[2]).any()
