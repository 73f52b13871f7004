"""What a training step needs, by prediction: no data, no device."""

import os
import re
from dataclasses import asdict, dataclass

import torch

from falcon_gnn.training.config import TrainConfig
from falcon_gnn.training.evaluation_shapes import EvaluationShape, predict_evaluation
from falcon_gnn.training.memory import MemoryPeak
from falcon_gnn.training.partition import BatchSize
from falcon_gnn.training.shapes import GraphShape, largest_batch, predict_step, trains_on_cuda
from falcon_gnn.training.steps import resolve_device

CUDA_THREADS = 2
"""Threads that multiply on a CUDA device, the program's and that of the backward pass: each has a workspace."""
CPU_WORKSPACE_BYTES = 4 * 2**20
"""Set aside for the matrix library's packing buffers on the CPU, which it keeps from one product to the next. MKL says
4.4 to 7.6 MiB per thread for the products of a step, part of which is ever touched; small products need none."""


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
    """Return the predicted peak of an evaluation between two epochs, in bytes; 0 where it is not predicted.

    Args:
        shape: What is scored.
        config: The model and how it is trained.
    """
    found = predict_evaluation(shape, config)
    return found + workspace_bytes(config) if found else 0


def workspace_bytes(config: TrainConfig) -> int:
    """Return what is set aside for the matrix library on the device that a configuration trains on."""
    if not trains_on_cuda(config):
        return CPU_WORKSPACE_BYTES
    return CUDA_THREADS * _cuda_workspace_bytes(config)


def _cuda_workspace_bytes(config: TrainConfig) -> int:
    """Return the workspace that torch gives cuBLAS for a thread: as the environment says, or by the card.

    Without a card at hand it is that of the newest, which is the largest.
    """
    asked = re.findall(r":(\d+):(\d+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if config.deterministic and not asked:
        asked = [("4096", "8")]
    if asked:
        return sum(int(kib) * int(count) for kib, count in asked) * 1024
    if torch.cuda.is_available() and torch.cuda.get_device_capability(resolve_device(config.device))[0] < 9:
        return (4096 * 2 + 16 * 8) * 1024
    return 32 * 2**20
