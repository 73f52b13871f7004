"""The named arrays that a graph is stored as; `.npz` files, `.npy` folders and node tables share them.

``num_nodes``; ``edges`` (E, 2) or ``edge_index`` (2, E); ``edge_weight`` (E,); ``x`` (N, F), or sparse as
``x_indptr``, ``x_indices``, ``x_shape`` and perhaps ``x_data`` (ones without); ``y``; ``train_mask``, ``val_mask``,
``test_mask`` (N,); ``train_masks`` ... (S, N) or (N, S) for S splits; ``node_weight`` and ``self_weight`` (N,);
``label_distribution`` (N, L); ``self_loops`` (node ids, only counted); any other array with one row per node is a node
attribute.
"""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.graph import MASK_NAMES, ROW_NAMES, Features, Graph

Arrays = Mapping[str, NDArray[Any]]

SPARSE_FEATURES = ("x_indptr", "x_indices", "x_data", "x_shape")
RESERVED_NAMES = frozenset(
    ("num_nodes", "edges", "edge_index", "edge_weight", "self_loops", *SPARSE_FEATURES, *ROW_NAMES)
)
_PLAIN_NAMES = tuple(name for name in ROW_NAMES if name not in ("x", *MASK_NAMES))
"""What is read as it stands."""
SPLITS_NAMES = {f"{name}s": name for name in MASK_NAMES}


def graph_from_arrays(arrays: Arrays, split_index: int | None = None) -> Graph:
    """Return the graph that named arrays describe.

    Args:
        arrays: Arrays by name, as the module says; each is asked for once.
        split_index: Which of several splits the masks are; None means the file's own masks, else split 0.

    Raises:
        GraphError: If the edges or the number of nodes are missing, or an array does not fit.
    """
    num_nodes = _num_nodes(arrays)
    graph = Graph.from_edges(
        _edge_index(arrays),
        num_nodes,
        edge_weight=arrays.get("edge_weight"),
        warn_one_way="never" if "edges" in arrays else "mixed",
        **node_arrays(arrays, num_nodes, split_index),
    )
    if "self_loops" not in arrays:
        return graph
    num_self_loops = graph.cleaning.num_self_loops + arrays["self_loops"].size
    return graph.replace(cleaning=dataclasses.replace(graph.cleaning, num_self_loops=num_self_loops))


def node_arrays(arrays: Arrays, num_nodes: int, split_index: int | None = None) -> dict[str, Any]:
    """Return the features, labels, masks and attributes among named arrays, as keyword arguments of ``Graph``.

    Args:
        arrays: Arrays by name.
        num_nodes: N; an unknown array without N rows is left out with a warning.
        split_index: As in :func:`graph_from_arrays`.
    """
    found: dict[str, Any] = {"x": _features(arrays), **{name: arrays.get(name) for name in _PLAIN_NAMES}}
    attributes: dict[str, NDArray[Any]] = {}
    for name in sorted(set(arrays) - RESERVED_NAMES):
        value = arrays[name]
        if name in SPLITS_NAMES:
            attributes[name] = _splits_by_node(name, value, num_nodes)
        elif value.ndim > 0 and len(value) == num_nodes:
            attributes[name] = value
        else:
            msg = (
                f"{name} was left out: of shape {value.shape}, it does not have one row for each of {num_nodes} nodes."
            )
            warnings.warn(msg, FalconWarning, stacklevel=2)
    return found | pick_masks(arrays, attributes, split_index) | {"node_attributes": attributes}


def pick_masks(
    arrays: Arrays, attributes: Mapping[str, NDArray[Any]], split_index: int | None
) -> dict[str, NDArray[Any] | None]:
    """Return the three masks of one split.

    Args:
        arrays: May hold masks of shape ``(N,)``.
        attributes: May hold ``train_masks`` ... of shape ``(N, S)``.
        split_index: The split, in ``[0, S)``; None means the masks of shape ``(N,)``, or split 0 where there are none.

    Raises:
        GraphError: If there is no such split.
    """
    has_one = any(name in arrays for name in MASK_NAMES)
    has_many = any(name in attributes for name in SPLITS_NAMES)
    if not has_many and split_index not in (None, 0):
        msg = f"split_index must be None or 0 for a source with one split at most, got {split_index}."
        raise OptionError(msg)
    if not has_many or (has_one and split_index is None):
        return {name: arrays.get(name) for name in MASK_NAMES}
    index = 0 if split_index is None else split_index
    return {name: _column(splits, attributes, index) for splits, name in SPLITS_NAMES.items()}


