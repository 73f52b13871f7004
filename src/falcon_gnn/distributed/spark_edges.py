"""The edge table made a clean undirected graph, and the reduced graph's edges."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from falcon_gnn.adjacency import EdgeCleaning
from falcon_gnn.distributed.spark_frames import F, cut_lineage
from falcon_gnn.errors import FalconWarning, GraphError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WEIGHT_TOLERANCE = 1e-6
_LARGEST_WEIGHT = 1.7e308
_WHOLE_TYPES = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class CleanEdges:
    """The undirected edges of the input.

    Attributes:
        frame: Columns ``source`` < ``target`` (node ids) and, where weighted, ``weight``; each edge once.
        is_weighted: Whether there is a weight.
        cleaning: What the table needed.
    """

    frame: "DataFrame"
    is_weighted: bool
    cleaning: EdgeCleaning


def clean_edges(edges: "DataFrame") -> CleanEdges:
    """Return the edges without self-loops, duplicates or direction, by the rules of the local engine.

    Args:
        edges: Columns ``source`` and ``target`` (or ``src`` and ``dst``) and perhaps ``weight`` (or ``edge_weight``).

    Raises:
        GraphError: If a column or an id is missing, a weight is negative or not finite, or the two directions of a pair
            differ in weight.
    """
    named, is_weighted = _named_columns(edges)
    is_forward = F.col("source") < F.col("target")
    # Loops and missing ids stay in as groups of their own, so that one pass over the input counts everything.
    pairs = cut_lineage(
        named.groupBy(F.least("source", "target").alias("low"), F.greatest("source", "target").alias("high")).agg(
            F.count_if(is_forward).alias("forward"),
            F.count_if(~is_forward).alias("backward"),
            F.sum(F.when(is_forward, F.col("weight")).otherwise(0.0)).alias("weight_forward"),
            F.sum(F.when(is_forward, 0.0).otherwise(F.col("weight"))).alias("weight_backward"),
            F.count_if(F.col("source").isNull() | F.col("target").isNull()).alias("missing"),
            F.count_if(~F.coalesce(F.col("weight").between(0.0, _LARGEST_WEIGHT), F.lit(False))).alias("bad_weights"),
        )
    )
    cleaning = _count_cleaning(pairs)
    proper = pairs.filter(F.col("low") < F.col("high"))
    if is_weighted:
        _check_weights_agree(proper)
    weight = F.when(F.col("forward") > 0, F.col("weight_forward")).otherwise(F.col("weight_backward"))
    ends = [F.col("low").alias("source"), F.col("high").alias("target")]
    frame = proper.select(*ends, *([weight.alias("weight")] if is_weighted else []))
    return CleanEdges(frame, is_weighted, cleaning)


def index_edges(edges: CleanEdges, nodes: "DataFrame", scoped: "DataFrame") -> "tuple[DataFrame, int]":
    """Return the edges among the nodes in scope as ``u`` < ``v``, positions of the scope, stored; and their number.

    Args:
        edges: The clean edges.
        nodes: All nodes, with ``node_id``.
        scoped: The nodes in scope, with ``node_id`` and ``index``.

    Raises:
        GraphError: If an edge leads to an id that the node table lacks.
    """
    index = nodes.select("node_id").join(scoped.select("node_id", "index"), "node_id", "left")
    index = index.select("node_id", F.coalesce("index", F.lit(-1)).alias("index"))
    sources = index.select(F.col("node_id").alias("source"), F.col("index").alias("u"))
    targets = index.select(F.col("node_id").alias("target"), F.col("index").alias("v"))
    stored = cut_lineage(edges.frame.join(sources, "source", "left").join(targets, "target", "left"))
    is_unknown = F.col("u").isNull() | F.col("v").isNull()
    is_inside = (F.col("u") >= 0) & (F.col("v") >= 0)
    counts = stored.agg(F.count_if(is_unknown).alias("unknown"), F.count_if(is_inside).alias("inside")).first()
    assert counts is not None
    if counts["unknown"]:
        example = stored.filter(is_unknown).first()
        assert example is not None
        msg = (
            f"edges must join ids of the node table, but {counts['unknown']} do not, for example ({example['source']}, "
            f"{example['target']}). Add the missing nodes to it, or remove such edges."
        )
        raise GraphError(msg)
    kept = ["u", "v", *(["weight"] if edges.is_weighted else [])]
    return stored.filter(is_inside).select(*kept), int(counts["inside"])


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
    if ends is None or any(types[name] not in _WHOLE_TYPES for name in ends):
        columns = ", ".join(f"{name} ({kind})" for name, kind in types.items())
        msg = f"edges must have columns source and target (or src and dst) of whole numbers, got {columns}."
        raise GraphError(msg)
    weight = next((name for name in ("weight", "edge_weight") if name in types), None)
    return edges.select(
        F.col(ends[0]).cast("bigint").alias("source"),
        F.col(ends[1]).cast("bigint").alias("target"),
        (F.lit(1.0) if weight is None else F.col(weight).cast("double")).alias("weight"),
    ), weight is not None


def _count_cleaning(pairs: "DataFrame") -> EdgeCleaning:
    forward, backward = F.col("forward"), F.col("backward")
    is_proper = F.col("low") < F.col("high")
    is_two_way = is_proper & (forward > 0) & (backward > 0)
    repeats = F.greatest(forward - 1, F.lit(0)) + F.greatest(backward - 1, F.lit(0))
    totals = pairs.agg(
        F.sum(F.when(F.col("low") == F.col("high"), backward)).alias("loops"),
        F.sum("missing").alias("missing"),
        F.sum("bad_weights").alias("bad_weights"),
        F.sum(F.when(is_proper, repeats)).alias("repeats"),
        F.count_if(is_two_way).alias("two_way"),
        F.count_if(is_proper).alias("pairs"),
    ).first()
    assert totals is not None
    found = {name: int(value or 0) for name, value in totals.asDict().items()}
    if found["missing"] or found["bad_weights"]:
        msg = (
            f"edges must have both ids and finite weights >= 0 in every row; {found['missing']} rows lack an id and "
            f"{found['bad_weights']} have another weight. Drop or mend them."
        )
        raise GraphError(msg)
    num_one_way = found["pairs"] - found["two_way"]
    if num_one_way and found["two_way"]:
        msg = (
            f"symmetrised: {num_one_way} edges had no reverse and {found['two_way']} had one; the graph is used "
            "as undirected, so each missing reverse was added."
        )
        warnings.warn(msg, FalconWarning, stacklevel=5)
    return EdgeCleaning(found["loops"], found["repeats"], num_one_way, found["two_way"])


def _check_weights_agree(pairs: "DataFrame") -> None:
    gap = F.abs(F.col("weight_forward") - F.col("weight_backward"))
    is_two_way = (F.col("forward") > 0) & (F.col("backward") > 0)
    largest = F.greatest("weight_forward", "weight_backward")
    clash = pairs.filter(is_two_way & ~(gap <= _WEIGHT_TOLERANCE * largest)).first()
    if clash is not None:
        msg = (
            f"edge_weight must be equal in both directions of an edge, but ({clash['low']}, {clash['high']}) and its "
            "reverse differ. Average the two, or list each pair once."
        )
        raise GraphError(msg)
