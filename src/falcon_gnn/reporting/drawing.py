"""A collapse as a picture: the graph before and after, each group in a colour; of a large graph a part of it."""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.adjacency import IntArray
from falcon_gnn.checks import check_kind
from falcon_gnn.errors import OptionError, require
from falcon_gnn.graph import Graph
from falcon_gnn.graph_checks import require_graph
from falcon_gnn.reduction.result import CollapseResult
from falcon_gnn.reporting.formats import format_count
from falcon_gnn.reporting.sections import Picture, Section
from falcon_gnn.reporting.style import LIGHT, SERIES, figure_style, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_NODES = 80
"""Nodes that a picture holds, unless it is told otherwise."""

_COLORS = SERIES[:-1]
_MOST_NAMED = 40
_LEAST_BRANCHES = 6
_LARGEST = 9
_LIGHT_EDGE = 0.2
_NUM_ITERATIONS = 120
_SPREAD = 1.8
_MANY_EDGES = 150


@dataclass(frozen=True)
class _Scene:
    """What is drawn: m nodes of the input and the k groups that they are part of.

    Attributes:
        ids: Input ids of the nodes, ascending, shape ``(m,)``.
        group: Which of the groups each is part of, shape ``(m,)``; -1: dropped.
        survives: Whether each is its group's survivor, shape ``(m,)``.
        edges: Pairs of positions in ``ids``, shape ``(e, 2)``.
        survivors: Input ids of the groups' survivors, shape ``(k,)``.
        sizes: Nodes of the input in each group, those that are not drawn included, shape ``(k,)``.
        group_edges: Pairs of groups with an edge in the reduced graph, shape ``(f, 2)``.
    """

    ids: IntArray
    group: IntArray
    survives: NDArray[np.bool_]
    edges: IntArray
    survivors: IntArray
    sizes: IntArray
    group_edges: IntArray


def draw_collapse(
    graph: Graph, result: CollapseResult, *, around: int | None = None, max_nodes: int = MAX_NODES
) -> "Figure":
    """Return the graph before and after its collapse, side by side, each group in a colour of its own.

    On the left are the nodes in scope, the survivors ringed and dropped nodes gray; an edge inside a group, which the
    collapse takes away, has the group's colour. On the right each group is one node where its survivor stood, and the
    larger its circle, the more nodes it stands for. Up to 40 nodes are named by their ids in ``graph``. There are seven
    colours: groups that are neighbors have different ones while that is possible.

    Args:
        graph: The input of the collapse, N_all nodes.
        result: What :func:`falcon_gnn.collapse` or :func:`falcon_gnn.coarsen` made of it.
        around: The node to draw the surroundings of, breadth first, where more than ``max_nodes`` are in scope; by
            default the survivor of the largest group.
        max_nodes: How many nodes are drawn, at least 1. Above some hundred a picture says little.

    Returns:
        A matplotlib figure: ``figure.savefig("collapse.svg")`` writes it, and a notebook shows it after
        ``%matplotlib inline``.

    Raises:
        GraphError: If ``graph`` is no ``Graph``.
        OptionError: If ``result`` is no ``CollapseResult``, ``graph`` not its input, ``around`` no node in its scope,
            or ``max_nodes`` below 1.
        MissingDependencyError: If matplotlib or networkx is not installed.

    Example:
        >>> from falcon_gnn import Graph, collapse
        >>> path = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 4]], num_nodes=5)
        >>> figure = draw_collapse(path, collapse(path, node_budget=2, centrality=[1, 5, 2, 4, 3]))
        >>> [axes.get_title("left") for axes in figure.axes]
        ['Before: 5 nodes', 'After: 2 nodes']
    """
    require_graph(graph, Graph)
    check_kind("result", result, CollapseResult)
    _check(graph, result, around, max_nodes)
    scene = _set_scene(graph, result, around, max_nodes)
    places = _place_nodes(scene)
    colors = _color_groups(scene)
    with figure_style():
        figure = new_figure(8.6, 4.3)
        before, after = figure.subplots(1, 2)
        _draw_before(before, scene, places, colors)
        _draw_after(after, scene, _place_groups(scene, places), colors)
        num_before, num_after = int((result.clusters >= 0).sum()), len(result.kept)
        before.set_title(f"Before: {_part(len(scene.ids), num_before)}")
        after.set_title(f"After: {_part(len(scene.survivors), num_after)}")
        low, high = places.min(axis=0) - 0.12, places.max(axis=0) + 0.12
        for axes in (before, after):
            axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
            axes.set_axis_off()
    return figure