def graph_to_arrays(graph: Graph) -> dict[str, NDArray[Any]]:
    """Return the named arrays of a graph, each edge once as (u, v) with u < v; the opposite of ``graph_from_arrays``.

    Raises:
        GraphError: If a node attribute bears a name of the layout.
    """
    source = np.repeat(np.arange(graph.num_nodes, dtype=graph.indices.dtype), graph.degrees)
    is_first = source < graph.indices
    arrays: dict[str, NDArray[Any]] = {"edges": np.stack([source[is_first], graph.indices[is_first]], axis=1)}
    if graph.edge_weight is not None:
        arrays["edge_weight"] = graph.edge_weight[is_first]
    return arrays | nodes_to_arrays(graph)


def nodes_to_arrays(graph: Graph) -> dict[str, NDArray[Any]]:
    """Return the named arrays of a graph but its edges.

    Raises:
        GraphError: If a node attribute bears a name of the layout.
    """
    clash = sorted(RESERVED_NAMES & set(graph.node_attributes))
    if clash:
        msg = f"node_attributes must not be named {', '.join(clash)}: the file uses these names. Rename them."
        raise GraphError(msg)
    arrays = {"num_nodes": np.array(graph.num_nodes, np.int64), **_feature_arrays(graph.x)}
    for name in (*_PLAIN_NAMES, *MASK_NAMES):
        if getattr(graph, name) is not None:
            arrays[name] = getattr(graph, name)
    for name, value in graph.node_attributes.items():
        arrays[name] = value.T if name in SPLITS_NAMES else value
    return arrays


def _num_nodes(arrays: Arrays) -> int:
    if "num_nodes" in arrays:
        value = arrays["num_nodes"]
        if value.size != 1 or value.dtype.kind not in "iu":
            msg = f"num_nodes must be one whole number, got {value.dtype} of shape {value.shape}."
            raise GraphError(msg)
        return int(value.reshape(()))
    if "x_shape" in arrays:
        return int(arrays["x_shape"][0])
    for name in ("x", "y", *MASK_NAMES):
        if name in arrays and arrays[name].ndim > 0:
            return len(arrays[name])
    msg = "num_nodes is missing, and no x, y or mask tells it. Store it: the edges alone do not show isolated nodes."
    raise GraphError(msg)


def _edge_index(arrays: Arrays) -> NDArray[Any]:
    if "edges" in arrays:
        edges = arrays["edges"]
        if edges.size and (edges.ndim != 2 or edges.shape[1] != 2):
            msg = f"edges must have shape (E, 2), got {edges.shape}. Store a (2, E) array as edge_index."
            raise GraphError(msg)
        return edges.T
    if "edge_index" in arrays:
        edges = arrays["edge_index"]
        return edges.T if edges.ndim == 2 and edges.shape[0] != 2 and edges.shape[1] == 2 else edges
    msg = f"edges (E, 2) or edge_index (2, E) is missing; found {', '.join(sorted(arrays)) or 'nothing'}."
    raise GraphError(msg)


def _features(arrays: Arrays) -> Features:
    if "x_indptr" not in arrays:
        return arrays.get("x")
    from scipy.sparse import csr_array

    missing = [name for name in ("x_indices", "x_shape") if name not in arrays]
    if missing:
        msg = f"sparse x needs x_indptr, x_indices and x_shape, but {', '.join(missing)} is missing."
        raise GraphError(msg)
    indices = arrays["x_indices"]
    data = arrays["x_data"] if "x_data" in arrays else np.ones(len(indices), np.float32)
    shape = tuple(int(size) for size in arrays["x_shape"])
    # scikit-learn takes 32-bit indices only.
    id_dtype = np.int32 if max(len(indices), *shape) < 2**31 else np.int64
    matrix = csr_array((data, indices.astype(id_dtype), arrays["x_indptr"].astype(id_dtype)), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def _feature_arrays(x: Features) -> dict[str, NDArray[Any]]:
    if x is None:
        return {}
    if isinstance(x, np.ndarray):
        return {"x": x}
    arrays = {"x_indptr": x.indptr, "x_indices": x.indices, "x_shape": np.array(x.shape, np.int64)}
    is_all_ones = x.data.dtype == np.float32 and bool((x.data == 1).all())
    return arrays if is_all_ones else arrays | {"x_data": x.data}


def _splits_by_node(name: str, masks: NDArray[Any], num_nodes: int) -> NDArray[Any]:
    """Return masks of several splits as (N, S); a square array is read as (S, N), as it is written."""
    if masks.ndim == 2 and masks.shape[1] == num_nodes:
        return masks.T
    if masks.ndim == 2 and masks.shape[0] == num_nodes:
        return masks
    msg = f"{name} must have shape (num_splits, {num_nodes}) or ({num_nodes}, num_splits), got {masks.shape}."
    raise GraphError(msg)


def _column(name: str, attributes: Mapping[str, NDArray[Any]], split_index: int) -> NDArray[Any] | None:
    if name not in attributes:
        return None
    masks = attributes[name]
    if not 0 <= split_index < masks.shape[1]:
        msg = f"split_index must be in [0, {masks.shape[1]}), got {split_index}."
        raise OptionError(msg)
    return masks[:, split_index]
