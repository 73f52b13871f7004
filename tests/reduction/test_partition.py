"""Rows cut into an exact number of groups, against every partition there is, and by what must hold of any."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import oracles

from falcon_gnn.progress import hearing
from falcon_gnn.reduction import partition
from falcon_gnn.reduction.partition import split_rows, split_with_floor


def _members(group):
    return sorted(np.flatnonzero(group == g).tolist() for g in np.unique(group))


def _blobs(rng, num_blobs, num_rows, width=3):
    """Return rows around far-apart centers, and which center each is around."""
    blob = np.concatenate([np.arange(num_blobs), rng.integers(0, num_blobs, num_rows - num_blobs)])
    centers = 10.0 * np.eye(num_blobs, width, dtype=np.float32) * np.arange(1, num_blobs + 1)[:, None]
    return (centers[blob] + rng.uniform(-1, 1, (num_rows, width))).astype(np.float32), blob


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.data())
def test_a_split_with_floor_gives_each_one_and_no_more_than_it_has(sizes, data):
    budget = data.draw(st.integers(len(sizes), sum(sizes)))
    shares = split_with_floor(np.array(sizes), budget)
    assert shares.sum() == budget
    assert (shares >= 1).all()
    assert (shares <= sizes).all()
    by_size = shares[np.argsort(sizes, kind="stable")]
    assert (np.diff(by_size) >= -1).all()


@given(st.integers(0, 2**16), st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_far_apart_rows_are_grouped_as_the_best_of_all_partitions_groups_them(seed, num_groups):
    points, _ = _blobs(np.random.default_rng(seed), num_groups, 8)
    group = split_rows(points, np.arange(8), np.zeros(8, np.int64), np.array([num_groups]), seed)
    assert _members(group) == sorted(map(sorted, oracles.best_partition(points, num_groups)))


@given(st.integers(0, 2**16), st.integers(1, 8))
@settings(deadline=None, max_examples=40)
def test_any_rows_are_grouped_not_much_worse_than_by_the_best_partition(seed, num_groups):
    points = np.random.default_rng(seed).normal(size=(8, 2)).astype(np.float32)
    found = [
        oracles.inertia(
            points, _members(split_rows(points, np.arange(8), np.zeros(8, np.int64), np.array([num_groups]), s))
        )
        for s in range(5)
    ]
    best = oracles.inertia(points, oracles.best_partition(points, num_groups))
    assert min(found) >= best - 1e-5
    assert min(found) <= 2 * best + 1e-5


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_every_segment_has_exactly_its_quota_of_groups_however_many_rows_are_equal(data):
    segment = np.array(data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=30)))
    segment = np.unique(segment, return_inverse=True)[1].astype(np.int64)
    points = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(segment), max_size=len(segment))), np.float32)
    sizes = np.bincount(segment)
    quotas = np.array([data.draw(st.integers(1, int(size))) for size in sizes])
    most = data.draw(st.sampled_from([2, 3, 200]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "MAX_CENTERS", most)
        group = split_rows(points[:, None], np.arange(len(segment)), segment, quotas, 0)
    assert np.array_equal(np.unique(group), np.arange(quotas.sum()))
    for s, quota in enumerate(quotas):
        assert len(np.unique(group[segment == s])) == quota
    assert not {*group[segment == 0].tolist()} & {*group[segment != 0].tolist()}


def test_equal_rows_are_split_by_id_into_nearly_equal_groups():
    group = split_rows(np.zeros((6, 2), np.float32), np.arange(6), np.zeros(6, np.int64), np.array([4]), 0)
    assert _members(group) == [[0, 1], [2], [3, 4], [5]]


def test_only_the_given_rows_are_grouped():
    points = np.array([[0.0], [9.0], [0.1], [5.0], [5.1]], np.float32)
    group = split_rows(points, np.array([0, 2, 3, 4]), np.zeros(4, np.int64), np.array([2]), 0)
    assert group[0] == group[1] != group[2] == group[3]


@pytest.mark.parametrize("most", [3, 7])
def test_levels_keep_the_budget_and_lose_little(monkeypatch, most):
    points = np.random.default_rng(0).normal(size=(600, 4)).astype(np.float32)
    flat = split_rows(points, np.arange(600), np.zeros(600, np.int64), np.array([60]), 0)
    monkeypatch.setattr(partition, "MAX_CENTERS", most)
    shares = []
    with hearing(shares.append):
        deep = split_rows(points, np.arange(600), np.zeros(600, np.int64), np.array([60]), 0)
    # Two for each level.
    assert len(shares) >= 4
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert len(np.unique(deep)) == 60
    assert oracles.inertia(points, _members(deep)) < 1.3 * oracles.inertia(points, _members(flat))


def test_centers_found_on_a_sample_serve_all_rows(monkeypatch):
    points, blob = _blobs(np.random.default_rng(0), 3, 5000)
    group = split_rows(points, np.arange(5000), np.zeros(5000, np.int64), np.array([3]), 0)
    assert _members(group) == _members(blob)


def test_a_renumbering_changes_the_inertia_by_less_than_one_percent():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(3000, 8)).astype(np.float32)
    order = rng.permutation(3000)
    found = [
        oracles.inertia(p, _members(split_rows(p, np.arange(3000), np.zeros(3000, np.int64), np.array([150]), 0)))
        for p in (points, points[order])
    ]
    assert found[1] == pytest.approx(found[0], rel=0.01)


def test_groups_do_not_depend_on_the_number_of_threads():
    import numba

    points = np.random.default_rng(0).normal(size=(2000, 8)).astype(np.float32)
    segment = np.arange(2000) % 5
    groups = []
    before = numba.get_num_threads()
    for threads in (1, before):
        numba.set_num_threads(threads)
        groups.append(split_rows(points, np.arange(2000), segment, np.full(5, 40), 0))
    numba.set_num_threads(before)
    assert np.array_equal(*groups)
