"""The smooth signals of a graph, per connected component, and how much of them a coarsening loses (Loukas 2019)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from falcon_gnn.adjacency import IntArray
from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.contraction import merge_edges
from falcon_gnn.reduction.grouping import group_members
from falcon_gnn.threads import one_thread

IdArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

NUM_VECTORS = 10
"""Eigenvectors per component, the constant one included: the value of Loukas' and Huang's programs."""
DENSE_NODES = 300
_SOLVE_TOLERANCE = 1e-6
_SOLVE_ITERATIONS = 500
_EIGENVECTOR_TOLERANCE = 1e-4
_RESTARTS = 30
_NULL_SHARE = 1e-10


@dataclass(frozen=True)
class ComponentGraph:
    """A weighted graph whose nodes are sorted by connected component; N nodes, E edges of positive weight.

    Attributes:
        indptr: Row starts, int64, shape ``(N + 1,)``.
        indices: Neighbors, shape ``(2E,)``.
        weight: Weights, float64, shape ``(2E,)``.
        component: Component of each node, ascending, int64, shape ``(N,)``.
    """

    indptr: IdArray
    indices: IntArray
    weight: FloatArray
    component: IdArray

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.component)

    @cached_property
    def sizes(self) -> IdArray:
        """Nodes of each component, shape ``(num_components,)``."""
        return np.bincount(self.component)

    @cached_property
    def bounds(self) -> IdArray:
        """Nodes of component c are ``bounds[c]`` to ``bounds[c + 1]``."""
        return np.concatenate(([0], np.cumsum(self.sizes)))

    @cached_property
    def degree(self) -> FloatArray:
        """Sum of each node's weights, shape ``(N,)``."""
        return np.asarray(self.adjacency.sum(axis=1)).ravel()

    @cached_property
    def adjacency(self) -> Any:
        """The weights as a SciPy matrix."""
        from scipy.sparse import csr_array

        return csr_array((self.weight, self.indices, self.indptr), shape=(self.num_nodes, self.num_nodes))

    def apply_laplacian(self, signal: FloatArray) -> FloatArray:
        """Return L times a signal of shape ``(N, k)``."""
        product: FloatArray = self.degree[:, None] * signal - self.adjacency @ signal
        return product

    def merge(self, assignment: IdArray, num_groups: int) -> "ComponentGraph":
        """Return the graph of groups of nodes, weights summed; groups are numbered in the order of components."""
        merged = merge_edges(self.indptr, self.indices, self.weight, assignment, num_groups, "sum")
        assert merged.edge_weight is not None
        component = np.empty(num_groups, np.int64)
        component[assignment] = self.component
        return ComponentGraph(
            merged.indptr, merged.indices, merged.edge_weight.astype(np.float64, copy=False), component
        )


