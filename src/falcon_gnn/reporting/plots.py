"""Figures of a collapse, of a training run, and of any quantity over another; none of them touches pyplot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from falcon_gnn.errors import OptionError
from falcon_gnn.reduction.report import FeatureSummary, GraphSummary, LabelSummary
from falcon_gnn.reporting.axes import (
    add_title,
    count_axis,
    draw_known,
    draw_pairs,
    draw_parity,
    draw_row,
    name_power_of_two,
    number_axis,
)
from falcon_gnn.reporting.style import HEIGHT, LIGHT, MARKERS, SERIES, figure_style, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LABEL_BARS = 20
_MOST_LABEL_TICKS = 14
_MOST_DEGREE_TICKS = 10
_LEAST_SHIFT_RANGE = 0.1
_DASHES = ("--", ":", "-.")
_TURNS = ("-", "--", ":", "-.")
_LEGEND_ROW = 0.2
_LONG_NAME = 24


class Line(NamedTuple):
    """One line of a figure; K points.

    Attributes:
        x: Shape ``(K,)``.
        y: Shape ``(K,)``; NaN leaves a gap.
        low: Lower end of an interval around ``y``, shape ``(K,)``, or None.
        high: Upper end, likewise.
    """

    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None


@dataclass(frozen=True)
class LineAxes:
    """What stands around the lines.

    Attributes:
        xlabel: Quantity and unit.
        ylabel: Quantity and unit.
        title: Title of the figure.
        log_x: Whether x is logarithmic.
        log_y: Whether y is logarithmic.
        references: Height of each named horizontal line.
    """

    xlabel: str
    ylabel: str
    title: str = ""
    log_x: bool = False
    log_y: bool = False
    references: Mapping[str, float] = field(default_factory=dict)


def label_shares_figure(labels: LabelSummary) -> "Figure":
    """Return the share of each label before and after: bars up to 20 labels, a point per label above.

    Args:
        labels: Shares of L >= 1 labels.

    Raises:
        OptionError: If there are no shares, as for a regression target.
        MissingDependencyError: If matplotlib is not installed.
    """
    if not labels.shares_before:
        msg = f"labels must hold the share of at least one label, got none (task={labels.task!r})."
        raise OptionError(msg)
    before, after = np.array(labels.shares_before) * 100, np.array(labels.shares_after) * 100
    with figure_style():
        figure = new_figure()
        axes = figure.subplots()
        if len(before) <= MOST_LABEL_BARS:
            draw_pairs(axes, before, after)
            axes.set(xlabel="Label", ylabel="Labelled nodes (%)")
            axes.set_xticks(range(0, len(before), 1 if len(before) <= _MOST_LABEL_TICKS else 2))
            add_title(axes, "Label shares")
        else:
            draw_parity(axes, before, after)
            axes.set(xlabel="Share before (%)", ylabel="Share after (%)")
            add_title(axes, f"Shares of {len(before):,} labels")
    return figure


def degree_figure(before: GraphSummary, after: GraphSummary) -> "Figure":
    """Return the degree distribution before and after, in bins that double: 0, 1, 2 to 3, 4 to 7 and so on.

    Args:
        before: The graph in scope.
        after: The reduced graph.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    num_bins = max(len(before.degree_histogram), len(after.degree_histogram))
    shares = np.zeros((2, num_bins))
    for row, summary in zip(shares, (before, after), strict=True):
        row[: len(summary.degree_histogram)] = np.array(summary.degree_histogram) * (100 / summary.num_nodes)
    starts = ["0", *(name_power_of_two(power) for power in range(num_bins - 1))]
    step = -(-num_bins // _MOST_DEGREE_TICKS)
    with figure_style():
        figure = new_figure()
        axes = figure.subplots()
        draw_pairs(axes, *shares)
        axes.set(xlabel="Degree (each bar starts here)", ylabel="Nodes (%)")
        axes.set_xticks(range(0, num_bins, step), starts[::step])
        add_title(axes, "Degree distribution")
    return figure


def kept_by_rank_figure(kept_by_rank: Sequence[int], nodes_by_rank: Sequence[int]) -> "Figure":
    """Return which part of the nodes survived, from the lowest to the highest centrality.

    Args:
        kept_by_rank: Survivors in equal parts of the nodes by ascending centrality.
        nodes_by_rank: Nodes in each part, all > 0.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    kept = 100 * np.array(kept_by_rank) / np.array(nodes_by_rank)
    width = 100 / len(kept)
    middle = (np.arange(len(kept)) + 0.5) * width
    with figure_style():
        figure = new_figure()
        axes = figure.subplots()
        axes.bar(middle, kept, 0.86 * width, color=LIGHT["after"], label="Kept")
        axes.bar(middle, 100 - kept, 0.86 * width, bottom=kept, color=LIGHT["removed"], label="Removed")
        axes.set(xlabel="Nodes from lowest to highest centrality (%)", ylabel="Nodes of each bar (%)")
        axes.set(xlim=(0, 100), ylim=(0, 100))
        axes.grid(visible=False)
        add_title(axes, "Kept and removed over centrality")
    return figure


def cluster_budgets_figure(cluster_sizes: Sequence[int], cluster_kept: Sequence[int]) -> "Figure":
    """Return the nodes and the survivors of each cluster, largest cluster first.

    Args:
        cluster_sizes: Nodes per cluster.
        cluster_kept: Survivors per cluster, aligned.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    sizes, kept = np.array(cluster_sizes, float), np.array(cluster_kept, float)
    order = np.argsort(-sizes, kind="stable")
    with figure_style():
        figure = new_figure()
        axes = figure.subplots()
        draw_row(axes, sizes[order], color=LIGHT["removed"], label="Nodes")
        draw_row(axes, kept[order], color=LIGHT["after"], label="Kept")
        axes.set(xlabel="Clusters, largest first", ylabel="Nodes")
        count_axis(axes.yaxis)
        add_title(axes, "Cluster budgets")
    return figure


def feature_shift_figure(features: FeatureSummary) -> "Figure":
    """Return how far the mean of each feature moved, in ascending order.

    The axis never spans less than a tenth of a standard deviation either way, so that small shifts look small.

    Args:
        features: Shifts of F >= 1 features.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    reach = max(_LEAST_SHIFT_RANGE, 1.1 * features.max_absolute_shift)
    with figure_style():
        figure = new_figure()
        axes = figure.subplots()
        draw_row(axes, np.sort(features.mean_shift), color=LIGHT["after"])
        axes.axhline(0, color=LIGHT["muted"], linewidth=0.8)
        axes.set(xlabel="Features, by shift", ylabel="Shift (standard deviations)", ylim=(-reach, reach))
        add_title(axes, "Shift of each feature's mean")
    return figure


def learning_curve_figure(
    epochs: Sequence[int],
    losses: Sequence[float],
    scores: Sequence[float | None],
    best_epoch: int | None = None,
    *,
    score_name: str = "Validation score",
) -> "Figure":
    """Return the training loss and the validation score over epochs, one above the other, the best epoch marked.

    Args:
        epochs: Epoch numbers, ascending, shape ``(K,)``.
        losses: Training loss of each.
        scores: Validation score of each; None or NaN where it was not evaluated.
        best_epoch: The epoch whose weights were kept.
        score_name: Name of the score, with its unit.

    Raises:
        OptionError: If the three differ in length or are empty.
        MissingDependencyError: If matplotlib is not installed.
    """
    if not len(epochs) == len(losses) == len(scores) > 0:
        lengths = f"{len(epochs)}, {len(losses)} and {len(scores)}"
        msg = f"epochs, losses and scores must have one length of at least 1, got {lengths}."
        raise OptionError(msg)
    panels = [("Training loss", np.array(losses, float)), (score_name, np.array(scores, float))]
    if np.isnan(panels[1][1]).all():
        panels.pop()
    with figure_style():
        figure = new_figure(height=1.25 * HEIGHT)
        grid = figure.subplots(len(panels), sharex=True, squeeze=False)
        for axes, (title, values) in zip(grid.flat, panels, strict=True):
            draw_known(axes, np.asarray(epochs), values)
            if best_epoch is not None:
                label = f"Best epoch: {best_epoch:,}" if axes is grid[0, 0] else None
                axes.axvline(best_epoch, color=LIGHT["accent"], linestyle="--", linewidth=1.4, label=label)
            add_title(axes, title)
        axes.set_xlabel("Epoch")
        count_axis(axes.xaxis)
    return figure


def lines_figure(series: Mapping[str, Line | tuple[Any, ...]], axes: LineAxes) -> "Figure":
    """Return lines over a common x, each with its own colour and marker, and a band where an interval is given.

    From the ninth on, colours and markers come again with other dashes.

    Args:
        series: Each named line: a :class:`Line`, or a tuple ``(x, y)`` or ``(x, y, low, high)``.
        axes: Labels, scales and reference lines.

    Raises:
        OptionError: If there is no line, or the arrays of one differ in length.
        MissingDependencyError: If matplotlib is not installed.
    """
    if not series:
        msg = "series must hold at least one line, got none."
        raise OptionError(msg)
    lines = {name: _checked_line(name, given) for name, given in series.items()}
    names = [*lines, *axes.references]
    num_columns = 1 if max(map(len, names)) > _LONG_NAME else 2
    with figure_style():
        figure = new_figure(height=HEIGHT + _LEGEND_ROW * -(-len(names) // num_columns))
        canvas = figure.subplots()
        for position, (name, line) in enumerate(lines.items()):
            color = SERIES[position % len(SERIES)]
            turn = position // len(SERIES) % len(_TURNS)
            marker = MARKERS[position % len(MARKERS)]
            canvas.plot(line.x, line.y, label=name, color=color, marker=marker, linestyle=_TURNS[turn])
            if line.low is not None and line.high is not None:
                canvas.fill_between(line.x, line.low, line.high, color=color, alpha=0.16, linewidth=0)
        for position, (name, height) in enumerate(axes.references.items()):
            dashes = _DASHES[position % len(_DASHES)]
            canvas.axhline(height, color=LIGHT["ink"], linestyle=dashes, linewidth=1.3, label=name)
        canvas.set(xlabel=axes.xlabel, ylabel=axes.ylabel, title=axes.title)
        number_axis(canvas, "x", axes.log_x)
        number_axis(canvas, "y", axes.log_y)
        figure.legend(loc="outside lower center", ncols=num_columns)
    return figure


def _checked_line(name: str, given: Line | tuple[Any, ...]) -> Line:
    line = Line(*given)
    shapes = {np.shape(part) for part in line if part is not None}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        msg = f"The arrays of series {name!r} must be flat and of one length, got the shapes {sorted(shapes)}."
        raise OptionError(msg)
    return line
