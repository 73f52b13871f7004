"""The named arrays that a graph is stored as; `.npz` files, `.npy` folders and node tables share them.

``num_nodes``; ``edges`` (E, 2) or ``edge_index`` (2, E); ``edge_weight`` (E,); ``x`` (N, F), or sparse as
``x_indptr``, ``x_indices``, ``x_shape`` and perhaps ``x_data`` (ones without); ``y``; ``train_mask``, ``val_mask``,
``test_mask`` (N,); ``train_masks`` ... (S, N) or (N, S) for S splits; ``node_weight`` and ``self_weight`` (N,);
``label_distribution`` (N, L); ``self_loops`` (node ids, only counted); any other array with one row per node is a node
attribute. Where ``x`` or ``y`` are missing, the names that other tools give them are read
(:mod:`falcon_gnn.datasets.options`), and so are lists of node ids in place of masks (:mod:`falcon_gnn.masks`).

A node attribute of text of variable width is stored as ``name.utf8`` (uint8) and ``name.starts`` (N + 1,), a sparse one
as ``name.indptr``, ``name.indices``, ``name.data`` and ``name.shape``. ``falcon_attributes`` holds the names of the
node attributes in what is written here: they are read as such, whatever their names mean elsewhere.
"""

import dataclasses
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.adjacency import CHUNK_EDGES
from falcon_gnn.datasets.options import FEATURE_NAMES, LABEL_NAMES
from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.files import ArrayBlocks
from falcon_gnn.graph import MASK_NAMES, ROW_NAMES, Graph
from falcon_gnn.graph_checks import Features, check_attribute_names
from falcon_gnn.labels import infer_task
from falcon_gnn.masks import find_masks
from falcon_gnn.progress import tell_share

Arrays = Mapping[str, NDArray[Any]]

SPARSE_FEATURES = ("x_indptr", "x_indices", "x_data", "x_shape")
ATTRIBUTES_NAME = "falcon_attributes"
RESERVED_NAMES = frozenset(
    ("num_nodes", "edges", "edge_index", "edge_weight", "self_loops", ATTRIBUTES_NAME, *SPARSE_FEATURES, *ROW_NAMES)
)
_TWO_FORMS = (("edges", "edge_index"), ("x_indptr", "x"))
"""What is read, and what is not where that is there."""
_PLAIN_NAMES = tuple(name for name in ROW_NAMES if name not in ("x", *MASK_NAMES))
"""What is read as it stands."""
SPLITS_NAMES = {f"{name}s": name for name in MASK_NAMES}
_TEXT_PARTS = ("utf8", "starts")
_SPARSE_PARTS = ("data", "indices", "indptr", "shape")


def graph_from_arrays(arrays: Arrays, split_index: int | None = None) -> Graph:
    """Return the graph that named arrays describe.

    Args:
        arrays: Arrays by name, as the module says; each is asked for once.
        split_index: Which of several splits the masks are; None means the file's own masks, else split 0.

    Raises:
        GraphError: If the edges or the number of nodes are missing, or an array does not fit.
    """
    num_nodes = _num_nodes(arrays)
    for read, other in _TWO_FORMS:
        if read in arrays and other in arrays:
            msg = f"{other} was left out: {read} holds the same in another form, and is read. Store one of them."
            warnings.warn(msg, FalconWarning, stacklevel=2)
    attribute_names = arrays[ATTRIBUTES_NAME].ravel().tolist() if ATTRIBUTES_NAME in arrays else ()
    graph = Graph.from_edges(
        _edge_index(arrays),
        num_nodes,
        edge_weight=arrays.get("edge_weight"),
        warn_one_way="never" if "edges" in arrays else "mixed",
        **node_arrays(arrays, num_nodes, split_index, attribute_names),
    )
    if "self_loops" not in arrays:
        return graph
    num_self_loops = graph.cleaning.num_self_loops + arrays["self_loops"].size
    return graph.replace(cleaning=dataclasses.replace(graph.cleaning, num_self_loops=num_self_loops))


