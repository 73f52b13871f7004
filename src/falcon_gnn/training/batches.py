"""The batches of an epoch: rows of hop features (SIGN), the whole graph (GCN), some parts of it (Cluster-GCN)."""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from falcon_gnn.graph import Graph
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.training.hops import FeatureMatrix, aggregate, float_features
from falcon_gnn.training.models import GCN, Features, GraphInput, RowInput
from falcon_gnn.training.partition import (
    BatchSize,
    DrawnBatch,
    PartSizes,
    deal_parts,
    epoch_generator,
    join_parts,
    split_graph,
)
from falcon_gnn.training.propagation import SparseMatrix, shared_tensor
from falcon_gnn.training.targets import Targets
from falcon_gnn.training.transfer import DeviceRows, send


class UnsentBatch(Protocol):
    """What a source yields: a batch, or what one is made of on its device."""

    @property
    def targets(self) -> Targets:
        """What the outputs should be, one row each."""

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""


class Batch(UnsentBatch, Protocol):
    """Something a model can be trained on in one step."""

    def to(self, device: torch.device) -> Self:
        """Return the batch on a device."""

    def outputs(self, model: nn.Module) -> Tensor:
        """Return the model's outputs for the nodes of :attr:`targets`, shape ``(n, L)``."""


class BatchSource(Protocol):
    """Something that yields the batches of any epoch; the same ones for the same epoch and seed."""

    def draw(self, epoch: int) -> Iterator[UnsentBatch]:
        """Yield the batches of epoch ``epoch``, in host memory but for what stays on the device."""

    def sizes(self, num_epochs: int) -> list[DrawnBatch]:
        """Return the batches of the first epochs that move weights by their sizes, built or not; alike ones once."""


@runtime_checkable
class KeepsFeatures(BatchSource, Protocol):
    """A source whose features can stay on a card, where a batch then takes its rows."""

    @property
    def feature_bytes(self) -> int:
        """Bytes of them; 0 where they are sparse, or one batch is all of them."""

    def keep_features(self, device: torch.device) -> None:
        """Put them there when the first batch is drawn."""


@dataclass(frozen=True)
class RowBatch:
    """Rows of hop features, for the SIGN models, shape ``(n, (k + 1) F)``; or of Ã^L X, for a GCN without edges."""

    features: Tensor
    targets: Targets

    def to(self, device: torch.device) -> "RowBatch":
        """Return the batch on a device."""
        return RowBatch(send(self.features, device), self.targets.to(device))

    def outputs(self, model: nn.Module) -> Tensor:
        """Return the model's outputs, shape ``(n, L)``."""
        outputs: Tensor = model(RowInput(self.features) if isinstance(model, GCN) else self.features)
        return outputs


@dataclass(frozen=True)
class DrawnRows:
    """A :class:`RowBatch` whose features lie on the device."""

    features: DeviceRows
    targets: Targets

    def to(self, device: torch.device) -> RowBatch:
        """Return the batch on the device."""
        return RowBatch(self.features.gather(), self.targets.to(device))


@dataclass(frozen=True)
class GraphBatch:
    """A whole graph, or one made of some of its parts; ``rows`` are its labelled training nodes, None for all."""

    inputs: GraphInput
    targets: Targets
    rows: Tensor | None = None

    def to(self, device: torch.device) -> "GraphBatch":
        """Return the batch on a device."""
        return GraphBatch(self.inputs.to(device), self.targets.to(device), move_rows(self.rows, device))

    def outputs(self, model: nn.Module) -> Tensor:
        """Return the model's outputs at ``rows``, shape ``(n, L)``."""
        outputs: Tensor = model(self.inputs)
        return outputs if self.rows is None else outputs[self.rows]


@dataclass(frozen=True)
class DrawnPart:
    """A :class:`GraphBatch` of some nodes whose X lies on the device, where it is multiplied with their Ã."""

    adjacency: SparseMatrix
    features: DeviceRows
    concat_self: bool
    targets: Targets
    rows: Tensor | None

    def to(self, device: torch.device) -> GraphBatch:
        """Return the batch on the device."""
        adjacency, own = self.adjacency.to(device), self.features.gather()
        inputs = GraphInput(adjacency, adjacency @ own, own if self.concat_self else None)
        return GraphBatch(inputs, self.targets.to(device), move_rows(self.rows, device))


