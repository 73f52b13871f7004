"""Seeded synthetic graphs: power-law or even degrees, labels that features and edges tell of, any size.

Edges follow the Chung-Lu model: both ends are drawn in proportion to a weight per node. The weight of rank r falls as
a power of r, so that ranks are drawn by a formula, without a table; edges are made in chunks of their own seed, and a
graph larger than memory is written as it is made.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.checks import check_whole, is_number
from falcon_gnn.datasets.splits import random_masks
from falcon_gnn.errors import OptionError
from falcon_gnn.files import replacing_folder
from falcon_gnn.graph import Graph

_CHUNK_EDGES = 1 << 20
_CHUNK_VALUES = 1 << 22
_MAX_ROUNDS = 60
_EDGES, _NODES, _FEATURES, _CENTERS = range(4)


@dataclass(frozen=True)
class SyntheticShape:
    """What a synthetic graph looks like.

    Attributes:
        num_nodes: N, at least 10.
        num_edges: E, undirected; at most half of all pairs.
        num_features: F.
        num_classes: Classes, about equally large.
        exponent: Of the power law that the degrees follow, above 2; None gives every node the same expected degree.
        homophily: Share of the edges whose ends are made to have the same class, in ``[0, 1]``; the others join
            classes at random.
        signal: Distance of the class centers in units of the features' noise; 0 makes features say nothing.
        seed: Of everything drawn.
    """

    num_nodes: int
    num_edges: int
    num_features: int = 16
    num_classes: int = 10
    exponent: float | None = 2.5
    homophily: float = 0.5
    signal: float = 3.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the kinds and the ranges."""
        for name in ("num_nodes", "num_edges", "num_features", "num_classes", "seed"):
            check_whole(name, getattr(self, name), 0)
        for name in ("exponent", "homophily", "signal"):
            value = getattr(self, name)
            if not (is_number(value) or (name == "exponent" and value is None)):
                msg = f"{name} must be a number, got {value!r}."
                raise OptionError(msg)
        limits = {
            "num_nodes": 10 <= self.num_nodes < 2**31,
            "num_edges": 0 <= self.num_edges <= self.num_nodes * (self.num_nodes - 1) // 4,
            "num_features": self.num_features >= 1,
            "num_classes": 1 <= self.num_classes <= self.num_nodes,
            "exponent": self.exponent is None or self.exponent > 2,
            "homophily": 0 <= self.homophily <= 1,
            "signal": self.signal >= 0,
        }
        for name, is_fine in limits.items():
            if not is_fine:
                msg = f"{name} is out of the range that SyntheticShape states, got {getattr(self, name)!r}."
                raise OptionError(msg)


def power_law_graph(num_nodes: int, num_edges: int, **shape: Any) -> Graph:
    """Return a Chung-Lu power-law graph.

    Args:
        num_nodes: N.
        num_edges: E; the graph has exactly so many.
        shape: Other fields of :class:`SyntheticShape`.
    """
    return synthetic_graph(SyntheticShape(num_nodes, num_edges, **shape))


def block_graph(num_nodes: int, num_edges: int, **shape: Any) -> Graph:
    """Return a graph of even degrees in which most edges stay inside a class, as in a stochastic block model.

    Args:
        num_nodes: N.
        num_edges: E; the graph has exactly so many.
        shape: Other fields of :class:`SyntheticShape`.
    """
    return synthetic_graph(SyntheticShape(num_nodes, num_edges, **{"exponent": None, "homophily": 0.8, **shape}))


def flickr_shape(seed: int = 0) -> SyntheticShape:
    """Return the shape of GraphSAINT's Flickr: 89,250 nodes, 449,878 edges, 500 features, 7 classes."""
    return SyntheticShape(89_250, 449_878, num_features=500, num_classes=7, seed=seed)


def synthetic_graph(shape: SyntheticShape) -> Graph:
    """Return a graph of a shape, with exactly ``num_edges`` edges and a random 60/20/20 split.

    Raises:
        OptionError: If the power law piles so many edges on so few pairs that distinct ones run out.
    """
    y = _labels(shape)
    x = np.concatenate(list(_feature_chunks(shape, y)))
    masks = random_masks(shape.num_nodes, y, (0.6, 0.2, 0.2), shape.seed)
    return Graph.from_edges(_distinct_edges(shape), shape.num_nodes, warn_one_way="never", x=x, y=y, **masks)


def write_synthetic_folder(shape: SyntheticShape, path: str | Path) -> None:
    """Write a graph of a shape as a folder of `.npy` files, in memory that does not grow with the edges.

    ``num_edges`` entries are drawn; a few are self-loops or repeats, which loading removes and counts.

    Args:
        shape: What to draw.
        path: The folder; an old one is replaced.
    """
    y = _labels(shape)
    with replacing_folder(path) as folder:
        _write_chunks(folder / "edge_index.npy", (2, shape.num_edges), np.int32, _edge_chunks(shape), axis=1)
        size = (shape.num_nodes, shape.num_features)
        _write_chunks(folder / "x.npy", size, np.float32, _feature_chunks(shape, y), axis=0)
        np.save(folder / "num_nodes.npy", np.array(shape.num_nodes))
        np.save(folder / "y.npy", y)
        for name, mask in random_masks(shape.num_nodes, y, (0.6, 0.2, 0.2), shape.seed).items():
            assert mask is not None
            np.save(folder / f"{name}.npy", mask)