def draw_section(graph: Graph, result: CollapseResult) -> Section:
    """Return the part of a page that draws a collapse."""
    dropped = " Gray nodes are dropped." if result.report.num_dropped else ""
    caption = (
        "Each group has a colour. Ringed nodes survive; on the right a circle is the larger, the more nodes it stands "
        f"for.{dropped}"
    )
    picture = Picture(draw_collapse(graph, result), caption, is_wide=True)
    is_whole = result.report.before.num_nodes <= MAX_NODES
    text = "" if is_whole else "A part of the graph, around the survivor that stands for the most nodes."
    return Section("Before and after", (picture,), text)


def _check(graph: Graph, result: CollapseResult, around: int | None, max_nodes: int) -> None:
    if graph.num_nodes != len(result.assignment):
        msg = (
            f"graph must be the input of the collapse, with {len(result.assignment):,} nodes, got one with "
            f"{graph.num_nodes:,}. Give the graph that was collapsed, not result.graph."
        )
        raise OptionError(msg)
    if isinstance(max_nodes, bool) or not isinstance(max_nodes, int | np.integer) or max_nodes < 1:
        msg = f"max_nodes must be a whole number of at least 1, got {max_nodes!r}. Leave it out for {MAX_NODES}."
        raise OptionError(msg)
    if around is None:
        return
    is_id = isinstance(around, int | np.integer) and not isinstance(around, bool)
    if not is_id or not 0 <= around < graph.num_nodes or result.clusters[around] < 0:
        msg = (
            f"around must be the id of a node in the scope of the collapse, got {around!r}. Any of result.kept is one."
        )
        raise OptionError(msg)


def _set_scene(graph: Graph, result: CollapseResult, around: int | None, max_nodes: int) -> _Scene:
    """Return the nodes to draw and their groups."""
    in_scope = result.clusters >= 0
    sizes = np.bincount(result.assignment[result.assignment >= 0], minlength=len(result.kept))
    if int(in_scope.sum()) <= max_nodes:
        ids: IntArray = np.flatnonzero(in_scope)
    else:
        center = int(result.kept[sizes.argmax()]) if around is None else int(around)
        ids = _surroundings(graph, in_scope, center, max_nodes)
    reduced = result.assignment[ids]
    shown, group = np.unique(reduced[reduced >= 0], return_inverse=True)
    groups = np.full(len(ids), -1)
    groups[reduced >= 0] = group
    return _Scene(
        ids=ids,
        group=groups,
        survives=np.isin(ids, result.kept),
        edges=_edges_between(graph, ids),
        survivors=result.kept[shown],
        sizes=sizes[shown],
        group_edges=_edges_between(result.graph, shown),
    )


