"""The three kinds of split: the source's own, everything that is not held out, and a seeded random one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.checks import check_whole, is_number
from falcon_gnn.errors import OptionError
from falcon_gnn.graph import MASK_NAMES, Graph
from falcon_gnn.graph_checks import BoolArray
from falcon_gnn.labels import class_ids, infer_task, labelled_nodes
from falcon_gnn.masks import mask_of_ids

Split = Literal["public", "full", "random"]
_USUAL_SHARES = (0.6, 0.2, 0.2)


@dataclass(frozen=True)
class SplitOptions:
    """How the training, validation and test nodes are chosen.

    Attributes:
        split: ``"public"``: the masks of the source. ``"full"``: train on every node that is neither validation nor
            test. ``"random"``: draw them. None: the masks of the source if it has any.
        shares: Shares of the labelled nodes for training, validation and test; they add up to 1 at most.
        seed: Of the random split; a whole number of at least 0.
    """

    split: Split | None = None
    shares: tuple[float, float, float] = _USUAL_SHARES
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the choices."""
        if self.split is not None and self.split not in get_args(Split):
            msg = f"split must be one of {', '.join(get_args(Split))} or None, got {self.split!r}."
            raise OptionError(msg)
        if not _are_shares(self.shares) or sum(self.shares) > 1 + 1e-9:
            msg = f"split_shares must be three shares in [0, 1] that add up to 1 at most, got {self.shares!r}."
            raise OptionError(msg)
        if self.split != "random" and tuple(self.shares) != _USUAL_SHARES:
            msg = f"split_shares are drawn by split='random', got {self.shares!r} with split={self.split!r}. Set it."
            raise OptionError(msg)
        check_whole("seed", self.seed, 0)


def _are_shares(shares: Any) -> bool:
    is_row = isinstance(shares, Sequence | np.ndarray) and len(shares) == 3
    return is_row and all(is_number(share) and 0 <= share <= 1 for share in shares)


def apply_split(graph: Graph, options: SplitOptions) -> Graph:
    """Return the graph with the masks that the options ask for.

    Args:
        graph: The graph with the source's masks, if it has any.
        options: The choice.

    Raises:
        OptionError: If the source lacks the masks that the choice stands on, or these leave no node to train on.
    """
    masks = {name: getattr(graph, name) for name in MASK_NAMES}
    if options.split == "random":
        return graph.replace(**random_masks(graph.num_nodes, graph.y, options.shares, options.seed))
    if options.split == "public" and all(mask is None for mask in masks.values()):
        msg = "split='public' needs a source with masks, and this one has none. Use split='random'."
        raise OptionError(msg)
    if options.split == "full":
        held_out = [mask for mask in (graph.val_mask, graph.test_mask) if mask is not None]
        if not held_out:
            msg = "split='full' needs a val_mask or test_mask, and this source has none. Use split='random'."
            raise OptionError(msg)
        left = ~np.logical_or.reduce(held_out)
        if not left.any():
            msg = "split='full' needs nodes that are not held out, and this source has none. Use split='random'."
            raise OptionError(msg)
        return graph.replace(train_mask=left)
    return graph


def random_masks(
    num_nodes: int, y: NDArray[Any] | None, shares: Sequence[float], seed: int
) -> dict[str, BoolArray | None]:
    """Return a seeded split of the labelled nodes; with classes, every class has the same shares.

    Args:
        num_nodes: N.
        y: Labels, shape ``(N,)`` or ``(N, L)``; unlabelled nodes join no part; None means that all count.
        shares: Shares of training, validation and test.
        seed: Of the permutation.

    Returns:
        A mask of shape ``(N,)`` by name; None where the share is 0.

    Raises:
        OptionError: If no node is labelled.
    """
    order = np.random.default_rng(seed).permutation(num_nodes)
    if y is not None:
        task = infer_task(y)
        order = order[labelled_nodes(y, task)[order]]
        if task == "classes":
            order = order[np.argsort(class_ids(y)[order], kind="stable")]
    if order.size == 0:
        msg = "split='random' needs at least one labelled node, and y has none."
        raise OptionError(msg)
    masks: dict[str, BoolArray | None] = {}
    unused = 1.0
    for name, share in zip(MASK_NAMES, shares, strict=True):
        chosen = _spread(order.size, min(share / unused, 1.0) if unused > 1e-9 else 0.0)
        masks[name] = mask_of_ids(name, order[chosen], num_nodes) if share > 0 else None
        order = order[~chosen]
        unused -= share
    return masks


def _spread(length: int, share: float) -> BoolArray:
    """Choose round(share * length) of ``length`` places, evenly spread, so that each class is cut alike."""
    marks = np.arange(length + 1) * round(share * length) // max(length, 1)
    return np.diff(marks) > 0
