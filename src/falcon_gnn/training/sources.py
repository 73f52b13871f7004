"""From a graph and a configuration to the source of its training batches."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from falcon_gnn.errors import GraphError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.labels import Task
from falcon_gnn.training.batches import BatchSource, FullBatch, PartBatches, PartSettings, RowBatches
from falcon_gnn.training.config import TrainConfig
from falcon_gnn.training.history import Histories, HistoryBatches
from falcon_gnn.training.hops import Readout, float_features, hop_features, require_features
from falcon_gnn.training.targets import Targets, check_metric, resolve_task, take_targets, training_nodes
from falcon_gnn.training.weights import ModelSpec

HopSource = Callable[[], tuple[Graph, Readout]]
"""Returns a graph to compute hop features on, and what each node of the training graph reads there: the id of one node,
shape ``(n,)``, or the weights of a mean over nodes, SciPy CSR of shape ``(n, N)``. It is called when they are read, and
what it returns is let go before the training begins."""


def check_trainable(graph: Graph, config: TrainConfig) -> None:
    """Stop where a graph cannot be trained on, however it is reduced, so that this is said before it is.

    Raises:
        GraphError: If the graph has no features or no labelled training node, or a label is none.
        OptionError: If the classes or the validation score do not fit the labels.
        BudgetError: If the model's weights do not fit into memory.
    """
    require_features(graph)
    task, num_outputs = resolve_task(graph, graph, config.task, config.num_classes)
    check_metric(config.validation_metric, graph, task, num_outputs)
    training_nodes(graph, task)
    ModelSpec(config.model, graph.num_features, num_outputs, task).check_size()


def make_source(
    graph: Graph, config: TrainConfig, task: Task, device: torch.device, hop_source: HopSource | None = None
) -> BatchSource:
    """Return what yields the training batches that the configured model needs.

    Args:
        graph: The training graph, reduced or not.
        config: Model, number of batches, seed.
        task: What the labels are.
        device: Where a full batch stays, and from where histories are read.
        hop_source: For the SIGN models and a GCN trained on rows: another graph to compute hop features on, and what
            each node of ``graph`` reads there.

    Raises:
        GraphError: If the graph has no features or no labelled training node, or those of ``hop_source`` do not fit.
        OptionError: If ``hop_source`` is for other models, or names other nodes.
    """
    require_features(graph)
    if hop_source is not None and not config.trains_on_rows:
        msg = (
            "hop_source is read by sign, qsign, sign-original and, with train_on='rows', gcn, got "
            f"model={config.model.model!r} with train_on={config.train_on!r}. Leave it out."
        )
        raise OptionError(msg)
    node_ids = training_nodes(graph, task)
    targets = take_targets(graph, task, node_ids).with_power(config.weight_power)
    model = config.model
    if config.trains_on_rows:
        return _make_row_source(graph, config, node_ids, targets, hop_source).staying_on(device)
    if model.model == "gcn":
        return FullBatch(graph, node_ids, targets, model.concat_self, device, normalize=config.normalize_hops)
    num_parts = config.batches_of_parts if model.num_parts is None else model.num_parts
    settings = PartSettings(num_parts, config.batches_of_parts, model.concat_self, config.seed, config.normalize_hops)
    if model.model == "cluster-gcn":
        return PartBatches(graph, node_ids, targets, settings)
    histories = Histories(graph.num_nodes, model.hidden_channels, model.num_layers - 1)
    if device.type == "cuda":
        histories.lock(device)
    return HistoryBatches(graph, node_ids, targets, settings, histories)


def _check_hop_source(graph: Graph, source_graph: Graph, readout: Readout) -> None:
    """Compare what a hop source returned with the training graph.

    Raises:
        OptionError: If the ids or weights do not fit.
        GraphError: If the features do not.
    """
    if not _fits(readout, graph.num_nodes, source_graph.num_nodes):
        msg = (
            f"hop_source must name, for each of the {graph.num_nodes} nodes of graph, a node of its own graph in "
            f"[0, {source_graph.num_nodes}) or a row of weights of all of them, got {readout.dtype} of shape "
            f"{readout.shape}. Use the ids that the collapse kept."
        )
        raise OptionError(msg)
    check_same_features(graph, source_graph, "hop_source's graph")


def _fits(readout: Readout, num_rows: int, num_nodes: int) -> bool:
    if not isinstance(readout, np.ndarray):
        return bool(readout.shape == (num_rows, num_nodes))
    is_ids = readout.shape == (num_rows,) and readout.dtype.kind in "iu"
    return is_ids and bool(readout.min() >= 0 and readout.max() < num_nodes)


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
    source_graph, rows = graph, node_ids
    if hop_source is not None:
        source_graph, readout = hop_source()
        _check_hop_source(graph, source_graph, readout)
        rows = readout[node_ids]
    if config.train_on == "rows":
        depth = config.model.num_layers
        if config.normalize_hops:
            source_graph = source_graph.replace(x=float_features(source_graph, normalize=True))
        features = hop_features(source_graph, depth, rows=rows, first_hop=depth)
    else:
        features = hop_features(source_graph, config.model.num_hops, rows=rows, normalize=config.normalize_hops)
    return RowBatches(features, targets, config.batches_of_rows(len(node_ids)), config.seed)
