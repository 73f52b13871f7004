"""What each attribute of a PyG ``Data`` is: of nodes, of edges, of the graph, a mask, or what tells N."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import FalconWarning, GraphError, OptionError, require
from falcon_gnn.graph import MASK_NAMES
from falcon_gnn.graph_checks import as_scipy, is_sparse
from falcon_gnn.interop.tensors import to_array
from falcon_gnn.masks import find_masks
from falcon_gnn.text import text_array

EDGE_KEYS = ("edge_index", "edge_weight", "adj", "adj_t")

_SIZE_KEYS = ("x", "pos", "batch", "node_type", "n_id", *MASK_NAMES, "y")
_KNOWN_KEYS = (*_SIZE_KEYS, "graph_id", "falcon_kept")
_GRAPH_KEYS = ("num_nodes", "ptr", "falcon_assignment")


@dataclass(frozen=True)
class AttributeKeys:
    """The attributes of a ``Data``, by what they belong to.

    Attributes:
        nodes: Those with one row per node.
        unfit: Those of edges, or that hold node numbers, and so cannot follow a collapse.
        ids: Those that tell the split as node ids.
        guessed: Those among ``nodes`` that could as well belong to edges or to the graph.
    """

    nodes: list[str]
    unfit: list[str]
    ids: list[str]
    guessed: list[str]


def sort_keys(
    data: Any, num_nodes: int, node_attrs: Iterable[str] = (), edge_attrs: Iterable[str] = ()
) -> AttributeKeys:
    """Return what each attribute belongs to: as told, else by its length and its name.

    Args:
        data: A homogeneous ``Data``.
        num_nodes: N.
        node_attrs: Keys that are told to be of nodes.
        edge_attrs: Keys that are told not to be, but of edges or of the graph.

    Raises:
        OptionError: If a told key is not there, told twice, or has not one row per node.
    """
    told_nodes, told_edges = set(node_attrs), set(edge_attrs)
    _check_told(data, num_nodes, told_nodes, told_edges)
    edges = data.get("edge_index")
    num_edges = -1 if edges is None or is_sparse(edges) or len(np.shape(edges)) != 2 else int(np.shape(edges)[1])
    found = AttributeKeys([], [], [], [])
    if not any(_holds_splits(data.get(name)) for name in MASK_NAMES):
        found.ids.extend(find_masks(data, num_nodes, set(data.keys()) - told_nodes - told_edges)[1])
    for key in data.keys():  # noqa: SIM118 (iterating a Data gives pairs)
        value = data[key]
        if key in EDGE_KEYS or key in _GRAPH_KEYS or key in found.ids or value is None:
            continue
        length = num_rows(value)
        is_known = key in _KNOWN_KEYS or key.startswith("node_") or key in told_nodes
        # With as many edges as nodes only the name can tell, as in PyG itself.
        is_of_nodes = length == num_nodes and not (num_nodes == num_edges and "edge" in key)
        if key in told_nodes or (is_of_nodes and key not in told_edges and not _is_of_graph(key)):
            found.nodes.append(key)
            if not is_known and num_nodes in (num_edges, 1):
                found.guessed.append(key)
        elif key in told_edges or length in (num_edges, num_nodes) or "edge" in key or _holds_numbers(key, length):
            found.unfit.append(key)
        elif key in ("x", "y"):
            found.unfit.append(key) if key == "y" and length in (1, num_edges, None) else found.nodes.append(key)
    return found


def warn_about(keys: AttributeKeys, stacklevel: int) -> None:
    """Say which attributes are left out, and which are taken for those of nodes by a guess."""
    if keys.unfit:
        msg = (
            f"{', '.join(keys.unfit)} left out: attributes of edges cannot follow a collapse, nor can those of the "
            "graph. If one of them is a weight, pass it as data.edge_weight; if of nodes, name it in node_attrs=."
        )
        warnings.warn(msg, FalconWarning, stacklevel=stacklevel + 1)
    if keys.guessed:
        msg = (
            f"{', '.join(keys.guessed)} taken for attributes of nodes, which could be of edges or of the graph as "
            "well: the lengths are equal. Name them in node_attrs= or in edge_attrs=."
        )
        warnings.warn(msg, FalconWarning, stacklevel=stacklevel + 1)


def _check_told(data: Any, num_nodes: int, node_attrs: set[str], edge_attrs: set[str]) -> None:
    there = set(data.keys())
    for option, names in (("node_attrs", node_attrs), ("edge_attrs", edge_attrs)):
        missing = sorted(names - there)
        if missing:
            msg = f"{option} must name attributes of data ({', '.join(sorted(there))}), got {', '.join(missing)}."
            raise OptionError(msg)
    if node_attrs & edge_attrs:
        msg = f"node_attrs and edge_attrs both name {', '.join(sorted(node_attrs & edge_attrs))}. Name it in one."
        raise OptionError(msg)
    for name in sorted(node_attrs):
        if num_rows(data[name]) != num_nodes:
            msg = f"node_attrs names {name!r}, which needs {num_nodes} rows, got {num_rows(data[name])}. Leave it out."
            raise OptionError(msg)


def _is_of_graph(key: str) -> bool:
    return key.startswith(("graph_", "global_")) and key != "graph_id"


def _holds_numbers(key: str, length: int | None) -> bool:
    return length is not None and "index" in key


def num_rows(value: Any) -> int | None:
    """Return the length of a tensor, array, sparse matrix or sequence; None for a single value."""
    if hasattr(value, "sparse_sizes"):
        return int(value.sparse_sizes()[0])
    if hasattr(value, "shape") and hasattr(value, "ndim"):
        return int(value.shape[0]) if value.ndim > 0 else None
    return len(value) if isinstance(value, list | tuple) else None


def attribute_array(value: Any) -> Any:
    """Return a node-level attribute as an array, or SciPy CSR if sparse; unequal things become an array of objects."""
    if is_sparse(value):
        return as_scipy(value)
    if isinstance(value, list | tuple) and value and all(isinstance(text, str) for text in value):
        return text_array(value)
    try:
        return to_array(value)
    except ValueError:
        array = np.empty(len(value), object)
        array[:] = value
        return array


def pick_masks(
    data: Any, split_index: int | None, num_nodes: int, id_keys: Iterable[str]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the masks of one split, and masks of several splits whole.

    Args:
        data: May have masks of shape ``(N,)`` or ``(N, S)``, or else node ids as :func:`falcon_gnn.masks.find_masks`
            reads them.
        split_index: In ``[0, S)``; None means 0.
        num_nodes: N.
        id_keys: Those that tell the split as node ids.

    Returns:
        Masks of shape ``(N,)`` by name, and masks of shape ``(N, S)`` by name with an s (``train_masks``).

    Raises:
        OptionError: If there is no such split.
    """
    if all(data.get(name) is None for name in MASK_NAMES) and not split_index:
        return dict(find_masks(data, num_nodes, id_keys)[0]), {}
    picked: dict[str, Any] = {}
    whole: dict[str, NDArray[Any]] = {}
    for name in MASK_NAMES:
        if data.get(name) is None:
            continue
        mask = to_array(data[name])
        if mask.ndim == 2 and mask.shape[1] > 1:
            whole[f"{name}s"] = mask
        picked[name] = split_column(name, mask, split_index)
    if split_index and not whole:
        msg = f"split_index must be None or 0 where masks have shape (N,), got {split_index}."
        raise OptionError(msg)
    return picked if whole else picked | find_masks(data, num_nodes, id_keys)[0], whole


