"""Plots of a benchmark's metric over the node budget, one per data set and model."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from falcon_gnn.benchmark.metrics import metric_of
from falcon_gnn.benchmark.paper import PAPER_MODELS
from falcon_gnn.benchmark.plan import Cell
from falcon_gnn.benchmark.summary import Summary

_MAX_BANDS = 3

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from falcon_gnn.reporting.plots import Line


def make_figures(summary: Summary) -> dict[str, "Figure"]:
    """Return a figure per data set and model, by a name fit for a file; none for a benchmark without a figure.

    Each method (with its centrality) is a line over the budget, with the 95 % interval as a band where there are few
    lines; what was trained on the full graph is a horizontal line.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    if summary.figure is None:
        return {}
    figures = {}
    for dataset in summary.datasets:
        cells = [cell for cell in summary.cells(dataset) if _is_drawn(summary, cell)]
        for model in dict.fromkeys(cell.model for cell in cells):
            figure = _figure(summary, summary.figure, [cell for cell in cells if cell.model == model])
            if figure is not None:
                name = "_".join(part for part in (summary.name, dataset, model) if part)
                figures[re.sub(r"[^\w.-]+", "-", name).strip("-")] = figure
    return figures


def write_figures(summaries: Sequence[Summary], folder: str | Path) -> list[Path]:
    """Write the figures of benchmarks as ``.png`` and return the files.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    from falcon_gnn.reporting.style import save_figure

    paths = []
    for summary in summaries:
        for name, figure in make_figures(summary).items():
            path = Path(folder) / f"{name}.png"
            save_figure(figure, path)
            paths.append(path)
    return paths


def _is_drawn(summary: Summary, cell: Cell) -> bool:
    return not summary.drawn_methods or cell.method in summary.drawn_methods or cell.budget is None


def _figure(summary: Summary, name: str, cells: Sequence[Cell]) -> "Figure | None":
    """Return the figure of one data set and model, or None if there is nothing to draw."""
    from falcon_gnn.reporting.plots import LineAxes, lines_figure

    labels = dict.fromkeys((cell.method, cell.centrality) for cell in cells if cell.budget is not None)
    lines = {label: _line(summary, name, [c for c in cells if (c.method, c.centrality) == label]) for label in labels}
    series = {" ".join(part for part in label if part): line for label, line in lines.items() if line is not None}
    if not series:
        return None
    if len(series) > _MAX_BANDS:
        series = {label: line._replace(low=None, high=None) for label, line in series.items()}
    full = {cell.method: summary.figures[cell, name].mean for cell in cells if cell.budget is None}
    is_share = all(isinstance(cell.budget, float) for cell in cells if cell.budget is not None)
    metric, model = metric_of(name), PAPER_MODELS.get(cells[0].model, cells[0].model)
    axes = LineAxes(
        xlabel="Share of training nodes kept (%)" if is_share else "Training nodes kept",
        ylabel=f"{metric.title} ({metric.unit})" if metric.unit else metric.title,
        title=f"{cells[0].dataset}, {model}" if model else cells[0].dataset,
        log_x=is_share,
        references={
            "full graph" if len(full) == 1 else f"full graph, {method}": mean
            for method, mean in full.items()
            if mean is not None
        },
    )
    return lines_figure(series, axes)


def _line(summary: Summary, name: str, cells: Sequence[Cell]) -> "Line | None":
    """Return mean and interval over the nodes kept, the fewest first; budgets without a run are left out."""
    from falcon_gnn.reporting.plots import Line

    points = set()
    for cell in cells:
        found = summary.figures[cell, name]
        if found.mean is not None and found.kept is not None:
            whole = found.kept.num_in_scope / 100 if isinstance(cell.budget, float) else 1
            half_width = 0.0 if found.half_width is None or math.isnan(found.half_width) else found.half_width
            points.add((found.kept.num_nodes / whole, found.mean, found.mean - half_width, found.mean + half_width))
    if not points:
        return None
    x, mean, low, high = np.array(sorted(points), float).T
    return Line(x, mean, low, high)
