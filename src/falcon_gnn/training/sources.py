"""From a graph and a configuration to the source of its training batches."""

import numpy as np
import torch
from numpy.typing import NDArray

from falcon_gnn.errors import GraphError
from falcon_gnn.graph import Graph
from falcon_gnn.labels import Task
from falcon_gnn.training.batches import BatchSource, FullBatch, PartBatches, PartSettings, RowBatches
from falcon_gnn.training.configs import TrainConfig
from falcon_gnn.training.history import Histories, HistoryBatches
from falcon_gnn.training.hops import hop_features, require_features
from falcon_gnn.training.targets import Targets, take_targets, training_nodes

HopSource = tuple[Graph, NDArray[np.int64]]
"""A graph, and which of its nodes each node of the training graph is: there the hop features are computed."""


def make_source(
    graph: Graph, config: TrainConfig, task: Task, device: torch.device, hop_source: HopSource | None = None
) -> BatchSource:
    """Return what yields the training batches that the configured model needs.

    Args:
        graph: The training graph, reduced or not.
        config: Model, number of batches, seed.
        task: What the labels are.
        device: Where a full batch stays.
        hop_source: For the SIGN models: another graph to compute hop features on, and the id there of each node of
            ``graph``.

    Raises:
        GraphError: If the graph has no features or no labelled training node, or ``hop_source`` does not fit.
    """
    require_features(graph)
    check_hop_source(graph, config, hop_source)
    node_ids = training_nodes(graph, task)
    targets = take_targets(graph, task, node_ids)
    model = config.model
    if model.uses_hop_features:
        return _make_row_source(graph, config, node_ids, targets, hop_source)
    if model.model == "gcn":
        return FullBatch(graph, node_ids, targets, model.concat_self, device)
    num_parts = config.num_batches if model.num_parts is None else model.num_parts
    settings = PartSettings(num_parts, config.num_batches, model.concat_self, config.seed)
    if model.model == "cluster-gcn":
        return PartBatches(graph, node_ids, targets, settings)
    histories = Histories(
        graph.num_nodes, model.hidden_channels, model.num_layers - 1, pin_memory=device.type == "cuda"
    )
    return HistoryBatches(graph, node_ids, targets, settings, histories)


def check_hop_source(graph: Graph, config: TrainConfig, hop_source: HopSource | None) -> None:
    """Compare a hop source with the model and the training graph.

    Raises:
        GraphError: If the model reads no hop features, or the ids or features do not fit.
    """
    if hop_source is None:
        return
    if not config.model.uses_hop_features:
        msg = (
            f"hop_source is read by sign, qsign and sign-original only, got model={config.model.model!r}. Leave it out."
        )
        raise GraphError(msg)
    source_graph, ids = hop_source[0], np.asarray(hop_source[1])
    in_range = ids.shape == (graph.num_nodes,) and ids.dtype.kind in "iu"
    if not in_range or ids.min() < 0 or ids.max() >= source_graph.num_nodes:
        msg = (
            f"hop_source must name, for each of the {graph.num_nodes} nodes of graph, a node of its own graph in "
            f"[0, {source_graph.num_nodes}), got {ids.dtype} of shape {ids.shape}. Use the ids that the collapse kept."
        )
        raise GraphError(msg)
    check_same_features(graph, source_graph, "hop_source's graph")


def check_same_features(graph: Graph, other: Graph, name: str) -> None:
    """Compare the number of features of two graphs.

    Raises:
        GraphError: If they differ.
    """
    if graph.num_features != other.num_features:
        msg = (
            f"graph and {name} must have the same features, got {graph.num_features} and {other.num_features} columns."
        )
        raise GraphError(msg)


def _make_row_source(
    graph: Graph, config: TrainConfig, node_ids: NDArray[np.int64], targets: Targets, hop_source: HopSource | None
) -> RowBatches:
    source_graph, rows = (graph, node_ids) if hop_source is None else (hop_source[0], hop_source[1][node_ids])
    features = hop_features(source_graph, config.model.num_hops, rows=rows)
    # Batch norm has no variance to go by in a batch of one row.
    most_batches = max(1, len(node_ids) // 2) if config.model.batch_norm else len(node_ids)
    return RowBatches(features, targets, min(config.num_batches, most_batches), config.seed)
