"""The sizes that a training step's memory depends on, and its predicted peak: one step under fake tensors, no data."""

from dataclasses import dataclass, replace
from functools import partial
from math import ceil

import numpy as np
import torch
from torch import Tensor

from falcon_gnn.graph import Graph
from falcon_gnn.labels import Task
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.training.batches import Batch, GraphBatch, PartSettings, RowBatch, epoch_generator
from falcon_gnn.training.configs import TrainConfig
from falcon_gnn.training.history import Histories, HistoryBatch, HistoryInput, split_halo
from falcon_gnn.training.hops import aggregate, float_features
from falcon_gnn.training.memory import MemoryPeak, measure_peak
from falcon_gnn.training.models import Features, GraphInput, build_model
from falcon_gnn.training.partition import draw_batches, split_graph
from falcon_gnn.training.propagation import SparseMatrix
from falcon_gnn.training.steps import make_optimizer, training_step
from falcon_gnn.training.targets import Targets, resolve_task, training_nodes

_SPARSE_INDEX_BYTES_LIMIT = 2**31


@dataclass(frozen=True)
class PartShape:
    """The largest batch of parts, as shares of the whole graph.

    Attributes:
        nodes: Nodes of the batch.
        entries: Entries of Ã among them.
        halo_nodes: Nodes around them.
        halo_entries: Entries of Ã from the batch to these.
    """

    nodes: float
    entries: float
    halo_nodes: float
    halo_entries: float


