"""The sizes that a training step's memory depends on, and its predicted peak: one step under fake tensors, no data."""

from dataclasses import astuple, dataclass, replace
from functools import lru_cache, partial
from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from falcon_gnn.graph import Graph
from falcon_gnn.labels import Task, known_cells
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.quantization.kernel_choice import standing_for
from falcon_gnn.training.batches import Batch, GraphBatch, RowBatch, stored_by_row
from falcon_gnn.training.config import TrainConfig
from falcon_gnn.training.history import Histories, HistoryBatch, HistoryInput
from falcon_gnn.training.hops import aggregate, float_features, require_features
from falcon_gnn.training.memory import MemoryPeak, measure_peak, tensors_within
from falcon_gnn.training.models import Features, GraphInput, build_model
from falcon_gnn.training.partition import BatchSize, PartSizes, split_graph
from falcon_gnn.training.propagation import SparseMatrix
from falcon_gnn.training.steps import group_size, make_optimizer, pieces_of, training_step
from falcon_gnn.training.targets import Targets, require_labels, resolve_task, training_nodes

_SPARSE_INDEX_BYTES_LIMIT = 2**31
_PREDICTED_PIECES = 2
"""Pieces of a batch that a prediction goes through: the others need no more than the second."""


@dataclass(frozen=True)
class PartShape:
    """The largest batch of parts, as shares of the whole graph's figures; attributes as of :class:`BatchSize`."""

    num_nodes: float
    num_entries: float
    num_targets: float
    halo_nodes: float
    halo_entries: float
    input_entries: float
    feature_entries: float


@dataclass(frozen=True)
class TargetShape:
    """What the memory of a loss depends on, beside the number of labels.

    Attributes:
        has_unknown: Whether cells are unknown, which takes a matrix of weights and one of filled-in values.
        is_weighted: Whether the nodes have weights.
        num_shares: Columns of classes as probabilities; 0 for class numbers.
    """

    has_unknown: bool = False
    is_weighted: bool = False
    num_shares: int = 0


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
        targets: What the targets hold beside a label of each node.
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
    targets: TargetShape = TargetShape()

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


def whole_batch(graph: GraphShape) -> BatchSize:
    """Return the whole graph as one batch."""
    entries = 2 * graph.num_edges + graph.num_nodes
    sparse = (graph.input_entries or 0, graph.feature_entries or 0)
    return BatchSize(graph.num_nodes, entries, graph.num_targets, 0, 0, *sparse)


def row_batch(num_rows: int) -> BatchSize:
    """Return the size of so many rows of hop features, all of them labelled."""
    return BatchSize(num_rows, 0, num_rows)


def largest_batch(graph: GraphShape, config: TrainConfig) -> BatchSize:
    """Return the size that no batch of a training exceeds in any figure."""
    if config.trains_on_rows:
        return row_batch(ceil(graph.num_targets / config.batches_of_rows(graph.num_targets)))
    whole = whole_batch(graph)
    if not config.model.uses_parts or graph.parts is None:
        return whole
    parts = graph.parts
    num_nodes = min(graph.num_nodes, _share(graph.num_nodes, parts.num_nodes))
    return BatchSize(
        num_nodes,
        max(num_nodes, _share(whole.num_entries, parts.num_entries)),
        min(num_nodes, _share(graph.num_targets, parts.num_targets)),
        min(graph.num_nodes - num_nodes, _share(graph.num_nodes, parts.halo_nodes)),
        _share(whole.num_entries, parts.halo_entries),
        _share(whole.input_entries, parts.input_entries),
        _share(whole.feature_entries, parts.feature_entries),
    )


def _share(count: int, share: float) -> int:
    # A share is a quotient of whole numbers: what rounding adds to it must not become one more.
    return ceil(count * share - 1e-6)


