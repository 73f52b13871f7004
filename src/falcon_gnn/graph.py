"""The graph that every stage takes and returns: a frozen adjacency with features, labels and masks."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from falcon_gnn.adjacency import (
    Adjacency,
    EdgeChunk,
    EdgeCleaning,
    IntArray,
    build_adjacency,
    split_edges,
)
from falcon_gnn.errors import FalconWarning, GraphError, OptionError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.floating[Any]]
Features = Any  # numpy.ndarray of shape (N, F), possibly memory-mapped, or scipy.sparse.csr_array of that shape
OneWayWarning = Literal["mixed", "always", "never"]

MASK_NAMES = ("train_mask", "val_mask", "test_mask")
WEIGHT_NAMES = ("node_weight", "self_weight")
ROW_NAMES = ("x", "y", *MASK_NAMES, *WEIGHT_NAMES, "label_distribution")
"""The fields with one row per node."""
_SUM_TOLERANCE = 1e-3
_FINITE_CHECK_VALUES = 1 << 24


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """An undirected graph with node features, labels and splits; N nodes, E edges, F features.

    Build one with :meth:`from_edges`, :meth:`from_scipy`, :meth:`from_edge_chunks` or :meth:`from_csr`; these check
    every input once. The arrays are read-only views; nothing of the caller's is copied without need or ever changed.

    Attributes:
        indptr: Row starts of the adjacency, int64, shape ``(N + 1,)``.
        indices: Neighbors, ascending in each row, both directions, no self-loops, no duplicates, shape ``(2E,)``.
        edge_weight: Weights aligned with ``indices``, shape ``(2E,)``, or None for an unweighted graph.
        x: Features, shape ``(N, F)``, dense or ``scipy.sparse.csr_array``, or None.
        y: Labels, shape ``(N,)`` or ``(N, L)``; -1 or NaN marks unlabelled nodes; or None.
        train_mask: Training nodes, bool, shape ``(N,)``, or None.
        val_mask: Validation nodes, likewise.
        test_mask: Test nodes, likewise.
        node_weight: How many nodes each node stands for, which is its weight in a training loss: floats > 0, shape
            ``(N,)``. None means 1.
        self_weight: The weight of each node's self-loop in Ã, floats >= 0, shape ``(N,)``; None means 1, the I of
            Eq. 3.
        label_distribution: A class as probabilities, shape ``(N, L)``, rows that sum to 1: what a training loss then
            compares with in place of ``y``. Not to be taken for multi-label targets, which are ``y`` of that shape.
        node_attributes: Any other arrays with one row per node, dense or ``scipy.sparse.csr_array``.
        cleaning: What the edge list needed when the graph was built.

    Example:
        >>> import numpy as np
        >>> graph = Graph.from_edges(np.array([[0, 1], [1, 2]]), num_nodes=4)
        >>> graph.num_edges, graph.degrees.tolist()
        (2, [1, 2, 1, 0])
    """

    indptr: NDArray[np.int64]
    indices: IntArray
    edge_weight: FloatArray | None = None
    x: Features = None
    y: NDArray[Any] | None = None
    train_mask: BoolArray | None = None
    val_mask: BoolArray | None = None
    test_mask: BoolArray | None = None
    node_weight: FloatArray | None = None
    self_weight: FloatArray | None = None
    label_distribution: FloatArray | None = None
    node_attributes: Mapping[str, Any] = field(default_factory=dict)
    cleaning: EdgeCleaning = field(default_factory=EdgeCleaning)

    def __post_init__(self) -> None:
        """Check the node-level arrays and freeze everything."""
        num_nodes = len(self.indptr) - 1
        _set(self, "indptr", _frozen(self.indptr))
        _set(self, "indices", _frozen(self.indices))
        _set(self, "edge_weight", None if self.edge_weight is None else _frozen(self.edge_weight))
        _set(self, "x", _checked_features(self.x, num_nodes))
        _set(self, "y", _checked_labels(self.y, num_nodes))
        for name in MASK_NAMES:
            _set(self, name, _checked_mask(name, getattr(self, name), num_nodes))
        _check_disjoint({name: getattr(self, name) for name in MASK_NAMES})
        for name in WEIGHT_NAMES:
            _set(self, name, _checked_node_weight(name, getattr(self, name), num_nodes))
        _set(self, "label_distribution", _checked_distribution(self.label_distribution, num_nodes))
        attributes = {
            name: _checked_attribute(f"node_attributes[{name!r}]", value, num_nodes)
            for name, value in self.node_attributes.items()
        }
        _set(self, "node_attributes", MappingProxyType(attributes))

    @classmethod
    def from_edges(
        cls,
        edge_index: ArrayLike,
        num_nodes: int,
        *,
        edge_weight: ArrayLike | None = None,
        warn_one_way: OneWayWarning = "mixed",
        **node_arrays: Any,
    ) -> Self:
        """Return the graph of an edge list, which may hold each pair once or in both directions.

        Self-loops are removed, duplicates in the same direction are folded (their weights add up), and a missing
        reverse is added; all three are counted in :attr:`cleaning`.

        Args:
            edge_index: Node ids, any integer dtype, shape ``(2, num_entries)``; may be memory-mapped.
            num_nodes: N. Never guessed from the edges, since the last nodes may be isolated.
            edge_weight: Finite weights >= 0, shape ``(num_entries,)``; equal in both directions where both stand.
            warn_one_way: Warn when pairs lack a reverse: only if others have one (``"mixed"``), ``"always"`` or
                ``"never"``.
            node_arrays: ``x``, ``y``, ``train_mask``, ``val_mask``, ``test_mask``, ``node_weight``, ``self_weight``,
                ``label_distribution``, ``node_attributes`` as in :class:`Graph`.

        Raises:
            GraphError: If an argument has a wrong shape, type or value; the message names it and the fix.
        """
        num_nodes = _checked_num_nodes(num_nodes)
        edges = _checked_edges(edge_index)
        weight = _checked_weight(edge_weight, edges.shape[1])
        adjacency = build_adjacency(split_edges(edges, weight), num_nodes, None if weight is None else weight.dtype)
        return cls._from_adjacency(adjacency, warn_one_way, node_arrays)

    @classmethod
    def from_edge_chunks(
        cls,
        walk: Callable[[], Iterator[EdgeChunk]],
        num_nodes: int,
        *,
        weight_dtype: np.dtype[Any] | None = None,
        warn_one_way: OneWayWarning = "mixed",
        **node_arrays: Any,
    ) -> Self:
        """Return the graph of an edge list that is never whole in memory; as :meth:`from_edges` otherwise.

        Args:
            walk: Called twice; each time returns an iterator over (sources, targets, weights or None) in chunks.
            num_nodes: N.
            weight_dtype: float32 or float64 where chunks carry weights.
            warn_one_way: As in :meth:`from_edges`.
            node_arrays: As in :meth:`from_edges`.
        """
        adjacency = build_adjacency(walk, _checked_num_nodes(num_nodes), weight_dtype)
        return cls._from_adjacency(adjacency, warn_one_way, node_arrays)

    @classmethod
    def from_scipy(cls, matrix: Any, **node_arrays: Any) -> Self:
        """Return the graph of a square SciPy sparse matrix; entries that are all 1 mean an unweighted graph.

        Args:
            matrix: Adjacency, shape ``(N, N)``, any sparse format; one triangle or both.
            node_arrays: As in :meth:`from_edges`.

        Raises:
            GraphError: If the matrix is not sparse and square, or as :meth:`from_edges`.
        """
        from scipy.sparse import issparse

        if not issparse(matrix) or matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            msg = (
                f"matrix must be a square SciPy sparse matrix, got {type(matrix).__name__} of shape {np.shape(matrix)}."
            )
            raise GraphError(msg)
        coo = matrix.tocoo(copy=True)
        stored = coo.data != 0
        coo.row, coo.col, coo.data = coo.row[stored], coo.col[stored], coo.data[stored]
        is_unweighted = coo.data.dtype.kind == "b" or bool((coo.data == 1).all())
        return cls.from_edges(
            np.stack([coo.row, coo.col]),
            matrix.shape[0],
            edge_weight=None if is_unweighted else coo.data,
            **node_arrays,
        )

    @classmethod
    def from_csr(
        cls, indptr: ArrayLike, indices: ArrayLike, *, edge_weight: ArrayLike | None = None, **node_arrays: Any
    ) -> Self:
        """Return a graph around an adjacency that is already clean, without copying it.

        Args:
            indptr: Row starts, shape ``(N + 1,)``.
            indices: Neighbors, both directions, strictly ascending in each row, no self-loops, shape ``(2E,)``.
            edge_weight: Weights aligned with ``indices``.
            node_arrays: As in :meth:`from_edges`, and ``cleaning``.

        Raises:
            GraphError: If the arrays do not describe such an adjacency; use :meth:`from_scipy` then.
        """
        from falcon_gnn._kernels.adjacency import find_bad_row

        starts = np.ascontiguousarray(indptr, dtype=np.int64)
        ids = np.ascontiguousarray(indices)
        is_csr = starts.ndim == 1 and starts.size > 0 and starts[0] == 0 and starts[-1] == len(ids)
        if not (is_csr and ids.dtype.kind in "iu" and (np.diff(starts) >= 0).all()):
            msg = "indptr must be ascending from 0 to len(indices), and indices integers. Use Graph.from_scipy instead."
            raise GraphError(msg)
        if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= len(starts) - 1):
            msg = f"indices must lie in [0, {len(starts) - 1}), got {ids.min()} to {ids.max()}. Number nodes from 0."
            raise GraphError(msg)
        ids = ids.astype(np.int32 if len(starts) <= 2**31 else np.int64, copy=False)
        row = int(find_bad_row(starts, ids))
        if row >= 0:
            msg = (
                f"indices must hold, in each row, ascending ids without self-loops, each with its reverse; row {row} "
                "does not. Use Graph.from_scipy, which mends this."
            )
            raise GraphError(msg)
        weight = _checked_weight(edge_weight, len(ids))
        return cls(starts, ids, weight, **node_arrays)

    @classmethod
    def _from_adjacency(cls, adjacency: Adjacency, warn_one_way: OneWayWarning, node_arrays: Mapping[str, Any]) -> Self:
        _warn_one_way(adjacency.cleaning, warn_one_way)
        given = {name: value for name, value in node_arrays.items() if value is not None}
        return cls(adjacency.indptr, adjacency.indices, adjacency.edge_weight, cleaning=adjacency.cleaning, **given)

    @property
    def num_nodes(self) -> int:
        """N, isolated nodes included."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """E, each undirected edge counted once."""
        return len(self.indices) // 2

    @property
    def num_features(self) -> int:
        """F; 0 without features."""
        return 0 if self.x is None else int(self.x.shape[1])

    @property
    def is_weighted(self) -> bool:
        """Whether the edges carry weights."""
        return self.edge_weight is not None

    @property
    def degrees(self) -> NDArray[np.int64]:
        """Number of neighbors of each node, int64, shape ``(N,)``."""
        return np.diff(self.indptr)

    @property
    def edge_index(self) -> NDArray[np.int64]:
        """Both directions of every edge as ids, int64, shape ``(2, 2E)``, in CSR order; built on each call."""
        source = np.repeat(np.arange(self.num_nodes), self.degrees)
        return np.stack([source, self.indices.astype(np.int64)])

    def to_scipy(self) -> "csr_array":
        """Return the adjacency, shape ``(N, N)``; float32 ones where the graph is unweighted."""
        from scipy.sparse import csr_array

        data = np.ones(len(self.indices), np.float32) if self.edge_weight is None else self.edge_weight.copy()
        matrix = csr_array((data, self.indices.copy(), self.indptr.copy()), shape=(self.num_nodes, self.num_nodes))
        matrix.has_canonical_format = True
        return matrix

    def subgraph(self, node_ids: ArrayLike) -> "Graph":
        """Return the graph induced by some nodes, with every attribute of theirs; a mask that selects none is None.

        Args:
            node_ids: Distinct ids, strictly ascending, shape ``(n,)``; node i of the result is ``node_ids[i]``.

        Raises:
            GraphError: If the ids are not strictly ascending or out of range.
        """
        from falcon_gnn._kernels.contraction import induce_rows

        ids = np.asarray(node_ids, np.int64)
        if ids.ndim != 1 or (np.diff(ids) <= 0).any() or (ids.size and (ids[0] < 0 or ids[-1] >= self.num_nodes)):
            msg = f"node_ids must be distinct, ascending and in [0, {self.num_nodes}). Use numpy.unique(node_ids)."
            raise OptionError(msg)
        new_ids = np.full(self.num_nodes, -1, self.indices.dtype)
        new_ids[ids] = np.arange(ids.size)
        indptr, positions = induce_rows(self.indptr, self.indices, ids, new_ids)
        return Graph(
            indptr,
            new_ids[self.indices[positions]],
            None if self.edge_weight is None else self.edge_weight[positions],
            cleaning=self.cleaning,
            **without_empty_masks(self.take_node_arrays(ids)),
        )

    def take_node_arrays(self, node_ids: NDArray[np.int64]) -> dict[str, Any]:
        """Return ``x``, ``y``, masks, weights and attributes of some nodes, as keyword arguments of :class:`Graph`."""
        taken: dict[str, Any] = {
            name: None if getattr(self, name) is None else getattr(self, name)[node_ids] for name in ROW_NAMES
        }
        taken["node_attributes"] = {name: value[node_ids] for name, value in self.node_attributes.items()}
        return taken

    def replace(self, **changes: Any) -> "Graph":
        """Return a copy with some fields changed, these checked anew; all else is shared.

        Raises:
            GraphError: If a field is unknown, or a new value does not fit the graph.
        """
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        unknown = sorted(set(changes) - set(known))
        if unknown:
            msg = f"replace() takes the fields {', '.join(known)}, got {', '.join(unknown)}."
            raise OptionError(msg)
        if "x" in changes:
            return Graph(**{**known, **changes})
        # The features were checked when this graph was made; a memory-mapped x is not read again.
        copy = Graph(**{**known, **changes, "x": None})
        _set(copy, "x", self.x)
        return copy

    def __reduce__(self) -> tuple[type["Graph"], tuple[Any, ...]]:
        """Pickle and copy through the constructor, which freezes the arrays anew."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["node_attributes"] = dict(self.node_attributes)
        return Graph, tuple(values.values())

    def __repr__(self) -> str:
        """Show the sizes and what the graph carries."""
        carried = [name for name in ("edge_weight", *ROW_NAMES[1:]) if getattr(self, name) is not None]
        carried += list(self.node_attributes)
        parts = [f"num_nodes={self.num_nodes}", f"num_edges={self.num_edges}", f"num_features={self.num_features}"]
        return f"Graph({', '.join(parts + carried)})"


