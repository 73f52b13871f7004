"""The total order of the nodes, the budget of each cluster and the survivors (Alg. 1, lines 5 to 9), in Spark."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.reduction.budgets import split_budget
from falcon_gnn.spark.frames import F, cut_lineage, number_rows, seeded_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def rank_nodes(scores: "DataFrame", num_nodes: int, seed: int) -> "DataFrame":
    """Return ``index``, ``rank``: the position by ``phi``, ties by the permutation that the local engine draws.

    Args:
        scores: ``index`` and ``phi`` of all nodes in scope.
        num_nodes: N in scope.
        seed: Draws the permutation.
    """
    ties = seeded_column(scores.sparkSession, np.random.default_rng(seed).permutation(num_nodes), "tie")
    # Adding 0 turns -0.0 into 0.0, which must tie; a whole 0 leaves whole numbers what they are.
    keyed = scores.select("index", (F.col("phi") + 0).alias("phi")).join(ties, "index")
    return number_rows(keyed, ["phi", "tie"], "rank").select("index", "rank")


def split_budgets(nodes: "DataFrame", node_budget: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (nodes, survivors) per cluster among the nodes that are not protected; exact, on the driver.

    Args:
        nodes: ``cluster`` and ``is_protected``.
        node_budget: Survivors wanted among the nodes that are not protected.
    """
    free = F.sum((~F.col("is_protected")).cast("bigint")).alias("free")
    counts = nodes.groupBy("cluster").agg(free).collect()
    sizes = np.zeros(max(row["cluster"] for row in counts) + 1, np.int64)
    for row in counts:
        sizes[row["cluster"]] = row["free"]
    return sizes, split_budget(sizes, node_budget)


def select_survivors(
    nodes: "DataFrame", sizes: NDArray[np.int64], budgets: NDArray[np.int64], selection: str, seed: int
) -> "DataFrame":
    """Return the nodes with ``survives``, stored.

    Every cluster's nodes are numbered in one sort by cluster and rank (or, for ``random``, a seeded permutation),
    however large a cluster is; a node's place in its cluster then says whether it stays.

    Args:
        nodes: ``index``, ``rank``, ``cluster``, ``is_protected``.
        sizes: Nodes per cluster that are not protected, shape ``(num_clusters,)``.
        budgets: Survivors among them per cluster, shape ``(num_clusters,)``.
        selection: ``lowest``, ``stratified`` or ``random``.
        seed: Draws the sample of ``random``.
    """
    spark = nodes.sparkSession
    free = nodes.filter(~F.col("is_protected")).select("index", "cluster", F.col("rank").alias("key"))
    if selection == "random":
        drawn = np.random.default_rng([seed, 4]).permutation(nodes.count())
        free = free.drop("key").join(seeded_column(spark, drawn, "key"), "index")
    first = np.cumsum(sizes) - sizes
    rows = [(i, int(first[i]), int(sizes[i]), int(budgets[i])) for i in range(len(sizes))]
    facts = spark.createDataFrame(rows, "cluster bigint, first bigint, size bigint, budget bigint")
    placed = number_rows(free, ["cluster", "key"], "place").join(F.broadcast(facts), "cluster")
    position = F.col("place") - F.col("first")
    keep = position >= F.col("size") - F.col("budget")
    if selection == "stratified":
        keep = _count_strata(position + 1) > _count_strata(position)
    chosen = placed.select("index", keep.alias("is_chosen"))
    survives = F.col("is_protected") | F.coalesce("is_chosen", F.lit(False))
    return cut_lineage(nodes.join(chosen, "index", "left").withColumn("survives", survives).drop("is_chosen"))


def _count_strata(position: "Column") -> "Column":
    """Return how many j have ((2j + 1)·size) // (2·budget) below ``position``: as the local engine, in integers."""
    size, budget = F.col("size"), F.col("budget")
    return F.least(F.call_function("div", 2 * budget * position + size - 1, 2 * size), budget)