def sort_components(
    indptr: IdArray, indices: IntArray, edge_weight: NDArray[np.floating[Any]] | None
) -> tuple[ComponentGraph, IdArray]:
    """Return a graph with its nodes sorted by component, and the old id of each; edges of weight 0 are left out."""
    from falcon_gnn._kernels.components import label_components

    if edge_weight is not None and not edge_weight.all():
        is_edge = edge_weight != 0
        indptr = np.concatenate(([0], np.cumsum(is_edge)))[indptr]
        indices, edge_weight = indices[is_edge], edge_weight[is_edge]
    component = label_components(indptr, indices)[0].astype(np.int64)
    order = np.argsort(component, kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    weight = np.ones(len(indices)) if edge_weight is None else edge_weight.astype(np.float64)
    return ComponentGraph(indptr, indices, weight, component).merge(position, len(order)), order


def smooth_vectors(graph: ComponentGraph, num_vectors: IdArray) -> FloatArray:
    """Return the Laplacian's eigenvectors of smallest eigenvalue in each component, the constant one left out.

    A component of at most ``DENSE_NODES`` nodes is solved densely, a larger one by Lanczos iteration on the inverse,
    applied by conjugate gradients: no factorisation, whose fill would not be O(E), and no convergence from the far
    end of the spectrum, where small eigenvalues lie too close together. Where these do not converge, on a path of
    20,000 nodes for example, the vectors are smooth, not exact. Each vector lies on one component; column j holds the
    (j + 2)-th eigenvector of every component. The same bits on any machine only with a BLAS on one thread.

    Args:
        graph: N nodes.
        num_vectors: Eigenvectors wanted per component, the constant one included, shape ``(num_components,)``.

    Returns:
        Orthonormal in each component; zero where a component has or wants fewer; shape ``(N, max(num_vectors) - 1)``.
    """
    counts = np.minimum(num_vectors, graph.sizes) - 1
    vectors = np.zeros((graph.num_nodes, max(1, int(counts.max(initial=0)))))
    for c in np.flatnonzero(counts > 0):
        rows = slice(graph.bounds[c], graph.bounds[c + 1])
        laplacian = _block_laplacian(graph, rows)
        solve = _dense_vectors if graph.sizes[c] <= DENSE_NODES else _sparse_vectors
        vectors[rows, : counts[c]] = solve(laplacian, int(counts[c]))
    return vectors


def normalise_signal(graph: ComponentGraph, signal: FloatArray, wanted: NDArray[np.bool_]) -> FloatArray:
    """Return A = B (Bᵀ L B)^(+1/2), so that Aᵀ L A is the identity, in each wanted component; zero elsewhere.

    Args:
        graph: N nodes.
        signal: B, shape ``(N, k)``.
        wanted: Components to do it for, shape ``(num_components,)``.
    """
    image = graph.apply_laplacian(signal)
    result = np.zeros_like(signal)
    for c in np.flatnonzero(wanted):
        rows = slice(graph.bounds[c], graph.bounds[c + 1])
        values, rotation = np.linalg.eigh(_symmetric(signal[rows].T @ image[rows]))
        result[rows] = signal[rows] @ (rotation * _inverse_roots(values))
    return result


@dataclass(frozen=True)
class SpectralError:
    """How much of the smooth signals a coarsening loses; 0 is nothing.

    Attributes:
        epsilon: Loukas' constant ε of restricted spectral approximation: the largest ``‖x − x̃‖_L / ‖x‖_L`` over the
            signals x tested, x̃ being x with each group's values replaced by their mean.
        mean: Mean of the components' own constants, weighted by their nodes.
        num_nodes: Nodes of the components tested.
    """

    epsilon: float
    mean: float
    num_nodes: int


def restricted_spectral_error(graph: Graph, assignment: ArrayLike, num_vectors: int = NUM_VECTORS) -> SpectralError:
    """Return the restricted spectral approximation error of a partition of a graph's nodes (Loukas 2019).

    The signals tested are spanned by each component's first eigenvectors of the Laplacian. A component of which m
    groups are left can keep no more than m of them, so that its first ``min(num_vectors, m)`` are tested. Components
    that were left alone, or are one group, say nothing and are left out.

    Args:
        graph: The graph before; N nodes.
        assignment: Group of each node, as :attr:`falcon_gnn.CollapseResult.assignment`, shape ``(N,)``; nodes at -1 are
            left out.
        num_vectors: Eigenvectors per component, the constant one included, at least 1.

    Raises:
        OptionError: If the assignment has another length, or a group lies in several components.
    """
    given = np.asarray(assignment)
    if given.shape != (graph.num_nodes,) or given.dtype.kind not in "iu":
        msg = f"assignment must be integers of shape ({graph.num_nodes},), got {given.dtype} of shape {given.shape}."
        raise OptionError(msg)
    if num_vectors < 1:
        msg = f"num_vectors must be at least 1, got {num_vectors!r}."
        raise OptionError(msg)
    inside = np.flatnonzero(given >= 0)
    part = Graph(graph.indptr, graph.indices, graph.edge_weight).subgraph(inside)
    sorted_graph, order = sort_components(part.indptr, part.indices, part.edge_weight)
    groups = np.unique(given[inside], return_inverse=True)[1][order]
    counts = count_groups(sorted_graph, groups)
    wanted = np.where(counts < sorted_graph.sizes, np.minimum(counts, num_vectors), 0)
    with one_thread():
        return measure_error(sorted_graph, groups, smooth_vectors(sorted_graph, wanted))


def count_groups(graph: ComponentGraph, groups: IdArray) -> IdArray:
    """Return the number of groups in each component.

    Raises:
        OptionError: If a group lies in several components.
    """
    of_group = np.full(int(groups.max(initial=-1)) + 1, -1, np.int64)
    of_group[groups] = graph.component
    if (of_group[groups] != graph.component).any():
        msg = "assignment must not join nodes of different connected components. Split such groups by component."
        raise OptionError(msg)
    return np.bincount(of_group, minlength=len(graph.sizes))


def measure_error(graph: ComponentGraph, groups: IdArray, vectors: FloatArray) -> SpectralError:
    """Return the restricted spectral error over given signals, shape ``(N, k)``, zero columns left out."""
    starts, members = group_members(groups, int(groups.max(initial=-1)) + 1)
    loss = vectors - group_means(vectors, starts, members)[groups]
    loss_image, image = graph.apply_laplacian(loss), graph.apply_laplacian(vectors)
    tested = np.flatnonzero(np.add.reduceat(np.abs(vectors).sum(axis=1), graph.bounds[:-1]) > 0)
    errors = np.zeros(len(tested))
    for i, c in enumerate(tested):
        rows = slice(graph.bounds[c], graph.bounds[c + 1])
        values, rotation = np.linalg.eigh(_symmetric(vectors[rows].T @ image[rows]))
        scaled = rotation * _inverse_roots(values)
        largest = np.linalg.eigvalsh(_symmetric(scaled.T @ (loss[rows].T @ loss_image[rows]) @ scaled))[-1]
        errors[i] = np.sqrt(max(largest, 0.0))
    sizes = graph.sizes[tested]
    num_nodes = int(sizes.sum())
    mean = float(errors @ sizes / num_nodes) if num_nodes else 0.0
    return SpectralError(float(errors.max(initial=0.0)), mean, num_nodes)


def group_means(signal: FloatArray, starts: IdArray, members: IdArray) -> FloatArray:
    """Return the mean of each group's rows; group g is ``members[starts[g]:starts[g + 1]]``."""
    from scipy.sparse import csr_array

    sums = csr_array((np.ones(len(members)), members, starts), shape=(len(starts) - 1, len(signal)))
    means: FloatArray = sums @ signal / np.diff(starts)[:, None]
    return means


def _block_laplacian(graph: ComponentGraph, rows: slice) -> Any:
    from scipy.sparse import csr_array, diags_array

    first, last = graph.indptr[rows.start], graph.indptr[rows.stop]
    size = rows.stop - rows.start
    indptr = graph.indptr[rows.start : rows.stop + 1] - first
    block = csr_array((graph.weight[first:last], graph.indices[first:last] - rows.start, indptr), shape=(size, size))
    return csr_array(diags_array(graph.degree[rows]) - block)


def _dense_vectors(laplacian: Any, count: int) -> FloatArray:
    vectors: FloatArray = np.linalg.eigh(laplacian.toarray())[1][:, 1 : count + 1]
    return vectors


def _sparse_vectors(laplacian: Any, count: int) -> FloatArray:
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, cg, eigsh

    size = laplacian.shape[0]
    jacobi = diags_array(1 / laplacian.diagonal())

    def solve(right: FloatArray) -> FloatArray:
        right = right.ravel() - right.mean()
        x = cg(laplacian, right, rtol=_SOLVE_TOLERANCE, maxiter=_SOLVE_ITERATIONS, M=jacobi)[0]
        return np.asarray(x - x.mean())

    rng = np.random.default_rng(0)
    inverse = LinearOperator((size, size), matvec=solve, dtype=np.float64)
    start = rng.standard_normal(size)
    options = {"v0": start - start.mean(), "tol": _EIGENVECTOR_TOLERANCE, "maxiter": _RESTARTS}
    try:
        vectors = eigsh(inverse, k=count, which="LM", **options)[1]
    except ArpackNoConvergence:
        # Random signals smoothed by one inverse step: not eigenvectors yet, but low frequencies dominate them.
        vectors = np.stack([solve(rng.standard_normal(size)) for _ in range(count)], axis=1)
    basis = np.linalg.qr(vectors)[0]
    rotation: FloatArray = np.linalg.eigh(_symmetric(basis.T @ (laplacian @ basis)))[1]
    return basis @ rotation


def _inverse_roots(values: FloatArray) -> FloatArray:
    """Return 1/sqrt of eigenvalues, 0 for those that are 0 up to rounding."""
    is_positive = values > _NULL_SHARE * max(float(values.max(initial=0.0)), 0.0)
    return np.where(is_positive, 1 / np.sqrt(np.where(is_positive, values, 1.0)), 0.0)


def _symmetric(matrix: FloatArray) -> FloatArray:
    return (matrix + matrix.T) / 2
