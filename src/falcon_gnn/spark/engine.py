"""The collapse on Apache Spark, for graphs that one machine does not hold: tables in, tables out.

Given the same scores and clusters the result is the local engine's, node for node and edge for edge. Centralities are
those of the local engine up to rounding; clusters are MLlib's own.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from falcon_gnn.errors import OptionError
from falcon_gnn.reduction.budgets import resolve_budget
from falcon_gnn.reduction.config import CollapseConfig, with_options
from falcon_gnn.spark.attributes import survivor_rows
from falcon_gnn.spark.centrality import check_centrality, compute_centrality, fill_isolated, round_scores
from falcon_gnn.spark.clustering import cluster_nodes, without_gaps
from falcon_gnn.spark.contraction import DRIVER_ROWS, Contraction, Keys, contract
from falcon_gnn.spark.edges import merge_edges
from falcon_gnn.spark.frames import F, cut_lineage, open_session, read_frame, source_files, whole_path, write_text
from falcon_gnn.spark.input import (
    SparkInput,
    own_clusters,
    own_scores,
    protected_nodes,
    read_input,
)
from falcon_gnn.spark.report import make_notes, summarise
from falcon_gnn.spark.selection import rank_nodes, select_survivors, split_budgets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TABLES = ("nodes", "edges", "assignment")


@dataclass(frozen=True, eq=False)
class SparkCollapseResult:
    """A reduced graph as tables, in the node ids of the input.

    Attributes:
        nodes: The survivors' rows of the node table.
        edges: ``source`` < ``target``, each edge once, and ``weight`` where asked for.
        assignment: For every input node ``node_id`` and, in scope, ``survivor_id`` (the node it is part of; null where
            dropped or out of scope), ``cluster``, ``rank`` and ``centrality``.
        report: Before and after in figures, plain data.
        sources: The files that the input was read from; ``assignment`` reads them once more when it is used.
    """

    nodes: "DataFrame"
    edges: "DataFrame"
    assignment: "DataFrame"
    report: dict[str, Any]
    sources: tuple[str, ...] = ()

    def save(self, folder: str | Path) -> None:
        """Write ``nodes.parquet``, ``edges.parquet``, ``assignment.parquet`` and ``report.json`` under a folder.

        The folder may be any path that Spark writes to; ``falcon_gnn.load_graph`` reads a local one back. Existing
        tables are replaced. As Spark writes them, each table is a folder of part files.

        Raises:
            OptionError: If the folder is no path, or a table in it is part of the graph that was collapsed.
        """
        check_folder(self.nodes.sparkSession, folder, self.sources)
        root = str(folder).rstrip("/")
        for name in _TABLES:
            getattr(self, name).write.mode("overwrite").parquet(f"{root}/{name}.parquet")
        write_text(self.nodes.sparkSession, f"{root}/report.json", json.dumps(self.report, indent=2) + "\n")


def check_folder(spark: "SparkSession", folder: str | Path, sources: Iterable[str]) -> None:
    """Refuse a folder whose tables cannot be replaced by those of a result.

    Args:
        spark: The session.
        folder: As in :meth:`SparkCollapseResult.save`.
        sources: Files, or folders of part files, that the input is read from, with their storage.

    Raises:
        OptionError: If it is no path, or a table in it is part of the input.
    """
    if not isinstance(folder, str | Path) or not str(folder):
        msg = f"folder must be a path, got {folder!r}. '.' is this folder."
        raise OptionError(msg)
    root = str(folder).rstrip("/")
    for name in _TABLES:
        table = whole_path(spark, f"{root}/{name}.parquet")
        if any(f"{source}/".startswith(f"{table}/") for source in sources):
            msg = (
                f"folder must not hold the graph that is collapsed, got {root}, whose {name}.parquet would be "
                "replaced. Choose another folder."
            )
            raise OptionError(msg)


def collapse(
    nodes: "DataFrame | str | Path",
    edges: "DataFrame | str | Path",
    config: CollapseConfig,
    *,
    centrality: "DataFrame | None" = None,
    clusters: "DataFrame | None" = None,
    protect: "DataFrame | str | None" = None,
    spark: "SparkSession | None" = None,
    driver_rows: int = DRIVER_ROWS,
) -> SparkCollapseResult:
    """Return the graph collapsed to a node budget (Algorithm 1), computed by Spark.

    Args:
        nodes: Table with ``node_id`` and perhaps ``x``, ``y``, ``train_mask`` ..., or the path of its Parquet files.
        edges: Table with ``source``, ``target`` and perhaps ``weight``, likewise.
        config: The options; closeness and betweenness are refused, and so is ``merge="mean"``.
        centrality: Scores of the caller's own: ``node_id``, ``centrality``; taken as given.
        clusters: Clusters of the caller's own: ``node_id``, ``cluster``, whole numbers >= 0.
        protect: Nodes that are never removed: a table with ``node_id``, or the name of a true-or-false node column.
        spark: The session; by default the running one, or a new one.
        driver_rows: The contraction's state, two rows per edge that is left, goes to the driver from this size down.

    Returns:
        The reduced tables and the report.

    Raises:
        OptionError: If an option or a table is unusable; the message names it.
        BudgetError: If the budget is out of range or below the number of protected nodes.
        ConvergenceError: If PageRank or eigenvector centrality does not converge.
    """
    config = with_options(CollapseConfig, config, {}, "collapse").resolved()
    check_options(config, has_scores=centrality is not None)
    spark = spark or open_session()
    seconds: dict[str, float] = {}
    with _timed(seconds, "input"):
        tables = read_frame(nodes, spark, "nodes"), read_frame(edges, spark, "edges")
        given = read_input(*tables, config)
        protected = protected_nodes(given.scoped, protect)
        num_protected = protected.filter("is_protected").count()
        budget = resolve_budget(config.node_budget, given.num_nodes, num_protected)
    with _timed(seconds, "centrality"):
        scores, num_iterations = _score(given, config, centrality)
        ranked = scores.join(rank_nodes(scores, given.num_nodes, config.seed), "index").drop("phi")
    with _timed(seconds, "clustering"):
        found = _cluster(given, config, clusters)
        facts = cut_lineage(ranked.join(found, "index").join(protected, "index"))
    with _timed(seconds, "selection"):
        sizes, budgets = split_budgets(facts, budget - num_protected)
        selected = select_survivors(facts, sizes, budgets, str(config.selection), config.seed)
    with _timed(seconds, "contraction"):
        groups, contraction = _merge_nodes(given, selected, config, len(sizes), driver_rows)
    with _timed(seconds, "edges"):
        reduced_edges = cut_lineage(merge_edges(given.edges.frame, groups, str(config.edge_weights)))
        reduced_nodes = cut_lineage(survivor_rows(given.nodes, groups))
    summary = summarise(given, config, selected, reduced_nodes, reduced_edges)
    num_dropped = given.num_nodes - groups.count()
    report = {
        **summary,
        "notes": make_notes(given, config, summary["labels"], num_dropped, has_own_clusters=clusters is not None),
        "num_dropped": num_dropped,
        "num_iterations": num_iterations,
        "num_rounds": contraction.num_rounds,
        "num_driver_rows": contraction.num_driver_rows,
        "seconds": seconds,
    }
    sources = tuple(file for table in tables for file in source_files(table))
    return SparkCollapseResult(reduced_nodes, reduced_edges, _assignment(given, selected, groups), report, sources)


def check_options(config: CollapseConfig, *, has_scores: bool = False) -> None:
    """Refuse what this engine does not compute.

    Args:
        config: The options.
        has_scores: Whether the caller brings the centrality.

    Raises:
        OptionError: If the centrality or another option is for the local engine only.
    """
    if not has_scores:
        check_centrality(config.centrality)
    if config.selection == "herding":
        msg = "selection='herding' is not on the Spark engine, got it there. Use engine='local', or another selection."
        raise OptionError(msg)
    if config.groups == "alike":
        msg = "groups='alike' is not on the Spark engine yet, got it there. Use engine='local', or groups='neighbors'."
        raise OptionError(msg)
    if config.soft_labels > 0:
        msg = (
            f"soft_labels is not on the Spark engine, got {config.soft_labels!r} there. Use engine='local', or leave "
            "it out."
        )
        raise OptionError(msg)
    if config.merge == "mean":
        msg = (
            "merge='mean' is not computed by the Spark engine, which keeps the survivors' own rows. Use merge='hub', "
            "and average by survivor_id with the assignment."
        )
        raise OptionError(msg)


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = perf_counter()
    yield
    seconds[stage] = perf_counter() - start


def _score(given: SparkInput, config: CollapseConfig, centrality: "DataFrame | None") -> "tuple[DataFrame, int]":
    """Return ``index``, ``centrality`` and ``phi``, the value that ranks, of the nodes in scope; and the iterations."""
    if centrality is not None:
        return own_scores(given.scoped, centrality), 0
    size = given.edges.num_edges, given.num_nodes
    scores, num_iterations = compute_centrality(config.centrality, given.edges.frame, *size, config.seed)
    return round_scores(cut_lineage(fill_isolated(given.scoped.select("index"), scores))), num_iterations


def _cluster(given: SparkInput, config: CollapseConfig, clusters: "DataFrame | None") -> "DataFrame":
    if clusters is None:
        return cluster_nodes(given.scoped, given.columns, given.labels, config)
    return without_gaps(own_clusters(given.scoped, clusters))[0]


def _merge_nodes(
    given: SparkInput, selected: "DataFrame", config: CollapseConfig, num_clusters: int, driver_rows: int
) -> tuple["DataFrame", Contraction]:
    """Return ``index``, ``survivor_id`` of the nodes that a survivor stands for, stored."""
    named = selected.join(given.scoped.select("index", "node_id"), "index")
    own = named.filter("survives").select("index", F.col("node_id").alias("survivor_id"))
    if config.merge == "drop":
        return cut_lineage(own), Contraction(own, 0, 0)
    by_cluster = config.order == "cluster"
    keys = Keys.for_sizes(given.num_nodes, num_clusters if by_cluster else 1)
    turn = keys.turn(F.col("cluster") if by_cluster else F.lit(0).cast("bigint"), F.col("rank"))
    key = F.when(F.col("survives"), -1 - F.col("rank")).otherwise(turn)
    keyed = cut_lineage(named.select("index", "node_id", key.alias("key")))
    contraction = contract(given.edges.frame, keyed.select("index", "key"), keys, driver_rows)
    survivors = keyed.select(F.col("key").alias("other"), F.col("node_id").alias("survivor_id"))
    owners = keyed.select(F.col("key").alias("owner"), "index")
    moved = contraction.merges.join(survivors, "other").join(owners, "owner").select("index", "survivor_id")
    return cut_lineage(own.unionAll(moved)), contraction


def _assignment(given: SparkInput, selected: "DataFrame", groups: "DataFrame") -> "DataFrame":
    facts = selected.join(groups, "index", "left").join(given.scoped.select("index", "node_id"), "index")
    facts = facts.select("node_id", "survivor_id", "cluster", "rank", "centrality")
    return given.nodes.select("node_id").join(facts, "node_id", "left")
