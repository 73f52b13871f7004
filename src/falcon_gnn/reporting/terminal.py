"""Tables for the terminal about a collapse and about runs side by side."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from falcon_gnn.reduction.report import CollapseReport

if TYPE_CHECKING:
    from rich.table import Table

_MIB = 2**20


def collapse_table(report: CollapseReport) -> "Table":
    """Return sizes before and after, label error, and what the collapse cost."""
    table = _table("Collapse", ["", "before", "after"])
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
    if report.features is not None:
        table.add_row("mean feature shift (sd)", "", f"{report.features.mean_absolute_shift:.3f}")
    table.add_section()
    for stage, seconds in report.seconds.items():
        table.add_row(f"seconds: {stage}", "", f"{seconds:.3f}")
    table.add_row("seconds in all", "", f"{sum(report.seconds.values()):.3f}")
    table.add_row("peak memory of the process", "", f"{report.peak_memory_bytes / _MIB:,.0f} MiB")
    return table


def runs_table(records: Mapping[str, Mapping[str, Any]]) -> "Table":
    """Return runs side by side: what each trained on, its scores on the original graph, memory and time.

    Args:
        records: Records as :func:`falcon_gnn.pipeline.run` makes them, by the name to show.
    """
    columns = ["run", "trained on", "test accuracy", "micro-F1", "peak memory", "epoch time", "epochs"]
    table = _table("Trained, and scored on the original graph", columns)
    for name, record in records.items():
        test = record["scores"]["test"] or {}
        table.add_row(
            name,
            f"{record['trained_on']['num_nodes']:,} nodes",
            _percent(test.get("accuracy")),
            _percent(test.get("micro_f1")),
            _mebibytes(record["memory"]),
            f"{1000 * record['training']['epoch_seconds_quartiles'][1]:.1f} ms",
            f"{record['training']['num_epochs']:,} (best {record['training']['best_epoch']:,})",
        )
    return table


def plans_table(plans: "Mapping[str, Any]", memory: str) -> "Table":
    """Return what fits a memory budget per model, with the predicted peak by what it is for.

    Args:
        plans: As :func:`falcon_gnn.planning.plan_models` returns them.
        memory: The budget as the user wrote it.
    """
    kinds = ("weights", "gradients", "optimizer", "activations", "inputs", "temporaries")
    columns = ["model", "nodes that fit", "of", "batches", "peak (MiB)", *kinds]
    table = _table(f"What fits {memory}, predicted", columns)
    for name, plan in plans.items():
        if isinstance(plan, Exception):
            table.add_row(name, "none", *[""] * (len(columns) - 2))
            continue
        split = [f"{getattr(plan.estimate, kind) / _MIB:,.1f}" for kind in kinds]
        peak = f"{plan.estimate.total / _MIB:,.1f}"
        nodes = f"{plan.node_budget:,}" if plan.needs_collapse else "all"
        table.add_row(name, nodes, f"{plan.num_nodes:,}", str(plan.training.num_batches), peak, *split)
    return table


def _table(title: str, columns: Sequence[str]) -> "Table":
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 else "right", no_wrap=True)
    return table


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.2%}"


def _mebibytes(memory: Mapping[str, Any] | None) -> str:
    return "–" if memory is None else f"{memory['total'] / _MIB:,.1f} MiB"
