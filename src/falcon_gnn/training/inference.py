"""A trained model's outputs for the nodes of any graph, in chunks, without gradients and in float32."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from falcon_gnn.errors import GraphError
from falcon_gnn.graph import Graph
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.quantization.chunks import row_chunks
from falcon_gnn.training.batches import to_tensor
from falcon_gnn.training.config import DEFAULT_PIECE_BYTES, ModelConfig
from falcon_gnn.training.hops import FeatureMatrix, aggregate, float_features, hop_features, require_features
from falcon_gnn.training.models import GCN, Features, GCNLayer, OriginalSIGN
from falcon_gnn.training.propagation import SparseMatrix, take_rows
from falcon_gnn.training.usual_torch import usual_torch

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_FEWEST_COLUMNS, _ALIGNED_COLUMNS = 32, 8
"""Columns of a block are a multiple of the first, or where a piece has not so many, of the second."""


@dataclass(frozen=True)
class InferenceSettings:
    """Where and in what pieces outputs are computed.

    Attributes:
        device: Device the model is on.
        chunk_rows: Nodes per piece, >= 1; None for as many as fit 16 MiB of the widest layer.
        normalize_hops: As in ``TrainConfig``.
        piece_bytes: Bytes of the widest layer that are computed together; a block of columns has half as many more.
    """

    device: torch.device
    chunk_rows: int | None = None
    normalize_hops: bool = False
    piece_bytes: int = DEFAULT_PIECE_BYTES


def predict(
    model: nn.Module,
    config: ModelConfig,
    graph: Graph,
    *,
    node_ids: NDArray[np.int64] | None = None,
    chunk_rows: int | None = None,
    normalize_hops: bool = False,
) -> NDArray[np.float32]:
    """Return a model's outputs (logits) for nodes of a graph with the features it was trained on.

    Cluster-GCN and GAS are evaluated as the full-batch GCN they approximate: layer by layer, over all edges. Where only
    some nodes are asked for, only the neighborhoods they depend on are computed.

    Args:
        model: From ``build_model``, on the device to compute on; its mode is kept.
        config: The configuration it was built from.
        graph: Any graph, F features per node.
        node_ids: Nodes wanted, shape ``(n,)``; by default all.
        chunk_rows: Nodes per piece; by default as many as fit 16 MiB of the widest layer.
        normalize_hops: Whether the model was trained on features divided by their length (``spec.normalize_hops``).

    Returns:
        Shape ``(n, L)``.

    Raises:
        GraphError: If the graph has no features or another number of them than the model reads.
    """
    _check_features(model, config, graph)
    settings = InferenceSettings(next(model.parameters()).device, chunk_rows, normalize_hops)
    with usual_torch():
        return make_scorer(config, graph, node_ids, settings).outputs(model)


def make_scorer(
    config: ModelConfig, graph: Graph, node_ids: NDArray[np.int64] | None, settings: InferenceSettings
) -> "RowScorer | GraphScorer":
    """Return what computes a model's outputs for fixed nodes again and again; arguments as in :func:`predict`."""
    if config.uses_hop_features:
        features = hop_features(graph, config.num_hops, rows=node_ids, normalize=settings.normalize_hops)
        return RowScorer(features, settings)
    return GraphScorer(graph, node_ids, config, settings)


class RowScorer:
    """Outputs of a SIGN model for fixed rows of hop features.

    Args:
        features: Rows, in memory or memory-mapped, shape ``(n, (k + 1) F)``.
        settings: Device and chunk size.
    """

    def __init__(self, features: NDArray[Any], settings: InferenceSettings) -> None:
        self.features, self.settings = features, settings

    def outputs(self, model: nn.Module) -> NDArray[np.float32]:
        """Return the model's outputs, shape ``(n, L)``."""
        with evaluating(model):
            return _collect(self._pieces(model), len(self.features)).cpu().numpy()

    def _pieces(self, model: nn.Module) -> Iterator[tuple[slice, Tensor]]:
        num_rows = len(self.features)
        widest = max(max(parameter.shape) for parameter in model.parameters())
        for rows in chunks_of(num_rows, widest, self.settings):
            block = torch.from_numpy(np.asarray(self.features[rows], dtype=np.float32))
            yield rows, model(block.to(self.settings.device))


