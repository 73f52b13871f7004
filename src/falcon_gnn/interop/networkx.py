"""NetworkX: graphs from and to ``networkx`` graphs of any kind."""

import warnings
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.checks import check_choice
from falcon_gnn.errors import FalconWarning, GraphError, OptionError, require
from falcon_gnn.graph import MASK_NAMES, ROW_NAMES, SOFT_NAMES, Graph
from falcon_gnn.graph_checks import check_attribute_names, require_graph
from falcon_gnn.masks import find_masks, is_split_name
from falcon_gnn.text import text_array

AUTO = "auto"
"""Use the attributes ``x`` and ``y``, unless they look like coordinates."""
_WEIGHT = "weight"
"""NetworkX's own name for it, read where there is one."""

_UNLABELLED = -1
_PLACES = ("coordinate_x", "coordinate_y")


def from_networkx(graph: Any, *, x: str | None = AUTO, y: str | None = AUTO, weight: str | None = _WEIGHT) -> Graph:
    """Return the graph of a NetworkX graph; node i is its i-th node.

    Labels of nodes that are not 0 ... N-1 in this order are kept as the node attribute ``node_id``. Parallel edges are
    folded and their weights add up. Masks are read from ``train_mask``, ``val_mask`` and ``test_mask``; a node without
    one is outside it, a node without ``y`` is unlabelled: -1 where all labels are whole numbers, else NaN. Any other
    attribute that every node has is kept. Without masks, a split of node names is read from ``graph.graph``, as
    ``train_idx`` ... or ``split_idx``.

    Args:
        graph: ``networkx.Graph``, ``DiGraph`` or a multigraph.
        x: Node attribute with a number or a vector per node. By default ``"x"`` where nodes have it, unless
            ``x`` and ``y`` are coordinates, as OSMnx and Pajek files have them: one number each, with fractions or
            beside a place's other marks. They are kept as ``coordinate_x`` and ``coordinate_y`` then, with a warning.
        y: Node attribute with the label, a number or a vector; by default ``"y"``, likewise.
        weight: Edge attribute with weights; by default ``"weight"`` where edges have it.

    Raises:
        GraphError: If ``graph`` is no NetworkX graph, or only some nodes have features or some edges weights, or as
            :meth:`falcon_gnn.graph.Graph.from_edges`.
        OptionError: If ``x``, ``y`` or ``weight`` names no attribute that is there.

    Example:
        >>> import networkx as nx
        >>> from_networkx(nx.path_graph(["a", "b", "c"]))
        Graph(num_nodes=3, num_edges=2, num_features=0, node_id)
    """
    nx = require("networkx", "networkx")
    if not isinstance(graph, nx.Graph):
        msg = f"graph must be a networkx graph, got {type(graph).__name__}."
        raise GraphError(msg)
    for option, name in (("x", x), ("y", y), ("weight", weight)):
        _check_name(option, name)
    labels = list(graph.nodes)
    place = {label: i for i, label in enumerate(labels)}
    ends = np.array([(place[u], place[v]) for u, v in graph.edges()], np.int64).reshape(-1, 2).T
    rows = [graph.nodes[label] for label in labels]
    known = {name for row in rows for name in row}
    for option, name in (("x", x), ("y", y)):
        if rows and name != AUTO:
            check_choice(option, name, (*sorted(known, key=str), None))
    is_place = AUTO in (x, y) and _are_coordinates(graph, rows, known)
    attributes = _places(rows) if is_place else {}
    taken = {"x", "y"} if is_place else set()
    x, y = (
        name if told == AUTO and not is_place else None if told == AUTO else told for told, name in ((x, "x"), (y, "y"))
    )
    split = _split_by_name(graph, place) if known.isdisjoint(MASK_NAMES) else {}
    attributes |= _other_attributes(rows, known - {x, y, *MASK_NAMES, *SOFT_NAMES} - taken)
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
        **{name: _column(rows, name, "a weight") for name in SOFT_NAMES if name in known},
        **{name: _mask(rows, name) for name in MASK_NAMES if name in known},
        **split,
    )


