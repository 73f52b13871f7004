"""What each attribute of a PyG ``Data`` is: of nodes, of edges, of the graph, a mask, or what tells N."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import GraphError, OptionError, require
from falcon_gnn.graph import MASK_NAMES
from falcon_gnn.interop.tensors import is_sparse, to_array

EDGE_KEYS = ("edge_index", "edge_weight", "adj", "adj_t")

_SIZE_KEYS = ("x", "pos", "batch", "node_type", "n_id", *MASK_NAMES, "y")
_GRAPH_KEYS = ("num_nodes", "ptr", "falcon_assignment")


def sort_keys(data: Any, num_nodes: int) -> tuple[list[str], list[str]]:
    """Return the keys with one row per node, and those whose values belong to edges or hold node numbers.

    Args:
        data: A homogeneous ``Data``.
        num_nodes: N.
    """
    edges = data.get("edge_index")
    num_edges = -1 if edges is None or is_sparse(edges) else int(edges.shape[1])
    node_keys, unfit_keys = [], []
    for key in data.keys():  # noqa: SIM118 (iterating a Data gives pairs)
        value = data[key]
        if key in EDGE_KEYS or key in _GRAPH_KEYS or value is None:
            continue
        length = num_rows(value)
        # With as many edges as nodes only the name can tell, as in PyG itself.
        is_of_nodes = length == num_nodes and not (num_nodes == num_edges and "edge" in key)
        if is_of_nodes and (key == "x" or not is_sparse(value)):
            node_keys.append(key)
        elif length in (num_edges, num_nodes) or "edge" in key or (length is not None and "index" in key):
            unfit_keys.append(key)
    return node_keys, unfit_keys


def num_rows(value: Any) -> int | None:
    """Return the length of a tensor, array, sparse matrix or sequence; None for a single value."""
    if hasattr(value, "sparse_sizes"):
        return int(value.sparse_sizes()[0])
    if hasattr(value, "shape") and hasattr(value, "ndim"):
        return int(value.shape[0]) if value.ndim > 0 else None
    return len(value) if isinstance(value, list | tuple) else None


def attribute_array(value: Any) -> NDArray[Any]:
    """Return a node-level attribute as an array; a list of unequal things becomes an array of objects."""
    try:
        return to_array(value)
    except ValueError:
        array = np.empty(len(value), object)
        array[:] = value
        return array


def pick_masks(data: Any, split_index: int | None) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the masks of one split, and masks of several splits whole.

    Args:
        data: May have masks of shape ``(N,)`` or ``(N, S)``.
        split_index: In ``[0, S)``; None means 0.

    Returns:
        Masks of shape ``(N,)`` by name, and masks of shape ``(N, S)`` by name with an s (``train_masks``).

    Raises:
        GraphError: If there is no such split.
    """
    picked: dict[str, Any] = {}
    whole: dict[str, NDArray[Any]] = {}
    for name in MASK_NAMES:
        if data.get(name) is None:
            continue
        mask = to_array(data[name])
        if mask.ndim == 2 and mask.shape[1] > 1:
            index = 0 if split_index is None else split_index
            if not 0 <= index < mask.shape[1]:
                msg = f"split_index must be in [0, {mask.shape[1]}), the splits of {name}, got {split_index}."
                raise OptionError(msg)
            whole[f"{name}s"] = mask
            mask = mask[:, index]
        picked[name] = mask
    if split_index and not whole:
        msg = f"split_index must be None or 0 where masks have shape (N,), got {split_index}."
        raise OptionError(msg)
    return picked, whole


def count_nodes(data: Any) -> int:
    """Return N from what states it; never from the largest id of an edge.

    Raises:
        GraphError: If ``data`` is no homogeneous ``Data``, or nothing states N.
    """
    if not isinstance(data, require("torch_geometric.data", "train").Data):
        hint = " Use data.to_homogeneous() first." if type(data).__name__ == "HeteroData" else ""
        msg = f"data must be a homogeneous torch_geometric.data.Data, got {type(data).__name__}.{hint}"
        raise GraphError(msg)
    stored: dict[str, Any] = data.to_dict()
    if stored.get("num_nodes") is not None:
        return int(stored["num_nodes"])
    sizes = [num_rows(stored[key]) for key in ("adj_t", "adj") if key in stored]
    if hasattr(stored.get("edge_index"), "sparse_size"):
        sizes.append(stored["edge_index"].sparse_size(0))
    sizes += [num_rows(stored[key]) for key in _SIZE_KEYS if key in stored]
    known = [size for size in sizes if size is not None]
    if not known:
        msg = "data does not tell how many nodes it has, and edges do not show isolated ones. Set data.num_nodes."
        raise GraphError(msg)
    return known[0]
