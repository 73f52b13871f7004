"""A graph cut into parts by METIS, the parts dealt to the batches of an epoch, and how large such batches are."""

import warnings
from dataclasses import astuple, dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import FalconWarning, MissingDependencyError
from falcon_gnn.graph import Graph

_NUM_RUNS = 64


def split_graph(graph: Graph, num_parts: int, seed: int = 0) -> list[NDArray[np.int64]]:
    """Return parts of about equal size with few edges between them; edge weights are not looked at.

    METIS crashes on an asymmetric adjacency, which a :class:`Graph` never has. A graph without edges is cut evenly,
    in a seeded order, without METIS.

    Args:
        graph: Any graph.
        num_parts: Parts wanted, >= 1; more than there are nodes, or than METIS can fill, are fewer with a warning.
        seed: Handed to METIS, whose k-way method, used above 8 parts, makes no use of it.

    Returns:
        Node ids of each part, ascending, none empty, together every node once.

    Raises:
        MissingDependencyError: If pymetis is not installed; the message says what to do where there is no wheel.
    """
    if num_parts > graph.num_nodes:
        msg = f"num_parts ({num_parts}) is above the number of nodes; each of the {graph.num_nodes} nodes is a part."
        warnings.warn(msg, FalconWarning, stacklevel=2)
    num_parts = min(num_parts, graph.num_nodes)
    if num_parts == 1:
        return [np.arange(graph.num_nodes)]
    if num_parts == graph.num_nodes or len(graph.indices) == 0:
        order = np.random.default_rng(seed).permutation(graph.num_nodes)
        return [np.sort(part) for part in np.array_split(order, num_parts)]
    membership = _run_metis(graph, num_parts, seed)
    order = np.argsort(membership, kind="stable")
    bounds = np.cumsum(np.bincount(membership, minlength=num_parts))[:-1]
    parts = [part for part in np.split(order, bounds) if part.size]
    if len(parts) < num_parts:
        msg = (
            f"METIS cut the graph into {len(parts)} parts, {num_parts} were asked for: some would have been empty. "
            f"Pass num_parts={len(parts)} or less."
        )
        warnings.warn(msg, FalconWarning, stacklevel=2)
    return parts


def epoch_generator(seed: int, epoch: int) -> np.random.Generator:
    """Return the generator of an epoch's batches; it depends on nothing else, so a resumed run draws the same."""
    return np.random.default_rng([seed, epoch])


