"""What a survivor carries: its own features, labels and masks, or those of its group."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.adjacency import cut_into_blocks
from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph, without_empty_masks
from falcon_gnn.labels import LabelEncoding, known_cells
from falcon_gnn.progress import tell_share
from falcon_gnn.reduction.grouping import BoolArray, IdArray, summing_matrix
from falcon_gnn.reduction.teacher import Teacher
from falcon_gnn.resources import release_pages

_BLOCK_VALUES = 1 << 22
"""Values of members that are averaged together, in doubles."""


@dataclass(frozen=True)
class Groups:
    """The nodes in scope and the survivor each belongs to.

    Attributes:
        scope_ids: Input ids of the nodes in scope, ascending, shape ``(N,)``.
        assignment: Survivor of each node in scope, -1 for none, shape ``(N,)``.
        kept: Survivors as positions in ``scope_ids``, ascending, shape ``(num_kept,)``.
    """

    scope_ids: IdArray
    assignment: IdArray
    kept: IdArray


def survivor_arrays(graph: Graph, groups: Groups, _: LabelEncoding | None = None) -> dict[str, Any]:
    """Return what the survivors carry of their own (``merge="hub"`` and ``"drop"``), as keywords of ``Graph``."""
    return graph.take_node_arrays(groups.scope_ids[groups.kept])


def group_arrays(graph: Graph, groups: Groups, encoding: LabelEncoding | None) -> dict[str, Any]:
    """Return what the survivors carry after ``merge="mean"``, as keywords of ``Graph``.

    Features are the mean of the group, by the nodes' weights where they have some. Classes are the majority of the
    visible labels (ties to the survivor's own, then to the smallest), other labels their mean per column, unknown where
    no visible label knows it; classes as distributions are the mean of the visible ones, and the class is the
    likeliest. A group without a visible label keeps the survivor's own. A survivor trains if any member does; one that
    then has no visible label to train on is unlabelled.
    """
    arrays = survivor_arrays(graph, groups)
    weight = None if graph.node_weight is None else graph.node_weight[groups.scope_ids]
    sums = summing_matrix(groups.assignment, len(groups.kept), weight)
    if graph.x is not None:
        arrays["x"] = _group_means(graph.x, groups.scope_ids, sums)
    if graph.y is not None and encoding is not None:
        has_visible = _has_member(encoding.labelled, groups)
        arrays["y"] = _group_labels(graph.y[groups.scope_ids], encoding, groups, sums, has_visible)
        if graph.label_distribution is not None and encoding.task == "classes":
            mean = _mean_distribution(graph.label_distribution[groups.scope_ids], encoding.labelled, sums)
            arrays["label_distribution"][has_visible] = mean[has_visible]
            arrays["y"][has_visible] = mean.argmax(axis=1)[has_visible]
    if graph.train_mask is not None:
        arrays["train_mask"] = _has_member(graph.train_mask[groups.scope_ids], groups)
        if arrays["y"] is not None and encoding is not None:
            arrays["y"] = _hide(arrays["y"], arrays["train_mask"] & ~has_visible)
        for name in ("val_mask", "test_mask"):
            if arrays[name] is not None:
                arrays[name] = arrays[name] & ~arrays["train_mask"]
    return arrays


def taught_arrays(
    teacher: Teacher, groups: Groups, of_group: bool, node_weight: NDArray[Any] | None = None
) -> dict[str, Any]:
    """Return the labels that a teacher gives the groups: probabilities and the likeliest class; all of them train.

    Args:
        teacher: What it says of the nodes in scope.
        groups: Their groups.
        of_group: Whether a survivor has the mean of its group, or its own.
        node_weight: How often each node in scope counts in that mean, shape ``(N,)``; by default once.
    """
    distribution = teacher.probabilities[groups.kept]
    if of_group:
        sums = summing_matrix(groups.assignment, len(groups.kept), node_weight)
        distribution = np.asarray(sums @ teacher.probabilities) / sums.sum(axis=1)[:, None]
    labels = {"label_distribution": distribution.astype(np.float32), "y": distribution.argmax(axis=1)}
    masks = {"train_mask": np.ones(len(groups.kept), np.bool_), "val_mask": None, "test_mask": None}
    return labels | masks


def drop_empty_masks(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays with masks that select no survivor left out.

    Raises:
        OptionError: If no training node is left: a graph without a training mask would train on every node.
    """
    train = arrays["train_mask"]
    if train is not None and not train.any():
        msg = (
            "no training node survives this collapse. Pass protect=train_mask, a larger node_budget, or merge='mean' "
            "(a survivor then trains if any node merged into it does)."
        )
        raise OptionError(msg)
    return without_empty_masks(arrays)


def _has_member(chosen: BoolArray, groups: Groups) -> BoolArray:
    """Return which groups have a chosen member; ``chosen`` is of the nodes in scope."""
    return np.bincount(groups.assignment[chosen & (groups.assignment >= 0)], minlength=len(groups.kept)) > 0


def _member_blocks(sums: Any, width: int) -> Iterator[tuple[slice, slice, IdArray, Any]]:
    """Yield parts of a matrix with a row per group: the rows, the columns, the groups' members and what adds these up.

    Few values of members are needed at once, and they are read in the order they lie in.

    Args:
        sums: From :func:`summing_matrix`, shape ``(num_groups, N)``.
        width: Columns of the matrix.
    """
    from scipy.sparse import csr_array

    num_groups = sums.shape[0]
    for first, stop in cut_into_blocks(sums.indptr.astype(np.int64) * width, _BLOCK_VALUES):
        part = sums[first:stop]
        order = np.argsort(part.indices)
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        adding = csr_array((part.data, places, part.indptr), shape=(stop - first, len(order)))
        step = max(1, _BLOCK_VALUES // max(1, len(order)))
        for start in range(0, width, step):
            yield slice(first, stop), slice(start, min(start + step, width)), part.indices[order], adding
        tell_share(stop / num_groups)


def _group_means(x: Any, scope_ids: IdArray, sums: Any) -> Any:
    sizes = sums.sum(axis=1)
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
    if isinstance(x, np.ndarray):
        means = np.empty((len(sizes), x.shape[1]), dtype)
        for rows, columns, members, adding in _member_blocks(sums, x.shape[1]):
            means[rows, columns] = adding @ x[scope_ids[members], columns].astype(np.float64) / sizes[rows, None]
            release_pages(x)
        return means
    from scipy.sparse import csr_array

    totals = csr_array(sums @ x[scope_ids].astype(np.float64))
    totals.data /= np.repeat(sizes, np.diff(totals.indptr))
    totals.sort_indices()
    return totals.astype(dtype)


def _group_labels(
    y: NDArray[Any], encoding: LabelEncoding, groups: Groups, sums: Any, has_visible: BoolArray
) -> NDArray[Any]:
    own = y[groups.kept]
    if encoding.task != "classes":
        return _mean_labels(y, own, encoding, sums, has_visible)
    from scipy.sparse import csr_array

    voters = np.flatnonzero(encoding.labelled)
    votes = csr_array((np.ones(len(voters)), (voters, encoding.values[voters])), (len(y), encoding.num_labels))
    totals = csr_array(sums @ votes)
    totals.sort_indices()
    group = np.repeat(np.arange(len(own)), np.diff(totals.indptr))
    is_most = totals.data == totals.max(axis=1).toarray().ravel()[group]
    leaders, classes = group[is_most], totals.indices[is_most]
    elected, first = np.unique(leaders, return_index=True)  # the smallest of a tie
    is_own = classes == encoding.values[groups.kept][leaders]
    labels = own.copy()
    labels[elected] = classes[first]
    labels[leaders[is_own]] = classes[is_own]
    return labels


def _mean_distribution(distribution: NDArray[Any], visible: BoolArray, sums: Any) -> NDArray[Any]:
    """Return the mean over the visible members, shape ``(num_kept, L)``; zeros where there is none."""
    totals = sums @ np.where(visible[:, None], distribution, 0.0)
    counts = sums @ visible.astype(np.float64)
    return np.asarray(np.divide(totals, counts[:, None], out=totals, where=counts[:, None] > 0))


def _mean_labels(
    y: NDArray[Any], own: NDArray[Any], encoding: LabelEncoding, sums: Any, has_visible: BoolArray
) -> NDArray[Any]:
    """Return each column's mean over the members whose value is visible and known."""
    cells = y.reshape(len(y), -1)
    labels = own.reshape(len(own), -1).astype(y.dtype if y.dtype.kind == "f" else np.float32)
    # The survivor's own values may be hidden ones.
    labels[has_visible] = np.nan
    for rows, columns, members, adding in _member_blocks(sums, cells.shape[1]):
        values = cells[members, columns]
        known = encoding.labelled[members, None] & known_cells(values, encoding.task)
        counts = adding @ known.astype(np.float64)
        totals = adding @ np.where(known, values.astype(np.float64), 0.0)
        np.divide(totals, counts, out=labels[rows, columns], where=counts > 0, casting="same_kind")
    return labels.reshape(own.shape)


def _hide(labels: NDArray[Any], rows: BoolArray) -> NDArray[Any]:
    """Return labels with some rows marked unlabelled: -1 in whole numbers, NaN in floats."""
    if not rows.any():
        return labels
    hidden = labels.astype(np.int64) if labels.dtype.kind in "ub" else labels.copy()
    hidden[rows] = np.nan if hidden.dtype.kind == "f" else -1
    return hidden
