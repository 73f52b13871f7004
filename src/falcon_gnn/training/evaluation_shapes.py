"""The predicted peak of scoring a model on the original graph: one evaluation under fake tensors, no data."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from math import ceil

import torch
from torch import Tensor

from falcon_gnn.graph import Graph
from falcon_gnn.training.config import TrainConfig
from falcon_gnn.training.inference import GraphScorer, InferenceSettings, chunks_of, evaluating
from falcon_gnn.training.memory import measure_peak, tensors_within
from falcon_gnn.training.models import GCN, Features, build_model
from falcon_gnn.training.propagation import SparseMatrix
from falcon_gnn.training.shapes import GraphShape, fake_sparse, trains_on_cuda

_LARGEST_PIECE = 1.25
"""Entries of the fullest piece of rows of Ã in those of a mean one."""


@dataclass(frozen=True)
class EvaluationShape:
    """What the memory of an evaluation depends on.

    Attributes:
        graph: The original graph; what is trained on is a part of it.
        num_wanted: Nodes that are scored together: the larger of the validation and the test mask, all without masks.
    """

    graph: GraphShape
    num_wanted: int


def evaluation_of_graph(graph: Graph, shape: GraphShape) -> EvaluationShape:
    """Return what the memory of scoring a graph depends on.

    Args:
        graph: The original graph.
        shape: Of it, for the model that is scored.
    """
    counts = [int(mask.sum()) for mask in (graph.val_mask, graph.test_mask) if mask is not None]
    return EvaluationShape(shape, max(counts, default=graph.num_nodes))


def predict_evaluation(shape: EvaluationShape, config: TrainConfig) -> int:
    """Return the predicted peak of an evaluation between two epochs, in bytes, the optimizer's moments among them.

    On CUDA what lies in host memory, such as a GCN's products, is left out, and each piece of its rows is taken to have
    a quarter more entries than the mean one and to touch as many nodes.

    Args:
        shape: What is scored.
        config: The model and how it is trained.
    """
    # Of a training only this matters, so that models which are scored alike are predicted once.
    name = config.model.model if config.model.uses_hop_features else "gcn"
    model = replace(config.model, model="sign" if name == "qsign" else name, bits=None, num_parts=None)
    device = "cuda" if trains_on_cuda(config) else "cpu"
    return _predict(shape, TrainConfig(model, eval_piece_bytes=config.eval_piece_bytes, device=device))


@lru_cache(maxsize=1_024)
def _predict(shape: EvaluationShape, config: TrainConfig) -> int:
    from torch._subclasses.fake_tensor import FakeTensorMode

    graph, device = shape.graph, _stand_in(config)
    # Batch norm counts batches in a tensor that is no fake where a device is the default.
    with FakeTensorMode(allow_non_fake_inputs=True), torch.random.fork_rng([]):
        with device:
            model = build_model(config.model, graph.num_features, graph.num_outputs)
        moments = 2 * sum(parameter.nbytes for parameter in model.parameters())
        if isinstance(model, GCN):
            scorer = _FakeScorer(shape, config)
            # What a first evaluation leaves on a card is there throughout the next.
            peak = measure_peak(lambda: scorer.score(model), device, known=lambda: tensors_within([model, scorer]))
            return peak.total + moments + scorer.constant_bytes
        settings = InferenceSettings(device, piece_bytes=config.eval_piece_bytes)
        width = (config.model.num_hops + 1) * graph.num_features

        def score() -> None:
            widest = max(max(parameter.shape) for parameter in model.parameters())
            outputs = torch.empty(shape.num_wanted, graph.num_outputs)
            with evaluating(model):
                for rows in islice(chunks_of(shape.num_wanted, widest, settings), 2):
                    # The piece before is held until the next one is made.
                    piece = model(torch.empty(rows.stop - rows.start, width, device=device))
                    outputs[rows] = piece

        return measure_peak(score, device, _nothing, lambda: tensors_within(model)).total + moments


def _stand_in(config: TrainConfig) -> torch.device:
    """Return the device whose tensors count: the CPU, or for a card one that is not the CPU and needs no driver."""
    return torch.device("meta" if trains_on_cuda(config) else "cpu")


def _nothing() -> None:
    """Leave nothing behind: an evaluation makes no lasting state."""


class _FakeScorer(GraphScorer):
    """A scorer of a graph's shape; to be made under a fake tensor mode."""

    def __init__(self, shape: EvaluationShape, config: TrainConfig) -> None:
        graph, depth = shape.graph, config.model.num_layers
        self.graph = graph
        self.settings = InferenceSettings(_stand_in(config), piece_bytes=config.eval_piece_bytes)
        entries = 2 * graph.num_edges + graph.num_nodes
        whole = fake_sparse(graph.num_nodes, graph.num_nodes, entries)
        last = fake_sparse(shape.num_wanted, graph.num_nodes, max(1, entries * shape.num_wanted // graph.num_nodes))
        wanted = torch.empty(shape.num_wanted, dtype=torch.int64)
        by_level = {index: last if index == depth - 2 else whole for index in range(depth - 1)}
        rows = [(matrix, wanted if index == depth - 2 else None) for index, matrix in by_level.items()]
        is_on_host = self.settings.device.type == "cpu"
        self._whole = by_level if is_on_host else {}
        self.levels = [(_Shaped(matrix), own) for matrix, own in rows]  # type: ignore[misc]
        self.aggregated = _Shaped(torch.empty(0), (graph.num_nodes, graph.num_features))
        self.features = self.aggregated if config.model.concat_self else None
        stored = [graph.input_entries] + ([graph.feature_entries] if config.model.concat_self else [])
        held = [4 * graph.num_nodes * graph.num_features if count is None else 8 * count for count in stored]
        self.constant_bytes = sum(held) if is_on_host else 0

    def score(self, model: GCN) -> None:
        """Compute the outputs."""
        with evaluating(model):
            self._outputs(model)

    def _chunks(self, num_rows: int, width: int) -> Iterator[slice]:
        # The others need no more than the second.
        return islice(super()._chunks(num_rows, width), 2)

    def _cut(self, level: int, rows: slice) -> tuple[SparseMatrix, Tensor | None]:
        matrix, _ = self.levels[level]
        num_rows, num_entries = rows.stop - rows.start, matrix.matrix.values.shape[0]
        if num_rows == matrix.shape[0]:
            if level not in self._whole:
                self._whole[level] = matrix.matrix.to(self.settings.device)
            return self._whole[level], None
        count = ceil(_LARGEST_PIECE * num_entries * num_rows / matrix.shape[0])
        touched = min(matrix.shape[1], count)
        return fake_sparse(num_rows, touched, count).to(self.settings.device), torch.empty(touched, dtype=torch.int64)

    def _column_blocks(self, width: int, num_rows: int) -> Iterator[slice]:
        return islice(super()._column_blocks(width, num_rows), 2)

    def _read_features(self, features: object, rows: slice) -> Features:
        num_rows = rows.stop - rows.start
        count = self.graph.input_entries if features is self.aggregated else self.graph.feature_entries
        if count is None:
            return torch.empty(num_rows, self.graph.num_features)
        return fake_sparse(num_rows, self.graph.num_features, max(1, count * num_rows // self.graph.num_nodes))


class _Shaped:
    """Something that has a shape."""

    def __init__(self, matrix: SparseMatrix | Tensor, shape: tuple[int, int] | None = None) -> None:
        self.matrix = matrix
        if shape is None:
            assert isinstance(matrix, SparseMatrix)
            shape = (matrix.num_rows, matrix.num_columns)
        self.shape = shape