def deal_parts(num_parts: int, num_batches: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Return the numbers of the parts in each batch of an epoch: a random order, dealt evenly.

    Args:
        num_parts: Parts to deal.
        num_batches: Batches; at most ``num_parts`` are made.
        seed: Seeds the order, together with ``epoch``.
        epoch: Which epoch, from 1.
    """
    order = epoch_generator(seed, epoch).permutation(num_parts)
    return np.array_split(order, min(num_batches, num_parts))


def join_parts(parts: list[NDArray[np.int64]], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the node ids of some parts, ascending."""
    return np.sort(np.concatenate([parts[part] for part in chosen]))


@dataclass(frozen=True)
class BatchSize:
    """What the memory of a training step on some nodes of a graph depends on.

    Attributes:
        num_nodes: Nodes of the batch.
        num_entries: Entries of Ã among them.
        num_targets: Labelled training nodes among them.
        halo_nodes: Nodes around them whose history is read.
        halo_entries: Entries of Ã from the batch to these.
        input_entries: Stored entries of their rows of ÃX where that is kept sparse, else 0.
        feature_entries: Likewise of X.
    """

    num_nodes: int
    num_entries: int
    num_targets: int
    halo_nodes: int = 0
    halo_entries: int = 0
    input_entries: int = 0
    feature_entries: int = 0

    @classmethod
    def largest(cls, sizes: "list[BatchSize]") -> "BatchSize":
        """Return the size that is, in every figure, the largest of some sizes."""
        return cls(*np.max([astuple(size) for size in sizes], axis=0).tolist())


@dataclass(frozen=True)
class DrawnBatch:
    """One of the batches that are trained on.

    Attributes:
        epoch: Its epoch, from 1.
        position: Its place among the batches of that epoch that have a target, from 0.
        size: How large it is.
    """

    epoch: int
    position: int
    size: BatchSize


class PartSizes:
    """Sizes of the batches that parts are dealt to, counted without building any of them.

    Args:
        graph: The graph that was cut.
        parts: Node ids of each part.
        is_target: Whether a node is a labelled training node, shape ``(N,)``.
        has_halo: Whether the nodes around a batch count (GAS).
        input_entries: Stored entries of each row of ÃX, shape ``(N,)``, where it is kept sparse.
        feature_entries: Likewise of X.
    """

    def __init__(
        self,
        graph: Graph,
        parts: list[NDArray[np.int64]],
        is_target: NDArray[np.bool_],
        *,
        has_halo: bool,
        input_entries: NDArray[np.int64] | None = None,
        feature_entries: NDArray[np.int64] | None = None,
    ) -> None:
        self.num_parts, self.part_of = len(parts), np.empty(graph.num_nodes, np.int64)
        for part, ids in enumerate(parts):
            self.part_of[ids] = part
        self.nodes = self._add_up(np.ones(graph.num_nodes, np.int64))
        self.targets, self.degrees = self._add_up(is_target), self._add_up(graph.degrees)
        self.inputs, self.features = self._add_up(input_entries), self._add_up(feature_entries)
        self.edges = self._count_edges(graph)
        self.halo_of = graph if has_halo else None

    def draw(self, num_batches: int, num_epochs: int, seed: int) -> list[DrawnBatch]:
        """Return the batches with a target of all epochs; of epochs that are dealt alike the first one.

        Args:
            num_batches: Batches per epoch.
            num_epochs: Epochs.
            seed: As in :func:`deal_parts`.
        """
        is_always_alike = num_batches >= self.num_parts or num_batches == 1
        drawn: list[DrawnBatch] = []
        for epoch in range(1, 2 if is_always_alike else num_epochs + 1):
            sizes = self._measure(deal_parts(self.num_parts, num_batches, seed, epoch))
            trained = (size for size in sizes if size.num_targets)
            drawn += [DrawnBatch(epoch, position, size) for position, size in enumerate(trained)]
        return drawn

    def _measure(self, dealt: list[NDArray[np.int64]]) -> list[BatchSize]:
        batch_of = np.empty(self.num_parts, np.int64)
        for batch, chosen in enumerate(dealt):
            batch_of[chosen] = batch

        def per_batch(counts: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.bincount(batch_of, counts, len(dealt)).astype(np.int64)

        first, second, counts = self.edges
        is_inside = batch_of[first] == batch_of[second]
        inner = np.bincount(batch_of[first[is_inside]], counts[is_inside], len(dealt)).astype(np.int64)
        nodes = per_batch(self.nodes)
        halo = self._count_halo(batch_of, len(dealt))
        outer = per_batch(self.degrees) - inner if self.halo_of is not None else np.zeros_like(inner)
        columns = (
            nodes, inner + nodes, per_batch(self.targets), halo, outer, per_batch(self.inputs), per_batch(self.features)
        )  # fmt: skip
        return [BatchSize(*row) for row in np.stack(columns, axis=1).tolist()]

    def _add_up(self, values: NDArray[Any] | None) -> NDArray[np.int64]:
        """Return the sum over the nodes of each part."""
        if values is None:
            return np.zeros(self.num_parts, np.int64)
        return np.bincount(self.part_of, values, self.num_parts).astype(np.int64)

    def _count_edges(self, graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the pairs of parts that entries of the adjacency join, and how many do."""
        keys = np.repeat(self.part_of, graph.degrees) * self.num_parts + self.part_of[graph.indices]
        pairs, counts = np.unique(keys, return_counts=True)
        return pairs // self.num_parts, pairs % self.num_parts, counts

    def _count_halo(self, batch_of: NDArray[np.int64], num_batches: int) -> NDArray[np.int64]:
        if self.halo_of is None:
            return np.zeros(num_batches, np.int64)
        from falcon_gnn._kernels.halo import count_halo

        graph = self.halo_of
        halo: NDArray[np.int64] = count_halo(
            graph.indptr, graph.indices, batch_of[self.part_of], num_batches, _NUM_RUNS
        )
        return halo


def undominated(drawn: list[DrawnBatch]) -> list[DrawnBatch]:
    """Return the batches that no other one is at least as large as in every figure; of equal ones the first."""
    kept: list[DrawnBatch] = []
    values: list[NDArray[np.int64]] = []
    order = sorted(range(len(drawn)), key=lambda place: astuple(drawn[place].size), reverse=True)
    for place in order:
        size = np.array(astuple(drawn[place].size))
        if not any((larger >= size).all() for larger in values):
            kept.append(drawn[place])
            values.append(size)
    return kept


def _import_metis() -> ModuleType:
    try:
        return import_module("pymetis")
    except ImportError as error:
        msg = (
            f"Cluster-GCN and GAS cut the graph with METIS, and pymetis cannot be imported ({error}). Run: "
            "pip install 'falcon-gnn[train]'. There is no wheel of pymetis for Windows: use the Windows Subsystem for "
            "Linux there, or one of the models that cut nothing: gcn, sign, qsign."
        )
        raise MissingDependencyError(msg) from error


def _run_metis(graph: Graph, num_parts: int, seed: int) -> NDArray[np.int64]:
    pymetis = _import_metis()
    options = pymetis.Options(seed=seed % 2**31)
    adjacency = pymetis.CSRAdjacency(graph.indptr.astype(np.int64), graph.indices.astype(np.int64))
    return np.asarray(pymetis.part_graph(num_parts, adjacency, options=options).vertex_part, dtype=np.int64)
