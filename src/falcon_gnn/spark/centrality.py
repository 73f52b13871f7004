"""Degree, PageRank and eigenvector centrality in Spark: the scales and stop rules of the local engine."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from falcon_gnn.errors import ConvergenceError, OptionError
from falcon_gnn.reduction.centrality import (
    DAMPING,
    EIGENVECTOR_ITERATIONS,
    EIGENVECTOR_TOLERANCE,
    PAGERANK_ITERATIONS,
    PAGERANK_TOLERANCE,
    SIGNIFICANT_DIGITS,
    ZERO_SHARE,
    is_converged,
)
from falcon_gnn.spark.edges import both_directions
from falcon_gnn.spark.frames import F, count_partitions, cut_lineage, fixed_partitions, seeded_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SPARK_CENTRALITIES = ("degree", "pagerank", "eigenvector", "random")
STEPS_PER_JOB = 4
_COLUMNS = tuple(f"x{step}" for step in range(STEPS_PER_JOB + 1))
_LARGEST_NORM = 1e100


def check_centrality(name: str) -> None:
    """Refuse the centralities that need a search from each source.

    Raises:
        OptionError: If ``name`` is none of degree, pagerank, eigenvector and random.
    """
    if name not in SPARK_CENTRALITIES:
        msg = (
            f"centrality must be one of {', '.join(SPARK_CENTRALITIES)} for the Spark engine, got {name!r}, which "
            "searches the graph from many sources. Pass scores as centrality=DataFrame(node_id, centrality), or use "
            "the local engine."
        )
        raise OptionError(msg)


def compute_centrality(
    name: str, edges: "DataFrame", num_edges: int, num_nodes: int, seed: int
) -> "tuple[DataFrame, int]":
    """Return the scores of all nodes in scope and the number of iterations.

    Args:
        name: ``degree``, ``pagerank``, ``eigenvector`` or ``random``.
        edges: ``u``, ``v``, each edge once.
        num_edges: E in scope.
        num_nodes: N in scope.
        seed: Draws the scores of ``random``.

    Returns:
        A frame ``index``, ``centrality`` and how many products with the adjacency it took. Nodes without an edge are
        left out where they all have the same score: the frame's row of ``index`` -1 holds it.

    Raises:
        ConvergenceError: If an iteration does not reach its tolerance.
    """
    spark = edges.sparkSession
    if name == "random":
        return seeded_column(spark, np.random.default_rng([seed, 1]).random(num_nodes), "centrality"), 0
    if name == "degree":
        return _with_isolated(
            _degrees(edges).select("index", _degree_score(num_nodes)), 0.0 if num_nodes > 1 else 1.0
        ), 0
    with fixed_partitions(spark, count_partitions(spark, 2 * num_edges)):
        degrees = cut_lineage(_degrees(edges).repartition("index"))
        selves = degrees.select(F.col("index").alias("u"), F.col("index").alias("v"))
        links = both_directions(edges).unionByName(selves).repartition("u").sortWithinPartitions("u")
        kind = _PageRank if name == "pagerank" else _Eigenvector
        return _iterate(kind(num_nodes, degrees.count()), cut_lineage(links), degrees)


def fill_isolated(nodes: "DataFrame", scores: "DataFrame") -> "DataFrame":
    """Return ``nodes`` with ``centrality`` from the frame of :func:`compute_centrality`."""
    rest = scores.filter(F.col("index") == -1).first()
    joined = nodes.join(scores.filter(F.col("index") >= 0), "index", "left")
    filled = F.coalesce("centrality", F.lit(None if rest is None else float(rest["centrality"])).cast("double"))
    return joined.withColumn("centrality", filled)


def round_scores(scores: "DataFrame") -> "DataFrame":
    """Return the frame with ``phi``: ``centrality`` to 10 significant digits, 0 below 1e-12 of the largest."""
    largest = scores.agg(F.max(F.abs("centrality"))).first()
    assert largest is not None
    value = F.col("centrality")
    scale = F.pow(F.lit(10.0), F.floor(F.log10(F.abs(value))) - (SIGNIFICANT_DIGITS - 1))
    is_zero = (F.abs(value) < ZERO_SHARE * (largest[0] or 0.0)) | (value == 0)
    return scores.withColumn("phi", F.when(is_zero, 0.0).otherwise(F.rint(value / scale) * scale))


class _PageRank:
    """x ← (1 - d + d·isolated mass) / N + d·Σ x_u / degree_u; ends at changes below 1e-11, but for rounding."""

    max_iterations = PAGERANK_ITERATIONS
    tolerance = PAGERANK_TOLERANCE

    def __init__(self, num_nodes: int, num_linked: int) -> None:
        self.num_nodes = num_nodes
        self.num_isolated = num_nodes - num_linked

    def is_done(self, step: int, first: float, change: float) -> bool:
        return is_converged(step, first, change, self.tolerance)

    def message(self, x: "Column") -> "Column":
        return x * (F.lit(DAMPING) / F.col("degree"))

    def next_value(self, received: "Column", _: "Column", next_alone: "Column") -> "Column":
        return next_alone + received

    def next_alone(self, alone: Any) -> Any:
        """Return the next value of a node without neighbors."""
        return (alone * (DAMPING * self.num_isolated) + (1 - DAMPING)) / self.num_nodes

    def norms(self, _: "DataFrame", alone: list[float]) -> list[float]:
        return [1.0] * len(alone)

    def finish(self, frame: "DataFrame", column: str, norm: float, alone: float) -> "DataFrame":
        total = self.num_isolated * alone + _sums(frame, [F.col(column)])[0]
        return _with_isolated(frame.select("index", F.col(column) / total), alone / total)


class _Eigenvector:
    """x ← (A + I) x over its length; stops at a sum of changes below N·1e-6. Lengths are divided out afterwards."""

    max_iterations = EIGENVECTOR_ITERATIONS

    def __init__(self, num_nodes: int, num_linked: int) -> None:
        self.num_nodes = num_nodes
        self.num_isolated = num_nodes - num_linked
        self.tolerance = num_nodes * EIGENVECTOR_TOLERANCE

    def is_done(self, _: int, __: float, change: float) -> bool:
        return change < self.tolerance

    def message(self, x: "Column") -> "Column":
        return x

    def next_value(self, received: "Column", x: "Column", _: "Column") -> "Column":
        return x + received

    def next_alone(self, alone: Any) -> Any:
        """Return the next value of a node without neighbors."""
        return alone

    def norms(self, frame: "DataFrame", alone: list[float]) -> list[float]:
        squares = _sums(frame, [F.col(name) * F.col(name) for name in _COLUMNS])
        return [float(np.sqrt(square + self.num_isolated * own**2)) for square, own in zip(squares, alone, strict=True)]

    def finish(self, frame: "DataFrame", column: str, norm: float, alone: float) -> "DataFrame":
        return _with_isolated(frame.select("index", F.col(column) / norm), alone / norm)


def _iterate(walk: Any, links: "DataFrame", degrees: "DataFrame") -> "tuple[DataFrame, int]":
    """Apply a walk's step until the sum of changes is below its tolerance, several steps per job.

    All isolated nodes hold one common value, ``alone``, which the driver follows too.
    """
    alone = [1 / walk.num_nodes]
    scores = degrees.withColumns({"alone": F.lit(alone[0]), _COLUMNS[0]: F.lit(alone[0])})
    first_norm, change, first = 1.0, np.inf, 0.0
    for start in range(0, walk.max_iterations, STEPS_PER_JOB):
        for step in range(STEPS_PER_JOB):
            scores = _step(walk, links, scores, step)
            alone.append(walk.next_alone(alone[-1]))
        scores = cut_lineage(scores)
        norms = [first_norm, *walk.norms(scores, alone)[1:]]
        changes = _changes(walk, scores, norms, alone)
        for step, change in enumerate(changes, 1):
            first = first or change
            if walk.is_done(start + step - 1, first, change):
                return walk.finish(scores, _COLUMNS[step], norms[step], alone[step]), start + step
        scores, alone, first_norm = _restart(scores, alone[-1], norms[-1])
    msg = (
        f"The centrality changes by {change:.3g} after {walk.max_iterations} iterations; the tolerance is "
        f"{walk.tolerance:.3g}. Use another centrality, for example degree."
    )
    raise ConvergenceError(msg)


def _step(walk: Any, links: "DataFrame", scores: "DataFrame", step: int) -> "DataFrame":
    """Return ``scores`` with one more iterate.

    ``links`` holds each node's link to itself, along which what is known of it travels: so ``scores`` is read once, and
    a chain of steps stays a chain. Sums are combined before the shuffle, which keeps a hub's links from one task.
    """
    known = ["degree", "alone", *_COLUMNS[: step + 1]]
    is_self = F.col("u") == F.col("v")
    sent = links.join(scores.withColumnRenamed("index", "u"), "u")
    received = sent.groupBy(F.col("v").alias("index")).agg(
        F.sum(F.when(~is_self, walk.message(F.col(_COLUMNS[step])))).alias("received"),
        *[F.max(F.when(is_self, F.col(name))).alias(name) for name in known],
    )
    following = walk.next_alone(F.col("alone"))
    value = walk.next_value(F.col("received"), F.col(_COLUMNS[step]), following)
    chosen = ["index", "degree", *_COLUMNS[: step + 1]]
    return received.select(*chosen, following.alias("alone"), value.alias(_COLUMNS[step + 1]))


def _changes(walk: Any, scores: "DataFrame", norms: list[float], alone: list[float]) -> list[float]:
    """Return the sum of absolute changes of each step, nodes without neighbors included."""
    scaled = [F.col(name) / norm for name, norm in zip(_COLUMNS, norms, strict=True)]
    linked = _sums(scores, [F.abs(new - old) for old, new in pairwise(scaled)])
    own = [value / norm for value, norm in zip(alone, norms, strict=True)]
    return [total + walk.num_isolated * abs(new - old) for total, (old, new) in zip(linked, pairwise(own), strict=True)]


def _restart(scores: "DataFrame", alone: float, norm: float) -> "tuple[DataFrame, list[float], float]":
    """Return the last iterate as the first of a new job; divided by its length only before it overflows.

    A number that differs from job to job would be compiled into each job's code.
    """
    last = F.col(_COLUMNS[-1])
    if norm < _LARGEST_NORM:
        return scores.select("index", "degree", "alone", last.alias(_COLUMNS[0])), [alone], norm
    shrunk = scores.select("index", "degree", (F.col("alone") / norm).alias("alone"), (last / norm).alias(_COLUMNS[0]))
    return shrunk, [alone / norm], 1.0


def _degrees(edges: "DataFrame") -> "DataFrame":
    """Return ``index``, ``degree`` of the nodes that have a neighbor."""
    ends = edges.select(F.explode(F.array("u", "v")).alias("index"))
    return ends.groupBy("index").agg(F.count(F.lit(1)).alias("degree"))


def _sums(frame: "DataFrame", columns: "list[Column]") -> list[float]:
    row = frame.agg(*[F.sum(column) for column in columns]).first()
    assert row is not None
    return [value or 0.0 for value in row]


def _degree_score(num_nodes: int) -> "Column":
    return F.col("degree") / F.lit(float(max(num_nodes - 1, 1)))


def _with_isolated(scores: "DataFrame", isolated: float) -> "DataFrame":
    spark = scores.sparkSession
    rest = spark.createDataFrame([(-1, float(isolated))], "index bigint, centrality double")
    return scores.toDF("index", "centrality").unionAll(rest)
