"""The contraction in parallel rounds, exact for any order, and its end on the driver (Alg. 1, lines 6 to 13).

A node that is to be removed is ready when all its neighbors that are still to be removed come later in the order. Ready
nodes are no neighbors of each other, and whatever they merge into, no other ready node's strongest neighbor changes:
all of them merge in one round, and the rounds end where the sequential algorithm ends.

Nodes are named by keys that tell all that a round asks. The key of a node to be removed is its turn and holds its rank
(:class:`Keys`); a survivor's is -1 - rank. Only edges at nodes to be removed are kept, and of a node's surviving
neighbors only the strongest. The state is a frame of rows ``owner``, ``other``, ``kind``, stored by owner.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.adjacency import build_adjacency, split_edges
from falcon_gnn.errors import OptionError, require
from falcon_gnn.reduction.contraction import merge_into_neighbors
from falcon_gnn.spark.frames import (
    F,
    count_partitions,
    cut_lineage,
    fixed_partitions,
    union_all,
    upload_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROUNDS_PER_JOB = 4
DRIVER_ROWS = 4_000_000
"""From so few rows of the state on (two per edge), the driver finishes alone."""
_EDGE, _GONE, _MERGED = 0, 1, 2
"""Kinds of rows; those of a merge grow by one each round, so that a job's rounds can be told apart."""
_MAX_BITS = 62


@dataclass(frozen=True)
class Keys:
    """How turn and rank of a node share one 64-bit number.

    Attributes:
        rank_bits: Bits of the rank.
        group_bits: Bits of the group: the cluster where clusters are merged one after the other, else 0.

    The turn ``group << rank_bits | rank`` orders removals; the strength ``rank << group_bits | group`` orders ranks.
    """

    rank_bits: int
    group_bits: int

    @classmethod
    def for_sizes(cls, num_nodes: int, num_groups: int) -> "Keys":
        """Return keys wide enough for so many nodes and groups.

        Raises:
            OptionError: If they do not fit 62 bits.
        """
        keys = cls(max(num_nodes - 1, 1).bit_length(), max(num_groups - 1, 0).bit_length())
        if keys.rank_bits + keys.group_bits > _MAX_BITS:
            msg = f"{num_nodes} nodes in {num_groups} clusters need more than {_MAX_BITS} bits. Use fewer clusters."
            raise OptionError(msg)
        return keys

    def turn(self, group: "Column", rank: "Column") -> "Column":
        """Return the key of a node to be removed."""
        return F.shiftleft(group, self.rank_bits).bitwiseOR(rank)

    def rank(self, key: "Column") -> "Column":
        """Return the rank that a key of either kind holds."""
        return F.when(key < 0, -1 - key).otherwise(key.bitwiseAND(F.lit((1 << self.rank_bits) - 1)))

    def strength(self, turn: "Column") -> "Column":
        """Return the number that orders turns by rank."""
        return F.shiftleft(self.rank(turn), self.group_bits).bitwiseOR(F.shiftright(turn, self.rank_bits))

    def turn_of(self, strength: "Column") -> "Column":
        """Return the turn behind a strength."""
        group = strength.bitwiseAND(F.lit((1 << self.group_bits) - 1))
        return self.turn(group, F.shiftright(strength, self.group_bits))


@dataclass(frozen=True)
class Contraction:
    """Where the removed nodes went.

    Attributes:
        merges: ``owner`` (key of a removed node) and ``other`` (key of its survivor); without the dropped nodes.
        num_rounds: Rounds in which a node was merged.
        num_driver_rows: Rows of the state that the driver finished.
    """

    merges: "DataFrame"
    num_rounds: int
    num_driver_rows: int


def contract(edges: "DataFrame", keyed: "DataFrame", keys: Keys, driver_rows: int = DRIVER_ROWS) -> Contraction:
    """Merge each node to be removed into its strongest current neighbor, in the order of the turns.

    Args:
        edges: ``u``, ``v``, each edge once.
        keyed: ``index`` and ``key`` of all nodes in scope.
        keys: How the keys were made.
        driver_rows: Largest state that the driver takes over; 0 runs every round in Spark.
    """
    spark = edges.sparkSession
    state, num_rows = _initial_state(edges, keyed)
    columns = _Round.with_keys(keys)
    done = []
    num_rounds = 0
    while num_rows > driver_rows:
        with fixed_partitions(spark, count_partitions(spark, num_rows)):
            current = state
            for _ in range(ROUNDS_PER_JOB):
                current = _run_round(current, columns)
            current = cut_lineage(current)
        kinds = {row["kind"]: row["count"] for row in current.groupBy("kind").count().collect()}
        num_rows = kinds.pop(_EDGE, 0)
        num_rounds += len(kinds)
        done.append(current.filter(F.col("kind") >= _MERGED).select("owner", "other"))
        state = current.filter(F.col("kind") == _EDGE)
    if num_rows or not done:
        done.append(_finish_on_driver(state, keys))
    return Contraction(_follow_merges(union_all(done)), num_rounds, num_rows)


def _initial_state(edges: "DataFrame", keyed: "DataFrame") -> "tuple[DataFrame, int]":
    """Return the edges at nodes to be removed, survivors folded into the strongest, and the number of rows."""
    by_u = edges.join(keyed.select(F.col("index").alias("u"), F.col("key").alias("a")), "u")
    ends = by_u.join(keyed.select(F.col("index").alias("v"), F.col("key").alias("b")), "v").select("a", "b")
    sides = ends.select(F.inline(F.array(_row("a", "b", _EDGE), _row("b", "a", _EDGE)))).filter("owner >= 0")
    among = sides.filter("other >= 0")
    strongest = sides.filter("other < 0").groupBy("owner").agg(F.min("other").alias("other"))
    state = cut_lineage(among.unionByName(strongest.withColumn("kind", F.lit(_EDGE))))
    return state, state.count()


