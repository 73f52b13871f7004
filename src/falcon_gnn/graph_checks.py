"""What the arrays of a graph must be: each is looked at once, when the graph is made."""

import warnings
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from falcon_gnn.adjacency import EdgeCleaning, IntArray
from falcon_gnn.errors import FalconError, FalconWarning, GraphError, OptionError
from falcon_gnn.resources import release_pages

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.floating[Any]]
Features = Any  # numpy.ndarray of shape (N, F), possibly memory-mapped, or scipy.sparse.csr_array of that shape
OneWayWarning = Literal["mixed", "always", "never"]

GRAPH_READERS = {
    "torch_geometric": "from_pyg", "networkx": "from_networkx", "dgl": "from_dgl", "scipy": "Graph.from_scipy",
    "numpy": "Graph.from_edges", "torch": "Graph.from_edges",
}  # fmt: skip
"""What of falcon_gnn reads an object of another library."""
_SUM_TOLERANCE = 1e-3
_FINITE_CHECK_VALUES = 1 << 22


def as_array(value: Any, name: str = "values", error: type[FalconError] = GraphError) -> NDArray[Any]:
    """Return an array, a sequence or a tensor of torch as an array: without its gradient, and on the CPU.

    bfloat16, which NumPy lacks, becomes float32, and a sparse tensor dense.

    Args:
        value: What was given.
        name: What it is called, for messages.
        error: What is raised: ``GraphError`` or ``OptionError``.

    Raises:
        FalconError: ``error``, if rows differ in length, or entries are masked.
    """
    if not _is_tensor(value):
        if np.ma.is_masked(value):
            num_masked = int(np.ma.getmaskarray(value).sum())
            msg = (
                f"{name} must not have masked entries, whose values would be used all the same; {num_masked} are "
                f"masked. Say what stands for them with {name}.filled(...)."
            )
            raise error(msg)
        try:
            return np.asarray(value)
        except ValueError as unequal:
            msg = f"{name} must have rows of one length ({unequal}). Pad them."
            raise error(msg) from unequal
    plain = value.detach().cpu()
    plain = plain if str(plain.layout) == "torch.strided" else plain.to_dense()
    return np.asarray(plain.float() if str(plain.dtype) == "torch.bfloat16" else plain)


def is_sparse(value: Any) -> bool:
    """Tell sparse matrices of torch, in any layout, and of torch_sparse."""
    return hasattr(value, "sparse_sizes") or (_is_tensor(value) and str(value.layout) != "torch.strided")


def as_scipy(matrix: Any) -> "csr_array":
    """Return a sparse matrix of torch or torch_sparse as ``scipy.sparse.csr_array``; no values mean ones."""
    from scipy.sparse import csr_array

    if hasattr(matrix, "sparse_sizes"):
        shape, (row, column, value) = tuple(matrix.sparse_sizes()), matrix.coo()
    else:
        stored = matrix.detach().to_sparse_coo().coalesce()
        shape, (row, column), value = tuple(matrix.shape), stored.indices(), stored.values()
    data = np.ones(len(row), np.float32) if value is None else _widened(as_array(value))
    # scikit-learn takes 32-bit indices only.
    id_dtype = np.int32 if max(len(data), *shape) < 2**31 else np.int64
    return csr_array((data, (as_array(row).astype(id_dtype), as_array(column).astype(id_dtype))), shape=shape)


def _widened(values: Any) -> Any:
    """Return an array or a sparse matrix with halves as float32, since SciPy computes with none in sparse matrices."""
    is_half = values.dtype.kind == "f" and values.dtype.itemsize == np.float16().itemsize
    return values.astype(np.float32) if is_half else values


def _is_tensor(value: object) -> bool:
    """Tell a tensor by what it can do, since torch is not imported here."""
    return hasattr(value, "detach") and hasattr(value, "layout")


def _with_matrix(value: Any) -> Any:
    """Return a sparse tensor of two dimensions as ``scipy.sparse.csr_array``, anything else as it is."""
    return as_scipy(value) if is_sparse(value) and value.dim() == 2 else value


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view; the caller's own array stays writable."""
    view = array.view()
    view.flags.writeable = False
    return view


def library_of(value: object) -> str | None:
    """Return which of the libraries in :data:`GRAPH_READERS` an object is of, by the modules of its classes."""
    modules = (kind.__module__.partition(".")[0] for kind in type(value).__mro__)
    return next((name for name in modules if name in GRAPH_READERS), None)


