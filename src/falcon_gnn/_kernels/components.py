"""Connected components of a symmetric CSR adjacency, by union-find."""

import numpy as np

from falcon_gnn._kernels.compiling import kernel, subroutine

_FIRST_NEIGHBORS = 2


@subroutine()
def _root(parent, v):  # type: ignore[no-untyped-def]
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@subroutine()
def _join(parent, u, v):  # type: ignore[no-untyped-def]
    """Make the two nodes' trees one, below the smaller root."""
    a, b = _root(parent, u), _root(parent, v)
    if a < b:
        parent[b] = a
    elif b < a:
        parent[a] = b


@kernel()
def label_components(indptr, indices):  # type: ignore[no-untyped-def]
    """Return each node's component, numbered by its smallest node, and the number of components.

    Two neighbors of each node are joined first, which leaves most graphs one large component. Its nodes' other
    neighbors are not looked at: an edge that leads out of it is seen from its other end (Afforest: Sutton, Ben-Nun and
    Barak, 2018).
    """
    num_nodes = indptr.size - 1
    parent = np.arange(num_nodes).astype(indices.dtype)
    for v in range(num_nodes):
        for position in range(indptr[v], min(indptr[v] + _FIRST_NEIGHBORS, indptr[v + 1])):
            _join(parent, indices[position], v)
    sizes = np.zeros(num_nodes, np.int32)
    largest = np.int64(0)
    for v in range(num_nodes):
        root = _root(parent, v)
        sizes[root] += 1
        if sizes[root] > sizes[largest]:
            largest = np.int64(root)
    for v in range(num_nodes):
        if _root(parent, v) != _root(parent, largest):
            for position in range(indptr[v] + _FIRST_NEIGHBORS, indptr[v + 1]):
                _join(parent, indices[position], v)
    labels = np.empty(num_nodes, indices.dtype)
    num_components = 0
    for v in range(num_nodes):
        root = _root(parent, v)
        if root == v:
            labels[v] = num_components
            num_components += 1
        else:
            labels[v] = labels[root]
    return labels, num_components
