"""What a GNN sees of each node, in few columns: propagated features, each hop on one scale, projected (ours)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.graph_checks import Features
from falcon_gnn.labels import LabelEncoding
from falcon_gnn.progress import part_of_work, tell_share
from falcon_gnn.propagation import inverse_root_degrees
from falcon_gnn.reduction.matrix import column_range
from falcon_gnn.reduction.scope import ScopedGraph
from falcon_gnn.resources import release_pages, require_memory
from falcon_gnn.threads import one_thread

MAX_COLUMNS = 64
"""Columns of the space; the reduction holds so many floats per node beside the graph, and a few more for a moment."""
_FEWEST_COLUMNS = 2
"""Of a hop, however many hops there are: a single number divided by its length is a sign."""
_SUBSPACE_STEPS = 3
_BLOCKS = 64
_BLOCK_VALUES = 1 << 22
Points = NDArray[np.float32]


def hop_space(x: Features, scope: ScopedGraph, num_hops: int, seed: int, max_columns: int = MAX_COLUMNS) -> Points:
    """Return [ÃX, …, Ã^k X] of the nodes in scope, projected, each hop's row divided by its length.

    Features wider than their share of the columns are projected on the directions in which ÃX is largest (its first
    right singular vectors, by subspace iteration from a seeded start). Nothing outside the scope is read.

    Args:
        x: X of the input, dense, memory-mapped or CSR, shape ``(N_all, F)``.
        scope: The n nodes that take part.
        num_hops: k, >= 1.
        seed: Draws the start of the iteration.
        max_columns: Columns in all, beyond which a hop still has two.

    Returns:
        Shape ``(n, k·min(F, max(2, max_columns // k)))``; a row of zeros stays.
    """
    num_nodes, width = len(scope.ids), min(x.shape[1], max(_FEWEST_COLUMNS, max_columns // num_hops))
    require_memory(4 * num_nodes * width * num_hops, f"hold the hop features of {num_nodes:,} nodes")
    adjacency = _Adjacency(scope)
    rows = _Rows(x, None if scope.is_whole else scope.ids)
    # One thread: the sums of a threaded BLAS depend on how many threads there are.
    with one_thread():
        basis, before = None, 0.0
        if x.shape[1] != width:
            before = 0.6
            with part_of_work(0.0, before):
                basis = _leading_directions(rows, adjacency, width, seed)
        space = np.empty((num_nodes, num_hops * width), np.float32)
        for hop in range(num_hops):
            target = space[:, hop * width : (hop + 1) * width]
            if hop == 0:
                projected = np.empty((num_nodes, width), np.float32)
                rows.multiply(basis, projected)
                adjacency.multiply(projected, target)
                del projected
            else:
                adjacency.multiply(space[:, (hop - 1) * width : hop * width], target)
            tell_share(before + (1 - before) * (hop + 1) / (num_hops + 1))
    for hop in range(num_hops):
        _normalize(space[:, hop * width : (hop + 1) * width])
    return space


def label_columns(encoding: LabelEncoding, num_columns: int, seed: int) -> Points:
    """Return the visible labels of the nodes in scope, projected on so many columns; zero where nothing is visible.

    Args:
        encoding: Labels as vectors, shape ``(n, L)``.
        num_columns: At most so many; fewer where L is smaller.
        seed: Draws the start of the iteration.
    """
    rows = _Rows(_ScaledLabels(encoding), None)
    num_rows, width = rows.shape
    result = np.empty((num_rows, min(width, num_columns)), np.float32)
    with one_thread():
        basis = None if width <= num_columns else _leading_directions(rows, None, num_columns, seed)
        rows.multiply(basis, result)
    return result


def node_facts(x: Features, scope: ScopedGraph, points: Points, encoding: LabelEncoding, seed: int) -> Points:
    """Return what is known of each node in scope beside its own label: X, its hops and its neighbors' labels.

    The last are D^(-1/2) A D^(-1/2) Y, in which a node's own label has no part, so that a regression on all of it can
    be asked about nodes left out.

    Args:
        x: X of the input, dense, memory-mapped or CSR, shape ``(N_all, F)``.
        scope: The n nodes that take part.
        points: Their hop features (:func:`hop_space`), shape ``(n, d)``.
        encoding: Their visible labels, projected as by :func:`label_columns`.
        seed: Draws the starts of the iterations.

    Returns:
        X projected on the directions in which it is largest, ``points``, and the labels, each part's row of length one
        or zero, shape ``(n, min(F, 64) + d + min(L, 64))``.
    """
    num_nodes, width, num_labels = len(scope.ids), x.shape[1], min(encoding.num_labels, MAX_COLUMNS)
    num_features, num_hops = min(width, MAX_COLUMNS), points.shape[1]
    num_columns = num_features + num_hops + num_labels
    require_memory(4 * num_nodes * (num_columns + num_labels), f"hold what is known of {num_nodes:,} nodes")
    facts = np.empty((num_nodes, num_columns), np.float32)
    own, spread = facts[:, :num_features], facts[:, -num_labels:]
    rows = _Rows(x, None if scope.is_whole else scope.ids)
    with one_thread(), part_of_work(0.0, 0.6):
        rows.multiply(None if width == num_features else _leading_directions(rows, None, num_features, seed), own)
    facts[:, num_features:-num_labels] = points
    with part_of_work(0.6, 1.0):
        labels = label_columns(encoding, MAX_COLUMNS, seed)
    _Adjacency(scope, has_loops=False).multiply(labels, spread)
    _normalize(own)
    _normalize(spread)
    return facts


def join_columns(features: Points | None, labels: Points | None, gamma: float) -> Points | None:
    """Return features and labels side by side, γ and 1 - γ being their shares of the variance.

    Args:
        features: Shape ``(n, f)``, or None; changed in place.
        labels: Shape ``(n, l)``, or None; changed in place.
        gamma: γ in [0, 1].
    """
    if features is None or labels is None:
        return features if labels is None else labels
    for part, share in ((features, gamma), (labels, 1 - gamma)):
        spread = float(part.var(axis=0, dtype=np.float64).sum())
        part *= np.float32(np.sqrt(share / spread)) if spread > 0 else np.float32(0)
    return np.concatenate([features, labels], axis=1)


class _Rows:
    """Products with the rows of X in scope, block by block, so that a memory map is never whole in memory."""

    def __init__(self, x: "Features | _ScaledLabels", ids: NDArray[np.int64] | None) -> None:
        self.x, self.ids = x, ids
        self.shape = (x.shape[0] if ids is None else len(ids), x.shape[1])

    def _blocks(self) -> Any:
        step = max(1, _BLOCK_VALUES // self.shape[1])
        for start in range(0, self.shape[0], step):
            part = slice(start, min(start + step, self.shape[0]))
            block = self.x[part if self.ids is None else self.ids[part]]
            yield part, block.astype(np.float32, copy=False)
            release_pages(self.x)

    def multiply(self, basis: NDArray[np.float32] | None, out: NDArray[np.float32]) -> None:
        """Write X B into ``out``; X itself without a basis."""
        for part, block in self._blocks():
            if basis is None:
                out[part] = block if isinstance(block, np.ndarray) else block.toarray()
            else:
                out[part] = block @ basis

    def multiply_transposed(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return Xᵀ V in double, shape ``(F, d)``."""
        total = np.zeros((self.shape[1], values.shape[1]))
        for part, block in self._blocks():
            total += block.T @ values[part]
        return total


class _Adjacency:
    """Products with Ã of the nodes in scope, or without its loops; only a factor per node is held beside the graph."""

    def __init__(self, scope: ScopedGraph, *, has_loops: bool = True) -> None:
        self.indptr, self.indices = scope.indptr, scope.indices
        num_nodes = len(scope.ids)
        self.weight = np.empty(0) if scope.edge_weight is None else scope.edge_weight
        if has_loops and scope.self_weight is not None:
            self.own = scope.self_weight.astype(np.float64)
        else:
            self.own = np.full(num_nodes, float(has_loops))
        self.scale = inverse_root_degrees(scope.indptr, scope.edge_weight, self.own)

    def multiply(self, source: NDArray[np.float32], target: NDArray[np.float32]) -> None:
        """Write ÃH into ``target``, another array."""
        from falcon_gnn._kernels.propagation import propagate

        propagate(self.indptr, self.indices, self.weight, self.own, self.scale, source, target, _BLOCKS)


def _leading_directions(rows: _Rows, adjacency: _Adjacency | None, width: int, seed: int) -> NDArray[np.float32]:
    """Return the first right singular vectors of ÃX (of X without Ã), float32, shape ``(F, width)``."""
    basis = np.random.default_rng([seed, 7]).standard_normal((rows.shape[1], width)).astype(np.float32)
    product = np.empty((rows.shape[0], width), np.float32)
    once = None if adjacency is None else np.empty_like(product)
    for step in range(_SUBSPACE_STEPS):
        tell_share(step / _SUBSPACE_STEPS)
        rows.multiply(basis, product)
        if adjacency is not None and once is not None:
            adjacency.multiply(product, once)
            adjacency.multiply(once, product)
        # By a power of two, which changes no digit: squares of large numbers, such as time stamps, are no float32.
        largest = max(product.max(initial=0), -product.min(initial=0))
        np.ldexp(product, -np.frexp(largest)[1], out=product)
        basis = np.linalg.qr(rows.multiply_transposed(product))[0].astype(np.float32)
    return basis


def _normalize(part: NDArray[np.float32]) -> None:
    """Divide each row by its length, in place."""
    lengths = np.sqrt(np.einsum("ij,ij->i", part, part, dtype=np.float64))
    np.divide(part, lengths[:, None], out=part, where=lengths[:, None] > 0, casting="same_kind")


class _ScaledLabels:
    """Label vectors with each column min-max scaled over its visible values, 0 where nothing is visible.

    Rows are made when they are asked for: those of all nodes would be floats of several times the labels' size.
    """

    def __init__(self, encoding: LabelEncoding) -> None:
        self.encoding, self.shape = encoding, (len(encoding.labelled), encoding.num_labels)
        self.low, high = (side.astype(np.float32) for side in column_range(encoding))
        self.width = high - self.low

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        encoding = self.encoding
        values = encoding.rows(rows).astype(np.float32)
        known = encoding.labelled[rows, None] if encoding.known is None else encoding.known[rows]
        scaled = np.zeros_like(values)
        np.divide(values - self.low, self.width, out=scaled, where=known & (self.width > 0))
        return scaled