def require_graph(value: object, kind: type) -> None:
    """Stop at what is no graph of ours, and say what makes one of it.

    Args:
        value: What was given as ``graph``.
        kind: :class:`falcon_gnn.Graph`, which stands above this module.

    Raises:
        GraphError: If it is anything else.
    """
    if isinstance(value, kind):
        return
    library = library_of(value)
    if isinstance(getattr(value, "graph", None), kind):
        fix = "Pass its graph: result.graph."
    elif library is not None:
        fix = f"Convert it with falcon_gnn.{GRAPH_READERS[library]}."
    elif isinstance(value, str | PathLike):
        fix = "Load it with falcon_gnn.load_graph."
    else:
        fix = "Make one with falcon_gnn.load_graph or falcon_gnn.Graph.from_edges."
    msg = f"graph must be a falcon_gnn.Graph, got {type(value).__name__}{f' of {library}' if library else ''}. {fix}"
    raise GraphError(msg)


def check_attribute_names(names: Iterable[str], taken: Iterable[str], holder: str) -> None:
    """Stop where a node attribute would take the place of something else.

    Args:
        names: The names of the node attributes.
        taken: What else bears a name there.
        holder: What they are written to, for the message.

    Raises:
        GraphError: If a name is among both.
    """
    clash = sorted(set(names) & set(taken))
    if clash:
        msg = (
            f"node_attributes must not be named {', '.join(clash)}: {holder} uses the name for something else. Rename "
            "with graph.replace(node_attributes=...)."
        )
        raise GraphError(msg)


def checked_num_nodes(num_nodes: int) -> int:
    """Return a number of nodes, at least 1."""
    if isinstance(num_nodes, bool | np.bool_) or not isinstance(num_nodes, int | np.integer) or num_nodes < 1:
        msg = f"num_nodes must be a whole number of at least 1, got {num_nodes!r}."
        raise GraphError(msg)
    return int(num_nodes)


def checked_edges(edge_index: ArrayLike) -> IntArray:
    """Return an edge list of shape ``(2, num_entries)``."""
    edges = as_array(edge_index, "edge_index")
    if edges.size == 0:
        return np.zeros((2, 0), np.int64)
    if edges.ndim != 2 or edges.shape[0] != 2:
        hint = " Transpose it (edge_index.T)." if edges.ndim == 2 and edges.shape[1] == 2 else ""
        msg = f"edge_index must have shape (2, num_entries), got {edges.shape}.{hint}"
        raise GraphError(msg)
    if edges.dtype.kind not in "iu":
        msg = f"edge_index must hold integers, got {edges.dtype}. Convert the ids with .astype(numpy.int64)."
        raise GraphError(msg)
    return edges


def checked_node_ids(node_ids: ArrayLike, num_nodes: int) -> NDArray[np.int64]:
    """Return distinct, ascending ids, or the nodes of a mask of shape ``(num_nodes,)``, as int64 of shape ``(n,)``.

    Raises:
        OptionError: If they are neither.
    """
    given = np.asarray(node_ids)
    ids = np.flatnonzero(given) if given.dtype == np.bool_ and given.shape == (num_nodes,) else given
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        msg = (
            f"node_ids must be whole numbers of shape (n,), or a bool mask of shape ({num_nodes},), got {given.dtype} "
            f"of shape {given.shape}."
        )
        raise OptionError(msg)
    if (ids[1:] <= ids[:-1]).any() or (ids.size and (ids[0] < 0 or ids[-1] >= num_nodes)):
        msg = f"node_ids must be distinct, ascending and in [0, {num_nodes}). Use numpy.unique(node_ids)."
        raise OptionError(msg)
    return ids.astype(np.int64, copy=False)


def checked_edge_weight(edge_weight: ArrayLike | None, num_entries: int) -> FloatArray | None:
    """Return the weights of an edge list, floats of shape ``(num_entries,)``, finite and not negative."""
    if edge_weight is None:
        return None
    weight = as_array(edge_weight, "edge_weight")
    if weight.shape == (num_entries, 1):
        weight = weight[:, 0]
    if weight.shape != (num_entries,) or weight.dtype.kind not in "fiub":
        msg = f"edge_weight must be numbers of shape ({num_entries},), got {weight.dtype} of shape {weight.shape}."
        raise GraphError(msg)
    if weight.dtype not in (np.float32, np.float64):
        weight = weight.astype(np.float32 if weight.dtype == np.float16 else np.float64)
    if not np.isfinite(weight).all() or (weight < 0).any():
        msg = "edge_weight must be finite and not negative. Drop or mend such edges first."
        raise GraphError(msg)
    return weight


