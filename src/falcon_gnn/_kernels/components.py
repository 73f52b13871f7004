"""Connected components of a symmetric CSR adjacency, by union-find."""

import numpy as np

from falcon_gnn._kernels.compiling import kernel, subroutine


@subroutine()
def _root(parent, v):  # type: ignore[no-untyped-def]
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@kernel()
def label_components(indptr, indices):  # type: ignore[no-untyped-def]
    """Return each node's component, numbered by its smallest node, and the number of components."""
    num_nodes = indptr.size - 1
    parent = np.arange(num_nodes).astype(indices.dtype)
    for v in range(num_nodes):
        for position in range(indptr[v], indptr[v + 1]):
            if indices[position] >= v:
                break
            a, b = _root(parent, indices[position]), _root(parent, v)
            if a < b:
                parent[b] = a
            elif b < a:
                parent[a] = b
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
