"""A trained model's outputs for the nodes of any graph, in chunks, without gradients and in float32."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from falcon_gnn.errors import GraphError
from falcon_gnn.graph import Graph
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.training.batches import to_tensor
from falcon_gnn.training.config import ModelConfig
from falcon_gnn.training.hops import aggregate, float_features, hop_features, require_features
from falcon_gnn.training.models import GCN, Features, OriginalSIGN
from falcon_gnn.training.propagation import SparseMatrix, take_rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_CHUNK_VALUES = 1 << 26


@dataclass(frozen=True)
class InferenceSettings:
    """Where and in what pieces outputs are computed.

    Attributes:
        device: Device the model is on.
        chunk_rows: Nodes per piece, >= 1; None for as many as fit 256 MiB of the widest layer.
        normalize_hops: As in ``TrainConfig``.
    """

    device: torch.device
    chunk_rows: int | None = None
    normalize_hops: bool = False


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
        chunk_rows: Nodes per piece; by default as many as fit 256 MiB.
        normalize_hops: Whether the model was trained on features divided by their length (``spec.normalize_hops``).

    Returns:
        Shape ``(n, L)``.

    Raises:
        GraphError: If the graph has no features or another number of them than the model reads.
    """
    settings = InferenceSettings(next(model.parameters()).device, chunk_rows, normalize_hops)
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
        _check_width(model, self.features.shape[1])
        with evaluating(model):
            return _collect(self._pieces(model), len(self.features)).cpu().numpy()

    def _pieces(self, model: nn.Module) -> Iterator[tuple[slice, Tensor]]:
        num_rows, width = self.features.shape
        for rows in _chunks(num_rows, width, self.settings):
            block = torch.from_numpy(np.asarray(self.features[rows], dtype=np.float32))
            yield rows, model(block.to(self.settings.device))


@dataclass(frozen=True)
class _Piece:
    """Nodes of one layer that are computed together.

    Attributes:
        rows: Which nodes of the layer.
        matrix: What the previous layer's vectors are multiplied with.
        columns: Which vectors of the previous layer it multiplies; None for all.
        own: Which vectors of the previous layer are those of the piece's own nodes; None for all.
    """

    rows: slice
    matrix: SparseMatrix
    columns: Tensor | None
    own: Tensor | None


class GraphScorer:
    """Outputs of a GCN for fixed nodes of a graph; what depends on the graph alone is computed once.

    Args:
        graph: The graph.
        node_ids: Nodes wanted, shape ``(n,)``; None for all.
        config: The model's configuration.
        settings: Device and chunk size.
    """

    def __init__(
        self, graph: Graph, node_ids: NDArray[np.int64] | None, config: ModelConfig, settings: InferenceSettings
    ) -> None:
        require_features(graph)
        self.settings, self.width = settings, config.hidden_channels
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
        self._inputs: tuple[Features, Features | None] | None = None
        self._whole: dict[int, _Piece] = {}

    def outputs(self, model: nn.Module) -> NDArray[np.float32]:
        """Return the model's outputs, shape ``(n, L)``."""
        _check_width(model, self.aggregated.shape[1])
        with evaluating(model):
            outputs: Tensor = model(self)
            return outputs.cpu().numpy()

    def first_layer(self, model: GCN) -> Tensor:
        """Return what layer 0 makes of the features of the nodes that the wanted ones depend on."""

        def pieces() -> Iterator[tuple[slice, Tensor]]:
            for rows in _chunks(self.aggregated.shape[0], self.width, self.settings):
                yield rows, self._finish(model, 0, model.layer(0).transform_input(*self._read(rows)))

        return _collect(pieces(), self.aggregated.shape[0])

    def activate(self, model: GCN, level: int, output: Tensor) -> Tensor:
        """Return the output: the pieces it is made of were activated one by one."""
        return output

    def next_layer(self, model: GCN, level: int, hidden: Tensor) -> Tensor:
        """Return what layer ``level`` makes of its input for the nodes that the wanted ones depend on."""
        num_rows, device = self.levels[level - 1][0].shape[0], self.settings.device

        def pieces() -> Iterator[tuple[slice, Tensor]]:
            for rows in _chunks(num_rows, self.width, self.settings):
                piece = self._cut(level - 1, rows)
                source = (hidden if piece.columns is None else hidden[piece.columns]).to(device)
                own = source if piece.own is None else hidden[piece.own].to(device)
                yield rows, self._finish(model, level, model.layer(level)(piece.matrix, source, own))

        return _collect(pieces(), num_rows)

    def _finish(self, model: GCN, level: int, output: Tensor) -> Tensor:
        return output if level == len(self.levels) else model.activate(level, output)

    def _read(self, rows: slice) -> tuple[Features, Features | None]:
        """Return ÃX and X of some nodes on the device, where they stay if these are all."""
        if self._inputs is not None:
            return self._inputs
        device = self.settings.device
        features = None if self.features is None else to_tensor(self.features[rows], for_training=False).to(device)
        inputs = to_tensor(self.aggregated[rows], for_training=False).to(device), features
        if rows.stop - rows.start == self.aggregated.shape[0]:
            self._inputs = inputs
        return inputs

    def _cut(self, level: int, rows: slice) -> _Piece:
        """Return a piece of a hidden layer; a layer in one piece stays on the device."""
        matrix, own = self.levels[level]
        device = self.settings.device
        if rows.stop - rows.start < matrix.shape[0]:
            ids = np.arange(rows.start, rows.stop)
            part, columns = take_rows(matrix, ids)
            own_rows = torch.from_numpy(ids if own is None else own[rows])
            return _Piece(rows, SparseMatrix.from_scipy(part).to(device), torch.from_numpy(columns), own_rows)
        if level not in self._whole:
            whole = SparseMatrix.from_scipy(matrix).to(device)
            self._whole[level] = _Piece(rows, whole, None, None if own is None else torch.from_numpy(own))
        return self._whole[level]


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


def _chunks(num_rows: int, width: int, settings: InferenceSettings) -> Iterator[slice]:
    step = settings.chunk_rows or max(1, _CHUNK_VALUES // width)
    for start in range(0, max(num_rows, 1), step):
        yield slice(start, min(start + step, num_rows))


def _check_width(model: nn.Module, width: int) -> None:
    """Compare the columns at hand with what the model reads.

    Raises:
        GraphError: If they differ.
    """
    if isinstance(model, GCN):
        wanted = model.layer(0).weight.shape[0]
    elif isinstance(model, OriginalSIGN):
        wanted = len(model.hops) * model.hop_channels
    else:
        wanted = next(model.parameters()).shape[1]
    if width != wanted:
        msg = f"graph.x must have the features the model was trained on: {wanted} input columns, got {width}."
        raise GraphError(msg)
