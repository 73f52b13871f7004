"""Tables for the terminal about a collapse and about runs side by side."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from falcon_gnn.reduction.report import CollapseReport

if TYPE_CHECKING:
    from rich.table import Table

_MIB = 2**20
_LARGE_MIB = 100
_SHORT_KINDS = {"activ.": "activations", "inputs": "inputs", "temp.": "temporaries"}


def collapse_table(report: CollapseReport) -> "Table":
    """Return sizes before and after, label error, and what the collapse cost."""
    table = make_table("Collapse", ["", "before", "after"])
    before, after = report.before, report.after
    for name, first, second in (
        ("nodes", before.num_nodes, after.num_nodes),
        ("edges", before.num_edges, after.num_edges),
        ("components", before.num_components, after.num_components),
        ("isolated nodes", before.num_isolated, after.num_isolated),
    ):
        table.add_row(name, f"{first:,}", f"{second:,}")
    table.add_row("mean degree", f"{before.mean_degree:.2f}", f"{after.mean_degree:.2f}")
    table.add_row("nodes dropped", "", f"{report.num_dropped:,}")
    if report.labels is not None and report.labels.label_distribution_error is not None:
        table.add_row("label distribution error", "", f"{report.labels.label_distribution_error:.3%}")
        table.add_row("  relative to each share", "", f"{report.labels.label_distribution_error_relative:.3%}")
    if report.adjusted_homophily is not None:
        table.add_row("adjusted homophily", f"{report.adjusted_homophily:.2f}", "")
    if report.features is not None:
        table.add_row("mean feature shift (sd)", "", f"{report.features.mean_absolute_shift:.3f}")
    table.add_section()
    for stage, seconds in report.seconds.items():
        table.add_row(f"seconds: {stage}", "", f"{seconds:.3f}")
    table.add_row("seconds in all", "", f"{sum(report.seconds.values()):.3f}")
    table.add_row("peak memory of the process", "", _peak(report.peak_memory_bytes))
    _add_notes(table, report.notes)
    return table


def spark_table(report: Mapping[str, Any]) -> "Table":
    """Return what a collapse on Spark did; ``report`` as in ``SparkCollapseResult.report``."""
    table = make_table("Collapse on Spark", ["", "before", "after"])
    for name in ("nodes", "edges"):
        table.add_row(name, *(f"{report[side][f'num_{name}']:,}" for side in ("before", "after")))
    table.add_row("nodes dropped", "", f"{report['num_dropped']:,}")
    labels = report["labels"] or {}
    if "label_distribution_error" in labels:
        table.add_row("label distribution error", "", f"{labels['label_distribution_error']:.3%}")
        table.add_row("  relative to each share", "", f"{labels['label_distribution_error_relative']:.3%}")
    table.add_row("rounds of merges", "", f"{report['num_rounds']:,}")
    table.add_row("rows merged on the driver", "", f"{report['num_driver_rows']:,}")
    table.add_section()
    for stage, seconds in report["seconds"].items():
        table.add_row(f"seconds: {stage}", "", f"{seconds:.3f}")
    table.add_row("seconds in all", "", f"{sum(report['seconds'].values()):.3f}")
    _add_notes(table, report.get("notes", ()))
    return table


def plans_table(plans: "Mapping[str, Any]", memory: str) -> "Table":
    """Return what fits a memory budget per model, with the predicted peak by what it is for.

    ``pieces`` are those that a batch is gone through in, ``time`` is that of an epoch in the whole graph's without
    pieces and bits, and ``trained`` holds weights, gradients and the optimizer's state.

    Args:
        plans: As :func:`falcon_gnn.planning.fit.plan_models` returns them.
        memory: The budget as the user wrote it.
    """
    columns = ["model", "bits", "nodes", "batches", "pieces", "time", "peak", "trained", *_SHORT_KINDS]
    totals = [plan.num_nodes for plan in plans.values() if not isinstance(plan, Exception)]
    nodes = f"{totals[0]:,} nodes" if totals else "the nodes"
    table = make_table(f"The most of {nodes} that fit {memory}; predicted peak in MiB", columns)
    # Eleven columns on a terminal of 80 characters.
    table.padding = (0, 0)
    for name, plan in plans.items():
        model, _, bits = name.partition(", ")
        if isinstance(plan, Exception):
            table.add_row(model, bits.removesuffix(" bits"), "none", *[""] * (len(columns) - 3))
            continue
        estimate = plan.estimate
        trained = estimate.weights + estimate.gradients + estimate.optimizer
        sizes = [plan.peak_bytes, trained, *(getattr(estimate, kind) for kind in _SHORT_KINDS.values())]
        nodes = f"{plan.node_budget:,}" if plan.needs_collapse else "all"
        bits = str(plan.training.model.bits or 32)
        training = plan.training
        counts = str(training.num_batches), str(max(training.micro_batches, training.column_blocks))
        table.add_row(model, bits, nodes, *counts, f"{plan.relative_time:.2f}x", *map(_short_mebibytes, sizes))
    return table


def make_table(title: str, columns: Sequence[str]) -> "Table":
    """Return an empty table whose first column stands left, the others right."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 else "right", no_wrap=True)
    return table


def _add_notes(table: "Table", notes: Sequence[str]) -> None:
    from rich.markup import escape

    if notes:
        table.caption = escape("\n".join(f"Note: {note}" for note in notes))
        table.caption_justify, table.caption_style = "left", ""


def _peak(num_bytes: int | None) -> str:
    return "unknown" if num_bytes is None else f"{num_bytes / _MIB:,.0f} MiB"


def _short_mebibytes(num_bytes: int) -> str:
    size = num_bytes / _MIB
    return f"{size:,.1f}" if size < _LARGE_MIB else f"{size:,.0f}"
