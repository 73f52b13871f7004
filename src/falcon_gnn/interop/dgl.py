"""DGL: graphs from and to homogeneous ``dgl.DGLGraph``."""

import warnings
from typing import Any

import numpy as np

from falcon_gnn.errors import FalconWarning, GraphError, require
from falcon_gnn.graph import MASK_NAMES, SOFT_NAMES, Graph
from falcon_gnn.graph_checks import check_attribute_names, require_graph
from falcon_gnn.interop.tensors import edge_weights_to_tensor, features_to_tensor, labels_to_tensor, to_array, to_tensor
from falcon_gnn.masks import find_masks

_WEIGHTS = ("weight", "w", "edge_weight")


def from_dgl(graph: Any, *, x: str = "feat", y: str = "label") -> Graph:
    """Return the graph of a homogeneous DGL graph.

    Args:
        graph: A ``dgl.DGLGraph``; masks are read from ``ndata`` as ``train_mask``, ``val_mask``, ``test_mask``, weights
            of nodes as ``node_weight`` and ``self_weight``, those of edges from ``edata`` as ``weight``, ``w`` or
            ``edge_weight``. Other node data are kept, other edge data are left out with a warning.
        x: Name of the features in ``ndata``; ignored where it is absent.
        y: Name of the labels in ``ndata``.

    Raises:
        GraphError: If ``graph`` is no graph of DGL, or has several node or edge types.
    """
    if not hasattr(graph, "is_homogeneous"):
        msg = f"graph must be a dgl.DGLGraph, got {type(graph).__name__}."
        raise GraphError(msg)
    if not graph.is_homogeneous:
        msg = "graph must have one node type and one edge type. Use dgl.to_homogeneous(graph) first."
        raise GraphError(msg)
    source, target = graph.edges()
    weight = next((name for name in _WEIGHTS if name in graph.edata), None)
    unused = [name for name in graph.edata if name != weight]
    if unused:
        msg = f"edge data {', '.join(unused)} left out: attributes of edges cannot follow a collapse."
        warnings.warn(msg, FalconWarning, stacklevel=2)
    columns = {name: to_array(value) for name, value in graph.ndata.items()}
    named = {role: columns.pop(name) for role, name in (("x", x), ("y", y)) if name in columns}
    masks = {name: columns.pop(name).astype(np.bool_) for name in MASK_NAMES if name in columns}
    named |= {name: columns.pop(name) for name in SOFT_NAMES if name in columns}
    # Node data have a row per node: whole numbers called train_id are no list of ids.
    flags = [key for key, value in columns.items() if value.dtype.kind == "b" or key.endswith("_mask")]
    others, names = find_masks(columns | masks, graph.num_nodes(), flags)
    columns = {name: value for name, value in columns.items() if name not in names}
    return Graph.from_edges(
        np.stack([to_array(source), to_array(target)]),
        graph.num_nodes(),
        edge_weight=None if weight is None else to_array(graph.edata[weight]),
        warn_one_way="always",
        node_attributes=columns,
        **named,
        **masks,
        **others,
    )


def to_dgl(graph: Graph) -> Any:
    """Return a ``dgl.DGLGraph`` with every edge in both directions; ``feat``, ``label`` and masks in ``ndata``.

    Args:
        graph: The graph; sparse features become dense, weights ``edata["weight"]``; strings among the node
            attributes are left out, since DGL holds tensors only.

    Raises:
        GraphError: If ``graph`` is no ``Graph``, or a node attribute bears the name of other node data.
        MissingDependencyError: If DGL is not installed.
    """
    require_graph(graph, Graph)
    try:
        dgl = require("dgl", "train")
    except ImportError as error:
        msg = f"{error}. DGL comes from its own site, dgl.ai, and is in no extra of falcon-gnn."
        raise type(error)(msg) from error
    source, target = (to_tensor(ids) for ids in graph.edge_index)
    result = dgl.graph((source, target), num_nodes=graph.num_nodes)
    if graph.x is not None:
        result.ndata["feat"] = features_to_tensor(graph.x, dense=True)
    if graph.y is not None:
        result.ndata["label"] = labels_to_tensor(graph.y)
    for name in (*MASK_NAMES, *SOFT_NAMES):
        if getattr(graph, name) is not None:
            result.ndata[name] = to_tensor(getattr(graph, name))
    check_attribute_names(graph.node_attributes, result.ndata, "a DGL graph")
    for name, value in graph.node_attributes.items():
        if not isinstance(value, np.ndarray):
            result.ndata[name] = features_to_tensor(value, dense=True)
        elif value.dtype.kind not in "OUST":
            result.ndata[name] = to_tensor(value)
    if graph.edge_weight is not None:
        result.edata["weight"] = edge_weights_to_tensor(graph.edge_weight, result.ndata.get("feat"))
    return result
