"""Small graphs whose classes can be learned, and the adjacency of any graph as a dense formula."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from falcon_gnn.graph import Graph


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Keep torch from waking a second thread for a hundred values; numba's pool overrides the environment."""
    torch.set_num_threads(1)


def _make_graph(num_nodes: int = 60, *, weighted: bool = False, multilabel: bool = False, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, num_nodes)
    source, target = rng.integers(0, num_nodes, (2, 6 * num_nodes))
    keep = (source != target) & ((y[source] == y[target]) | (rng.random(len(source)) < 0.1))
    edges = np.unique(np.sort(np.stack([source, target])[:, keep], axis=0), axis=1)
    part = rng.permutation(np.arange(num_nodes) % 3)
    return Graph.from_edges(
        edges,
        num_nodes,
        edge_weight=rng.uniform(0.5, 2.0, edges.shape[1]).astype(np.float32) if weighted else None,
        x=(np.eye(3)[y] @ rng.normal(size=(3, 5)) + rng.normal(size=(num_nodes, 5))).astype(np.float32),
        y=np.eye(3, dtype=np.uint8)[y] | (rng.random((num_nodes, 3)) < 0.2) if multilabel else y,
        train_mask=part == 0,
        val_mask=part == 1,
        test_mask=part == 2,
    )


@pytest.fixture
def make_graph() -> Callable[..., Graph]:
    """Return a function that makes a graph of three communities, 5 features, masks of a third of the nodes each."""
    return _make_graph


@pytest.fixture
def graph() -> Graph:
    return _make_graph()


def _dense_adjacency(graph: Graph) -> NDArray[Any]:
    dense = np.eye(graph.num_nodes)
    weights = np.ones(len(graph.indices)) if graph.edge_weight is None else graph.edge_weight
    for node in range(graph.num_nodes):
        for place in range(graph.indptr[node], graph.indptr[node + 1]):
            dense[node, graph.indices[place]] = weights[place]
    scale = dense.sum(axis=1) ** -0.5
    return scale[:, None] * dense * scale


@pytest.fixture
def dense_adjacency() -> Callable[[Graph], NDArray[Any]]:
    """Return the obvious twin of ``normalized_csr``: loops over the edges, float64, dense."""
    return _dense_adjacency