def shape_of_graph(graph: Graph, config: TrainConfig, label_graph: Graph | None = None) -> GraphShape:
    """Return what the memory of training on a graph depends on; the parts are cut as training will.

    Args:
        graph: What is trained on, reduced or not.
        config: The model and how it is trained.
        label_graph: The original graph, whose labels count as well for L; by default ``graph``.

    Raises:
        GraphError: If features, labels or masks are missing or do not fit.
    """
    require_features(graph)
    task, num_outputs = resolve_task(graph, label_graph or graph, config.task, config.num_classes)
    nodes = training_nodes(graph, task)
    shape = GraphShape(
        graph.num_nodes,
        graph.num_edges,
        graph.num_features,
        num_outputs,
        task,
        len(nodes),
        targets=shape_of_targets(graph, config, task, nodes),
    )
    if config.trains_on_rows:
        return shape
    features = float_features(graph)
    inputs = features if isinstance(features, np.ndarray) else aggregate(normalized_csr(graph), features)
    shape = replace(shape, input_entries=_num_stored(inputs), feature_entries=_num_stored(features))
    if not config.model.uses_parts:
        return shape
    is_target = np.zeros(graph.num_nodes, np.bool_)
    is_target[training_nodes(graph, task)] = True
    num_parts = config.batches_of_parts if config.model.num_parts is None else config.model.num_parts
    counted = PartSizes(
        graph, split_graph(graph, num_parts, config.seed), is_target, has_halo=config.model.model == "gas",
        input_entries=stored_by_row(inputs), feature_entries=stored_by_row(features),
    )  # fmt: skip
    drawn = counted.draw(config.batches_of_parts, config.num_epochs, config.seed)
    largest = astuple(BatchSize.largest([batch.size for batch in drawn]))
    whole = whole_batch(shape)
    wholes = replace(whole, halo_nodes=graph.num_nodes, halo_entries=whole.num_entries)
    shares = (part / max(1, count) for part, count in zip(largest, astuple(wholes), strict=True))
    return replace(shape, parts=PartShape(*shares))


def shape_of_targets(graph: Graph, config: TrainConfig, task: Task, nodes: NDArray[np.int64]) -> TargetShape:
    """Return what the targets of a graph's training nodes hold.

    Args:
        graph: What is trained on.
        config: How it is trained.
        task: What the labels are.
        nodes: The training nodes, as :func:`training_nodes` returns them.
    """
    is_weighted = graph.node_weight is not None and config.weight_power > 0
    if task == "classes":
        shares = graph.label_distribution
        return TargetShape(is_weighted=is_weighted, num_shares=0 if shares is None else shares.shape[1])
    has_unknown = not known_cells(require_labels(graph)[nodes], task).all()
    return TargetShape(has_unknown=has_unknown, is_weighted=is_weighted)


