"""What a label array means: classes, multi-label or regression; which nodes have labels; their vectors."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.resources import require_memory

Task = Literal["classes", "multilabel", "regression"]
UNKNOWN = -1
"""Beside NaN, the value of a label that nobody knows."""

AMBIGUOUS_UNKNOWN = (
    "y holds nothing but -1 and 1, so a -1 can mean that a node has not the label, or that this is unknown. "
    "Use 0 in place of -1 for the former, NaN for the latter."
)
_FEWEST_SUSPECT_CLASSES = 1_000
_INT64_END = 2**63
_BLOCK_VALUES = 1 << 18


@dataclass(frozen=True)
class LabelEncoding:
    """Labels as vectors, which are made on demand where they are one-hot: a byte per node and class would be too much.

    Attributes:
        task: What the labels are.
        num_labels: L, classes or columns.
        values: Class numbers, as narrow as they can be, shape ``(N,)``, -1 where nothing is visible; else multi-hot
            rows, uint8, or values, float32, shape ``(N, L)``, zero where nothing is visible.
        labelled: Nodes with a visible label, bool, shape ``(N,)``.
        known: Cells of :meth:`rows` that hold a visible value, where not every row of ``labelled`` is complete.
    """

    task: Task
    num_labels: int
    values: NDArray[Any]
    labelled: NDArray[np.bool_]
    known: NDArray[np.bool_] | None = None

    @property
    def matrix(self) -> NDArray[Any]:
        """The vectors of all nodes, shape ``(N, L)``.

        Raises:
            BudgetError: If one-hot rows do not fit into memory.
        """
        if self.task == "classes":
            num_rows = len(self.values)
            purpose = f"hold one-hot labels of {self.num_labels:,} classes for {num_rows:,} nodes"
            require_memory(num_rows * self.num_labels, purpose)
        return self.rows(slice(None))

    def rows(self, chosen: NDArray[np.int64] | slice) -> NDArray[Any]:
        """Return the vectors of some nodes, shape ``(n, L)``: one-hot or multi-hot, uint8, or values, float32."""
        values = self.values[chosen]
        if self.task != "classes":
            return values
        one_hot = np.zeros((len(values), self.num_labels), np.uint8)
        visible = np.flatnonzero(values >= 0)
        one_hot[visible, values[visible]] = 1
        return one_hot

    def sums(self) -> NDArray[np.float64]:
        """Return the sum of each column, shape ``(L,)``: of classes, how many visible nodes each has."""
        if self.task != "classes":
            return np.asarray(self.values.sum(axis=0, dtype=np.float64))
        return np.bincount(self.values[self.labelled], minlength=self.num_labels).astype(np.float64)


def infer_task(y: NDArray[Any], task: str | None = None) -> Task:
    """Return what a label array means.

    Without ``task``, integers and floats that are all whole or NaN are classes, ``(N, 1)`` counts as ``(N,)``, a wider
    2-D array is multi-label, and other floats are a regression target.

    Args:
        y: Labels, shape ``(N,)`` or ``(N, L)``.
        task: ``"classes"``, ``"multilabel"``, ``"regression"`` or None.

    Raises:
        GraphError: If ``task`` does not fit the shape or the values of ``y``.
        OptionError: If ``task`` is unknown.
    """
    is_column = y.ndim == 1 or y.shape[1] == 1
    if task is None:
        if not is_column:
            return "multilabel"
        return "classes" if _is_whole(y) else "regression"
    if task not in get_args(Task):
        msg = f"task must be one of {', '.join(get_args(Task))} or None, got {task!r}."
        raise OptionError(msg)
    if task == "classes" and not (is_column and _is_whole(y)):
        msg = f"task='classes' needs whole numbers of shape (N,), got {y.dtype} of shape {y.shape}. Use task=None."
        raise GraphError(msg)
    if task == "multilabel" and y.ndim != 2:
        msg = f"task='multilabel' needs y of shape (N, L), got {y.shape}. Use task='classes' for one label per node."
        raise GraphError(msg)
    return task  # type: ignore[return-value]


def class_ids(y: NDArray[Any]) -> NDArray[np.int64]:
    """Return classes as int64 of shape ``(N,)``, with -1 where the label is negative or NaN.

    Raises:
        GraphError: If a label is beyond int64.
    """
    flat = y.reshape(len(y))
    known = flat >= 0 if flat.dtype.kind != "b" else np.ones(len(flat), bool)
    # As a number of Python's: in half precision the bound itself is infinite.
    if flat.dtype.kind in "uf" and (largest := flat.max(initial=0, where=known).item()) >= _INT64_END:
        raise GraphError(_no_class(largest, len(y)))
    ids = np.full(len(flat), -1, np.int64)
    ids[known] = flat[known]
    return ids


def labelled_nodes(y: NDArray[Any], task: Task) -> NDArray[np.bool_]:
    """Return which nodes have a label: class >= 0, or a known value in the row; bool, shape ``(N,)``."""
    if task == "classes":
        return class_ids(y) >= 0
    return np.asarray(known_cells(y, task).any(axis=1))


def known_cells(y: NDArray[Any], task: Task) -> NDArray[np.bool_]:
    """Return which values are known, bool, shape ``(N, L)``: not NaN and, for multi-label, not -1."""
    # Not reshape(len(y), -1), which NumPy refuses where there is no row.
    cells = y[:, None] if y.ndim == 1 else y
    if cells.dtype.kind in "ub":
        return np.ones(cells.shape, np.bool_)
    known: NDArray[np.bool_] = np.ones(cells.shape, np.bool_)
    if cells.dtype.kind == "f":
        known &= ~np.isnan(cells)
    if task == "multilabel":
        known &= cells != UNKNOWN
    return known


def check_labels(
    y: NDArray[Any],
    task: Task,
    visible: NDArray[np.bool_] | None = None,
    *,
    allow_shares: bool = False,
    is_told: bool = False,
) -> None:
    """Stop where a multi-label array holds what is no label, and warn of what may be meant otherwise.

    That is a multi-label array of one-hot rows, and a class below -1, which counts as unlabelled.

    A multi-label value is 1 (has the label), 0 (has it not), or -1 or NaN (unknown). In an array of nothing but -1 and
    1 a -1 can mean either of the last two.

    Args:
        y: Labels, shape ``(N,)`` or ``(N, L)``.
        task: What they mean; a regression holds nothing to check here.
        visible: Nodes whose labels may be looked at, shape ``(N,)``; by default all. What the others hold only tells
            what -1 means.
        allow_shares: Whether values between 0 and 1 pass, as the means of a group are; of the graph that was reduced to
            groups the rest has been told.
        is_told: Whether the user said that this is multi-label, so that one-hot rows are no surprise.

    Raises:
        GraphError: If a visible value is none of these, or -1 could mean both.

    Warns:
        FalconWarning: If every visible row has exactly one 1 and nothing unknown, or a class is below -1.
    """
    if task == "classes" and not allow_shares and (num_below := np.count_nonzero(y < UNKNOWN)):
        tell_below(int(num_below), np.nanmin(y))
    if task != "multilabel" or y.dtype.kind == "b":
        return
    is_one_hot, holds_unknown, holds_one, holds_other, num_labelled = True, False, False, False, 0
    for seen in _visible_blocks(y, visible):
        cells = known_cells(seen, task)
        known = seen[cells]
        is_fit = (known >= 0) & (known <= 1) if allow_shares else (known == 0) | (known == 1)
        if not is_fit.all():
            msg = (
                f"y of shape {y.shape} is multi-label and must hold 1, 0, or for what is unknown -1 or NaN, got "
                f"{known[~is_fit][0].item()!r}. Pass task='regression' if its values are quantities, else correct them."
            )
            raise GraphError(msg)
        is_one = known == 1
        holds_unknown |= bool((seen == UNKNOWN).any())
        holds_one |= bool(is_one.any())
        holds_other |= not is_one.all()
        rows = seen[cells.any(axis=1)]
        num_labelled += len(rows)
        is_one_hot = is_one_hot and bool(
            (rows >= 0).all() and (rows.sum(axis=1) == 1).all() and (rows.max(axis=1, initial=0) == 1).all()
        )
    if holds_unknown and holds_one and not holds_other and not (y == 0).any():
        raise GraphError(AMBIGUOUS_UNKNOWN)
    if is_one_hot and num_labelled > 1 and not is_told:
        msg = (
            f"y of shape {y.shape} has exactly one 1 in every row and is used as multi-label. If these are classes, "
            "pass y.argmax(1); if not, task='multilabel' says so."
        )
        warnings.warn(msg, FalconWarning, stacklevel=1)  # One place, so that it is shown once.


def tell_below(num_below: int, lowest: float) -> None:
    """Warn of so many classes below -1, of which this is the lowest."""
    msg = (
        f"y holds {num_below:,} labels below -1 (the lowest: {int(lowest)}), which count as unlabelled. Use -1 or NaN "
        "for these, number the classes from 0, or use task='regression' if y is a quantity."
    )
    warnings.warn(msg, FalconWarning, stacklevel=2)


def _visible_blocks(y: NDArray[Any], visible: NDArray[np.bool_] | None) -> Iterator[NDArray[Any]]:
    """Yield the rows that may be looked at, some at a time."""
    step = max(1, _BLOCK_VALUES // max(1, y[:1].size))
    for start in range(0, len(y), step):
        block = y[start : start + step]
        yield block if visible is None else block[visible[start : start + step]]


def encode_labels(
    y: NDArray[Any], task: Task, num_classes: int | None = None, visible: NDArray[np.bool_] | None = None
) -> LabelEncoding:
    """Return the labels as vectors, with a zero vector for hidden and unlabelled nodes.

    Args:
        y: Labels, shape ``(N,)`` or ``(N, L)``.
        task: What they mean.
        num_classes: L for classes; by default the largest visible class + 1.
        visible: Nodes whose labels may be looked at, shape ``(N,)``; by default all.

    Raises:
        GraphError: If a visible class is no class number (more classes than nodes).
        OptionError: If a visible class is ``num_classes`` or more.
    """
    classes = class_ids(y) if task == "classes" else None
    labelled = labelled_nodes(y, task) if classes is None else classes >= 0
    if visible is not None:
        labelled = labelled & visible
    if classes is None:
        if y.dtype.kind in "ub" and (task == "multilabel" or labelled.all()):
            rows = y.reshape(len(y), -1)
            return LabelEncoding(task, rows.shape[1], rows if labelled.all() else rows * labelled[:, None], labelled)
        values = y.reshape(len(y), -1).astype(np.float32)
        known = labelled[:, None] & known_cells(y, task)
        values[~known] = 0
        is_complete = bool(known[labelled].all())
        return LabelEncoding(task, values.shape[1], values, labelled, None if is_complete else known)
    num_labels = count_classes(int(classes.max(initial=-1, where=labelled)), num_classes, len(y))
    values = np.where(labelled, classes, -1).astype(np.min_scalar_type(-num_labels))
    return LabelEncoding(task, num_labels, values, labelled)


def count_classes(largest: int, num_classes: int | None, num_nodes: int) -> int:
    """Return L, the number of classes: as told, else one more than the largest visible class, at least 1.

    Args:
        largest: That class; -1 without any.
        num_classes: What was told, or None.
        num_nodes: N.

    Raises:
        GraphError: If nothing was told and the largest class is no class number (more classes than nodes).
        OptionError: If it is ``num_classes`` or more.
    """
    num_labels = max(largest + 1, 1) if num_classes is None else num_classes
    if largest >= num_labels:
        msg = f"num_classes must be above every visible class, got {num_classes} and a class {largest}."
        raise OptionError(msg)
    if num_classes is None and num_labels > max(_FEWEST_SUSPECT_CLASSES, num_nodes):
        raise GraphError(_no_class(largest, num_nodes))
    return num_labels


def _no_class(label: float, num_nodes: int) -> str:
    return (
        f"y holds a class {label} for {num_nodes} nodes, which cannot be a class number. Number the classes from 0, or "
        "use task='regression' if y is a quantity."
    )


def _is_whole(y: NDArray[Any]) -> bool:
    if y.dtype.kind != "f":
        return True
    known = y[~np.isnan(y)]
    return bool(np.isfinite(known).all() and (known == np.trunc(known)).all())