def _edge_chunks(shape: SyntheticShape) -> Iterator[NDArray[np.int32]]:
    """Yield ``num_edges`` drawn edges (u, v), u <= v, shape (2, chunk); self-loops and repeats may be among them."""
    order = _node_order(shape)
    for index, start in enumerate(range(0, shape.num_edges, _CHUNK_EDGES)):
        ranks = _draw_ranks(shape, index, min(_CHUNK_EDGES, shape.num_edges - start))
        yield np.sort(order[ranks], axis=0)


def _distinct_edges(shape: SyntheticShape) -> NDArray[np.int32]:
    """Return the first ``num_edges`` distinct edges drawn, as node ids, shape (2, E)."""
    keys = np.zeros(0, np.int64)
    size = min(_CHUNK_EDGES, 2 * shape.num_edges + 64)
    index = 0
    while len(keys) < shape.num_edges and index < _MAX_ROUNDS * (1 + shape.num_edges // size):
        num_chunks = -(-(shape.num_edges - len(keys)) // size)
        drawn = np.concatenate([keys, *(_draw_keys(shape, index + i, size) for i in range(num_chunks))])
        keys = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
        index += num_chunks
    if len(keys) < shape.num_edges:
        msg = f"num_edges={shape.num_edges} distinct edges were not found. Raise num_nodes or exponent."
        raise OptionError(msg)
    ranks = np.stack(np.divmod(keys[: shape.num_edges], shape.num_nodes))
    return np.asarray(_node_order(shape)[ranks])


def _draw_keys(shape: SyntheticShape, index: int, size: int) -> NDArray[np.int64]:
    """Return chunk ``index`` of the edges as one number per unordered pair, without self-loops."""
    low, high = np.sort(_draw_ranks(shape, index, size), axis=0)
    return np.asarray((low * shape.num_nodes + high)[low < high])


def _draw_ranks(shape: SyntheticShape, index: int, size: int) -> NDArray[np.int64]:
    """Return chunk ``index`` of the edges as ranks of their ends, shape (2, size)."""
    rng = np.random.default_rng([shape.seed, _EDGES, index])
    ranks = _ranks_at(shape, rng.random((2, size)))
    source, target = ranks
    # Ranks are dealt to the classes in turn, so a partner of the wanted class and almost the same weight is near.
    partner = target - target % shape.num_classes + source % shape.num_classes
    partner -= np.where(partner >= shape.num_nodes, shape.num_classes, 0)
    ranks[1] = np.where(rng.random(size) < shape.homophily, partner, target)
    return ranks


def _ranks_at(shape: SyntheticShape, quantiles: NDArray[np.float64]) -> NDArray[np.int64]:
    """Invert the distribution of ranks: weight (r + shift)^-b with b = 1 / (exponent - 1)."""
    if shape.exponent is None:
        return np.asarray(quantiles * shape.num_nodes, np.int64)
    power = 1 - 1 / (shape.exponent - 1)
    shift = _shift(shape, power)
    low, high = shift**power, (shape.num_nodes + shift) ** power
    ranks = (low + quantiles * (high - low)) ** (1 / power) - shift
    return np.clip(np.asarray(ranks, np.int64), 0, shape.num_nodes - 1)


def _shift(shape: SyntheticShape, power: float) -> float:
    """Return a shift of the ranks that keeps the largest expected degree at sqrt(2E), so that pairs rarely repeat."""
    shift = 1.0
    while True:
        total = ((shape.num_nodes + shift) ** power - shift**power) / power
        if shift ** (power - 1) / total <= 1 / np.sqrt(2 * max(shape.num_edges, 1)):
            return shift
        shift *= 1.25


def _node_order(shape: SyntheticShape) -> NDArray[np.int32]:
    """Return the node id of each rank, so that ids do not tell degrees; shape (N,)."""
    return np.random.default_rng([shape.seed, _NODES]).permutation(shape.num_nodes).astype(np.int32)


def _labels(shape: SyntheticShape) -> NDArray[np.int64]:
    y = np.empty(shape.num_nodes, np.int64)
    y[_node_order(shape)] = np.arange(shape.num_nodes) % shape.num_classes
    return y


def _feature_chunks(shape: SyntheticShape, y: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
    """Yield rows of features: the class's center plus noise of variance 1; centers are ``signal`` apart on average."""
    scale = shape.signal / np.sqrt(2 * shape.num_features)
    size = (shape.num_classes, shape.num_features)
    centers = np.random.default_rng([shape.seed, _CENTERS]).normal(0, scale, size).astype(np.float32)
    height = max(1, _CHUNK_VALUES // shape.num_features)
    for index, start in enumerate(range(0, shape.num_nodes, height)):
        labels = y[start : start + height]
        noise = np.random.default_rng([shape.seed, _FEATURES, index])
        yield centers[labels] + noise.standard_normal((len(labels), shape.num_features), np.float32)


def _write_chunks(
    path: Path, shape: tuple[int, int], dtype: type[Any], chunks: Iterator[NDArray[Any]], axis: int
) -> None:
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    start = 0
    for chunk in chunks:
        stop = start + chunk.shape[axis]
        if axis == 0:
            array[start:stop] = chunk
        else:
            array[:, start:stop] = chunk
        start = stop
    array.flush()