@lru_cache(maxsize=1_024)
def predict_step(graph: GraphShape, batch: BatchSize, config: TrainConfig) -> MemoryPeak:
    """Return the memory peak of a training step on a batch of a graph.

    On CUDA what stays in host memory is left out, and features that stay on the device count as inputs.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    device_name = "cuda" if trains_on_cuda(config) else "cpu"
    with FakeTensorMode(), torch.random.fork_rng([]), standing_for(device_name):
        model = build_model(config.model, graph.num_features, graph.num_outputs).train()
        optimizer = make_optimizer(model, config)
        inputs = _fake_batch(graph, batch, config)
        pieces = replace(pieces_of(config), walked=_PREDICTED_PIECES)

        def step() -> None:
            training_step(model, optimizer, [inputs] * min(2, group_size(config)), config.precision, pieces)

        peak = measure_peak(
            step,
            warm_up=partial(_start_optimizer, model, optimizer),
            known=lambda: tensors_within([model, optimizer.state_dict(), inputs]),
        )
    more = kept_bytes(graph, config) - (_host_bytes(inputs) if trains_on_cuda(config) else 0)
    return replace(peak, total=peak.total + more, inputs=peak.inputs + more)


def kept_bytes(graph: GraphShape, config: TrainConfig) -> int:
    """Return the bytes of features that stay on a card beside the batch; 0 unless ``features_on`` is ``device``."""
    if config.features_on != "device" or not trains_on_cuda(config):
        return 0
    model, width = config.model, 4 * graph.num_features
    if config.trains_on_rows:
        num_blocks = 1 if config.train_on == "rows" else model.num_hops + 1
        return num_blocks * width * graph.num_targets if config.batches_of_rows(graph.num_targets) > 1 else 0
    if model.model == "cluster-gcn":
        return width * graph.num_nodes if graph.feature_entries is None else 0
    is_sparse = graph.input_entries is not None or (model.concat_self and graph.feature_entries is not None)
    if model.model != "gas" or is_sparse:
        return 0
    return width * graph.num_nodes * (2 if model.concat_self else 1)


def trains_on_cuda(config: TrainConfig) -> bool:
    """Return whether a configuration trains on a CUDA device, which need not be at hand to predict its memory."""
    return config.device.startswith("cuda") or (config.device == "auto" and torch.cuda.is_available())


def _host_bytes(batch: Batch) -> int:
    """Return the bytes of a batch that are in host memory wherever the step computes: all of it is held throughout."""
    if not isinstance(batch, HistoryBatch):
        return 0
    return sum(level.nbytes for level in batch.inputs.histories.levels)


def _start_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Let the optimizer make its state: all that a first step leaves behind."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _num_stored(features: object) -> int | None:
    return None if isinstance(features, np.ndarray) else int(features.nnz)  # type: ignore[attr-defined]


def _fake_batch(graph: GraphShape, batch: BatchSize, config: TrainConfig) -> Batch:
    """Return a batch of the right shapes; to be called under a fake tensor mode."""
    model, targets = config.model, _fake_targets(graph, batch.num_targets)
    if config.trains_on_rows:
        num_blocks = 1 if config.train_on == "rows" else model.num_hops + 1
        return RowBatch(torch.empty(batch.num_nodes, num_blocks * graph.num_features), targets)

    def features(entries: int | None, share: int) -> Features:
        if entries is None:
            return torch.empty(batch.num_nodes, graph.num_features)
        return fake_sparse(batch.num_nodes, graph.num_features, share, with_transpose=True)

    inputs = GraphInput(
        fake_sparse(batch.num_nodes, batch.num_nodes, batch.num_entries),
        features(graph.input_entries, batch.input_entries),
        features(graph.feature_entries, batch.feature_entries) if model.concat_self else None,
    )
    rows = None if batch.num_targets == batch.num_nodes else torch.empty(batch.num_targets, dtype=torch.int64)
    if model.model != "gas":
        return GraphBatch(inputs, targets, rows)
    halo = fake_sparse(batch.num_nodes, batch.halo_nodes, batch.halo_entries)
    ids, halo_ids = (torch.empty(size, dtype=torch.int64) for size in (batch.num_nodes, batch.halo_nodes))
    histories = Histories(graph.num_nodes, model.hidden_channels, model.num_layers - 1)
    return HistoryBatch(HistoryInput(inputs, halo, ids, halo_ids, histories), targets, rows)


def _fake_targets(graph: GraphShape, num_targets: int) -> Targets:
    held, is_numbered = graph.targets, graph.task == "classes" and not graph.targets.num_shares
    width = held.num_shares or graph.num_outputs
    values = torch.empty(num_targets, dtype=torch.int64) if is_numbered else torch.empty(num_targets, width)
    return Targets(values, graph.task, held.has_unknown, torch.empty(num_targets) if held.is_weighted else None)


def fake_sparse(num_rows: int, num_columns: int, num_entries: int, *, with_transpose: bool = False) -> SparseMatrix:
    """Return a matrix of the right sizes; to be called under a fake tensor mode."""
    ids = torch.int32 if num_entries < _SPARSE_INDEX_BYTES_LIMIT else torch.int64

    def empty(size: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(size, dtype=dtype)

    return SparseMatrix(
        empty(num_rows + 1, ids),
        empty(num_entries, ids),
        empty(num_entries, torch.float32),
        num_columns,
        fake_sparse(num_columns, num_rows, num_entries) if with_transpose else None,
    )