def _holds_splits(mask: Any) -> bool:
    """Whether a mask has a column for each of several splits."""
    return mask is not None and len(np.shape(mask)) == 2 and int(np.shape(mask)[1]) > 1


def split_column(name: str, mask: NDArray[Any], split_index: int | None) -> NDArray[Any]:
    """Return the mask of one split, shape ``(N,)``.

    Args:
        name: What the mask is called, for the message.
        mask: Shape ``(N,)`` or ``(N, S)``.
        split_index: In ``[0, S)``; None means 0, and so does any where there is one split only.

    Raises:
        OptionError: If there is no such split.
    """
    if mask.ndim != 2:
        return mask
    index = 0 if split_index is None or mask.shape[1] == 1 else split_index
    if not 0 <= index < mask.shape[1]:
        msg = f"split_index must be in [0, {mask.shape[1]}), the splits of {name}, got {split_index}."
        raise OptionError(msg)
    column: NDArray[Any] = mask[:, index]
    return column


def _whole_number(value: Any) -> int:
    try:
        number = int(value)
        if number == value and number >= 1:
            return number
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    msg = (
        f"data.num_nodes must be a whole number of at least 1, got {str(value)[:80]!r}. Set it to the number of nodes."
    )
    raise GraphError(msg)


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
        return _whole_number(stored["num_nodes"])
    sizes = [num_rows(stored[key]) for key in ("adj_t", "adj") if key in stored]
    if hasattr(stored.get("edge_index"), "sparse_size"):
        sizes.append(stored["edge_index"].sparse_size(0))
    sizes += [num_rows(stored[key]) for key in _SIZE_KEYS if key in stored]
    known = [size for size in sizes if size is not None]
    if not known:
        msg = "data does not tell how many nodes it has, and edges do not show isolated ones. Set data.num_nodes."
        raise GraphError(msg)
    return known[0]