def _surroundings(graph: Graph, in_scope: NDArray[np.bool_], center: int, max_nodes: int) -> IntArray:
    """Return up to ``max_nodes`` nodes around one, breadth first; of a hub's neighbors only the first few."""
    num_branches = max(_LEAST_BRANCHES, max_nodes // 10)
    found, queue = {center}, deque([center])
    while queue and len(found) < max_nodes:
        node = queue.popleft()
        neighbors = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
        new = [int(neighbor) for neighbor in neighbors if in_scope[neighbor] and int(neighbor) not in found]
        new = new[: min(num_branches, max_nodes - len(found))]
        found.update(new)
        queue.extend(new)
    return np.array(sorted(found))


def _edges_between(graph: Graph, ids: IntArray) -> IntArray:
    """Return the edges among some nodes as pairs of positions in ``ids``, each once, shape ``(e, 2)``."""
    pairs = []
    for place, node in enumerate(ids.tolist()):
        neighbors = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
        found = np.searchsorted(ids, neighbors[np.isin(neighbors, ids)])
        pairs += [(place, other) for other in found.tolist() if other > place]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _place_nodes(scene: _Scene) -> NDArray[np.float64]:
    """Return where each node stands, shape ``(m, 2)``: springs along the edges, and light ones between components."""
    nx = require("networkx", "report")
    drawn = nx.empty_graph(len(scene.ids))
    drawn.add_edges_from(scene.edges.tolist(), weight=1.0)
    first, *others = sorted((min(part) for part in nx.connected_components(drawn)), key=lambda v: -drawn.degree[v])
    drawn.add_edges_from(((first, other) for other in others), weight=_LIGHT_EDGE)
    distance = _SPREAD / np.sqrt(len(scene.ids))
    places = nx.spring_layout(drawn, k=distance, seed=0, iterations=_NUM_ITERATIONS)
    return np.array([places[node] for node in range(len(scene.ids))], np.float64)


def _place_groups(scene: _Scene, places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where each group stands, shape ``(k, 2)``: at its survivor, or amid its members if that is not drawn."""
    place_of = dict(zip(scene.ids.tolist(), places, strict=True))
    return np.array([
        place_of[survivor] if survivor in place_of else places[scene.group == group].mean(axis=0)
        for group, survivor in enumerate(scene.survivors.tolist())
    ]).reshape(-1, 2)  # fmt: skip


def _color_groups(scene: _Scene) -> list[str]:
    """Return a colour per group: of those that no neighbor has the one of fewest nodes, large groups first."""
    neighbors: list[set[int]] = [set() for _ in scene.survivors]
    for a, b in [*scene.group_edges.tolist(), *scene.group[scene.edges].tolist()]:
        if a >= 0 and b >= 0 and a != b:
            neighbors[a].add(b)
            neighbors[b].add(a)
    chosen: dict[int, int] = {}
    uses = [0] * len(_COLORS)
    num_drawn = np.bincount(scene.group[scene.group >= 0], minlength=len(scene.survivors)).tolist()
    for group in np.argsort(-scene.sizes, kind="stable").tolist():
        taken = {chosen[other] for other in neighbors[group] if other in chosen}
        free = [color for color in range(len(_COLORS)) if color not in taken] or range(len(_COLORS))
        chosen[group] = min(free, key=lambda color: uses[color])
        uses[chosen[group]] += num_drawn[group]
    return [_COLORS[chosen[group]] for group in range(len(scene.survivors))]


def _draw_before(axes: "Axes", scene: _Scene, places: NDArray[np.float64], colors: list[str]) -> None:
    ends = scene.group[scene.edges]
    is_inside = (ends[:, 0] == ends[:, 1]) & (ends[:, 0] >= 0)
    _draw_edges(axes, places, scene.edges[~is_inside], LIGHT["before"], 0.9)
    width = 2.2 if len(scene.edges) < _MANY_EDGES else 1.0
    for color in _COLORS:
        has_color = np.array([colors[group] == color for group in ends[:, 0]], np.bool_)
        _draw_edges(axes, places, scene.edges[is_inside & has_color], color, width)
    shade = [colors[group] if group >= 0 else LIGHT["removed"] for group in scene.group]
    size = _node_size(len(scene.ids))
    _draw_nodes(axes, places, np.where(scene.survives, 1.7 * size, size), shade, scene.survives)
    _name_nodes(axes, places, scene.ids, len(scene.ids))


def _draw_after(axes: "Axes", scene: _Scene, places: NDArray[np.float64], colors: list[str]) -> None:
    _draw_edges(axes, places, scene.group_edges, LIGHT["before"], 0.9)
    size = _node_size(len(scene.ids))
    area = np.minimum(size * (1 + 0.7 * scene.sizes), _LARGEST * size)
    order = np.argsort(-area, kind="stable")
    shade = [colors[group] for group in order]
    _draw_nodes(axes, places[order], area[order], shade, np.ones(len(order), np.bool_))
    _name_nodes(axes, places, scene.survivors, len(scene.ids))


def _draw_nodes(
    axes: "Axes", places: NDArray[np.float64], area: NDArray[np.float64], shade: list[str], is_ringed: NDArray[np.bool_]
) -> None:
    rings = [LIGHT["ink"] if ringed else LIGHT["card"] for ringed in is_ringed]
    widths = np.where(is_ringed, 1.6, 0.6).tolist()
    axes.scatter(places[:, 0], places[:, 1], s=area, c=shade, edgecolors=rings, linewidths=widths, zorder=3)


def _draw_edges(axes: "Axes", places: NDArray[np.float64], edges: IntArray, color: str, width: float) -> None:
    """Draw edges as one path, which stays small in a page."""
    if len(edges) == 0:
        return
    path: Any = require("matplotlib.path", "report").Path
    patches: Any = require("matplotlib.patches", "report")
    lines = path(places[edges].reshape(-1, 2), np.tile([path.MOVETO, path.LINETO], len(edges)))
    alpha = 1.0 if len(edges) < _MANY_EDGES else 0.5
    axes.add_patch(patches.PathPatch(lines, facecolor="none", edgecolor=color, linewidth=width, alpha=alpha, zorder=1))


def _name_nodes(axes: "Axes", places: NDArray[np.float64], ids: IntArray, num_nodes: int) -> None:
    """Write ids into the nodes, where there are few."""
    if num_nodes > _MOST_NAMED:
        return
    for (x, y), node in zip(places, ids.tolist(), strict=True):
        axes.text(x, y, str(node), color=LIGHT["card"], fontsize=8, ha="center", va="center", zorder=4)


def _node_size(num_nodes: int) -> float:
    """Return the area of a node, in square points, that leaves room for so many."""
    return float(np.clip(7000 / num_nodes, 40, 190))


def _part(shown: int, num_nodes: int) -> str:
    noun = "node" if num_nodes == 1 else "nodes"
    return f"{num_nodes:,} {noun}" if shown == num_nodes else f"{format_count(shown)} of {num_nodes:,} {noun}"