@dataclass(frozen=True)
class _Round:
    """The columns of the three steps of a round; the same for all rounds, so they are made once.

    Attributes:
        seen: A row, and its owner's first neighbor to go, strongest neighbor to go and strongest surviving neighbor.
        decided: A row, and what its owner merges into if it is ready; whether this row is the one to tell of it.
        told: The rows that a row becomes.
    """

    seen: "list[Column]"
    decided: "list[Column]"
    told: "Column"

    @classmethod
    def with_keys(cls, keys: Keys) -> "_Round":
        """Return the columns for keys of some width."""
        window = require("pyspark.sql.window", "spark").Window.partitionBy("owner")
        row = [F.col("owner"), F.col("other"), F.col("kind")]
        owner, other, kind = row
        is_edge = kind == _EDGE
        leads_on = is_edge & (other >= 0)
        seen = [
            F.min(F.when(leads_on, other)).over(window).alias("first"),
            F.max(F.when(leads_on, keys.strength(other))).over(window).alias("strongest"),
            F.min(F.when(is_edge & (other < 0), other)).over(window).alias("survivor"),
        ]
        is_ready = is_edge & (F.col("first").isNull() | (F.col("first") > owner))
        is_herald = other == F.coalesce("first", "survivor")
        target = F.when(is_ready, _target(keys)).alias("target")
        decided = [F.col("survivor"), target, is_herald.alias("is_herald")]
        return cls([*row, *seen], [*row, *decided], F.inline(_messages()))


def _run_round(state: "DataFrame", columns: _Round) -> "DataFrame":
    """Return the state after one round; the rows of earlier merges pass through, one kind older.

    One sort by owner and one shuffle. A hub's rows are read from disk if they do not fit the memory of a task.
    """
    decided = state.repartition("owner").select(*columns.seen).select(*columns.decided)
    rows = decided.select(columns.told).groupBy("owner", "other").agg(F.max("kind").alias("kind"))
    return rows.filter(F.col("kind") != _GONE)


def _target(keys: Keys) -> "Column":
    """Return the key of a node's strongest neighbor."""
    survivor, strongest = F.col("survivor"), F.col("strongest")
    is_survivor_stronger = (-1 - survivor) > F.shiftright(strongest, keys.group_bits)
    takes_survivor = survivor.isNotNull() & (strongest.isNull() | is_survivor_stronger)
    return F.when(takes_survivor, survivor).otherwise(keys.turn_of(strongest))


def _messages() -> "Column":
    """Return the rows that a row becomes: itself, or what a merged node tells its neighbors and its target."""
    other, target, kind = F.col("other"), F.col("target"), F.col("kind")
    nothing = F.array().cast("array<struct<owner:bigint,other:bigint,kind:int>>")
    age = F.when(kind >= _MERGED, kind + 1).otherwise(kind)
    itself = F.array(F.struct("owner", "other", age.alias("kind")))
    gone = F.array(_row("other", "owner", _GONE))
    linked = F.array(_row("other", "target", _EDGE))
    linked_back = F.array(_row("target", "other", _EDGE))
    is_passed_over = (other < 0) & (other != F.col("survivor"))
    neighbor = F.when(other == target, gone).when(target < 0, F.concat(gone, linked))
    neighbor = neighbor.otherwise(F.concat(gone, linked, linked_back))
    told = F.when(other >= 0, neighbor).when((target >= 0) & ~is_passed_over, linked_back).otherwise(nothing)
    herald = F.when(F.col("is_herald"), F.array(_row("owner", "target", _MERGED))).otherwise(nothing)
    stays = F.when((kind == _EDGE) & is_passed_over, nothing).otherwise(itself)
    return F.when(target.isNull(), stays).otherwise(F.concat(told, herald))


def _row(owner: str, other: str, kind: int) -> "Column":
    return F.struct(F.col(owner).alias("owner"), F.col(other).alias("other"), F.lit(kind).alias("kind"))


def _finish_on_driver(state: "DataFrame", keys: Keys) -> "DataFrame":
    """Return the merges of all that is left, by the local kernel."""
    table = state.select("owner", "other").toArrow()
    owner, other = (table.column(name).to_numpy() for name in ("owner", "other"))
    turns = np.unique(owner)
    survivors = np.unique(other[other < 0])
    known = np.concatenate([turns, survivors])
    by_key = np.argsort(known)
    ends = np.stack([by_key[np.searchsorted(known[by_key], end)] for end in (owner, other)])
    rank: NDArray[np.int64] = np.where(known < 0, -1 - known, known & ((1 << keys.rank_bits) - 1))
    targets = np.zeros(0, np.int64)
    if len(turns):
        adjacency = build_adjacency(split_edges(ends), len(known))
        place = np.empty_like(rank)
        place[np.argsort(rank)] = np.arange(len(rank))
        targets = merge_into_neighbors(adjacency.indptr, adjacency.indices, np.arange(len(turns)), place)[: len(turns)]
    return upload_columns(state.sparkSession, {"owner": turns[targets >= 0], "other": known[targets[targets >= 0]]})


def _follow_merges(merges: "DataFrame") -> "DataFrame":
    """Return each removed node's survivor, by doubling the length of the jumps; nodes that lead nowhere fall out."""
    jumps = cut_lineage(merges)
    while jumps.filter("other >= 0").first() is not None:
        ahead = jumps.select(F.col("owner").alias("other"), F.col("other").alias("beyond"))
        onward = jumps.filter("other >= 0").join(ahead, "other").select("owner", F.col("beyond").alias("other"))
        jumps = cut_lineage(jumps.filter("other < 0").unionAll(onward))
    return jumps