class RowBatches:
    """Equal shares of the training nodes' hop features, newly shuffled in each epoch.

    Args:
        features: Rows of the training nodes, in memory or memory-mapped, shape ``(n, (k + 1) F)``.
        targets: Their targets.
        num_batches: Batches per epoch; never more than there are nodes.
        seed: Seeds the shuffles.
        device: An accelerator, where a batch that is all of an epoch stays; by default it stays in host memory.
    """

    def __init__(
        self,
        features: NDArray[Any],
        targets: Targets,
        num_batches: int,
        seed: int,
        device: torch.device | None = None,
    ) -> None:
        self.features, self.targets = features, targets
        self.num_batches, self.seed = min(num_batches, len(targets)), seed
        self.device = device if device is not None and device.type == "cuda" else None
        self.whole: RowBatch | None = None
        self.kept = KeptMatrix(features)

    @property
    def feature_bytes(self) -> int:
        """Bytes of the features of all rows; 0 where one batch is all of them."""
        return self.kept.num_bytes if self.num_batches > 1 else 0

    def keep_features(self, device: torch.device) -> None:
        """Let the features of all rows stay on a device from the first batch on."""
        self.kept.device = device

    def draw(self, epoch: int) -> Iterator[RowBatch | DrawnRows]:
        """Yield the batches of an epoch; rows are read in ascending order, which suits a memory map."""
        if self.num_batches == 1 and self.device is not None:
            if self.whole is None:
                every = np.arange(len(self.targets))
                self.whole = RowBatch(self.read(every), self.targets).to(self.device)
            yield self.whole
            return
        for dealt in self.deal(epoch):
            ids = np.sort(dealt)
            rows, targets = self.kept.rows(ids), self.targets.take(torch.from_numpy(ids))
            yield RowBatch(self.read(ids), targets) if rows is None else DrawnRows(rows, targets)

    def sizes(self, num_epochs: int) -> list[DrawnBatch]:
        """Return the size of the first batch, which none exceeds."""
        num_rows = -(-len(self.targets) // self.num_batches)
        return [DrawnBatch(1, 0, BatchSize(num_rows, 0, num_rows))]

    def deal(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the rows in each batch of an epoch, in the order of the shuffle."""
        return np.array_split(epoch_generator(self.seed, epoch).permutation(len(self.targets)), self.num_batches)

    def read(self, ids: NDArray[np.int64]) -> Tensor:
        """Return some rows of the features, given ascending."""
        return torch.from_numpy(np.asarray(self.features[ids], dtype=np.float32))

    def at_most(self, num_batches: int) -> "RowBatches":
        """Return the same in no more than so many batches per epoch."""
        return RowBatches(self.features, self.targets, min(self.num_batches, num_batches), self.seed)

    def staying_on(self, device: torch.device) -> "RowBatches":
        """Return the same for a device, where a batch that is all of an epoch stays."""
        return RowBatches(self.features, self.targets, self.num_batches, self.seed, device)


class KeptMatrix:
    """A matrix in host memory that can stay on a device as well; only dense ones do.

    Args:
        matrix: In memory or memory-mapped, or sparse, shape ``(N, d)``.
    """

    def __init__(self, matrix: FeatureMatrix) -> None:
        self.matrix = matrix
        self.device: torch.device | None = None
        self._on_device: Tensor | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes on the device; 0 of a sparse matrix."""
        return 4 * self.matrix.size if isinstance(self.matrix, np.ndarray) else 0

    def rows(self, ids: NDArray[np.int64]) -> DeviceRows | None:
        """Return some rows there, None where the matrix does not stay on a device."""
        if self.device is None or not self.num_bytes:
            return None
        if self._on_device is None:
            # In one go, and not through page-locked memory: that would be a second copy in the host's.
            self._on_device = shared_tensor(np.asarray(self.matrix, np.float32)).to(self.device)
        return DeviceRows(self._on_device, torch.from_numpy(ids))


class FullBatch:
    """The whole training graph as the one batch of every epoch; put on the device once.

    Args:
        graph: The training graph.
        node_ids: Its labelled training nodes, ascending.
        targets: Their targets.
        concat_self: Whether the model needs X beside ÃX.
        device: Where the batch stays.
        normalize: Whether each row of X is divided by its length.
    """

    def __init__(
        self,
        graph: Graph,
        node_ids: NDArray[np.int64],
        targets: Targets,
        concat_self: bool,
        device: torch.device,
        *,
        normalize: bool = False,
    ) -> None:
        matrix, features = normalized_csr(graph), float_features(graph, normalize=normalize)
        inputs = GraphInput(
            SparseMatrix.from_scipy(matrix),
            to_tensor(aggregate(matrix, features)),
            to_tensor(features) if concat_self else None,
        )
        rows = None if len(node_ids) == graph.num_nodes else torch.from_numpy(node_ids)
        self.batch = GraphBatch(inputs, targets, rows).to(device)

    def draw(self, epoch: int) -> Iterator[GraphBatch]:
        """Yield the graph."""
        yield self.batch

    def sizes(self, num_epochs: int) -> list[DrawnBatch]:
        """Return the size of the graph."""
        adjacency = self.batch.inputs.adjacency
        size = BatchSize(adjacency.num_rows, adjacency.values.shape[0], len(self.batch.targets))
        return [DrawnBatch(1, 0, size)]


@dataclass(frozen=True)
class PartSettings:
    """How a graph is cut and dealt to batches.

    Attributes:
        num_parts: METIS parts.
        num_batches: Batches per epoch, each of about ``num_parts / num_batches`` parts.
        concat_self: Whether the model needs X beside ÃX.
        seed: Seeds METIS and the dealing.
        normalize: Whether each row of X is divided by its length.
    """

    num_parts: int
    num_batches: int
    concat_self: bool
    seed: int
    normalize: bool = False


class PartBatches:
    """Cluster-GCN: several METIS parts per batch, newly dealt in each epoch.

    Edges between the parts of a batch are kept, edges to the outside are left out, and Ã is that of what is left.

    Args:
        graph: The training graph.
        node_ids: Its labelled training nodes, ascending.
        targets: Their targets.
        settings: How to cut and deal.
    """

    def __init__(self, graph: Graph, node_ids: NDArray[np.int64], targets: Targets, settings: PartSettings) -> None:
        self.structure = Graph(graph.indptr, graph.indices, graph.edge_weight, self_weight=graph.self_weight)
        self.features = float_features(graph, normalize=settings.normalize)
        self.kept = KeptMatrix(self.features)
        self.labels = NodeTargets(node_ids, targets, graph.num_nodes)
        self.settings = settings
        self.parts = split_graph(self.structure, settings.num_parts, settings.seed)

    @property
    def feature_bytes(self) -> int:
        """Bytes of X; 0 where it is sparse."""
        return self.kept.num_bytes

    def keep_features(self, device: torch.device) -> None:
        """Let X stay on a device from the first batch on, where each batch's ÃX is computed."""
        self.kept.device = device

    def draw(self, epoch: int) -> Iterator[GraphBatch | DrawnPart]:
        """Yield the batches of an epoch."""
        for chosen in self.deal(epoch):
            ids = join_parts(self.parts, chosen)
            rows, targets = self.labels.locate(ids)
            if len(targets) == 0:
                continue
            features = self.kept.rows(ids)
            if features is None:
                yield GraphBatch(self.read(ids), targets, rows)
            else:
                adjacency = SparseMatrix.from_scipy(normalized_csr(self.structure.subgraph(ids)))
                yield DrawnPart(adjacency, features, self.settings.concat_self, targets, rows)

    def sizes(self, num_epochs: int) -> list[DrawnBatch]:
        """Return the sizes of the batches with a target; entries of sparse features as if no edge were left out."""
        settings = self.settings
        inputs = None
        if not isinstance(self.features, np.ndarray):
            inputs = stored_by_row(aggregate(normalized_csr(self.structure), self.features))
        counted = PartSizes(
            self.structure, self.parts, self.labels.place >= 0, has_halo=False, input_entries=inputs,
            feature_entries=stored_by_row(self.features),
        )  # fmt: skip
        return counted.draw(settings.num_batches, num_epochs, settings.seed)

    def deal(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the numbers of the parts in each batch of an epoch."""
        return deal_parts(len(self.parts), self.settings.num_batches, self.settings.seed, epoch)

    def at_most(self, num_batches: int) -> "PartBatches":
        """Return the same parts in no more than so many batches per epoch."""
        fewer = copy(self)
        fewer.settings = replace(self.settings, num_batches=min(self.settings.num_batches, num_batches))
        return fewer

    def read(self, ids: NDArray[np.int64]) -> GraphInput:
        """Return what a GCN reads of the graph among some nodes, given ascending."""
        matrix, features = normalized_csr(self.structure.subgraph(ids)), self.features[ids]
        return GraphInput(
            SparseMatrix.from_scipy(matrix),
            to_tensor(aggregate(matrix, features)),
            to_tensor(features) if self.settings.concat_self else None,
        )


class NodeTargets:
    """Targets of some nodes of a graph, looked up by node.

    Args:
        node_ids: The nodes, ascending, shape ``(n,)``.
        targets: Their targets.
        num_nodes: N.
    """

    def __init__(self, node_ids: NDArray[np.int64], targets: Targets, num_nodes: int) -> None:
        self.targets = targets
        self.place = np.full(num_nodes, -1, np.int64)
        self.place[node_ids] = np.arange(len(node_ids))

    def locate(self, batch_ids: NDArray[np.int64]) -> tuple[Tensor | None, Targets]:
        """Return which rows of a batch have a target, None for all of them, and those targets."""
        places = self.place[batch_ids]
        rows = np.flatnonzero(places >= 0)
        targets = self.targets.take(torch.from_numpy(places[rows]))
        return (None if len(rows) == len(batch_ids) else torch.from_numpy(rows)), targets


def stored_by_row(features: FeatureMatrix) -> NDArray[np.int64] | None:
    """Return the stored entries of each row of a sparse matrix, shape ``(N,)``; None of a dense one."""
    return None if isinstance(features, np.ndarray) else np.diff(features.indptr).astype(np.int64)


def to_tensor(features: FeatureMatrix, *, for_training: bool = True) -> Features:
    """Return ÃX or X as the models take it: a tensor, or a sparse matrix, for training with its transpose."""
    if isinstance(features, np.ndarray):
        return shared_tensor(features)
    return SparseMatrix.from_scipy(features, with_transpose=for_training)


def move_rows(rows: Tensor | None, device: torch.device) -> Tensor | None:
    """Return row numbers on a device; None stays None."""
    return None if rows is None else send(rows, device)