@dataclass(frozen=True)
class GraphShape:
    """What the memory of training on a graph depends on.

    Attributes:
        num_nodes: Nodes.
        num_edges: Undirected edges.
        num_features: F.
        num_outputs: L.
        task: What the labels are.
        num_targets: Labelled training nodes.
        input_entries: Stored entries of ÃX where training keeps it sparse, None where it is dense.
        feature_entries: Likewise of X, for ``concat_self``.
        parts: The largest batch of METIS parts, for the models that have them.
    """

    num_nodes: int
    num_edges: int
    num_features: int
    num_outputs: int
    task: Task
    num_targets: int
    input_entries: int | None = None
    feature_entries: int | None = None
    parts: PartShape | None = None

    def with_nodes(self, num_nodes: int) -> "GraphShape":
        """Return the shape expected after a collapse to ``num_nodes``.

        Edges shrink with the square root of the kept share, which is what a collapse to hubs leaves of PPI; the caller
        checks the collapsed graph itself.
        """

        def shrink(count: int) -> int:
            # In whole numbers: where all nodes are labelled, rounding must not leave more labels than nodes.
            return -(-count * num_nodes // self.num_nodes)

        num_edges = min(int(self.num_edges * (num_nodes / self.num_nodes) ** 0.5), num_nodes * (num_nodes - 1) // 2)
        return replace(
            self,
            num_nodes=num_nodes,
            num_edges=num_edges,
            num_targets=max(1, shrink(self.num_targets)),
            input_entries=None if self.input_entries is None else shrink(self.input_entries),
            feature_entries=None if self.feature_entries is None else shrink(self.feature_entries),
        )


@dataclass(frozen=True)
class BatchShape:
    """What the memory of one training step depends on.

    Attributes:
        graph: The graph that the batch is of.
        num_nodes: Rows of hop features, or nodes of the batch.
        num_entries: Entries of Ã among them; 0 for hop features.
        num_targets: Labelled training nodes among them.
        halo_nodes: Nodes around them whose history is read.
        halo_entries: Entries of Ã from the batch to these.
    """

    graph: GraphShape
    num_nodes: int
    num_entries: int
    num_targets: int
    halo_nodes: int = 0
    halo_entries: int = 0

    @property
    def share(self) -> float:
        """Share of the graph's nodes."""
        return self.num_nodes / self.graph.num_nodes


def row_batch(graph: GraphShape, num_rows: int) -> BatchShape:
    """Return the shape of so many rows of hop features, all of them labelled."""
    return BatchShape(graph, num_rows, 0, num_rows)


def largest_batch_shape(graph: GraphShape, config: TrainConfig) -> BatchShape:
    """Return the shape of the largest batch of an epoch."""
    if config.model.uses_hop_features:
        return row_batch(graph, ceil(graph.num_targets / min(config.num_batches, graph.num_targets)))
    entries = 2 * graph.num_edges + graph.num_nodes
    if not config.model.uses_parts or graph.parts is None:
        return BatchShape(graph, graph.num_nodes, entries, graph.num_targets)
    parts = graph.parts
    num_nodes = min(graph.num_nodes, ceil(graph.num_nodes * parts.nodes))
    return BatchShape(
        graph,
        num_nodes,
        max(num_nodes, ceil(entries * parts.entries)),
        min(num_nodes, ceil(graph.num_targets * parts.nodes)),
        min(graph.num_nodes - num_nodes, ceil(graph.num_nodes * parts.halo_nodes)),
        ceil(entries * parts.halo_entries),
    )


def shape_of_graph(graph: Graph, config: TrainConfig, label_graph: Graph | None = None) -> GraphShape:
    """Return what the memory of training on a graph depends on; the parts are cut as training will.

    Args:
        graph: What is trained on, reduced or not.
        config: The model and how it is trained.
        label_graph: The original graph, whose labels count as well for L; by default ``graph``.
    """
    task, num_outputs = resolve_task(graph, label_graph or graph, config.task, config.num_classes)
    shape = GraphShape(
        graph.num_nodes,
        graph.num_edges,
        graph.num_features,
        num_outputs,
        task,
        len(training_nodes(graph, task)),
    )
    if config.model.uses_hop_features:
        return shape
    adjacency, features = normalized_csr(graph), float_features(graph)
    return replace(
        shape,
        input_entries=_stored_entries(aggregate(adjacency, features)) if not isinstance(features, np.ndarray) else None,
        feature_entries=_stored_entries(features),
        parts=_measure_parts(graph, config) if config.model.uses_parts else None,
    )


def predict_step(batch: BatchShape, config: TrainConfig) -> MemoryPeak:
    """Return the memory peak of a training step on a batch of this shape, on CUDA without what stays in host memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    graph = batch.graph
    with FakeTensorMode(), torch.random.fork_rng([]):
        model = build_model(config.model, graph.num_features, graph.num_outputs).train()
        optimizer = make_optimizer(model, config)
        first, inputs = (_fake_batch(shape, config) for shape in (_smallest_batch(batch), batch))

        def step(batch: Batch) -> None:
            training_step(model, optimizer, batch, config.precision)

        peak = measure_peak(partial(step, inputs), warm_up=partial(step, first))
    on_host = _host_bytes(inputs) if trains_on_cuda(config) else 0
    return replace(peak, total=peak.total - on_host, inputs=peak.inputs - on_host)


def trains_on_cuda(config: TrainConfig) -> bool:
    """Return whether a configuration trains on a CUDA device, which need not be at hand to predict its memory."""
    return config.device.startswith("cuda") or (config.device == "auto" and torch.cuda.is_available())


def _host_bytes(batch: Batch) -> int:
    """Return the bytes of a batch that are in host memory wherever the step computes: all of it is held throughout."""
    if not isinstance(batch, HistoryBatch):
        return 0
    inputs = batch.inputs
    return sum(tensor.nbytes for tensor in (*batch.histories.levels, inputs.node_ids, inputs.halo_ids))


def _smallest_batch(batch: BatchShape) -> BatchShape:
    """Return the batch of two nodes: what a first step leaves behind does not depend on the batch."""
    return BatchShape(batch.graph, 2, 2, 2, min(1, batch.halo_nodes), min(1, batch.halo_entries))


def _stored_entries(features: object) -> int | None:
    return None if isinstance(features, np.ndarray) else int(features.nnz)  # type: ignore[attr-defined]


def _measure_parts(graph: Graph, config: TrainConfig) -> PartShape:
    """Return the largest sizes among the batches of the first epoch."""
    num_parts = config.num_batches if config.model.num_parts is None else config.model.num_parts
    settings = PartSettings(num_parts, config.num_batches, config.model.concat_self, config.seed)
    adjacency = normalized_csr(graph)
    parts = split_graph(graph, settings.num_parts, settings.seed)
    sizes = np.zeros((0, 4))
    for ids in draw_batches(parts, settings.num_batches, epoch_generator(settings.seed, 1)):
        inside, outside, halo_ids = split_halo(adjacency, ids)
        sizes = np.vstack([sizes, [len(ids), inside.nnz, len(halo_ids), outside.nnz]])
    largest = sizes.max(axis=0) / [graph.num_nodes, adjacency.nnz, graph.num_nodes, adjacency.nnz]
    return PartShape(*largest.tolist())


def _fake_batch(batch: BatchShape, config: TrainConfig) -> Batch:
    """Return a batch of the right shapes; to be called under a fake tensor mode."""
    graph, model = batch.graph, config.model
    targets = _fake_targets(batch)
    if model.uses_hop_features:
        return RowBatch(torch.empty(batch.num_nodes, (model.num_hops + 1) * graph.num_features), targets)
    inputs = GraphInput(
        _fake_sparse(batch.num_nodes, batch.num_nodes, batch.num_entries),
        _fake_features(batch, graph.input_entries),
        _fake_features(batch, graph.feature_entries) if model.concat_self else None,
    )
    rows = None if batch.num_targets == batch.num_nodes else torch.empty(batch.num_targets, dtype=torch.int64)
    if model.model != "gas":
        return GraphBatch(inputs, targets, rows)
    halo = _fake_sparse(batch.num_nodes, batch.halo_nodes, batch.halo_entries)
    ids, halo_ids = (torch.empty(size, dtype=torch.int64) for size in (batch.num_nodes, batch.halo_nodes))
    histories = Histories(graph.num_nodes, model.hidden_channels, model.num_layers - 1)
    return HistoryBatch(HistoryInput(inputs, halo, ids, halo_ids), targets, histories, rows)


def _fake_targets(batch: BatchShape) -> Targets:
    if batch.graph.task == "classes":
        return Targets(torch.empty(batch.num_targets, dtype=torch.int64), "classes")
    return Targets(torch.empty(batch.num_targets, batch.graph.num_outputs), batch.graph.task)


def _fake_sparse(num_rows: int, num_columns: int, num_entries: int, *, with_transpose: bool = False) -> SparseMatrix:
    ids = torch.int32 if num_entries < _SPARSE_INDEX_BYTES_LIMIT else torch.int64

    def empty(size: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(size, dtype=dtype)

    return SparseMatrix(
        empty(num_rows + 1, ids),
        empty(num_entries, ids),
        empty(num_entries, torch.float32),
        num_columns,
        _fake_sparse(num_columns, num_rows, num_entries) if with_transpose else None,
    )


def _fake_features(batch: BatchShape, entries: int | None) -> Features:
    if entries is None:
        return torch.empty(batch.num_nodes, batch.graph.num_features)
    num_entries = ceil(entries * batch.share)
    return _fake_sparse(batch.num_nodes, batch.graph.num_features, num_entries, with_transpose=True)