class GraphScorer:
    """Outputs of a GCN for fixed nodes of a graph; what depends on the graph alone is computed once.

    Every layer is computed by blocks of columns, each of which holds all its nodes. The first hidden layer is made
    again from the features whenever it is read, and the last one is multiplied with the weights above it block by
    block: up to three layers no matrix of the hidden size exists, beyond them the one that is read and the one made.

    Args:
        graph: The graph.
        node_ids: Nodes wanted, shape ``(n,)``; None for all.
        config: The model's configuration.
        settings: Device and chunk size.
    """

    def __init__(
        self, graph: Graph, node_ids: NDArray[np.int64] | None, config: ModelConfig, settings: InferenceSettings
    ) -> None:
        self.settings = settings
        adjacency, rows = normalized_csr(graph), node_ids
        self.levels: list[tuple[csr_array, NDArray[np.int64] | None]] = []
        for _ in range(config.num_layers - 1):
            if rows is None:
                self.levels.insert(0, (adjacency, None))
                continue
            sliced, columns = take_rows(adjacency, rows)
            self.levels.insert(0, (sliced, np.searchsorted(columns, rows)))
            rows = columns
        features = float_features(graph, normalize=settings.normalize_hops)
        self.aggregated = aggregate(adjacency if rows is None else adjacency[rows], features)
        self.features = None if not config.concat_self else features if rows is None else features[rows]
        self._whole: dict[int, SparseMatrix] = {}

    def outputs(self, model: nn.Module) -> NDArray[np.float32]:
        """Return the model's outputs, shape ``(n, L)``."""
        assert isinstance(model, GCN)
        with evaluating(model):
            return self._outputs(model).numpy()

    def _outputs(self, model: GCN) -> Tensor:
        depth = model.config.num_layers
        if depth == 1:
            return _collect(self._first_rows(model), self.aggregated.shape[0]).cpu()
        hidden: Tensor | None = None
        for index in range(1, depth - 2):
            made = torch.empty(self.levels[index - 1][0].shape[0], model.config.hidden_channels)
            for columns, block in self._hidden_blocks(model, index, hidden):
                made[:, columns] = block
                del block
            hidden = made
        products = _Products(model.layer(depth - 1), self.levels[-1][0].shape[1])
        if depth == 2:
            self._read(model, hidden, products)
        else:
            for columns, block in self._hidden_blocks(model, depth - 2, hidden):
                products.add(block, columns)
                del block
        return self._aggregate(model, depth - 1, products)

    def _hidden_blocks(self, model: GCN, index: int, hidden: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
        """Yield hidden layer ``index`` by blocks of columns, made of the one below; none of them is held here."""
        matrix, _ = self.levels[index - 1]
        for columns in self._column_blocks(model.config.hidden_channels, max(matrix.shape)):
            read = _Products(model.layer(index), matrix.shape[1], columns)
            self._read(model, hidden, read)
            yield columns, self._aggregate(model, index, read, columns)
            del read

    def _first_rows(self, model: GCN) -> Iterator[tuple[slice, Tensor]]:
        """Yield what the first layer makes of the features of the nodes that the wanted ones depend on, by rows."""
        device, layer = self.settings.device, model.layer(0)
        widest = max(layer.weight.shape)
        for rows in self._chunks(self.aggregated.shape[0], widest):
            own = None if self.features is None else self._read_features(self.features, rows).to(device)
            read = self._read_features(self.aggregated, rows).to(device)
            output = layer.transform_input(read, own)
            yield rows, output if model.config.num_layers == 1 else model.activate(0, output)

    def _chunks(self, num_rows: int, width: int) -> Iterator[slice]:
        return chunks_of(num_rows, width, self.settings)

    def _column_blocks(self, width: int, num_rows: int) -> Iterator[slice]:
        columns = self.settings.piece_bytes * 3 // 8 // max(num_rows, 1)
        aligned = _FEWEST_COLUMNS if columns >= _FEWEST_COLUMNS else _ALIGNED_COLUMNS
        step = max(columns // aligned, 1) * aligned
        for start in range(0, width, step):
            yield slice(start, min(start + step, width))

    def _read_features(self, features: FeatureMatrix, rows: slice) -> Features:
        return to_tensor(features[rows], for_training=False)

    def _read(self, model: GCN, hidden: Tensor | None, products: "_Products") -> None:
        """Multiply a hidden layer, the first one where there is none at hand, with the weights above it."""
        if hidden is None:
            for rows, piece in self._first_rows(model):
                products.put(piece, rows)
            return
        for rows in self._chunks(len(hidden), hidden.shape[1]):
            products.put(hidden[rows].to(self.settings.device), rows)

    def _aggregate(self, model: GCN, index: int, products: "_Products", columns: slice = slice(None)) -> Tensor:
        """Return columns of layer ``index``: aggregated products, the nodes' own ones, bias; activated if hidden."""
        matrix, own = self.levels[index - 1]
        layer, device = model.layer(index), self.settings.device

        def pieces() -> Iterator[tuple[slice, Tensor]]:
            for rows in self._adjacency_chunks(matrix.shape[0], products.neighbors.shape[1]):
                part, touched = self._cut(index - 1, rows)
                neighbors = products.neighbors if touched is None else products.neighbors[touched]
                output = (part @ neighbors.to(device)).add_(layer.bias[columns])
                if products.own is not None:
                    output.add_((products.own[rows] if own is None else products.own[own[rows]]).to(device))
                if index < model.config.num_layers - 1:
                    output = functional.relu_(_normalize_columns(model, index, output, columns))
                yield rows, output

        return _collect(pieces(), matrix.shape[0]).cpu()

    def _adjacency_chunks(self, num_rows: int, width: int) -> Iterator[slice]:
        """Yield rows of a layer that are aggregated together; all of them where all lie in host memory anyway."""
        if self.settings.chunk_rows is None and self.settings.device.type == "cpu":
            return iter([slice(0, num_rows)])
        return self._chunks(num_rows, width)

    def _cut(self, level: int, rows: slice) -> tuple[SparseMatrix, Tensor | None]:
        """Return rows of Ã and the columns that they touch, None for all; a layer in one piece stays on the device."""
        matrix, _ = self.levels[level]
        device = self.settings.device
        if rows.stop - rows.start < matrix.shape[0]:
            part, columns = take_rows(matrix, np.arange(rows.start, rows.stop))
            return SparseMatrix.from_scipy(part).to(device), torch.from_numpy(columns)
        if level not in self._whole:
            self._whole[level] = SparseMatrix.from_scipy(matrix).to(device)
        return self._whole[level], None


class _Products:
    """What a hidden layer's nodes give to the layer above: H W[:, c] for their neighbors, H W'[:, c] for themselves.

    Both lie in host memory, shape ``(n, c)``.

    Args:
        layer: The layer above.
        num_rows: n.
        columns: c; by default all columns.
    """

    def __init__(self, layer: GCNLayer, num_rows: int, columns: slice = slice(None)) -> None:
        self.weight = layer.weight[:, columns]
        self.own_weight = None if layer.own_weight is None else layer.own_weight[:, columns]
        self.neighbors = torch.zeros(num_rows, self.weight.shape[1])
        self.own = None if self.own_weight is None else torch.zeros_like(self.neighbors)

    def put(self, hidden: Tensor, rows: slice) -> None:
        """Set the products of some rows of H."""
        self.neighbors[rows] = hidden @ self.weight
        if self.own is not None and self.own_weight is not None:
            self.own[rows] = hidden @ self.own_weight

    def add(self, block: Tensor, columns: slice) -> None:
        """Add what some columns of H contribute, in chunks of rows on the layer's device."""
        pairs = [
            (total, weight[columns])
            for total, weight in ((self.neighbors, self.weight), (self.own, self.own_weight))
            if total is not None and weight is not None
        ]
        for rows in row_chunks(len(block), max(self.weight.shape[1], block.shape[1])):
            piece = block[rows].to(self.weight.device)
            for total, weight in pairs:
                total[rows].add_((piece @ weight).cpu())


def _normalize_columns(model: GCN, index: int, output: Tensor, columns: slice) -> Tensor:
    """Return columns of a hidden layer after batch norm with running statistics; themselves without one."""
    if not model.norms:
        return output
    norm = model.norms[index]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight[columns] * (norm.running_var[columns] + norm.eps).rsqrt()
    return output.sub_(norm.running_mean[columns]).mul_(scale).add_(norm.bias[columns])


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch a model to evaluation without gradients, and back to the mode it was in."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def _collect(pieces: Iterator[tuple[slice, Tensor]], num_rows: int) -> Tensor:
    """Return pieces as one matrix: in host memory, unless there is one only."""
    result = torch.empty(0)
    for rows, piece in pieces:
        if len(piece) == num_rows:
            return piece
        if rows.start == 0:
            result = torch.empty(num_rows, piece.shape[1])
        result[rows] = piece.cpu()
    return result


def chunks_of(num_rows: int, width: int, settings: InferenceSettings) -> Iterator[slice]:
    """Yield the ranges of rows that are computed together, ``width`` being that of the widest layer."""
    step = settings.chunk_rows or max(1, settings.piece_bytes // 4 // width)
    for start in range(0, max(num_rows, 1), step):
        yield slice(start, min(start + step, num_rows))


def _check_features(model: nn.Module, config: ModelConfig, graph: Graph) -> None:
    """Compare the features of a graph with those that the model reads.

    Raises:
        GraphError: If there are none, or another number of them.
    """
    require_features(graph)
    if isinstance(model, GCN):
        wanted = model.layer(0).weight.shape[0]
    elif isinstance(model, OriginalSIGN):
        wanted = model.hop_channels
    else:
        wanted = next(model.parameters()).shape[1] // (config.num_hops + 1)
    if graph.num_features != wanted:
        msg = (
            f"graph.x must have the {wanted} features the model was trained on, got {graph.num_features}. Load the "
            "graph with the same columns in the same order."
        )
        raise GraphError(msg)
