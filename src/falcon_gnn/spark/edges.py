"""The edge table made a clean undirected graph, and the reduced graph's edges."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from falcon_gnn.adjacency import EdgeCleaning
from falcon_gnn.errors import GraphError, require
from falcon_gnn.graph_checks import tell_one_way
from falcon_gnn.spark.frames import F, cut_lineage
from falcon_gnn.spark.nodes import WHOLE_TYPES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WEIGHT_TOLERANCE = 1e-6
_LARGEST_WEIGHT = 1.7e308


@dataclass(frozen=True, eq=False)
class IndexedEdges:
    """The undirected edges among the nodes in scope.

    Attributes:
        frame: Columns ``u`` < ``v`` (positions in the scope) and, where weighted, ``weight``; each edge once; stored.
        num_edges: E in scope.
        is_weighted: Whether there is a weight.
        cleaning: What the whole table needed.
    """

    frame: "DataFrame"
    num_edges: int
    is_weighted: bool
    cleaning: EdgeCleaning


def index_edges(edges: "DataFrame", nodes: "DataFrame", scoped: "DataFrame") -> IndexedEdges:
    """Return the edges without self-loops, duplicates or direction, by the rules of the local engine, in one job.

    Args:
        edges: Columns ``source`` and ``target`` (or ``src`` and ``dst``) and perhaps ``weight`` (or ``edge_weight``).
        nodes: All nodes, with ``node_id``.
        scoped: The nodes in scope, with ``node_id`` and ``index``.

    Raises:
        GraphError: If a column or an id is missing, an id is not in the node table, a weight is negative or not finite,
            or the two directions of a pair differ in weight.
    """
    named, is_weighted = _named_columns(edges)
    grouped, counts = _observed(_group_pairs(named), *_cleaning_counts())
    weight = F.when(F.col("forward") > 0, F.col("weight_forward")).otherwise(F.col("weight_backward"))
    proper = grouped.filter("low < high").select("low", "high", *([weight.alias("weight")] if is_weighted else []))
    index = nodes.select("node_id").join(scoped.select("node_id", "index"), "node_id", "left")
    index = index.select("node_id", F.coalesce("index", F.lit(-1)).alias("index"))
    lows = index.select(F.col("node_id").alias("low"), F.col("index").alias("u"))
    highs = index.select(F.col("node_id").alias("high"), F.col("index").alias("v"))
    is_unknown = F.col("u").isNull() | F.col("v").isNull()
    joined, unknown = _observed(
        proper.join(lows, "low", "left").join(highs, "high", "left"),
        F.count_if(is_unknown).alias("unknown"),
        F.max(F.when(is_unknown, F.struct("low", "high"))).alias("example"),
    )
    kept = ["u", "v", *(["weight"] if is_weighted else [])]
    frame = cut_lineage(joined.filter("u >= 0 and v >= 0").select(*kept))
    cleaning = _checked_cleaning(counts.get, is_weighted=is_weighted)
    _check_known(unknown.get)
    return IndexedEdges(frame, frame.count(), is_weighted, cleaning)


def both_directions(edges: "DataFrame") -> "DataFrame":
    """Return each edge ``u``, ``v`` also as ``v``, ``u``."""
    one, other = F.struct("u", "v"), F.struct(F.col("v").alias("u"), F.col("u").alias("v"))
    return edges.select(F.inline(F.array(one, other)))


def merge_edges(edges: "DataFrame", survivors: "DataFrame", edge_weights: str) -> "DataFrame":
    """Return the edges of the reduced graph, each once, as ``source`` < ``target`` and perhaps ``weight``.

    Args:
        edges: ``u``, ``v`` and perhaps ``weight``.
        survivors: ``index`` and ``survivor_id``, for the nodes that have one.
        edge_weights: ``none``, ``count`` or ``sum``, as in the config.
    """
    by_u = edges.join(survivors.select(F.col("index").alias("u"), F.col("survivor_id").alias("a")), "u")
    ends = by_u.join(survivors.select(F.col("index").alias("v"), F.col("survivor_id").alias("b")), "v")
    merged = ends.filter(F.col("a") != F.col("b")).select(
        F.least("a", "b").alias("source"),
        F.greatest("a", "b").alias("target"),
        F.col("weight") if edge_weights == "sum" and "weight" in edges.columns else F.lit(1.0).alias("weight"),
    )
    if edge_weights == "none":
        return merged.select("source", "target").distinct()
    return merged.groupBy("source", "target").agg(F.sum("weight").alias("weight"))


def _named_columns(edges: "DataFrame") -> "tuple[DataFrame, bool]":
    """Return the edges with the columns source, target and weight, and whether the weight is theirs."""
    types = dict(edges.dtypes)
    ends = next((pair for pair in (("source", "target"), ("src", "dst")) if set(pair) <= set(types)), None)
    if ends is None or any(types[name] not in WHOLE_TYPES for name in ends):
        columns = ", ".join(f"{name} ({kind})" for name, kind in types.items())
        msg = f"edges must have columns source and target (or src and dst) of whole numbers, got {columns}."
        raise GraphError(msg)
    weight = next((name for name in ("weight", "edge_weight") if name in types), None)
    return edges.select(
        F.col(ends[0]).cast("bigint").alias("source"),
        F.col(ends[1]).cast("bigint").alias("target"),
        (F.lit(1.0) if weight is None else F.col(weight).cast("double")).alias("weight"),
    ), weight is not None


def _group_pairs(named: "DataFrame") -> "DataFrame":
    """Return what there is of each pair in each direction; self-loops and missing ids make groups of their own."""
    is_forward = F.col("source") < F.col("target")
    low, high = F.least("source", "target").alias("low"), F.greatest("source", "target").alias("high")
    return named.groupBy(low, high).agg(
        F.count_if(is_forward).alias("forward"),
        F.count_if(~is_forward).alias("backward"),
        F.sum(F.when(is_forward, F.col("weight")).otherwise(0.0)).alias("weight_forward"),
        F.sum(F.when(is_forward, 0.0).otherwise(F.col("weight"))).alias("weight_backward"),
        F.count_if(F.col("source").isNull() | F.col("target").isNull()).alias("missing"),
        F.count_if(~F.coalesce(F.col("weight").between(0.0, _LARGEST_WEIGHT), F.lit(False))).alias("bad_weights"),
    )


def _cleaning_counts() -> "list[Column]":
    forward, backward = F.col("forward"), F.col("backward")
    is_proper = F.col("low") < F.col("high")
    is_two_way = is_proper & (forward > 0) & (backward > 0)
    repeats = F.greatest(forward - 1, F.lit(0)) + F.greatest(backward - 1, F.lit(0))
    gap = F.abs(F.col("weight_forward") - F.col("weight_backward"))
    is_clash = is_two_way & ~(gap <= _WEIGHT_TOLERANCE * F.greatest("weight_forward", "weight_backward"))
    return [
        F.sum(F.when(F.col("low") == F.col("high"), backward)).alias("loops"),
        F.sum("missing").alias("missing"),
        F.sum("bad_weights").alias("bad_weights"),
        F.sum(F.when(is_proper, repeats)).alias("repeats"),
        F.count_if(is_two_way).alias("two_way"),
        F.count_if(is_proper).alias("pairs"),
        F.max(F.when(is_clash, F.struct("low", "high"))).alias("clash"),
    ]


def _observed(frame: "DataFrame", *columns: "Column") -> "tuple[DataFrame, Any]":
    """Return the frame and what will count its rows as the next job computes them, at no pass of its own."""
    observation = require("pyspark.sql", "spark").Observation()
    return frame.observe(observation, *columns), observation


def _checked_cleaning(found: dict[str, Any], *, is_weighted: bool) -> EdgeCleaning:
    counts = {name: int(found[name] or 0) for name in found if name != "clash"}
    if counts["missing"] or counts["bad_weights"]:
        msg = (
            f"edges must have both ids and finite weights >= 0 in every row; {counts['missing']} rows lack an id and "
            f"{counts['bad_weights']} have another weight. Drop or mend them."
        )
        raise GraphError(msg)
    if is_weighted and found["clash"] is not None:
        low, high = found["clash"]
        msg = (
            f"edge_weight must be equal in both directions of an edge, but ({low}, {high}) and its reverse differ. "
            "Average the two, or list each pair once."
        )
        raise GraphError(msg)
    num_one_way = counts["pairs"] - counts["two_way"]
    cleaning = EdgeCleaning(counts["loops"], counts["repeats"], num_one_way, counts["two_way"])
    tell_one_way(cleaning, "mixed", stacklevel=6)
    return cleaning


def _check_known(found: dict[str, Any]) -> None:
    if found["unknown"]:
        msg = (
            f"edges must join ids of the node table, but {found['unknown']} do not, for example "
            f"({found['example'][0]}, {found['example'][1]}). Add the missing nodes to it, or remove such edges."
        )
        raise GraphError(msg)
