"""The input of a collapse on Spark, checked and cut down to its scope."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.scope import choose_scope
from falcon_gnn.spark.edges import IndexedEdges, index_edges
from falcon_gnn.spark.frames import F, cut_lineage
from falcon_gnn.spark.labels import LabelVectors, encode_labels
from falcon_gnn.spark.nodes import NodeColumns, check_nodes, describe_columns, index_scope

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, eq=False)
class SparkInput:
    """A graph as tables; N nodes and E edges in scope.

    Attributes:
        nodes: The node table as given.
        scoped: Its rows in scope, with ``index``, 0 to N-1 in ascending ``node_id``.
        columns: How features and labels are read.
        edges: The edges in scope.
        scope: ``"train"`` or ``"full"``.
        num_nodes: N.
        labels: The visible labels, or None.
    """

    nodes: "DataFrame"
    scoped: "DataFrame"
    columns: NodeColumns
    edges: IndexedEdges
    scope: str
    num_nodes: int
    labels: LabelVectors | None


def read_input(nodes: "DataFrame", edges: "DataFrame", config: CollapseConfig) -> SparkInput:
    """Return the tables checked, indexed and cut down to the scope.

    Raises:
        GraphError: If a table is unusable.
        OptionError: If the scope is ``"train"`` and there is no training mask.
    """
    columns = describe_columns(nodes)
    counts = check_nodes(nodes, columns)
    scope = choose_scope(config.scope, has_train_mask="train_mask" in counts)
    scoped = index_scope(nodes, scope)
    indexed = index_edges(edges, nodes, scoped)
    if indexed.is_weighted and config.edge_weights == "none":
        msg = (
            "edge_weights='none' leaves the edge and self-weights of the input out. Use edge_weights='sum' to keep "
            "them."
        )
        warnings.warn(msg, FalconWarning, stacklevel=3)
        nodes = nodes.drop("self_weight")
    num_nodes = counts["train_mask" if scope == "train" else "rows"]
    labels = encode_labels(scoped, columns, config, scope, num_nodes)
    return SparkInput(nodes, scoped, columns, indexed, scope, num_nodes, labels)


def protected_nodes(scoped: "DataFrame", protect: "DataFrame | str | None") -> "DataFrame":
    """Return ``index``, ``is_protected`` of the nodes in scope.

    Args:
        scoped: The nodes in scope.
        protect: A table with ``node_id``, the name of a true-or-false node column, or None.

    Raises:
        OptionError: If it is neither.
    """
    if protect is None:
        return scoped.select("index", F.lit(False).alias("is_protected"))
    if isinstance(protect, str):
        if dict(scoped.dtypes).get(protect) != "boolean":
            msg = f"protect must be a table with node_id or the name of a true-or-false node column, got {protect!r}."
            raise OptionError(msg)
        return scoped.select("index", F.coalesce(F.col(protect), F.lit(False)).alias("is_protected"))
    named = protect.select("node_id").distinct().withColumn("is_named", F.lit(True))
    joined = scoped.select("node_id", "index").join(named, "node_id", "left")
    return joined.select("index", F.coalesce("is_named", F.lit(False)).alias("is_protected"))


def own_scores(scoped: "DataFrame", table: "DataFrame") -> "DataFrame":
    """Return ``index``, ``centrality`` of the caller's own for every node in scope, stored.

    Raises:
        GraphError: If one is missing, stands twice or is not finite.
    """
    column = F.col("centrality").cast("double")
    is_bad = column.isNull() | F.isnan(column) | (F.abs(column) == float("inf"))
    return _own_values(scoped, table, "centrality", is_bad).select("index", column.alias("centrality"))


def own_clusters(scoped: "DataFrame", table: "DataFrame") -> "DataFrame":
    """Return ``index``, ``cluster`` of the caller's own for every node in scope, stored.

    Raises:
        GraphError: If one is missing, stands twice or is no whole number >= 0.
    """
    column = F.col("cluster").cast("bigint")
    is_bad = column.isNull() | (column != F.col("cluster")) | (column < 0)
    return _own_values(scoped, table, "cluster", is_bad).select("index", column.alias("cluster"))


def _own_values(scoped: "DataFrame", table: "DataFrame", name: str, is_bad: "Column") -> "DataFrame":
    if not {"node_id", name} <= set(table.columns):
        msg = f"The table of your own values must have the columns node_id and {name}, got {', '.join(table.columns)}."
        raise OptionError(msg)
    joined = cut_lineage(scoped.select("node_id", "index").join(table.select("node_id", name), "node_id", "left"))
    counts: Any = joined.agg(F.count(F.lit(1)) - F.count_distinct("node_id"), F.count_if(is_bad)).first()
    if counts[0] or counts[1]:
        kind = "finite" if name == "centrality" else "a whole number >= 0"
        msg = (
            f"{name} must be {kind}, once for every node in scope; {counts[1]} nodes have none or another value, and "
            f"{counts[0]} rows repeat a node."
        )
        raise GraphError(msg)
    return joined
