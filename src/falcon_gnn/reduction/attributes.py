"""What a survivor carries: its own features, labels and masks, or those of its group (D10 of the design)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import GraphError
from falcon_gnn.graph import MASK_NAMES, Graph
from falcon_gnn.labels import LabelEncoding

IdArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


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

    Features are the mean of the group. Classes are the majority of the visible labels (ties to the survivor's own,
    then to the smallest), other labels their mean; a group without a visible label keeps the survivor's own. A
    survivor trains if any member does.
    """
    arrays = survivor_arrays(graph, groups)
    sums = _summing_matrix(groups)
    if graph.x is not None:
        arrays["x"] = _group_means(graph.x[groups.scope_ids], sums)
    if graph.y is not None and encoding is not None:
        arrays["y"] = _group_labels(arrays["y"], encoding, groups, sums)
    if graph.train_mask is not None:
        arrays["train_mask"] = sums @ graph.train_mask[groups.scope_ids].astype(np.int64) > 0
        for name in ("val_mask", "test_mask"):
            if arrays[name] is not None:
                arrays[name] = arrays[name] & ~arrays["train_mask"]
    return arrays


def drop_empty_masks(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays with masks that select no survivor left out.

    Raises:
        GraphError: If no training node is left: a graph without a training mask would train on every node.
    """
    train = arrays["train_mask"]
    if train is not None and not train.any():
        msg = (
            "no training node survives this collapse. Pass protect=train_mask, a larger node_budget, or merge='mean' "
            "(a survivor then trains if any node merged into it does)."
        )
        raise GraphError(msg)
    empty = {name: None for name in MASK_NAMES if arrays[name] is not None and not arrays[name].any()}
    return {**arrays, **empty}


def _summing_matrix(groups: Groups) -> Any:
    """Return the sparse 0/1 matrix S with ``S @ values`` the sums per group; members stand in ascending id."""
    from scipy.sparse import csr_array

    from falcon_gnn.reduction.contraction import group_members

    starts, members = group_members(groups.assignment, len(groups.kept))
    ones = np.ones(len(members), np.float32)
    return csr_array((ones, members, starts), shape=(len(groups.kept), len(groups.assignment)))


def _group_means(x: Any, sums: Any) -> Any:
    sizes = np.diff(sums.indptr).astype(np.float32)
    if isinstance(x, np.ndarray):
        values = x if x.dtype.kind == "f" else x.astype(np.float32)
        return (sums @ values / sizes[:, None]).astype(values.dtype)
    from scipy.sparse import csr_array

    means = csr_array(sums @ x.astype(x.dtype if x.dtype.kind == "f" else np.float32))
    means.data /= np.repeat(sizes, np.diff(means.indptr))
    means.sort_indices()
    return means


def _group_labels(own: NDArray[Any], encoding: LabelEncoding, groups: Groups, sums: Any) -> NDArray[Any]:
    num_visible = sums @ encoding.labelled.astype(np.float32)
    has_visible = num_visible > 0
    totals = np.asarray(sums @ encoding.matrix)
    if encoding.task != "classes":
        means = totals / np.maximum(num_visible, 1)[:, None]
        labels = own.astype(np.float32 if own.dtype.kind != "f" else own.dtype)
        labels[has_visible] = means.reshape(own.shape)[has_visible]
        return labels
    own_class = encoding.matrix[groups.kept].argmax(axis=1)
    own_visible = encoding.labelled[groups.kept]
    # Half a vote decides ties for the survivor's own class and changes nothing else; argmax takes the smallest.
    totals[np.flatnonzero(own_visible), own_class[own_visible]] += 0.5
    labels = own.copy()
    labels[has_visible] = totals.argmax(axis=1)[has_visible]
    return labels
