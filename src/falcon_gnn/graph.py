"""The graph that every stage takes and returns: a frozen adjacency with features, labels and masks."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from falcon_gnn.adjacency import (
    Adjacency,
    EdgeChunk,
    EdgeCleaning,
    IntArray,
    build_adjacency,
    check_symmetric_weights,
    split_edges,
)
from falcon_gnn.errors import GraphError, OptionError
from falcon_gnn.graph_checks import (
    BoolArray,
    Features,
    FloatArray,
    OneWayWarning,
    check_disjoint,
    checked_attribute,
    checked_distribution,
    checked_edge_weight,
    checked_edges,
    checked_features,
    checked_labels,
    checked_mask,
    checked_node_ids,
    checked_node_weight,
    checked_num_nodes,
    frozen,
    tell_one_way,
)
from falcon_gnn.resources import release_pages

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_BLOCK_ROWS = 1 << 17
MASK_NAMES = ("train_mask", "val_mask", "test_mask")
WEIGHT_NAMES = ("node_weight", "self_weight")
SOFT_NAMES = (*WEIGHT_NAMES, "label_distribution")
"""What a reduction adds to a node: weights, and a class as probabilities."""
ROW_NAMES = ("x", "y", *MASK_NAMES, *SOFT_NAMES)
"""The fields with one row per node."""


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
        node_attributes: Any other arrays with one row per node, dense or ``scipy.sparse.csr_array``, by name.
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
        _set(self, "indptr", frozen(self.indptr))
        _set(self, "indices", frozen(self.indices))
        _set(self, "edge_weight", None if self.edge_weight is None else frozen(self.edge_weight))
        _set(self, "x", checked_features(self.x, num_nodes))
        _set(self, "y", checked_labels(self.y, num_nodes))
        for name in MASK_NAMES:
            _set(self, name, checked_mask(name, getattr(self, name), num_nodes))
        check_disjoint({name: getattr(self, name) for name in MASK_NAMES})
        for name in WEIGHT_NAMES:
            _set(self, name, checked_node_weight(name, getattr(self, name), num_nodes))
        _set(self, "label_distribution", checked_distribution(self.label_distribution, num_nodes))
        attributes = {name: checked_attribute(name, value, num_nodes) for name, value in self.node_attributes.items()}
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
        num_nodes = checked_num_nodes(num_nodes)
        edges = checked_edges(edge_index)
        weight = checked_edge_weight(edge_weight, edges.shape[1])
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
            walk: Called twice, or more for many edges; each time returns an iterator over the same chunks (sources,
                targets, weights or None).
            num_nodes: N.
            weight_dtype: float32 or float64 where chunks carry weights.
            warn_one_way: As in :meth:`from_edges`.
            node_arrays: As in :meth:`from_edges`.
        """
        adjacency = build_adjacency(walk, checked_num_nodes(num_nodes), weight_dtype)
        return cls._from_adjacency(adjacency, warn_one_way, node_arrays)

    @classmethod
    def from_scipy(cls, matrix: Any, **node_arrays: Any) -> Self:
        """Return the graph of a square SciPy sparse matrix; entries that are all 1 mean an unweighted graph.

        Entries of one place add up, as everywhere in SciPy: a matrix says the same in every format.

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
        coo.sum_duplicates()
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
            edge_weight: Weights aligned with ``indices``, equal in both directions.
            node_arrays: As in :meth:`from_edges`, and ``cleaning``.

        Raises:
            GraphError: If the arrays do not describe such an adjacency; use :meth:`from_scipy` then.
        """
        from falcon_gnn._kernels.adjacency import find_bad_row

        starts, ids = np.ascontiguousarray(indptr), np.ascontiguousarray(indices)
        is_whole = all(array.ndim == 1 and array.dtype.kind in "iu" for array in (starts, ids))
        starts = starts.astype(np.int64, copy=False)
        is_csr = is_whole and starts.size > 0 and starts[0] == 0 and starts[-1] == len(ids)
        if not (is_csr and (np.diff(starts) >= 0).all()):
            msg = (
                "indptr must be ascending whole numbers from 0 to len(indices), and indices whole numbers in one "
                "dimension. Use Graph.from_scipy instead."
            )
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
        weight = checked_edge_weight(edge_weight, len(ids))
        if weight is not None:
            check_symmetric_weights(starts, ids, weight)
        return cls(starts, ids, weight, **node_arrays)

    @classmethod
    def _from_adjacency(cls, adjacency: Adjacency, warn_one_way: OneWayWarning, node_arrays: Mapping[str, Any]) -> Self:
        tell_one_way(adjacency.cleaning, warn_one_way)
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
            node_ids: Distinct ids, strictly ascending, shape ``(n,)``; node i of the result is ``node_ids[i]``. Or a
                mask of the nodes, bool, shape ``(N,)``.

        Raises:
            OptionError: If the ids are not strictly ascending or out of range, or neither whole numbers nor such a
                mask.
        """
        from falcon_gnn._kernels.contraction import induce_rows

        ids = checked_node_ids(node_ids, self.num_nodes)
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
            name: None if getattr(self, name) is None else _take_rows(getattr(self, name), node_ids)
            for name in ROW_NAMES
        }
        taken["node_attributes"] = {name: value[node_ids] for name, value in self.node_attributes.items()}
        return taken

    def replace(self, **changes: Any) -> "Graph":
        """Return a copy with some fields changed, these checked anew; all else is shared.

        A new ``indptr``, ``indices`` or ``edge_weight`` is checked as :meth:`from_csr` does.

        Raises:
            GraphError: If a new value does not fit the graph.
            OptionError: If a field is unknown.
        """
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        unknown = sorted(set(changes) - set(known))
        if unknown:
            msg = f"replace() takes the fields {', '.join(known)}, got {', '.join(unknown)}."
            raise OptionError(msg)
        if not changes.keys().isdisjoint(("indptr", "indices", "edge_weight")):
            return Graph.from_csr(**{**known, **changes})
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


def _take_rows(values: Any, node_ids: NDArray[np.int64]) -> Any:
    """Return some rows of an array or sparse matrix; those of a mapped file are read in blocks and let go."""
    if not isinstance(values, np.ndarray):
        return values[node_ids]
    rows = np.empty((len(node_ids), *values.shape[1:]), values.dtype)
    for start in range(0, len(node_ids), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        rows[block] = values[node_ids[block]]
        release_pages(values)
    return rows


def without_empty_masks(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return node-level arrays with the masks that select no node set to None."""
    empty = {name: None for name in MASK_NAMES if arrays[name] is not None and not arrays[name].any()}
    return {**arrays, **empty}


def _set(graph: Graph, name: str, value: object) -> None:
    object.__setattr__(graph, name, value)
