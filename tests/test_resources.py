"""What does not fit into memory is refused before it is allocated, with both figures."""

import numpy as np
import pytest

from falcon_gnn.errors import BudgetError
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.contraction import merge_edges
from falcon_gnn.reduction.falcon import collapse

PATH = np.array([np.arange(99), np.arange(1, 100)])


def set_available(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    monkeypatch.setattr("falcon_gnn.resources.available_memory", lambda: num_bytes)


def test_an_adjacency_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_available(monkeypatch, 0)
    with pytest.raises(BudgetError, match=r"iB of memory are needed to count the degrees .* B are available"):
        Graph.from_edges(PATH, 100)


@pytest.mark.parametrize(("merge", "needed"), [("drop", 6_400), ("hub", 6_400 + 2 * 99 * 4)])
def test_a_collapse_whose_arrays_do_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, merge: str, needed: int
) -> None:
    graph = Graph.from_edges(PATH, 100)
    set_available(monkeypatch, needed - 1)
    with pytest.raises(BudgetError, match="needed to rank, cluster and merge 100 nodes"):
        collapse(graph, node_budget=50, merge=merge)
    set_available(monkeypatch, needed)
    assert collapse(graph, node_budget=50, merge=merge).graph.num_nodes == 50


def test_reduced_edges_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_edges(PATH, 100)
    set_available(monkeypatch, 2 * 99 * 4 - 1)
    with pytest.raises(BudgetError, match="needed to hold 99 edges of the reduced graph"):
        merge_edges(graph.indptr, graph.indices, None, np.arange(100), 100, "none")
