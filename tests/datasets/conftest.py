"""A graph that carries one of everything, and a comparison that looks at all of it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

from falcon_gnn.graph import ROW_NAMES, Graph


def _same(first: Any, second: Any) -> bool:
    if first is None or second is None:
        return first is second
    if issparse(first) or issparse(second):
        return issparse(first) and issparse(second) and first.dtype == second.dtype and (first != second).nnz == 0
    return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


@pytest.fixture(scope="session")
def assert_same() -> Callable[[Graph, Graph], None]:
    def check(first: Graph, second: Graph) -> None:
        for name in ("indptr", "indices", "edge_weight", *ROW_NAMES):
            assert _same(getattr(first, name), getattr(second, name)), name
        assert set(first.node_attributes) == set(second.node_attributes)
        for name, value in first.node_attributes.items():
            assert _same(value, second.node_attributes[name]), name

    return check


@pytest.fixture
def rich_graph() -> Graph:
    """Five nodes (the last one isolated), weighted edges and nodes, sparse features, two splits, strings."""
    masks = np.array([[1, 0], [0, 1], [1, 1], [0, 0], [0, 0]], bool)
    return Graph.from_edges(
        np.array([[0, 1, 3], [1, 2, 0]]),
        5,
        edge_weight=np.array([0.5, 2.0, 3.0], np.float32),
        x=csr_array(np.array([[1, 0], [0, 2], [0, 0], [3, 0], [0, 0]], np.float32)),
        y=np.array([0, 1, -1, 1, 0], np.int16),
        train_mask=masks[:, 1],
        test_mask=np.array([1, 0, 0, 0, 0], bool),
        node_weight=np.array([1, 2, 1, 4, 0.5]),
        self_weight=np.array([1, 0, 3, 1, 2], np.float32),
        label_distribution=np.array([[1, 0], [0.25, 0.75], [0.5, 0.5], [0, 1], [1, 0]]),
        node_attributes={"train_masks": masks, "name": np.array(list("abcde")), "file": np.arange(5.0)},
    )