def tell_one_way(cleaning: EdgeCleaning, when: OneWayWarning, stacklevel: int = 4) -> None:
    """Warn of a list that was read as undirected though it may not be, ``stacklevel`` calls up from here."""
    is_mixed = cleaning.num_one_way > 0 and cleaning.num_two_way > 0
    if (when == "mixed" and is_mixed) or (when == "always" and cleaning.num_one_way > 0):
        msg = (
            f"symmetrised: {cleaning.num_one_way} edges had no reverse and {cleaning.num_two_way} had one; the graph "
            "is used as undirected, so each missing reverse was added."
        )
        warnings.warn(msg, FalconWarning, stacklevel=stacklevel)


def _node_array(name: str, value: ArrayLike, num_nodes: int) -> NDArray[Any]:
    array = as_array(value, name)
    if array.ndim == 0 or len(array) != num_nodes:
        msg = f"{name} must have one row per node ({num_nodes}), got shape {array.shape}."
        raise GraphError(msg)
    return array


def _node_column(name: str, value: ArrayLike, num_nodes: int) -> NDArray[Any]:
    """Return an array with one row per node; a matrix of one column as that column."""
    array = _node_array(name, value, num_nodes)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def checked_attribute(key: Any, value: Any, num_nodes: int) -> Any:
    """Return a node attribute, one row per node, dense or sparse; its ``key`` must be a text, as files need."""
    name = f"node_attributes[{key!r}]"
    if not isinstance(key, str):
        msg = f"{name} must have a text as its name, got {type(key).__name__}. Rename it."
        raise GraphError(msg)
    value = _with_matrix(value)
    if not hasattr(value, "tocsr"):
        return frozen(_node_array(name, value, num_nodes))
    from scipy.sparse import csr_array

    if value.ndim != 2 or value.shape[0] != num_nodes:
        msg = f"{name} must have one row per node ({num_nodes}), got shape {value.shape}."
        raise GraphError(msg)
    return csr_array(_widened(value))


def checked_features(x: Any, num_nodes: int) -> Features:
    """Return X, real and finite, shape ``(num_nodes, F)``."""
    if x is None:
        return None
    from scipy.sparse import csr_array, issparse

    x = _with_matrix(x)
    if issparse(x):
        matrix = csr_array(_widened(x))
        stored = matrix.data
    else:
        matrix = _node_array("x", x, num_nodes)
        matrix = matrix[:, None] if matrix.ndim == 1 else matrix
        stored = matrix
    if matrix.ndim != 2 or matrix.shape[0] != num_nodes or stored.dtype.kind not in "fiub":
        msg = (
            f"x must be real numbers of shape (num_nodes, F) = ({num_nodes}, F), got {stored.dtype} of {matrix.shape}."
        )
        raise GraphError(msg)
    _check_finite(stored, None if stored is matrix else matrix.indptr)
    if matrix.shape[1] == 0:
        return None
    if not issparse(x):
        return frozen(matrix)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    if matrix.indices.dtype != np.int32 and max(matrix.nnz, matrix.shape[1]) < 2**31:
        # scikit-learn refuses wide indices.
        parts = (matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32))
        matrix = csr_array(parts, shape=matrix.shape)
    return matrix


def _check_finite(values: NDArray[Any], indptr: IntArray | None = None) -> None:
    """Look for NaN and infinity in row blocks, so that a memory-mapped array is never whole in memory.

    Args:
        values: X, shape ``(N, F)``, or the stored entries of a sparse X, shape ``(nnz,)``.
        indptr: Where each row of a sparse X starts, shape ``(N + 1,)``; None where X is dense.
    """
    if values.dtype.kind != "f" or values.size == 0:
        return
    rows = max(1, _FINITE_CHECK_VALUES // max(1, values.size // len(values)))
    for start in range(0, len(values), rows):
        bad = ~np.isfinite(values[start : start + rows])
        release_pages(values)
        if bad.any():
            place = start + int(np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))[0])
            row = place if indptr is None else int(np.searchsorted(indptr, place, side="right")) - 1
            msg = f"x must be finite, but holds NaN or infinity (first at row {row}). Use numpy.nan_to_num or drop it."
            raise GraphError(msg)


