"""A graph cut into parts by METIS, and the parts drawn into batches."""

import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import FalconWarning, require
from falcon_gnn.graph import Graph


def split_graph(graph: Graph, num_parts: int, seed: int = 0) -> list[NDArray[np.int64]]:
    """Return parts of about equal size with few edges between them; edge weights are not looked at.

    METIS crashes on an asymmetric adjacency, which a :class:`Graph` never has. A graph without edges is cut evenly,
    in a seeded order, without METIS.

    Args:
        graph: Any graph.
        num_parts: Parts wanted, >= 1; more than there are nodes, or than METIS can fill, are fewer with a warning.
        seed: Handed to METIS, whose k-way method, used above 8 parts, makes no use of it.

    Returns:
        Node ids of each part, ascending, none empty, together every node once.

    Raises:
        MissingDependencyError: If pymetis is not installed.
    """
    if num_parts > graph.num_nodes:
        msg = f"num_parts ({num_parts}) is above the number of nodes; each of the {graph.num_nodes} nodes is a part."
        warnings.warn(msg, FalconWarning, stacklevel=2)
    num_parts = min(num_parts, graph.num_nodes)
    if num_parts == 1:
        return [np.arange(graph.num_nodes)]
    if num_parts == graph.num_nodes or len(graph.indices) == 0:
        order = np.random.default_rng(seed).permutation(graph.num_nodes)
        return [np.sort(part) for part in np.array_split(order, num_parts)]
    membership = _run_metis(graph, num_parts, seed)
    order = np.argsort(membership, kind="stable")
    bounds = np.cumsum(np.bincount(membership, minlength=num_parts))[:-1]
    parts = [part for part in np.split(order, bounds) if part.size]
    if len(parts) < num_parts:
        msg = (
            f"METIS cut the graph into {len(parts)} parts, {num_parts} were asked for: some would have been empty. "
            f"Pass num_parts={len(parts)} or less."
        )
        warnings.warn(msg, FalconWarning, stacklevel=2)
    return parts


def draw_batches(
    parts: list[NDArray[np.int64]], num_batches: int, generator: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Yield the node ids of each batch, ascending: the parts in random order, dealt to the batches.

    Args:
        parts: Node ids of each part.
        num_batches: Batches; at most ``len(parts)`` are made.
        generator: Draws the order.
    """
    order = generator.permutation(len(parts))
    for chosen in np.array_split(order, min(num_batches, len(parts))):
        yield np.sort(np.concatenate([parts[i] for i in chosen]))


def _run_metis(graph: Graph, num_parts: int, seed: int) -> NDArray[np.int64]:
    pymetis = require("pymetis", "train")
    options = pymetis.Options(seed=seed % 2**31)
    adjacency = pymetis.CSRAdjacency(graph.indptr.astype(np.int64), graph.indices.astype(np.int64))
    return np.asarray(pymetis.part_graph(num_parts, adjacency, options=options).vertex_part, dtype=np.int64)
