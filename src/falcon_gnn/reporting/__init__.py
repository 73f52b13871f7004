"""Figures and a self-contained page about a collapse and what was trained on it; needs the extra ``report``."""

from typing import TYPE_CHECKING

from falcon_gnn._lazy import lazy_exports

if TYPE_CHECKING:
    from falcon_gnn.reporting.html import write_report
    from falcon_gnn.reporting.plots import (
        Line,
        LineAxes,
        cluster_budgets_figure,
        degree_figure,
        feature_shift_figure,
        kept_by_rank_figure,
        label_shares_figure,
        learning_curve_figure,
        lines_figure,
    )
    from falcon_gnn.reporting.sections import Picture, Section, Table
    from falcon_gnn.reporting.style import save_figure

_PLOTS = (
    "Line",
    "LineAxes",
    "cluster_budgets_figure",
    "degree_figure",
    "feature_shift_figure",
    "kept_by_rank_figure",
    "label_shares_figure",
    "learning_curve_figure",
    "lines_figure",
)

__all__ = [
    "Line",
    "LineAxes",
    "Picture",
    "Section",
    "Table",
    "cluster_budgets_figure",
    "degree_figure",
    "feature_shift_figure",
    "kept_by_rank_figure",
    "label_shares_figure",
    "learning_curve_figure",
    "lines_figure",
    "save_figure",
    "write_report",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        **dict.fromkeys(_PLOTS, "falcon_gnn.reporting.plots"),
        **dict.fromkeys(("Picture", "Section", "Table"), "falcon_gnn.reporting.sections"),
        "save_figure": "falcon_gnn.reporting.style",
        "write_report": "falcon_gnn.reporting.html",
    },
)
