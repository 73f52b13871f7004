"""What a training step needs, by prediction: no data, no device."""

from dataclasses import asdict, dataclass

from falcon_gnn.training.config import TrainConfig
from falcon_gnn.training.evaluation_shapes import EvaluationShape, predict_evaluation
from falcon_gnn.training.memory import MemoryPeak
from falcon_gnn.training.partition import BatchSize
from falcon_gnn.training.shapes import GraphShape, largest_batch, predict_step
from falcon_gnn.training.workspace import workspace_bytes


@dataclass(frozen=True)
class MemoryEstimate:
    """Predicted bytes at the peak of one training step, by what they are for.

    Attributes:
        weights: Parameters and running statistics.
        gradients: Gradients of the parameters.
        optimizer: Adam's two moments.
        activations: What the forward pass keeps or still holds.
        inputs: The batch: features, adjacency, targets.
        temporaries: Buffers inside operators, and the matrix libraries' workspace.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    inputs: int
    temporaries: int

    @property
    def total(self) -> int:
        """The predicted peak in bytes."""
        return sum(asdict(self).values())


def estimate_memory(shape: GraphShape, config: TrainConfig) -> MemoryEstimate:
    """Return the predicted peak of a training step, from one step under fake tensors: no data, no device.

    Args:
        shape: Nodes, edges, features and labels of the graph to train on.
        config: The model and how it is trained.
    """
    return estimate_batch(shape, largest_batch(shape, config), config)


def estimate_batch(shape: GraphShape, batch: BatchSize, config: TrainConfig) -> MemoryEstimate:
    """Return the predicted peak of a training step on a batch of a graph."""
    peak: MemoryPeak = predict_step(shape, batch, config)
    return MemoryEstimate(
        weights=peak.parameters, gradients=peak.gradients, optimizer=peak.optimizer, activations=peak.activations,
        inputs=peak.inputs, temporaries=peak.temporaries + workspace_bytes(config),
    )  # fmt: skip


def estimate_evaluation(shape: EvaluationShape, config: TrainConfig) -> int:
    """Return the predicted peak of an evaluation between two epochs, in bytes.

    Args:
        shape: What is scored.
        config: The model and how it is trained.
    """
    return predict_evaluation(shape, config) + workspace_bytes(config)