def node_arrays(
    arrays: Arrays, num_nodes: int, split_index: int | None = None, attribute_names: Collection[str] = ()
) -> dict[str, Any]:
    """Return the features, labels, masks and attributes among named arrays, as keyword arguments of ``Graph``.

    Args:
        arrays: Arrays by name.
        num_nodes: N; an unknown array without N rows is left out with a warning.
        split_index: As in :func:`graph_from_arrays`.
        attribute_names: What is a node attribute, whatever its name means; names that are not there are passed over.
    """
    own, own_parts = _own_attributes(arrays, frozenset(attribute_names))
    rest = {name: arrays[name] for name in arrays if name not in own_parts}
    x_name, y_name = _find_name("x", FEATURE_NAMES, rest, num_nodes), _find_name("y", LABEL_NAMES, rest, num_nodes)
    found: dict[str, Any] = {
        **{name: rest.get(name) for name in _PLAIN_NAMES}, "x": _features(rest, x_name), "y": rest.get(y_name)
    }  # fmt: skip
    attributes: dict[str, Any] = {}
    if x_name == "x" and y_name == "y" and _are_coordinates(found["x"], found["y"]):
        attributes |= {"coordinate_x": found["x"], "coordinate_y": found["y"]}
        found |= {"x": None, "y": None}
        msg = (
            "x and y hold one number per node each and are taken as coordinates: they were kept as the node attributes "
            f"coordinate_x and coordinate_y. If they are a feature and a target, {_COORDINATES_FIX}."
        )
        warnings.warn(msg, FalconWarning, stacklevel=2)
    packed, parts = _unpack(rest, num_nodes)
    attributes |= packed
    masks, mask_names = ({}, []) if has_splits(rest) else find_masks(rest, num_nodes)
    for name in sorted(set(rest) - RESERVED_NAMES - {x_name, y_name, *parts, *mask_names}):
        value = rest[name]
        if name in SPLITS_NAMES:
            attributes[name] = _splits_by_node(name, value, num_nodes)
        elif value.ndim > 0 and value.shape[0] == num_nodes:
            attributes[name] = value
        else:
            msg = (
                f"{name} was left out: of shape {value.shape}, it does not have one row for each of {num_nodes} nodes."
            )
            warnings.warn(msg, FalconWarning, stacklevel=2)
    # A graph whose own attributes are splits has the masks that were written beside them, unless a split is told.
    splits = attributes if split_index is None else attributes | own
    found |= pick_masks(rest, splits, split_index) | masks
    return found | {"node_attributes": attributes | own}


def _own_attributes(arrays: Arrays, names: frozenset[str]) -> tuple[dict[str, Any], set[str]]:
    """Return the node attributes of some names, and the names of the arrays that they were made of."""
    found: dict[str, Any] = {}
    used: set[str] = set()
    for name in sorted(names):
        parts = _stored_parts(name, arrays, names)
        if parts:
            found[name] = _from_parts([arrays[part] for part in parts])
            used.update(parts)
        if parts == [name] and name in SPLITS_NAMES:
            found[name] = found[name].T  # as it is written
    return found, used