def to_networkx(graph: Graph) -> Any:
    """Return an undirected ``networkx.Graph`` with ``x``, ``y``, masks and other attributes at the nodes.

    Nodes are called by the node attribute ``node_id`` where there is one, else 0 ... N-1; weights are the edge
    attribute ``weight``.

    Args:
        graph: The graph; sparse features become one dense row per node.

    Raises:
        GraphError: If ``node_id`` does not tell all nodes apart, or a node attribute bears the name of another one.

    Example:
        >>> to_networkx(Graph.from_edges([[0, 1], [1, 2]], num_nodes=4, y=[0, 1, 0, 1])).nodes(data=True)
        NodeDataView({0: {'y': 0}, 1: {'y': 1}, 2: {'y': 0}, 3: {'y': 1}})
    """
    require_graph(graph, Graph)
    nx = require("networkx", "networkx")
    columns = {name: getattr(graph, name) for name in ROW_NAMES if getattr(graph, name) is not None}
    check_attribute_names(graph.node_attributes, columns, "a NetworkX graph")
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


def _check_name(option: str, name: Any) -> None:
    """Stop at what cannot be the key of an attribute, such as a list of names."""
    if not isinstance(name, Hashable):
        msg = (
            f"{option} must be the name of one attribute or None, got {name!r}. Join several into one attribute, a "
            "vector, first."
        )
        raise OptionError(msg)


def _are_coordinates(graph: Any, rows: list[dict[str, Any]], known: set[Any]) -> bool:
    """Tell places in the plane from a feature and a label; say so where both are possible."""
    if not {"x", "y"} <= known:
        return False
    pairs = [(row["x"], row["y"]) for row in rows if "x" in row and "y" in row]
    values = [row[name] for row in rows for name in ("x", "y") if name in row]
    if not pairs or not all(isinstance(value, _NUMBER) and np.isreal(value) for value in values):
        return False
    has_marks = "crs" in graph.graph or not known.isdisjoint(_PLACE_MARKS)
    is_place = has_marks or any(isinstance(y, float | np.floating) for _, y in pairs)
    if is_place:
        msg = (
            "the node attributes x and y hold one number each and are taken as coordinates: they were kept as "
            "coordinate_x and coordinate_y, the graph has no features and no labels. If they are a feature and a "
            "label, pass x='x', y='y'."
        )
        warnings.warn(msg, FalconWarning, stacklevel=3)
    elif all(isinstance(x, int | np.integer) for x, _ in pairs):
        msg = (
            "the node attributes x and y hold one whole number each and are taken as a feature and a class. If they "
            "are coordinates, pass x=None, y=None; if not, x='x', y='y' says so."
        )
        warnings.warn(msg, FalconWarning, stacklevel=3)
    return is_place


_NUMBER = int | float | np.number
_PLACE_MARKS = ("lat", "lon", "latitude", "longitude", "street_count", "osmid", "shape", "z", "pos")


def _places(rows: list[dict[str, Any]]) -> dict[str, NDArray[np.float64]]:
    return {
        name: np.array([float(row.get(key, np.nan)) for row in rows])
        for name, key in zip(_PLACES, ("x", "y"), strict=True)
    }


def _split_by_name(graph: Any, place: dict[Any, int]) -> dict[str, NDArray[np.bool_]]:
    """Return the masks of a split that the graph as a whole holds as names of nodes."""
    found: dict[str, Any] = {}
    for name, value in graph.graph.items():
        parts = value if isinstance(value, dict) else {"": value}
        if not is_split_name(str(name)) or not all(np.ndim(ids) == 1 for ids in map(_listed, parts.values())):
            continue
        numbers = {part: [_number_of(node, place) for node in _listed(ids)] for part, ids in parts.items()}
        if any(None in ids for ids in numbers.values()):
            msg = f"graph.graph[{name!r}] left out: it names nodes that the graph lacks. Use the names of its nodes."
            warnings.warn(msg, FalconWarning, stacklevel=3)
            continue
        found[str(name)] = numbers if isinstance(value, dict) else numbers[""]
    return find_masks(found, len(place))[0]


def _listed(ids: Any) -> Any:
    """Return ids as an array of objects, so that names which are tuples stay whole; anything else as it is."""
    if not isinstance(ids, list | tuple | set | np.ndarray) or (isinstance(ids, np.ndarray) and ids.ndim == 0):
        return None
    nodes = list(ids)
    array = np.empty(len(nodes), object)
    for i, node in enumerate(nodes):
        array[i] = node
    return array


