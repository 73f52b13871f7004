import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from tests.strategies import CollapseCase, collapse_cases

from falcon_gnn.errors import MissingDependencyError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.reduction.result import CollapseResult
from falcon_gnn.reporting.drawing import _edges_between, draw_collapse, draw_section
from falcon_gnn.reporting.html import write_report
from falcon_gnn.reporting.style import LIGHT, inline_svg

PATH = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 4]], num_nodes=5)


def _path_in_two() -> CollapseResult:
    return collapse(PATH, node_budget=2, centrality=[1, 5, 2, 4, 3])


def _colors(figure: Figure, panel: int) -> list[str]:
    """Return the colour of every node of a panel, in the order in which they are drawn."""
    return [to_hex(color) for color in figure.axes[panel].collections[0].get_facecolors()]


def _names(figure: Figure, panel: int) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].texts]


def test_a_small_graph_is_drawn_whole_with_a_node_per_group() -> None:
    figure = draw_collapse(PATH, _path_in_two())
    assert _names(figure, 0) == ["0", "1", "2", "3", "4"]
    assert _names(figure, 1) == ["1", "3"]


def test_the_members_of_a_group_have_one_colour_and_the_next_group_another() -> None:
    before, after = (_colors(draw_collapse(PATH, _path_in_two()), panel) for panel in (0, 1))
    assert before[0] == before[1] == before[2] != before[3] == before[4]
    assert set(before) == set(after)


def test_only_the_survivors_are_ringed() -> None:
    rings = draw_collapse(PATH, _path_in_two()).axes[0].collections[0].get_edgecolors()
    assert [to_hex(ring) == LIGHT["ink"] for ring in rings] == [False, True, False, True, False]


def test_a_group_stands_where_its_survivor_stood() -> None:
    before, after = (axes.collections[0].get_offsets() for axes in draw_collapse(PATH, _path_in_two()).axes)
    assert sorted(after.tolist()) == sorted(before[[1, 3]].tolist())


@settings(max_examples=15)
@given(collapse_cases())
def test_every_collapse_can_be_drawn_and_dropped_nodes_are_gray(case: CollapseCase) -> None:
    result = collapse(case.graph, **case.arguments)
    figure = draw_collapse(case.graph, result)
    is_gray = [color == LIGHT["removed"] for color in _colors(figure, 0)]
    assert is_gray == (result.assignment < 0).tolist()
    assert len(_colors(figure, 1)) == len(result.kept)


@settings(max_examples=15)
@given(collapse_cases())
def test_the_edges_among_some_nodes_are_those_of_their_subgraph(case: CollapseCase) -> None:
    ids = np.flatnonzero(np.array(case.clusters) > 0)
    expected = case.graph.subgraph(ids).edge_index
    found = _edges_between(case.graph, ids)
    assert {tuple(pair) for pair in found.tolist()} == {(u, v) for u, v in expected.T.tolist() if u < v}
    assert len(found) == expected.shape[1] // 2


def test_of_a_large_graph_the_surroundings_of_a_node_are_drawn() -> None:
    ring = Graph.from_edges(np.stack([np.arange(1000), (np.arange(1000) + 1) % 1000]), num_nodes=1000)
    result = collapse(ring, node_budget=500, centrality=np.arange(1000))
    figure = draw_collapse(ring, result, around=500, max_nodes=7)
    assert _names(figure, 0) == [str(node) for node in range(497, 504)]
    assert figure.axes[0].get_title("left") == "Before: 7 of 1,000 nodes"


def test_nodes_out_of_scope_are_not_drawn() -> None:
    graph = PATH.replace(train_mask=[True, True, True, False, False])
    assert _names(draw_collapse(graph, collapse(graph, node_budget=1)), 0) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"around": 5}, "around must be the id of a node in the scope of the collapse, got 5"),
        ({"around": -1}, "around must be the id of a node in the scope"),
        ({"around": 1.0}, "around must be the id of a node in the scope"),
        ({"max_nodes": 0}, "max_nodes must be a whole number of at least 1, got 0"),
        ({"max_nodes": True}, "max_nodes must be a whole number of at least 1, got True"),
    ],
)
def test_an_option_that_cannot_be_met_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        draw_collapse(PATH, _path_in_two(), **options)


def test_the_reduced_graph_in_place_of_the_input_is_refused() -> None:
    result = _path_in_two()
    with pytest.raises(OptionError, match="must be the input of the collapse, with 5 nodes, got one with 2"):
        draw_collapse(result.graph, result)


def test_the_reduced_graph_in_place_of_the_result_is_refused() -> None:
    with pytest.raises(OptionError, match="result must be a CollapseResult, got Graph"):
        draw_collapse(PATH, _path_in_two().graph)  # type: ignore[arg-type]


def test_without_networkx_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "networkx", None)
    with pytest.raises(MissingDependencyError, match=r"networkx is needed.*falcon-gnn\[report\]"):
        draw_collapse(PATH, _path_in_two())


def test_the_same_collapse_gives_the_same_picture() -> None:
    pictures = [inline_svg(draw_collapse(PATH, _path_in_two()), "f-", "words") for _ in range(2)]
    assert pictures[0] == pictures[1]


def test_a_page_shows_the_picture_in_a_line_of_its_own(tmp_path: Any, make_report: Callable[..., Any]) -> None:
    write_report(make_report(), tmp_path / "r.html", sections=[draw_section(PATH, _path_in_two())])
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert re.search(r'<figure class="wide">\s*<svg.*Ringed nodes survive', page)
