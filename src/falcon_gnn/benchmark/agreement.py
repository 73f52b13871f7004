"""Whether our figures agree with the paper's, cell by cell."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from falcon_gnn.benchmark.metrics import metric_of
from falcon_gnn.benchmark.paper import PAPER_MODELS
from falcon_gnn.benchmark.plan import Cell
from falcon_gnn.benchmark.summary import CellFigure, Summary
from falcon_gnn.benchmark.tables import ResultTable, format_difference, format_figure, format_paper, render_table

_OF_A_MACHINE = ("gpu_memory", "epoch_time", "collapse_time")
"""What is measured on a machine: the paper's and ours are two."""


@dataclass(frozen=True)
class Agreement:
    """A cell that the paper and we have a figure for.

    Attributes:
        cell: Its place in our tables.
        metric: What the figure is.
        figure: Ours, with the paper's.
        reach: How far the two may be apart: the half widths of both 95 % intervals together. The interval of one run,
            and one that the paper does not print, count as nothing.
    """

    cell: Cell
    metric: str
    figure: CellFigure
    reach: float

    @property
    def is_within(self) -> bool:
        """Whether the two lie within reach of each other, as printed."""
        assert self.figure.difference is not None
        num_decimals = metric_of(self.metric).num_decimals
        return round(abs(self.figure.difference), num_decimals) <= round(self.reach, num_decimals)


def agreement_of(cell: Cell, metric: str, figure: CellFigure) -> Agreement | None:
    """Return how a figure of ours agrees with the paper's; None where one of the two is missing, or a machine's."""
    if figure.difference is None or figure.paper is None or metric in _OF_A_MACHINE:
        return None
    ours = figure.half_width
    reach = 0.0 if ours is None or math.isnan(ours) else ours
    return Agreement(cell, metric, figure, reach + (figure.paper.half_width or 0.0))


def find_agreements(summary: Summary) -> list[Agreement]:
    """Return every cell of a benchmark that the paper and we have a figure for, in the order of its tables."""
    found = (agreement_of(cell, metric, figure) for (cell, metric), figure in summary.figures.items())
    return [agreement for agreement in found if agreement is not None]


def render_agreements(summaries: Sequence[Summary]) -> str:
    """Return a Markdown table per benchmark that stands beside figures of the paper, and how many of them agree.

    Args:
        summaries: The results.
    """
    texts, everything = [], []
    for summary in summaries:
        found = find_agreements(summary)
        if found:
            everything += found
            texts.append(render_table(_table(summary.title, found)))
    return "\n".join([*texts, count_agreements(everything)]) + "\n"


def count_agreements(found: Sequence[Agreement]) -> str:
    """Return how many figures agree, as a sentence.

    Example:
        >>> count_agreements([])
        'No figure stands beside one of the paper.'
    """
    if not found:
        return "No figure stands beside one of the paper."
    within = sum(agreement.is_within for agreement in found)
    return f"{within:,} of {len(found):,} figures lie within the paper's interval and ours together."


def format_verdict(agreement: Agreement) -> str:
    """Return ``within``, or ``outside`` with what is missing."""
    if agreement.is_within:
        return "within"
    assert agreement.figure.difference is not None
    missing = abs(agreement.figure.difference) - agreement.reach
    return f"outside by {missing:.{metric_of(agreement.metric).num_decimals}f}"


def _table(title: str, found: Sequence[Agreement]) -> ResultTable:
    columns = ("Data set", "Model", "Reduction", "Centrality", "Metric", "ours", "paper", "difference", "verdict")
    return ResultTable(f"{title}: against the paper", columns, tuple(map(_row, found)), (count_agreements(found),))


def _row(one: Agreement) -> tuple[str, ...]:
    cell, figure, metric = one.cell, one.figure, metric_of(one.metric)
    labels = (cell.dataset, PAPER_MODELS.get(cell.model, cell.model), cell.method, cell.centrality, metric.title)
    figures = (format_figure(figure, metric), format_paper(figure.paper), format_difference(figure, metric))
    return (*labels, *figures, format_verdict(one))