def _number_of(node: Any, place: dict[Any, int]) -> int | None:
    try:
        return place.get(_plain(node))
    except TypeError:
        return None


def _plain(node: Any) -> Any:
    if isinstance(node, np.generic):
        return node.item()
    return tuple(node) if isinstance(node, list | np.ndarray) else node


def _row(columns: dict[str, Any], i: int) -> dict[str, Any]:
    """Return the attributes of node i: plain Python numbers for single values, arrays for vectors."""
    row: dict[str, Any] = {}
    for name, column in columns.items():
        value = column[i] if isinstance(column, np.ndarray) else column[[i]].toarray()[0]
        is_single = isinstance(value, np.generic | str)
        row[name] = (value.item() if isinstance(value, np.generic) else value) if is_single else np.array(value)
    return row


def _weights(graph: Any, name: str | None) -> NDArray[np.float64] | None:
    if name is None:
        return None
    values = [value for _, _, value in graph.edges(data=name)]
    num_missing = sum(value is None for value in values)
    if num_missing == len(values):
        if values and name != _WEIGHT:
            known = {key for _, _, held in graph.edges(data=True) for key in held}
            check_choice("weight", name, (*sorted(known, key=str), None))
        return None
    if num_missing:
        msg = f"edge attribute {name!r} must be on every edge or on none; {num_missing} of {len(values)} lack it."
        raise GraphError(msg)
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        msg = f"edge attribute {name!r} must be a number on every edge ({error}). Name another with weight=, or None."
        raise GraphError(msg) from error


def _mask(rows: list[dict[str, Any]], name: str) -> NDArray[np.bool_]:
    values = [row.get(name, False) for row in rows]
    if not all(isinstance(value, bool | np.bool_) or value in (0, 1) for value in map(_number_or_none, values)):
        msg = f"node attribute {name!r} must be true or false on every node, or missing. Rename it if it is no mask."
        raise GraphError(msg)
    return np.array([bool(value) for value in values])


def _number_or_none(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | np.generic) else None


def _column(rows: list[dict[str, Any]], name: str, role: str) -> NDArray[Any]:
    num_missing = sum(name not in row for row in rows)
    if num_missing:
        msg = f"node attribute {name!r} ({role}) must be on every node; {num_missing} of {len(rows)} lack it."
        raise GraphError(msg)
    return _array([row[name] for row in rows], f"node attribute {name!r}")


def _labels(rows: list[dict[str, Any]], name: str) -> NDArray[Any]:
    """Return the labels; a node without one has -1 beside whole numbers, and NaN, alone or in a row, beside others."""
    given = [np.asarray(row[name]) for row in rows if name in row]
    is_whole = all(value.ndim == 0 and value.dtype.kind != "f" for value in given)
    missing = np.full(given[0].shape, _UNLABELLED if is_whole else np.nan)
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
    if values and all(isinstance(value, str) for value in values):
        return text_array(values)
    try:
        array = np.array(values)
    except (ValueError, TypeError, OverflowError) as error:
        msg = f"{what} must have the same shape on every node ({error}). Pad the values, or delete it."
        raise GraphError(msg) from error
    if array.dtype.hasobject:
        msg = f"{what} must be numbers or strings, got {type(values[0]).__name__}. Turn them into such, or delete it."
        raise GraphError(msg)
    return array


def _narrow(labels: list[int]) -> type[np.integer[Any]]:
    return np.uint64 if max(labels) > np.iinfo(np.int64).max else np.int64


def _label_array(labels: list[Any]) -> NDArray[Any]:
    """Return labels as integers or strings where they are, also NumPy's, else as the objects they are."""
    labels = [_plain(label) for label in labels]
    if all(type(label) is int for label in labels):
        with suppress(OverflowError):
            return np.array(labels, np.int64 if min(labels) < 0 else np.uint64).astype(_narrow(labels))
    if all(type(label) is str for label in labels):
        return text_array(labels)
    array = np.empty(len(labels), object)
    array[:] = labels
    return array