def checked_labels(y: ArrayLike | None, num_nodes: int) -> NDArray[Any] | None:
    """Return labels, numbers of shape ``(num_nodes,)`` or ``(num_nodes, L)``."""
    if y is None:
        return None
    labels = _node_column("y", y, num_nodes)
    if labels.ndim > 2 or labels.dtype.kind not in "fiub" or (labels.ndim == 2 and labels.shape[1] == 0):
        msg = (
            f"y must be numbers of shape (N,) or (N, L), got {labels.dtype} of shape {labels.shape}. Encode the labels."
        )
        raise GraphError(msg)
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        msg = "y must not hold infinity. Use -1 or NaN for unlabelled nodes."
        raise GraphError(msg)
    return frozen(labels)


def checked_mask(name: str, mask: ArrayLike | None, num_nodes: int) -> BoolArray | None:
    """Return a mask that selects at least one node, bool of shape ``(num_nodes,)``."""
    if mask is None:
        return None
    array = _node_column(name, mask, num_nodes)
    if array.dtype != np.bool_ and not (
        array.dtype.kind in "iu" and array.size and array.max() <= 1 and array.min() >= 0
    ):
        msg = f"{name} must be bool of shape ({num_nodes},), got {array.dtype}. Convert node ids to a mask first."
        raise GraphError(msg)
    if array.ndim != 1:
        msg = f"{name} must have shape ({num_nodes},), got {array.shape}. Pick one split, for example {name}[:, 0]."
        raise GraphError(msg)
    if not array.any():
        msg = f"{name} selects no node. Leave it out (None) or select at least one."
        raise GraphError(msg)
    return frozen(array.astype(np.bool_, copy=False))


def checked_node_weight(name: str, weight: ArrayLike | None, num_nodes: int) -> FloatArray | None:
    """Return weights per node as floats; ``node_weight`` must be above 0, ``self_weight`` at least 0."""
    if weight is None:
        return None
    array = _node_column(name, weight, num_nodes)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        msg = f"{name} must be numbers of shape ({num_nodes},), got {array.dtype} of shape {array.shape}."
        raise GraphError(msg)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    is_allowed = np.isfinite(array) & (array > 0 if name == "node_weight" else array >= 0)
    if not is_allowed.all():
        first = int(np.flatnonzero(~is_allowed)[0])
        least = "above 0" if name == "node_weight" else "at least 0"
        fix = "Leave such nodes out with graph.subgraph." if name == "node_weight" else "Use 0 for no self-loop."
        msg = f"{name} must be finite and {least}, got {array[first]} at node {first}. {fix}"
        raise GraphError(msg)
    return frozen(array)


def checked_distribution(distribution: ArrayLike | None, num_nodes: int) -> FloatArray | None:
    """Return class probabilities as floats of shape ``(N, L)``."""
    if distribution is None:
        return None
    array = _node_array("label_distribution", distribution, num_nodes)
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind != "f":
        msg = f"label_distribution must be floats of shape ({num_nodes}, L), got {array.dtype} of shape {array.shape}."
        raise GraphError(msg)
    # In double: half precision adds thousands of classes up to anything.
    is_bad = ~((array >= 0).all(axis=1) & (np.abs(array.sum(axis=1, dtype=np.float64) - 1) <= _SUM_TOLERANCE))
    if is_bad.any():
        first = int(np.flatnonzero(is_bad)[0])
        msg = (
            f"label_distribution must hold probabilities, rows >= 0 that sum to 1, but row {first} does not (sum "
            f"{array[first].sum():.4g}). Divide each row by its sum."
        )
        raise GraphError(msg)
    return frozen(array)


def check_disjoint(masks: Mapping[str, BoolArray | None]) -> None:
    """Stop where two masks select the same node."""
    given = [(name, mask) for name, mask in masks.items() if mask is not None]
    for i, (first, mask) in enumerate(given):
        for second, other in given[i + 1 :]:
            shared = np.flatnonzero(mask & other)
            if shared.size:
                msg = f"{first} and {second} overlap at {shared.size} nodes (first: {shared[0]}). Remove them from one."
                raise GraphError(msg)
