"""Whether the features of all training nodes stay on a card."""

import logging
from dataclasses import replace

import torch

from falcon_gnn.graph import Graph
from falcon_gnn.resources import format_bytes
from falcon_gnn.training.batches import BatchSource, KeepsFeatures
from falcon_gnn.training.config import TrainConfig
from falcon_gnn.training.partition import BatchSize
from falcon_gnn.training.shapes import GraphShape, predict_step, shape_of_targets
from falcon_gnn.training.targets import training_nodes
from falcon_gnn.training.weights import ModelSpec
from falcon_gnn.training.workspace import tensor_memory, workspace_bytes

_logger = logging.getLogger(__name__)


def place_features(
    source: BatchSource, graph: Graph, spec: ModelSpec, config: TrainConfig, device: torch.device
) -> None:
    """Let the features stay on a card if the configuration says so, or leaves it open and they fit beside a step.

    Args:
        source: Of the batches.
        graph: What is trained on.
        spec: What the model is.
        config: How it is trained.
        device: Where.
    """
    if device.type != "cuda" or config.features_on == "host" or not isinstance(source, KeepsFeatures):
        return
    if not source.feature_bytes:
        return
    if config.features_on == "auto":
        size = BatchSize.largest([batch.size for batch in source.sizes(1)])
        shape = GraphShape(
            graph.num_nodes, graph.num_edges, graph.num_features, spec.num_outputs, spec.task, size.num_targets,
            targets=shape_of_targets(graph, config, spec.task, training_nodes(graph, spec.task)),
        )  # fmt: skip
        step = predict_step(shape, size, replace(config, features_on="host")).total + workspace_bytes(config)
        free, needed = tensor_memory(device), step + source.feature_bytes
        where = "on the card" if needed <= free else "in host memory"
        _logger.info(
            "features stay %s: with a step they need %s, and %s are free", where, *map(format_bytes, (needed, free))
        )
        if needed > free:
            return
    source.keep_features(device)
