"""What a collapse on Spark did, in figures."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from falcon_gnn.graph import ROW_NAMES
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.notes import note_input, note_losses, note_options
from falcon_gnn.reduction.report import label_distribution_error, label_distribution_error_relative
from falcon_gnn.spark.frames import F
from falcon_gnn.spark.input import SparkInput
from falcon_gnn.spark.labels import label_shares

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def summarise(
    given: SparkInput, config: CollapseConfig, selected: "DataFrame", nodes: "DataFrame", edges: "DataFrame"
) -> dict[str, Any]:
    """Return before and after as plain data, named as in the local engine's report.

    Args:
        given: The input.
        config: The options used.
        selected: ``cluster`` and ``survives`` of the nodes in scope.
        nodes: The reduced node table.
        edges: The reduced edge table.
    """
    counts = selected.groupBy("cluster").agg(F.count(F.lit(1)).alias("size"), F.count_if("survives").alias("kept"))
    by_cluster = sorted((row["cluster"], row["size"], row["kept"]) for row in counts.collect())
    return {
        "config": asdict(config),
        "scope": given.scope,
        "before": {"num_nodes": given.num_nodes, "num_edges": given.edges.num_edges},
        "after": {"num_nodes": sum(kept for _, _, kept in by_cluster), "num_edges": edges.count()},
        "labels": _label_summary(given, nodes),
        "cluster_sizes": [size for _, size, _ in by_cluster],
        "cluster_kept": [kept for _, _, kept in by_cluster],
        "cleaning": asdict(given.edges.cleaning),
    }


def make_notes(
    given: SparkInput,
    config: CollapseConfig,
    labels: dict[str, Any] | None,
    num_dropped: int,
    *,
    has_own_clusters: bool = False,
) -> list[str]:
    """Return what a reader should know, as :mod:`falcon_gnn.reduction.notes` puts it.

    Args:
        given: The input.
        config: The options used.
        labels: The label distribution, as the report has it.
        num_dropped: Nodes in scope without a survivor.
        has_own_clusters: Whether the caller gave the clusters.
    """
    shares = labels or {}
    inputs = note_input(
        has_x=given.columns.x is not None,
        has_y=given.columns.y is not None,
        is_split="train_mask" in given.nodes.columns,
        attributes=set(given.nodes.columns) - {"node_id", *ROW_NAMES},
    )
    options = asdict(config) | ({"num_clusters": "given"} if has_own_clusters else {})
    lost = note_losses(
        num_dropped, given.num_nodes, options, shares.get("shares_before", []), shares.get("shares_after", [])
    )
    return inputs + note_options(has_own_clusters=has_own_clusters, groups=config.groups) + lost


def _label_summary(given: SparkInput, nodes: "DataFrame") -> dict[str, Any] | None:
    if given.labels is None:
        return None
    before, after = label_shares(given.scoped, given.labels), label_shares(nodes, given.labels)
    if before is None or after is None:
        return {"task": given.labels.task}
    return {
        "task": given.labels.task,
        "shares_before": before.tolist(),
        "shares_after": after.tolist(),
        "label_distribution_error": label_distribution_error(before, after),
        "label_distribution_error_relative": label_distribution_error_relative(before, after),
    }