def without_empty_masks(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return node-level arrays with the masks that select no node set to None."""
    empty = {name: None for name in MASK_NAMES if arrays[name] is not None and not arrays[name].any()}
    return {**arrays, **empty}


def _set(graph: Graph, name: str, value: object) -> None:
    object.__setattr__(graph, name, value)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view; the caller's own array stays writable."""
    view = array.view()
    view.flags.writeable = False
    return view


def _checked_num_nodes(num_nodes: int) -> int:
    if isinstance(num_nodes, bool | np.bool_) or not isinstance(num_nodes, int | np.integer) or num_nodes < 1:
        msg = f"num_nodes must be a whole number of at least 1, got {num_nodes!r}."
        raise GraphError(msg)
    return int(num_nodes)


def _checked_edges(edge_index: ArrayLike) -> IntArray:
    edges = np.asarray(edge_index)
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


def _checked_weight(edge_weight: ArrayLike | None, num_entries: int) -> FloatArray | None:
    if edge_weight is None:
        return None
    weight = np.asarray(edge_weight)
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


def _warn_one_way(cleaning: EdgeCleaning, when: OneWayWarning) -> None:
    is_mixed = cleaning.num_one_way > 0 and cleaning.num_two_way > 0
    if (when == "mixed" and is_mixed) or (when == "always" and cleaning.num_one_way > 0):
        msg = (
            f"symmetrised: {cleaning.num_one_way} edges had no reverse and {cleaning.num_two_way} had one; the graph "
            "is used as undirected, so each missing reverse was added."
        )
        warnings.warn(msg, FalconWarning, stacklevel=4)


def _node_array(name: str, value: ArrayLike, num_nodes: int) -> NDArray[Any]:
    array = np.asarray(value)
    if array.ndim == 0 or len(array) != num_nodes:
        msg = f"{name} must have one row per node ({num_nodes}), got shape {array.shape}."
        raise GraphError(msg)
    return array


def _checked_attribute(name: str, value: Any, num_nodes: int) -> Any:
    if not hasattr(value, "tocsr"):
        return _frozen(_node_array(name, value, num_nodes))
    from scipy.sparse import csr_array

    if value.ndim != 2 or value.shape[0] != num_nodes:
        msg = f"{name} must have one row per node ({num_nodes}), got shape {value.shape}."
        raise GraphError(msg)
    return csr_array(value)


def _checked_features(x: Any, num_nodes: int) -> Features:
    if x is None:
        return None
    from scipy.sparse import csr_array, issparse

    if issparse(x):
        matrix = csr_array(x)
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
    _check_finite(stored)
    if matrix.shape[1] == 0:
        return None
    if not issparse(x):
        return _frozen(matrix)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    if matrix.indices.dtype != np.int32 and max(matrix.nnz, matrix.shape[1]) < 2**31:
        # scikit-learn refuses wide indices.
        parts = (matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32))
        matrix = csr_array(parts, shape=matrix.shape)
    return matrix


