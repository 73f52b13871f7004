"""What does not fit into memory is refused before it is allocated, with both figures."""

import sys
from pathlib import Path

import numpy as np
import pytest

from falcon_gnn.errors import BudgetError
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.contraction import merge_edges
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.resources import release_pages

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
    left = iter([8 * 2 * 99, 2 * 99 * 4 - 1])
    monkeypatch.setattr("falcon_gnn.resources.available_memory", lambda: next(left))
    with pytest.raises(BudgetError, match="needed to hold 99 edges of the reduced graph"):
        merge_edges(graph.indptr, graph.indices, None, np.arange(100), 100, "none")


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux which pages are resident")
@pytest.mark.parametrize(("mode", "is_released"), [("r", True), ("r+", True), ("c", False)])
def test_pages_of_a_mapped_file_are_let_go_and_private_changes_kept(
    tmp_path: Path, mode: str, is_released: bool
) -> None:
    np.save(tmp_path / "values.npy", np.arange(1 << 18))
    values = np.load(tmp_path / "values.npy", mmap_mode=mode)
    if mode != "r":
        values[5] = -1
    before = _resident_file_bytes() if values.sum() else 0
    release_pages(values[3:].reshape(-1, 1).view())
    assert (_resident_file_bytes() < before - (1 << 20)) == is_released
    assert values[5] == (5 if mode == "r" else -1)


def test_other_arrays_are_left_alone() -> None:
    values = np.arange(9)
    release_pages(values[2:])
    release_pages(None)
    assert values.tolist() == list(range(9))


def _resident_file_bytes() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssFile"))
