"""What is known of the data sets with a name, so that another one does not pass under it."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import FalconWarning, GraphError
from falcon_gnn.graph import Graph
from falcon_gnn.labels import class_ids

_PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class SetFacts:
    """Sizes of a data set with node features.

    Attributes:
        num_nodes: N.
        num_features: F.
        num_labels: Classes, or columns of a multi-label set.
    """

    num_nodes: int
    num_features: int
    num_labels: int


@dataclass(frozen=True)
class ImageFacts:
    """Sizes of an image set.

    Attributes:
        releases: Training, validation and test images of each release: the paper's first, then the current one.
        image_shape: Pixels.
        num_labels: Classes.
    """

    releases: tuple[tuple[int, int, int], ...]
    image_shape: tuple[int, int] = (28, 28)
    num_labels: int = 11


FACTS = {
    "cora": SetFacts(2_708, 1_433, 7),
    "citeseer": SetFacts(3_327, 3_703, 6),
    "pubmed": SetFacts(19_717, 500, 3),
    "ppi": SetFacts(56_944, 50, 121),
    "flickr": SetFacts(89_250, 500, 7),
    "ogbn-arxiv": SetFacts(169_343, 128, 40),
    "ogbn-products": SetFacts(2_449_029, 100, 47),
}
IMAGE_FACTS = {
    "organs": ImageFacts(((13_940, 2_452, 8_829), (13_932, 2_452, 8_827))),
    "organc": ImageFacts(((13_000, 2_392, 8_268), (12_975, 2_392, 8_216))),
}


def check_graph(name: str, graph: Graph) -> None:
    """Refuse a graph whose features or labels are not those of the named set; warn if it has another number of nodes.

    Args:
        name: A name of ``FACTS``; of any other nothing is known.
        graph: What its files hold.

    Raises:
        GraphError: If the features or the labels are of another number.

    Warns:
        FalconWarning: If the nodes are.
    """
    facts = FACTS.get(name)
    if facts is None:
        return
    y = graph.y
    num_labels = 0 if y is None else y.shape[1] if y.ndim == 2 else int(class_ids(y).max(initial=-1)) + 1
    for what, known, got in (
        ("features", facts.num_features, graph.num_features),
        ("labels", facts.num_labels, num_labels),
    ):
        if got != known:
            msg = (
                f"{name} must have {known} {what}, got {got}: these are the files of another data set. Load them by "
                "their path, or get those of this one."
            )
            raise GraphError(msg)
    if graph.num_nodes != facts.num_nodes:
        msg = f"{name} has {facts.num_nodes:,} nodes in every known release, and these files have {graph.num_nodes:,}."
        warnings.warn(msg, FalconWarning, stacklevel=2)


def check_images(name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse images of another size or of other classes than the named set's; warn if their number is unknown.

    Args:
        name: A name of ``IMAGE_FACTS``.
        arrays: MedMNIST's arrays.

    Raises:
        GraphError: If the pixels or the classes are of another number.

    Warns:
        FalconWarning: If no release has so many images in its parts.
    """
    facts = IMAGE_FACTS[name]
    there = [part for part in _PARTS if f"{part}_images" in arrays and f"{part}_labels" in arrays]
    shapes = {arrays[f"{part}_images"].shape[1:] for part in there}
    if shapes - {facts.image_shape}:
        wanted = " by ".join(map(str, facts.image_shape))
        msg = (
            f"{name} must have images of {wanted} pixels, got {sorted(shapes)}. Get the file of that size, or "
            "load this one by its path."
        )
        raise GraphError(msg)
    labels = np.unique(np.array([label for part in there for label in np.ravel(arrays[f"{part}_labels"])]))
    if not np.array_equal(labels, np.arange(facts.num_labels)):
        msg = (
            f"{name} must have the classes 0 to {facts.num_labels - 1}, got {len(labels)} classes: this is another "
            "data set. Load it by its path, or get the file of this one."
        )
        raise GraphError(msg)
    counts = tuple(len(arrays[f"{part}_images"]) if part in there else 0 for part in _PARTS)
    if counts not in facts.releases:
        known = " or ".join("/".join(f"{count:,}" for count in release) for release in facts.releases)
        msg = f"{name} has {known} images for training, validation and test, and this file {counts}."
        warnings.warn(msg, FalconWarning, stacklevel=2)