def _check_finite(values: NDArray[Any]) -> None:
    """Look for NaN and infinity in row blocks, so that a memory-mapped array is never whole in memory."""
    if values.dtype.kind != "f" or values.size == 0:
        return
    rows = max(1, _FINITE_CHECK_VALUES // max(1, values.size // len(values)))
    for start in range(0, len(values), rows):
        bad = ~np.isfinite(values[start : start + rows])
        if bad.any():
            where = start + int(np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))[0])
            msg = (
                f"x must be finite, but holds NaN or infinity (first at row {where}). Use numpy.nan_to_num or drop it."
            )
            raise GraphError(msg)


def _checked_labels(y: ArrayLike | None, num_nodes: int) -> NDArray[Any] | None:
    if y is None:
        return None
    labels = _node_array("y", y, num_nodes)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim > 2 or labels.dtype.kind not in "fiub" or (labels.ndim == 2 and labels.shape[1] == 0):
        msg = (
            f"y must be numbers of shape (N,) or (N, L), got {labels.dtype} of shape {labels.shape}. Encode the labels."
        )
        raise GraphError(msg)
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        msg = "y must not hold infinity. Use -1 or NaN for unlabelled nodes."
        raise GraphError(msg)
    return _frozen(labels)


def _checked_mask(name: str, mask: ArrayLike | None, num_nodes: int) -> BoolArray | None:
    if mask is None:
        return None
    array = _node_array(name, mask, num_nodes)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
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
    return _frozen(array.astype(np.bool_, copy=False))


def _checked_node_weight(name: str, weight: ArrayLike | None, num_nodes: int) -> FloatArray | None:
    """Return weights per node as floats; ``node_weight`` must be above 0, ``self_weight`` at least 0."""
    if weight is None:
        return None
    array = _node_array(name, weight, num_nodes)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
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
    return _frozen(array)


def _checked_distribution(distribution: ArrayLike | None, num_nodes: int) -> FloatArray | None:
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
    return _frozen(array)


def _check_disjoint(masks: Mapping[str, BoolArray | None]) -> None:
    given = [(name, mask) for name, mask in masks.items() if mask is not None]
    for i, (first, mask) in enumerate(given):
        for second, other in given[i + 1 :]:
            shared = np.flatnonzero(mask & other)
            if shared.size:
                msg = f"{first} and {second} overlap at {shared.size} nodes (first: {shared[0]}). Remove them from one."
                raise GraphError(msg)
