"""The library speaks through logging; bars are drawn only where they can be."""

import io
import logging
import os

import numpy as np
import pytest
from rich.console import Console

from falcon_gnn import display
from falcon_gnn.display import can_draw
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.falcon import collapse


@pytest.fixture
def graph() -> Graph:
    return Graph.from_edges(np.array([np.arange(9), np.arange(1, 10)]), 10)


def test_a_collapse_logs_its_stages_and_prints_nothing(
    graph: Graph, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, logger="falcon_gnn"):
        result = collapse(graph, node_budget=5)
    stages = [record.args[0] for record in caplog.records if record.name == "falcon_gnn.reduction.clock"]  # type: ignore[index]
    assert stages == [name for name in stages if name in result.report.seconds] != []
    assert "centrality took" in caplog.text
    assert capfd.readouterr() == ("", "")


def test_unless_it_is_asked_for_the_log_is_silent(graph: Graph, caplog: pytest.LogCaptureFixture) -> None:
    collapse(graph, node_budget=5)
    assert caplog.records == []


def test_a_terminal_can_show_a_bar() -> None:
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as terminal:
        assert can_draw(Console(file=terminal, _environ={"TERM": "xterm"}))
        assert not can_draw(Console(file=terminal, _environ={"TERM": "dumb"}))
    os.close(master)


def test_a_file_shows_no_bar_even_where_colors_are_asked_for() -> None:
    assert not can_draw(Console(file=io.StringIO(), _environ={"FORCE_COLOR": "1"}))


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_shows_a_bar_if_it_has_widgets(monkeypatch: pytest.MonkeyPatch, has_widgets: bool) -> None:
    monkeypatch.setattr(display, "find_spec", lambda name: name == "ipywidgets" if has_widgets else None)
    assert bool(can_draw(Console(file=io.StringIO(), force_jupyter=True))) is has_widgets