def pick_masks(
    arrays: Arrays, attributes: Mapping[str, NDArray[Any]], split_index: int | None
) -> dict[str, NDArray[Any] | None]:
    """Return the three masks of one split.

    Args:
        arrays: May hold masks of shape ``(N,)``.
        attributes: May hold ``train_masks`` ... of shape ``(N, S)``.
        split_index: The split, in ``[0, S)``; None means the masks of shape ``(N,)``, or split 0 where there are none.

    Raises:
        OptionError: If there is no such split.
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
    arrays = {name: np.concatenate(list(blocks)) for name, (_, _, blocks) in edges_to_blocks(graph).items()}
    return arrays | nodes_to_arrays(graph)


def edges_to_blocks(graph: Graph) -> dict[str, ArrayBlocks]:
    """Return the edges, each once as (u, v) with u < v, ``edges`` of shape ``(E, 2)``, and ``edge_weight`` if any."""
    half = 1.0 if graph.edge_weight is None else 0.5
    pairs = (pairs for pairs, _ in _edge_blocks(graph, 0.0, half))
    arrays: dict[str, ArrayBlocks] = {"edges": ((graph.num_edges, 2), graph.indices.dtype, pairs)}
    if graph.edge_weight is not None:
        weights = (weight for _, weight in _edge_blocks(graph, half, 1.0) if weight is not None)
        arrays["edge_weight"] = ((graph.num_edges,), graph.edge_weight.dtype, weights)
    return arrays


def _edge_blocks(graph: Graph, first: float, last: float) -> Iterator[tuple[NDArray[Any], NDArray[Any] | None]]:
    """Yield edges, shape ``(block, 2)``, and their weights, in blocks of whole rows.

    They are the part of the present work from the share ``first`` to the share ``last``.
    """
    bounds = np.searchsorted(graph.indptr, np.arange(0, len(graph.indices), CHUNK_EDGES))
    for start, stop in pairwise([0, *np.unique(bounds[1:]).tolist(), graph.num_nodes]):
        entries = slice(graph.indptr[start], graph.indptr[stop])
        target = graph.indices[entries]
        source = np.repeat(np.arange(start, stop, dtype=target.dtype), np.diff(graph.indptr[start : stop + 1]))
        once = source < target
        weight = None if graph.edge_weight is None else graph.edge_weight[entries][once]
        yield np.stack([source[once], target[once]], axis=1), weight
        tell_share(first + (last - first) * stop / graph.num_nodes)


def nodes_to_arrays(graph: Graph) -> dict[str, NDArray[Any]]:
    """Return the named arrays of a graph but its edges.

    Raises:
        GraphError: If a node attribute bears a name of the layout.
    """
    check_attribute_names(graph.node_attributes, RESERVED_NAMES, "the file")
    arrays = {"num_nodes": np.array(graph.num_nodes, np.int64), **_feature_arrays(graph.x)}
    for name in (*_PLAIN_NAMES, *MASK_NAMES):
        if getattr(graph, name) is not None:
            arrays[name] = getattr(graph, name)
    for name, value in graph.node_attributes.items():
        parts = _attribute_arrays(name, value)
        twice = sorted(parts.keys() & arrays.keys())
        if twice:
            msg = f"node_attributes must not be named {name} beside {', '.join(twice)}: the file uses both. Rename one."
            raise GraphError(msg)
        arrays |= parts
    if graph.node_attributes:
        arrays[ATTRIBUTES_NAME] = np.array(list(graph.node_attributes), np.str_)
    return arrays


def _attribute_arrays(name: str, value: Any) -> dict[str, NDArray[Any]]:
    """Return a node attribute as the arrays that it is stored as."""
    if not isinstance(value, np.ndarray):
        parts = {f"{name}.{part}": getattr(value, part) for part in ("indptr", "indices", "data")}
        return parts | {f"{name}.shape": np.array(value.shape, np.int64)}
    if value.dtype.kind == "T":
        return _pack_text(name, value)
    return {name: value.T if name in SPLITS_NAMES else value}


def _pack_text(name: str, texts: NDArray[Any]) -> dict[str, NDArray[Any]]:
    content = [text.encode() for text in texts.tolist()]
    starts = np.zeros(len(content) + 1, np.int64)
    np.cumsum([len(text) for text in content], out=starts[1:])
    return {f"{name}.utf8": np.frombuffer(b"".join(content), np.uint8), f"{name}.starts": starts}


def _stored_parts(name: str, arrays: Arrays, attribute_names: frozenset[str]) -> list[str]:
    """Return the names of the arrays that a node attribute is stored as, none where it is not there."""
    if name in arrays:
        return [name]
    forms = ([f"{name}.{part}" for part in parts] for parts in (_TEXT_PARTS, _SPARSE_PARTS))
    # What is an attribute of its own is no part of another.
    return next((form for form in forms if all(part in arrays and part not in attribute_names for part in form)), [])


def _from_parts(parts: Sequence[NDArray[Any]]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return _text(*parts) if len(parts) == len(_TEXT_PARTS) else _sparse(*parts)


def _unpack(arrays: Arrays, num_nodes: int) -> tuple[dict[str, Any], list[str]]:
    """Return the node attributes that are stored in parts, and the names of these parts."""
    found: dict[str, Any] = {}
    used: list[str] = []
    for name in [
        key.removesuffix(".utf8") for key in arrays if key.endswith(".utf8") and f"{key[:-5]}.starts" in arrays
    ]:
        parts = [f"{name}.{part}" for part in _TEXT_PARTS]
        found[name] = _text(*(arrays[part] for part in parts))
        used += parts
    for name in [key.removesuffix(".indptr") for key in arrays if key.endswith(".indptr")]:
        parts = [f"{name}.{part}" for part in _SPARSE_PARTS]
        if set(parts) <= set(arrays) and arrays[f"{name}.shape"][:1].tolist() == [num_nodes]:
            found[name] = _sparse(*(arrays[part] for part in parts))
            used += parts
    return found, used


def _text(content: NDArray[Any], starts: NDArray[Any]) -> NDArray[Any]:
    """Return text of variable width from its bytes, and where that of each node begins."""
    letters = content.tobytes()
    texts = [letters[start:stop].decode() for start, stop in pairwise(starts.tolist())]
    return np.array(texts, np.dtypes.StringDType())


def _sparse(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: NDArray[Any]) -> Any:
    """Return a checked CSR matrix; scikit-learn takes 32-bit indices only."""
    from scipy.sparse import csr_array

    sizes = tuple(int(size) for size in shape)
    id_dtype = np.int32 if max(len(indices), *sizes) < 2**31 else np.int64
    matrix = csr_array((data, indices.astype(id_dtype), indptr.astype(id_dtype)), shape=sizes)
    matrix.check_format(full_check=True)
    return matrix


def _find_name(name: str, others: Sequence[str], arrays: Arrays, num_nodes: int) -> str:
    """Return ``name``, or where it is missing another name of an array of numbers with a row per node."""
    if name in arrays or (name == "x" and "x_indptr" in arrays):
        return name
    fitting = (
        other
        for other in others
        if other in arrays and arrays[other].shape[:1] == (num_nodes,) and arrays[other].dtype.kind in "biuf"
    )
    return next(fitting, name)


_COORDINATES_FIX = "name them: feature_columns='x', label_column='y'"


def _are_coordinates(x: Any, y: Any) -> bool:
    """Tell places in the plane, as OSMnx and Pajek write them, from a feature and a label."""
    if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray) or x.ndim != 1 or y.ndim != 1:
        return False
    return x.dtype.kind in "fiu" and y.dtype.kind == "f" and infer_task(y) == "regression"


def has_splits(arrays: Arrays) -> bool:
    """Whether named arrays hold several splits."""
    return any(name in arrays for name in SPLITS_NAMES)


def has_masks(arrays: Arrays) -> bool:
    """Whether named arrays hold a mask of a graph, or several splits."""
    return any(name in arrays for name in (*MASK_NAMES, *SPLITS_NAMES))


def _num_nodes(arrays: Arrays) -> int:
    if "num_nodes" in arrays:
        value = arrays["num_nodes"]
        if value.size != 1 or value.dtype.kind not in "iu":
            msg = f"num_nodes must be one whole number, got {value.dtype} of shape {value.shape}."
            raise GraphError(msg)
        return int(value.reshape(()))
    if "x_shape" in arrays:
        return int(arrays["x_shape"][0])
    for name in ("x", "y", *MASK_NAMES, *FEATURE_NAMES, *LABEL_NAMES):
        if name in arrays and len(arrays[name].shape) > 0:
            return int(arrays[name].shape[0])
    msg = (
        f"num_nodes is missing, and no x, y or mask tells it; found {', '.join(sorted(arrays)) or 'nothing'}. "
        "Store it: the edges alone do not show isolated nodes. docs/data.md names the arrays that are read."
    )
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


def _features(arrays: Arrays, name: str) -> Features:
    if "x_indptr" not in arrays:
        return arrays.get(name)
    missing = [name for name in ("x_indices", "x_shape") if name not in arrays]
    if missing:
        msg = f"sparse x needs x_indptr, x_indices and x_shape, but {', '.join(missing)} is missing."
        raise GraphError(msg)
    indices = arrays["x_indices"]
    data = arrays["x_data"] if "x_data" in arrays else np.ones(len(indices), np.float32)
    return _sparse(data, indices, arrays["x_indptr"], arrays["x_shape"])


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
