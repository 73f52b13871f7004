"""The figures of the page How it works, drawn by the package itself while the site is built."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import falcon_gnn as fg
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.reporting.style import LIGHT, SERIES, figure_style, inline_svg, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RECORDS = Path(__file__).resolve().parents[2] / "results"
_NUM_NODES = 16


def draw(name: str, prefix: str, alt: str) -> str:
    """Return a figure of the page by its name, as an SVG element whose colours follow the page's."""
    return inline_svg(_FIGURES[name](), prefix, alt)


def small_graph() -> fg.Graph:
    """Return 16 nodes in two classes: two communities with a hub each, and a few nodes between them.

    Its collapse is the picture of the README, ``docs/collapse.png``, which ``python docs/site/figures.py`` writes.
    """
    pairs = [
        (0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (3, 4), (4, 5), (0, 6), (6, 7), (7, 8), (8, 9), (8, 10), (8, 11),
        (9, 10), (11, 12), (8, 13), (13, 14), (12, 15), (3, 6), (8, 15),
    ]  # fmt: skip
    y = np.array([0] * 7 + [1] * 9)
    x = np.stack([y + 0.1 * np.arange(_NUM_NODES) / _NUM_NODES, 1.0 - y], axis=1)
    return fg.Graph.from_edges(np.array(pairs).T, _NUM_NODES, x=x, y=y)


def small_collapse() -> fg.CollapseResult:
    """Return the small graph collapsed to six nodes by degree, in its two feature-label clusters."""
    return fg.collapse(small_graph(), node_budget=6, centrality="degree", num_clusters=2)


def _draw_example() -> "Figure":
    return fg.draw_collapse(small_graph(), small_collapse())


def _draw_budgets() -> "Figure":
    """Return the nodes of each cluster by rank, and who of them survives."""
    result = small_collapse()
    with figure_style():
        figure = new_figure(8.6, 2.9)
        panels = figure.subplots(1, len(result.cluster_budgets))
        for cluster, axes in enumerate(np.atleast_1d(panels)):
            members = np.flatnonzero(result.clusters == cluster)
            members = members[np.argsort(result.rank[members])]
            survives = np.isin(members, result.kept)
            shade = np.where(survives, SERIES[cluster], LIGHT["removed"])
            axes.bar(range(len(members)), result.centrality[members], color=shade)
            axes.set_xticks(range(len(members)), [str(node) for node in members])
            axes.set(xlabel="Node, lowest rank first", ylabel="Degree centrality Φ")
            kept = int(result.cluster_budgets[cluster])
            axes.set_title(f"Cluster {cluster}: {kept} of {len(members)} kept")
            axes.grid(visible=False, axis="x")
    return figure


def _draw_alike() -> "Figure":
    """Return what a GNN sees of 240 nodes of two classes after two hops, their groups, and the groups' means."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 120)
    x = rng.normal(0, 0.42, (240, 2)) + np.array([[1.0, 0.35], [0.35, 1.0]])[y]
    x = np.abs(x)
    pairs = np.unique(np.sort(rng.integers(0, 240, (2, 900)), axis=0), axis=1)
    graph = fg.Graph.from_edges(pairs[:, (y[pairs[0]] == y[pairs[1]]) & (pairs[0] != pairs[1])], 240, x=x, y=y)
    result = fg.collapse(graph, node_budget=12, groups="alike")
    normalized = normalized_csr(graph)
    seen = normalized @ (normalized @ x)
    means = np.stack([seen[result.assignment == group].mean(axis=0) for group in range(12)])
    weight = result.graph.node_weight
    assert weight is not None
    with figure_style():
        figure = new_figure(8.6, 3.9)
        for axes, marker in zip(figure.subplots(1, 2, sharex=True, sharey=True), "os", strict=True):
            is_before = marker == "o"
            points, group = (seen, result.assignment) if is_before else (means, np.arange(12))
            shade = [SERIES[value % (len(SERIES) - 1)] for value in group]
            area = np.full(len(points), 22.0) if is_before else 7 * weight
            axes.scatter(points[:, 0], points[:, 1], s=area, c=shade, edgecolors=LIGHT["card"], linewidths=0.6)
            axes.set(xlabel="Feature 0 after two hops", ylabel="Feature 1 after two hops")
            axes.set_title("240 nodes, a colour per group" if is_before else "12 rows: the groups' means")
    return figure


def _draw_codes() -> "Figure":
    """Return activations of a layer beside what 2 bits keep of them."""
    import torch

    from falcon_gnn.quantization.codec import dequantize, quantize

    torch.manual_seed(0)
    values = torch.relu(torch.randn(256))
    kept = quantize(values, bits=2)
    decoded = dequantize(kept)
    many = torch.stack([dequantize(quantize(values, bits=2)) for _ in range(64)]).mean(dim=0)
    shown = slice(0, 40)
    with figure_style():
        figure = new_figure(8.6, 3.2)
        axes = figure.subplots()
        place = np.arange(40)
        axes.vlines(place, values[shown], decoded[shown], color=LIGHT["removed"], linewidth=1.5)
        axes.plot(place, values[shown], "o", color=LIGHT["after"], label="Activation, 32 bits")
        axes.plot(place, decoded[shown], "s", color=LIGHT["accent"], label="What 2 bits give back", markersize=4)
        axes.plot(place, many[shown], "_", color=LIGHT["ink"], label="Mean of 64 draws", markersize=9)
        axes.set(xlabel="First 40 of 256 values that share a zero and a step", ylabel="Value")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return figure


def _draw_blocks() -> "Figure":
    """Return the measured peak of a step in pieces, and how long it takes."""
    records = [json.loads(line) for line in (_RECORDS / "pieces.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in records if row["table"] == "rows" and row["model"] == "sign" and not row["batch_norm"]]
    pieces = [row["micro_batches"] for row in rows]
    with figure_style():
        figure = new_figure(8.6, 3.0)
        memory, time = figure.subplots(1, 2)
        for axes, key, name, color in (
            (memory, "peak_mib", "Peak of a step (MiB)", LIGHT["after"]),
            (time, "times_unsplit", "Time (unsplit step: 1)", LIGHT["accent"]),
        ):
            bars = axes.bar(range(len(rows)), [row[key] for row in rows], color=color)
            axes.bar_label(bars, fmt="{:.4g}")
            axes.set_xticks(range(len(rows)), [str(count) for count in pieces])
            axes.set(xlabel="Micro-batches", ylabel=name)
            axes.margins(y=0.15)
            axes.grid(visible=False, axis="x")
    return figure


_FIGURES: dict[str, "Callable[[], Figure]"] = {
    "example": _draw_example,
    "budgets": _draw_budgets,
    "alike": _draw_alike,
    "codes": _draw_codes,
    "blocks": _draw_blocks,
}


if __name__ == "__main__":
    save_figure(_draw_example(), _RECORDS.parent / "docs" / "collapse.png")
