"""NetworkX: graphs from and to ``networkx`` graphs of any kind."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import FalconWarning, GraphError, require
from falcon_gnn.graph import MASK_NAMES, ROW_NAMES, WEIGHT_NAMES, Graph

_UNLABELLED = -1
_NODE_WEIGHTS = (*WEIGHT_NAMES, "label_distribution")


def from_networkx(graph: Any, *, x: str | None = "x", y: str | None = "y", weight: str | None = "weight") -> Graph:
    """Return the graph of a NetworkX graph; node i is its i-th node.

    Labels of nodes that are not 0 ... N-1 in this order are kept as the node attribute ``node_id``. Parallel edges are
    folded and their weights add up. Masks are read from ``train_mask``, ``val_mask`` and ``test_mask``; a node without
    one is outside it, a node without ``y`` is unlabelled. Any other attribute that every node has is kept.

    Args:
        graph: ``networkx.Graph``, ``DiGraph`` or a multigraph.
        x: Node attribute with a number or a vector per node; ignored where no node has it.
        y: Node attribute with the label, a number or a vector.
        weight: Edge attribute with weights; ignored where no edge has it.

    Raises:
        GraphError: If ``graph`` is no NetworkX graph, or only some nodes have features or some edges weights, or as
            :meth:`falcon_gnn.graph.Graph.from_edges`.

    Example:
        >>> import networkx as nx
        >>> from_networkx(nx.path_graph(["a", "b", "c"]))
        Graph(num_nodes=3, num_edges=2, num_features=0, node_id)
    """
    nx = require("networkx", "networkx")
    if not isinstance(graph, nx.Graph):
        msg = f"graph must be a networkx graph, got {type(graph).__name__}."
        raise GraphError(msg)
    labels = list(graph.nodes)
    place = {label: i for i, label in enumerate(labels)}
    ends = np.array([(place[u], place[v]) for u, v in graph.edges()], np.int64).reshape(-1, 2).T
    rows = [graph.nodes[label] for label in labels]
    known = {name for row in rows for name in row}
    attributes = _other_attributes(rows, known - {x, y, *MASK_NAMES, *_NODE_WEIGHTS})
    if labels != list(range(len(labels))):
        attributes["node_id"] = _label_array(labels)
    return Graph.from_edges(
        ends,
        len(labels),
        edge_weight=_weights(graph, weight),
        warn_one_way="mixed" if graph.is_directed() else "never",
        x=_column(rows, x, "x") if x is not None and x in known else None,
        y=_labels(rows, y) if y is not None and y in known else None,
        node_attributes=attributes,
        **{name: _column(rows, name, "a weight") for name in _NODE_WEIGHTS if name in known},
        **{name: np.array([bool(row.get(name, False)) for row in rows]) for name in MASK_NAMES if name in known},
    )


def to_networkx(graph: Graph) -> Any:
    """Return an undirected ``networkx.Graph`` with ``x``, ``y``, masks and other attributes at the nodes.

    Nodes are called by the node attribute ``node_id`` where there is one, else 0 ... N-1; weights are the edge
    attribute ``weight``.

    Args:
        graph: The graph; sparse features become one dense row per node.

    Raises:
        GraphError: If ``node_id`` does not tell all nodes apart.

    Example:
        >>> to_networkx(Graph.from_edges([[0, 1], [1, 2]], num_nodes=4, y=[0, 1, 0, 1])).nodes(data=True)
        NodeDataView({0: {'y': 0}, 1: {'y': 1}, 2: {'y': 0}, 3: {'y': 1}})
    """
    nx = require("networkx", "networkx")
    columns = {name: getattr(graph, name) for name in ROW_NAMES if getattr(graph, name) is not None}
    columns |= graph.node_attributes
    labels = columns.pop("node_id").tolist() if "node_id" in columns else list(range(graph.num_nodes))
    if len(set(labels)) < len(labels):
        msg = "node_attributes['node_id'] must be distinct to name the nodes. Rename that attribute."
        raise GraphError(msg)
    result = nx.Graph()
    result.add_nodes_from((label, _row(columns, i)) for i, label in enumerate(labels))
    source, target = graph.edge_index
    is_first = source < target
    ends = [(labels[u], labels[v]) for u, v in zip(source[is_first], target[is_first], strict=True)]
    if graph.edge_weight is None:
        result.add_edges_from(ends)
    else:
        weights = graph.edge_weight[is_first].tolist()
        result.add_weighted_edges_from((u, v, weight) for (u, v), weight in zip(ends, weights, strict=True))
    return result


def _row(columns: dict[str, Any], i: int) -> dict[str, Any]:
    """Return the attributes of node i: plain Python numbers for single values, arrays for vectors."""
    row: dict[str, Any] = {}
    for name, column in columns.items():
        value = column[i] if isinstance(column, np.ndarray) else column[[i]].toarray()[0]
        row[name] = value.item() if isinstance(value, np.generic) else np.array(value)
    return row


def _weights(graph: Any, name: str | None) -> NDArray[np.float64] | None:
    if name is None:
        return None
    values = [value for _, _, value in graph.edges(data=name)]
    num_missing = sum(value is None for value in values)
    if num_missing == len(values):
        return None
    if num_missing:
        msg = f"edge attribute {name!r} must be on every edge or on none; {num_missing} of {len(values)} lack it."
        raise GraphError(msg)
    return np.array(values, np.float64)


def _column(rows: list[dict[str, Any]], name: str, role: str) -> NDArray[Any]:
    num_missing = sum(name not in row for row in rows)
    if num_missing:
        msg = f"node attribute {name!r} ({role}) must be on every node; {num_missing} of {len(rows)} lack it."
        raise GraphError(msg)
    return _array([row[name] for row in rows], f"node attribute {name!r}")


def _labels(rows: list[dict[str, Any]], name: str) -> NDArray[Any]:
    example = np.asarray(next(row[name] for row in rows if name in row))
    missing = np.full(example.shape, np.nan if example.ndim else _UNLABELLED, np.float64 if example.ndim else np.int64)
    return _array([row.get(name, missing) for row in rows], f"node attribute {name!r}")


def _other_attributes(rows: list[dict[str, Any]], names: set[Any]) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for name in sorted(names, key=str):
        try:
            found[str(name)] = _column(rows, name, "an attribute")
        except GraphError as error:
            warnings.warn(f"{error} It was left out.", FalconWarning, stacklevel=3)
    return found


def _array(values: list[Any], what: str) -> NDArray[Any]:
    try:
        array = np.array(values)
    except ValueError as error:
        msg = f"{what} must have the same shape on every node ({error})."
        raise GraphError(msg) from error
    if array.dtype.hasobject:
        msg = f"{what} must be numbers or strings, got {type(values[0]).__name__}."
        raise GraphError(msg)
    return array


def _label_array(labels: list[Any]) -> NDArray[Any]:
    """Return labels as integers or strings where they are, else as the objects they are."""
    if all(type(label) is int for label in labels):
        return np.array(labels, np.int64)
    if all(type(label) is str for label in labels):
        return np.array(labels, np.str_)
    array = np.empty(len(labels), object)
    array[:] = labels
    return array
