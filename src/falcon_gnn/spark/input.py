"""The input of a collapse on Spark, checked and cut down to its scope."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from falcon_gnn.errors import FalconWarning, GraphError, OptionError, require
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.scope import choose_scope
from falcon_gnn.spark.edges import IndexedEdges, index_edges
from falcon_gnn.spark.frames import F, cut_lineage
from falcon_gnn.spark.labels import LabelVectors, encode_labels
from falcon_gnn.spark.nodes import NUMBER_TYPES, WHOLE_TYPES, NodeColumns, check_nodes, describe_columns, index_scope

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
        # In a name without quotes a point is a part of a structure.
        marked = F.col("`{}`".format(protect.replace("`", "``")))
        return scoped.select("index", F.coalesce(marked, F.lit(False)).alias("is_protected"))
    _check_table("protect", protect, {"node_id": WHOLE_TYPES})
    named = protect.select("node_id").distinct().withColumn("is_named", F.lit(True))
    joined = scoped.select("node_id", "index").join(named, "node_id", "left")
    return joined.select("index", F.coalesce("is_named", F.lit(False)).alias("is_protected"))


def _check_table(option: str, table: object, types: Mapping[str, Sequence[str]]) -> None:
    """Stop at what is no table of the caller's own with the wanted columns, each of one of some types."""
    if not isinstance(table, require("pyspark.sql", "spark").DataFrame):
        got = type(table).__name__
    else:
        found = dict(table.dtypes)
        if all(found.get(name, "").partition("(")[0] in kinds for name, kinds in types.items()):
            return
        got = ", ".join(f"{name} ({kind})" for name, kind in found.items())
    msg = f"{option} must be a Spark DataFrame with numbers in {' and '.join(types)}, got {got}."
    raise OptionError(msg)


def own_scores(scoped: "DataFrame", table: "DataFrame") -> "DataFrame":
    """Return ``index``, ``centrality`` and ``phi`` of the caller's own for every node in scope, stored.

    ``phi``, by which nodes are ranked, has the type that was given: whole numbers above 2**53 are no doubles.

    Raises:
        OptionError: If the table has other columns.
        GraphError: If one is missing, stands twice or is not finite.
    """
    _check_table("centrality", table, {"node_id": WHOLE_TYPES, "centrality": (*NUMBER_TYPES, "decimal")})
    column = F.col("centrality").cast("double")
    is_bad = column.isNull() | F.isnan(column) | (F.abs(column) == float("inf"))
    phi = F.col("centrality") if dict(table.dtypes)["centrality"] != "boolean" else column
    joined = _own_values(scoped, table, "centrality", is_bad)
    return joined.select("index", column.alias("centrality"), phi.alias("phi"))


def own_clusters(scoped: "DataFrame", table: "DataFrame") -> "DataFrame":
    """Return ``index``, ``cluster`` of the caller's own for every node in scope, stored.

    Raises:
        OptionError: If the table has other columns.
        GraphError: If one is missing, stands twice or is no whole number >= 0.
    """
    _check_table("clusters", table, {"node_id": WHOLE_TYPES, "cluster": (*NUMBER_TYPES, "decimal")})
    column = F.col("cluster").cast("bigint")
    is_bad = column.isNull() | (column != F.col("cluster")) | (column < 0)
    return _own_values(scoped, table, "cluster", is_bad).select("index", column.alias("cluster"))


def _own_values(scoped: "DataFrame", table: "DataFrame", name: str, is_bad: "Column") -> "DataFrame":
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
