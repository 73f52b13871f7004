"""GNNAutoScale: batches whose outside neighbors come from historical embeddings, kept in host memory."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from falcon_gnn.graph import Graph
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.quantization.kernel_choice import kernels_for
from falcon_gnn.quantization.layers import relu_dropout
from falcon_gnn.training.batches import KeptMatrix, NodeTargets, PartSettings, move_rows, stored_by_row, to_tensor
from falcon_gnn.training.hops import aggregate, float_features
from falcon_gnn.training.models import GCN, GraphInput
from falcon_gnn.training.partition import DrawnBatch, PartSizes, deal_parts, join_parts, split_graph
from falcon_gnn.training.propagation import SparseMatrix, take_rows
from falcon_gnn.training.targets import Targets
from falcon_gnn.training.transfer import DeviceRows, locked, locked_empty, send

if TYPE_CHECKING:
    from scipy.sparse import csr_array


ALL_COLUMNS = slice(None)
"""All hidden channels of a history."""


class Histories:
    """The last known output of each hidden layer for every node, after ReLU and before dropout, in host memory.

    Args:
        num_nodes: N.
        hidden_channels: Width of the hidden layers.
        num_levels: Hidden layers, one history each.
    """

    def __init__(self, num_nodes: int, hidden_channels: int, num_levels: int) -> None:
        self._levels = [torch.zeros(num_nodes, hidden_channels) for _ in range(num_levels)]
        self._kernels: ModuleType | None = None
        self._device: torch.device | None = None
        self._coming: list[_Coming] = []

    def lock(self, device: torch.device) -> None:
        """Let kernels of a card read and write the histories where they are, in the order of its work: nobody waits.

        That takes page-locked memory, of which torch rounds a history up to a power of two. Where no kernel runs or so
        much cannot be locked, vectors go through small locked buffers, and a pull waits for the pushes before it.
        """
        kernels = kernels_for(device)
        if kernels is None:
            return
        levels = [locked(level) for level in self._levels]
        if all(new is not old for new, old in zip(levels, self._levels, strict=True)):
            self._levels, self._kernels, self._device = levels, kernels, device

    @property
    def is_locked(self) -> bool:
        """Whether the card reads and writes them itself, for which it needs the nodes' numbers."""
        return self._kernels is not None

    @property
    def levels(self) -> list[Tensor]:
        """What is remembered, shape ``(num_nodes, hidden_channels)`` per hidden layer."""
        if self._device is not None and torch.cuda.is_available():
            torch.cuda.synchronize(self._device)
        for level in range(len(self._levels)):
            self._settle(level)
        return self._levels

    def push(self, level: int, node_ids: Tensor, values: Tensor, columns: slice = ALL_COLUMNS) -> None:
        """Remember the output of layer ``level`` for some nodes.

        Args:
            level: Which hidden layer.
            node_ids: Distinct nodes, in host memory unless the histories are locked, shape ``(n,)``.
            values: Their vectors, on any device, shape ``(n, c)``.
            columns: Which c of the hidden channels; by default all of them.
        """
        history, values = self._levels[level][:, columns], values.detach()
        if self._kernels is not None:
            self._kernels.scatter_rows(history, node_ids, values)
            return
        if values.device.type != "cuda":
            self._settle(level)
            history[node_ids] = values.to(history.device, history.dtype)
            return
        # Copied beside the kernels that follow; it is put in its place when it is asked for.
        staged = locked_empty(*values.shape)
        staged.copy_(values, non_blocking=True)
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record(torch.cuda.current_stream(values.device))
        self._coming.append(_Coming(level, node_ids, columns, staged, copied))

    def pull(self, level: int, node_ids: Tensor, device: torch.device, columns: slice = ALL_COLUMNS) -> Tensor:
        """Return what is remembered of layer ``level`` for some nodes, on a device; arguments as in :meth:`push`."""
        history = self._levels[level][:, columns]
        if self._kernels is not None:
            pulled: Tensor = self._kernels.gather_rows(history, node_ids)
            return pulled
        self._settle(level)
        if device.type != "cuda":
            return torch.index_select(history, 0, node_ids).to(device)
        pulled = locked_empty(len(node_ids), history.shape[1])
        torch.index_select(history, 0, node_ids, out=pulled)
        return pulled.to(device, non_blocking=True)

    def _settle(self, level: int) -> None:
        """Put what is on its way to a history in its place, in order."""
        for coming in [coming for coming in self._coming if coming.level == level]:
            coming.copied.synchronize()
            self._levels[level][:, coming.columns][coming.node_ids] = coming.values
            self._coming.remove(coming)


