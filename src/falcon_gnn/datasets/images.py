"""Image sets as graphs: scikit-learn's digits and MedMNIST's archives, an edge where two images look alike."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.datasets.archive import read_arrays
from falcon_gnn.datasets.facts import check_images
from falcon_gnn.datasets.layout import ATTRIBUTES_NAME, Arrays
from falcon_gnn.datasets.reading import reading
from falcon_gnn.datasets.similarity import cosine_edges, threshold_for_edges
from falcon_gnn.datasets.splits import random_masks
from falcon_gnn.errors import GraphError
from falcon_gnn.graph import MASK_NAMES, Graph

DIGITS_THRESHOLD = 0.9
ORGAN_EDGES = {"organs": 1_276_046 / 2, "organc": 1_241_622 / 2}
"""Undirected edges of the paper's graphs (its data set table counts both directions)."""

_EDGES_PER_IMAGE = ORGAN_EDGES["organs"] / 25_221
_PARTS = ("train", "val", "test")
_FIX = "Get the archive again from MedMNIST; it holds train_images, train_labels, val_images and so on."


def digits_graph(threshold: float | None = None) -> Graph:
    """Return scikit-learn's 1,797 handwritten digits, 64 pixels each in [0, 1], split 60/20/20 by class.

    At the default threshold of 0.9 the graph has 38,540 edges, 7 isolated nodes, and 95 % of its edges join
    images of the same digit.

    Args:
        threshold: Cosine above which two images are linked.
    """
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    return _similarity_graph(
        (images / 16).astype(np.float32),
        DIGITS_THRESHOLD if threshold is None else threshold,
        y=digits.astype(np.int64),
        **random_masks(len(digits), digits, (0.6, 0.2, 0.2), seed=0),
    )


def is_image_archive(names: Sequence[str]) -> bool:
    """Tell MedMNIST's layout by the names of the arrays."""
    return ATTRIBUTES_NAME not in names and any(f"{part}_images" in names for part in _PARTS)


def read_images(
    path: Path, threshold: float | None = None, num_edges: float | None = None, name: str | None = None
) -> Graph:
    """Return the cosine graph of a MedMNIST archive; x holds the pixels in [0, 1], the parts become the masks.

    Args:
        path: A `.npz` file in MedMNIST's layout.
        threshold: Cosine above which two images are linked; None takes the thousandth nearest to ``num_edges``.
        num_edges: Edges wanted; None means as many per image as the paper's Organ-S has.
        name: The data set that the images must be of, or None.

    Raises:
        GraphError: If the file lacks an array or holds another data set.
        OptionError: If it is missing or damaged.
    """
    with reading(path, "a MedMNIST archive", _FIX):
        arrays = read_arrays(path)
        if name is not None:
            check_images(name, arrays)
        return image_graph(arrays, threshold, num_edges)


def image_graph(arrays: Arrays, threshold: float | None = None, num_edges: float | None = None) -> Graph:
    """Return the cosine graph of MedMNIST's arrays; as :func:`read_images` otherwise."""
    parts = [part for part in _PARTS if f"{part}_images" in arrays]
    missing = [f"{part}_labels" for part in parts if f"{part}_labels" not in arrays]
    if missing or not parts:
        msg = f"a MedMNIST archive needs images and labels of each part; {', '.join(missing) or 'all'} missing."
        raise GraphError(msg)
    images = np.concatenate([arrays[f"{part}_images"] for part in parts])
    images = images.reshape(len(images), -1)
    if threshold is None:
        threshold = threshold_for_edges(images, _EDGES_PER_IMAGE * len(images) if num_edges is None else num_edges)
    owner = np.repeat(parts, [len(arrays[f"{part}_images"]) for part in parts])
    return _similarity_graph(
        images,
        threshold,
        x=images.astype(np.float32) / np.float32(255),
        y=np.concatenate([arrays[f"{part}_labels"] for part in parts]).astype(np.int64),
        node_attributes=_attributes(arrays, parts),
        **{name: owner == part for name, part in zip(MASK_NAMES, _PARTS, strict=True) if part in parts},
    )


def _similarity_graph(rows: NDArray[Any], threshold: float, x: NDArray[Any] | None = None, **node_arrays: Any) -> Graph:
    edges = cosine_edges(rows, threshold)
    return Graph.from_edges(edges, len(rows), warn_one_way="never", x=rows if x is None else x, **node_arrays)


def _attributes(arrays: Arrays, parts: list[str]) -> dict[str, NDArray[Any]]:
    """Collect what else the archive has for each image of every part, as ``train_index``."""
    known = {f"{part}_{kind}" for part in _PARTS for kind in ("images", "labels")}
    others = {name.removeprefix(f"{parts[0]}_") for name in set(arrays) - known if name.startswith(f"{parts[0]}_")}
    attributes = {}
    for other in sorted(others):
        pieces = [arrays.get(f"{part}_{other}") for part in parts]
        if all(
            p is not None and p.ndim > 0 and len(p) == len(arrays[f"{q}_images"])
            for p, q in zip(pieces, parts, strict=True)
        ):
            attributes[other] = np.concatenate([piece for piece in pieces if piece is not None])
    return attributes
