"""What figures share: titles with legends, tick labels, bars, rows and points."""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import require
from falcon_gnn.reporting.formats import format_count, format_tick
from falcon_gnn.reporting.style import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]

_MOST_BARS = 60
_NUM_NAMED_LABELS = 3


def add_title(axes: "Axes", title: str) -> None:
    """Write the title, and between it and the plot the legend in a line of its own, where nothing can overlap."""
    handles, names = axes.get_legend_handles_labels()
    axes.set_title(title, pad=24 if names else 8)
    if names:
        place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderpad": 0.2}
        axes.legend(handles, names, ncols=len(names), columnspacing=1.4, **place)


def count_axis(axis: Any) -> None:
    """Put whole numbers with thousands separated on an axis."""
    ticker = require("matplotlib.ticker", "report")
    axis.set_major_locator(ticker.MaxNLocator(6, integer=True))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: format_count(value)))


def number_axis(axes: "Axes", name: Literal["x", "y"], is_log: bool) -> None:
    """Put short numbers on an axis; on a logarithmic one also at 2 and 5 where it spans few decades."""
    ticker = require("matplotlib.ticker", "report")
    axis = getattr(axes, f"{name}axis")
    if is_log:
        getattr(axes, f"set_{name}scale")("log")
        low, high = getattr(axes, f"get_{name}lim")()
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
        axis.set_minor_formatter(ticker.NullFormatter())
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: format_tick(value)))


def draw_pairs(axes: "Axes", before: FloatArray, after: FloatArray) -> None:
    """Draw two bars side by side per value; few values stay together in the middle instead of growing wide."""
    position = np.arange(len(before))
    axes.bar(position - 0.21, before, 0.4, color=LIGHT["before"], label="Before")
    axes.bar(position + 0.21, after, 0.4, color=LIGHT["after"], label="After")
    axes.set_xlim(min(-0.6, len(before) / 2 - 2), max(len(before) - 0.4, len(before) / 2 + 1))
    axes.grid(visible=False, axis="x")


def draw_row(axes: "Axes", values: FloatArray, **style: Any) -> None:
    """Draw values side by side: as bars where they can be told apart, as one filled shape where they cannot."""
    num_values = len(values)
    if num_values <= _MOST_BARS:
        axes.bar(range(1, num_values + 1), values, width=0.8, **style)
    else:
        axes.stairs(values, np.arange(num_values + 1) + 0.5, fill=True, **style)
    margin = max(0.01 * num_values, 2 - num_values / 2, 0.1)
    axes.set_xlim(0.5 - margin, num_values + 0.5 + margin)
    count_axis(axes.xaxis)
    axes.set_xticks([tick for tick in axes.get_xticks() if 1 <= tick <= num_values])
    axes.grid(visible=False, axis="x")


def name_power_of_two(power: int) -> str:
    """Return 2**power as an axis has room for it, from 1,024 on with binary prefixes."""
    return f"{1 << power % 10}{'kMGT'[power // 10 - 1] if power >= 10 else ''}"


def draw_parity(axes: "Axes", before: FloatArray, after: FloatArray) -> None:
    """Draw a point per label around the diagonal and mark those furthest from it."""
    top = 1.05 * max(before.max(), after.max())
    furthest = np.argsort(-np.abs(after - before), kind="stable")[:_NUM_NAMED_LABELS]
    axes.plot([0, top], [0, top], color=LIGHT["muted"], linewidth=1, linestyle="--", zorder=1)
    for chosen, color, name in (
        (np.setdiff1d(np.arange(len(before)), furthest), LIGHT["after"], None),
        (furthest, LIGHT["accent"], f"Moved most: labels {', '.join(map(str, furthest))}"),
    ):
        (points,) = axes.plot(before[chosen], after[chosen], "o", color=color, label=name)
        points.set(markersize=5.5, markeredgecolor=LIGHT["card"], markeredgewidth=0.5)
    axes.set(xlim=(0, top), ylim=(0, top))


def draw_known(axes: "Axes", x: NDArray[Any], y: NDArray[np.float64]) -> None:
    """Draw a line through the known values; a single one, which makes no line, as a point."""
    known = ~np.isnan(y)
    axes.plot(x[known], y[known], color=LIGHT["after"], marker="o" if known.sum() == 1 else "")