@dataclass(frozen=True, eq=False)
class _Coming:
    """Vectors on their way from the device to a history."""

    level: int
    node_ids: Tensor
    columns: slice
    values: Tensor
    copied: torch.cuda.Event


@dataclass(frozen=True)
class HistoryInput:
    """What a GCN reads of one GAS batch of n nodes, whose neighbors outside (the halo) are h nodes.

    Per hidden layer, the batch's nodes are pushed to the histories and the halo is pulled from them. With exact
    histories and without dropout the outputs are those of the full-batch GCN for the batch.

    Attributes:
        inner: Ã among the batch's nodes with the degrees of the whole graph, and their exact ÃX.
        halo: Ã from the batch to its halo, shape ``(n, h)``; never differentiated.
        node_ids: The batch's nodes in the graph, where the histories want them, shape ``(n,)``.
        halo_ids: The halo's, likewise, shape ``(h,)``.
        histories: One per hidden layer of the model; updated.
    """

    inner: GraphInput
    halo: SparseMatrix
    node_ids: Tensor
    halo_ids: Tensor
    histories: Histories

    @property
    def adjacency(self) -> SparseMatrix:
        """Ã among the batch's nodes."""
        return self.inner.adjacency

    def to(self, device: torch.device) -> "HistoryInput":
        """Return the input on a device; the histories stay in host memory, and the ids too unless these are locked."""
        ids, halo_ids = self.node_ids, self.halo_ids
        if self.histories.is_locked:
            ids, halo_ids = send(ids, device), send(halo_ids, device)
        return replace(self, inner=self.inner.to(device), halo=self.halo.to(device), node_ids=ids, halo_ids=halo_ids)

    def first_layer(self, model: GCN) -> Tensor:
        """Return layer 0's output for the batch's features, shape ``(n, out_channels)``."""
        return self.inner.first_layer(model)

    def activate(self, model: GCN, level: int, output: Tensor) -> Tensor:
        """Return the next layer's input, shape ``(n, hidden_channels)``; before dropout it is remembered."""
        return model.activate(level, output, partial(self.histories.push, level, self.node_ids))

    def next_layer(self, model: GCN, level: int, hidden: Tensor) -> Tensor:
        """Return layer ``level``'s output for the batch's hidden vectors and the halo's remembered ones."""
        pulled = self.histories.pull(level - 1, self.halo_ids, hidden.device).to(hidden.dtype)
        # What is remembered is not negative: ReLU leaves it as it is.
        outside = self.halo @ relu_dropout(pulled, model.config.dropout, model.training, inplace=True)
        return model.layer(level).transform((self.inner.adjacency @ hidden).add_(outside), hidden)


def split_halo(
    adjacency: "csr_array", node_ids: NDArray[np.int64]
) -> tuple["csr_array", "csr_array", NDArray[np.int64]]:
    """Return a batch's rows of Ã in two: within the batch, and to its one-hop halo.

    Args:
        adjacency: Ã of the whole graph, shape ``(N, N)``.
        node_ids: The batch's nodes, ascending, shape ``(n,)``.

    Returns:
        Shapes ``(n, n)``, symmetric, and ``(n, h)``, and the halo's ids, ascending, shape ``(h,)``.
    """
    rows, columns = take_rows(adjacency, node_ids)
    is_inside = np.isin(columns, node_ids, assume_unique=True)
    by_column = rows.tocsc()
    # Every node has a self-loop in Ã, so the columns inside are exactly the batch's nodes.
    return by_column[:, is_inside].tocsr(), by_column[:, ~is_inside].tocsr(), columns[~is_inside]


@dataclass(frozen=True)
class HistoryBatch:
    """Parts of a graph with their halo; ``rows`` are its labelled training nodes, None for all."""

    inputs: HistoryInput
    targets: Targets
    rows: Tensor | None = None

    def to(self, device: torch.device) -> "HistoryBatch":
        """Return the batch on a device; the histories stay in host memory."""
        return replace(
            self, inputs=self.inputs.to(device), targets=self.targets.to(device), rows=move_rows(self.rows, device)
        )

    def outputs(self, model: nn.Module) -> Tensor:
        """Return the model's outputs at ``rows``, shape ``(n, L)``, and update the histories."""
        outputs: Tensor = model(self.inputs)
        return outputs if self.rows is None else outputs[self.rows]


