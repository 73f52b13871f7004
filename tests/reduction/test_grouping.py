"""Counting sorts against comparing ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from falcon_gnn.reduction.grouping import group_members, sort_by_group, sort_by_rank


def test_members_are_listed_group_by_group_and_outsiders_nowhere() -> None:
    starts, members = group_members(np.array([1, -1, 0, 1, -1, 0]), 3)
    assert starts.tolist() == [0, 2, 4, 4]
    assert members.tolist() == [2, 5, 0, 3]


@given(st.data())
def test_nodes_are_sorted_as_by_comparing(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 30))
    group = np.array(data.draw(st.lists(st.integers(0, 4), min_size=size, max_size=size)))
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    rank = np.array(data.draw(st.permutations(range(size))))
    nodes = np.flatnonzero(chosen).tolist()
    assert sort_by_rank(chosen, rank).tolist() == sorted(nodes, key=lambda v: rank[v])
    assert sort_by_group(chosen, group, rank).tolist() == sorted(nodes, key=lambda v: (group[v], rank[v]))


def test_no_node_is_sorted_to_no_node() -> None:
    nobody = np.zeros(3, np.bool_)
    assert sort_by_group(nobody, np.array([0, 1, 0]), np.array([2, 0, 1])).tolist() == []