@dataclass(frozen=True)
class DrawnHistory:
    """A :class:`HistoryBatch` whose ÃX, and X with ``concat_self``, lie on the device; it has none in their place."""

    batch: HistoryBatch
    aggregated: DeviceRows
    features: DeviceRows | None

    @property
    def targets(self) -> Targets:
        """Of the batch."""
        return self.batch.targets

    def to(self, device: torch.device) -> HistoryBatch:
        """Return the batch on the device."""
        ready = self.batch.to(device)
        own = None if self.features is None else self.features.gather()
        inner = replace(ready.inputs.inner, aggregated=self.aggregated.gather(), features=own)
        return replace(ready, inputs=replace(ready.inputs, inner=inner))


class HistoryBatches:
    """GAS: several METIS parts per batch, newly dealt in each epoch, with the halo around them.

    A batch without a labelled node is yielded too: its nodes' histories must be refreshed all the same.

    Args:
        graph: The training graph.
        node_ids: Its labelled training nodes, ascending.
        targets: Their targets.
        settings: How to cut and deal.
        histories: One per hidden layer.
    """

    def __init__(
        self,
        graph: Graph,
        node_ids: NDArray[np.int64],
        targets: Targets,
        settings: PartSettings,
        histories: Histories,
    ) -> None:
        self.structure = Graph(graph.indptr, graph.indices, graph.edge_weight)
        self.adjacency = normalized_csr(graph)
        features = float_features(graph, normalize=settings.normalize)
        self.aggregated = aggregate(self.adjacency, features)
        self.features = features if settings.concat_self else None
        self.kept = [KeptMatrix(matrix) for matrix in (self.aggregated, self.features) if matrix is not None]
        self.labels = NodeTargets(node_ids, targets, graph.num_nodes)
        self.settings, self.histories = settings, histories
        self.parts = split_graph(graph, settings.num_parts, settings.seed)

    @property
    def feature_bytes(self) -> int:
        """Bytes of ÃX, and of X with ``concat_self``; 0 where one of them is sparse."""
        sizes = [kept.num_bytes for kept in self.kept]
        return sum(sizes) if all(sizes) else 0

    def keep_features(self, device: torch.device) -> None:
        """Let them stay on a device from the first batch on."""
        for kept in self.kept if self.feature_bytes else []:
            kept.device = device

    def draw(self, epoch: int) -> Iterator[HistoryBatch | DrawnHistory]:
        """Yield the batches of an epoch."""
        settings = self.settings
        for chosen in deal_parts(len(self.parts), settings.num_batches, settings.seed, epoch):
            ids = join_parts(self.parts, chosen)
            rows, targets = self.labels.locate(ids)
            aggregated, *own = (kept.rows(ids) for kept in self.kept)
            batch = HistoryBatch(self._read(ids, reads_features=aggregated is None), targets, rows)
            yield batch if aggregated is None else DrawnHistory(batch, aggregated, own[0] if own else None)

    def sizes(self, num_epochs: int) -> list[DrawnBatch]:
        """Return the sizes of the batches with a target, their halos included."""
        settings = self.settings
        counted = PartSizes(
            self.structure, self.parts, self.labels.place >= 0, has_halo=True,
            input_entries=stored_by_row(self.aggregated),
            feature_entries=None if self.features is None else stored_by_row(self.features),
        )  # fmt: skip
        return counted.draw(settings.num_batches, num_epochs, settings.seed)

    def _read(self, ids: NDArray[np.int64], *, reads_features: bool) -> HistoryInput:
        inside, outside, halo_ids = split_halo(self.adjacency, ids)
        aggregated = to_tensor(self.aggregated[ids]) if reads_features else torch.empty(0)
        own = to_tensor(self.features[ids]) if reads_features and self.features is not None else None
        inner = GraphInput(SparseMatrix.from_scipy(inside), aggregated, own)
        halo = SparseMatrix.from_scipy(outside)
        return HistoryInput(inner, halo, torch.from_numpy(ids), torch.from_numpy(halo_ids), self.histories)
