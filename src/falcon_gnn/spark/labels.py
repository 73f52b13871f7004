"""Labels in Spark: what they mean, their vectors, and how they are distributed."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import FalconWarning, GraphError
from falcon_gnn.labels import AMBIGUOUS_UNKNOWN, UNKNOWN, Task, count_classes, tell_below
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.spark.frames import F, first_row, summarise_entries
from falcon_gnn.spark.nodes import NodeColumns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class LabelVectors:
    """Labels as vectors of length L.

    Attributes:
        task: What the labels are.
        num_labels: L.
        vector: Column of ``array<double>``: one-hot, multi-hot or values; null where nothing is visible.
        labelled: Column: whether the node has a visible label.
    """

    task: Task
    num_labels: int
    vector: "Column"
    labelled: "Column"

    @property
    def filled(self) -> "Column":
        """The vectors with 0 for what is not visible."""
        return F.transform(self.vector, lambda value: F.coalesce(value, F.lit(0.0)))


def encode_labels(
    nodes: "DataFrame", columns: NodeColumns, config: CollapseConfig, scope: str, num_nodes: int
) -> LabelVectors | None:
    """Return the labels of the nodes in scope as vectors; those outside the training mask are hidden for scope full.

    Args:
        nodes: The nodes in scope.
        columns: How labels are read.
        config: ``task`` and ``num_classes``.
        scope: ``"train"`` or ``"full"``.
        num_nodes: N in scope.

    Raises:
        GraphError: If ``config.task`` does not fit the labels, or a class is no class number (more than nodes).
        OptionError: If a class is ``config.num_classes`` or more.
    """
    if columns.y is None:
        return None
    visible = F.lit(True)
    if scope == "full" and "train_mask" in nodes.columns:
        visible = F.col("train_mask").cast("boolean")
    values = columns.y if columns.is_label_array else F.array(columns.y)
    width = int(first_row(nodes.agg(F.max(F.size(values))))[0])
    single = F.get(values, F.lit(0))
    task = _infer_task(nodes.filter(visible), columns, single, width, config.task)
    if task == "classes":
        return _encode_classes(nodes, single, visible, config.num_classes, num_nodes)
    if task == "multilabel":
        _check_multilabel(nodes, values, visible, is_told=config.task is not None)
    unknown = float(UNKNOWN) if task == "multilabel" else None
    shown = F.transform(
        values,
        lambda value: F.when(visible & ~F.isnan(value) & (F.lit(True) if unknown is None else value != unknown), value),
    )
    labelled = F.exists(shown, lambda value: value.isNotNull())
    return LabelVectors(task, width, shown, F.coalesce(labelled, F.lit(False)))


def label_shares(nodes: "DataFrame", labels: LabelVectors) -> NDArray[np.float64] | None:
    """Return the share of each label among the nodes with a visible one, shape ``(L,)``.

    None for a regression target, and where no node has a visible label.
    """
    if labels.task == "regression":
        return None
    found = summarise_entries(nodes.filter(labels.labelled), labels.filled, "mean")
    return None if found is None else found[0]


def label_limits(nodes: "DataFrame", labels: LabelVectors) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the least and largest visible value of each entry, 0 and 0 where it has none; None without any label."""
    if labels.task == "classes":
        shares = label_shares(nodes, labels)
        return None if shares is None else ((shares == 1).astype(np.float64), (shares > 0).astype(np.float64))
    entries = [F.get(labels.vector, F.lit(i)) for i in range(labels.num_labels)]
    found = list(first_row(nodes.agg(*map(F.min, entries), *map(F.max, entries))))
    limits = np.array([0.0 if value is None else value for value in found]).reshape(2, -1)
    return None if all(value is None for value in found) else (limits[0], limits[1])


def _encode_classes(
    nodes: "DataFrame", single: "Column", visible: "Column", num_classes: int | None, num_nodes: int
) -> LabelVectors:
    labelled = visible & F.coalesce(~F.isnan(single) & (single >= 0), F.lit(False))
    facts = F.max(F.when(labelled, single)), F.count_if(single < UNKNOWN), F.min(single)
    largest, num_below, lowest = first_row(nodes.agg(*facts))
    if num_below:
        tell_below(num_below, lowest)
    num_labels = count_classes(int(largest or 0), num_classes, num_nodes)
    classes = F.sequence(F.lit(0), F.lit(num_labels - 1))
    one_hot = F.transform(classes, lambda j: F.when(labelled, (single == j).cast("double")))
    return LabelVectors("classes", num_labels, one_hot, labelled)


def _check_multilabel(nodes: "DataFrame", values: "Column", visible: "Column", *, is_told: bool) -> None:
    """As :func:`falcon_gnn.labels.check_labels`, in one pass over the table."""

    def holds(wanted: "Column", value: float) -> "Column":
        return F.coalesce(F.exists(wanted, lambda cell: cell == value), F.lit(False))

    seen = F.when(visible, values)
    unfit = F.filter(seen, lambda cell: ~F.isnan(cell) & ~cell.isin(0.0, 1.0, float(UNKNOWN)))
    is_labelled = holds(seen, 0.0) | holds(seen, 1.0)
    num_ones = F.aggregate(seen, F.lit(0.0), lambda total, cell: total + F.when(cell == 1.0, 1.0).otherwise(0.0))
    num_known = F.size(F.filter(seen, lambda cell: cell.isin(0.0, 1.0)))
    is_one_hot = (num_ones == 1) & (num_known == F.size(seen))
    found = first_row(
        nodes.agg(
            F.max(F.get(unfit, F.lit(0))),
            F.count_if(holds(seen, float(UNKNOWN))),
            F.count_if(holds(seen, 1.0)),
            F.count_if(holds(values, 0.0)),
            F.count_if(is_labelled),
            F.count_if(is_labelled & is_one_hot),
        )
    )
    value, num_minus, num_with_one, num_with_zero, num_labelled, num_one_hot = found
    if value is not None:
        msg = (
            f"y is multi-label and must hold 1, 0, or for what is unknown -1 or NaN, got {value!r}. Pass "
            "task='regression' if its values are quantities, else correct them."
        )
        raise GraphError(msg)
    if num_minus and num_with_one and not num_with_zero:
        raise GraphError(AMBIGUOUS_UNKNOWN)
    if num_labelled > 1 and num_labelled == num_one_hot and not is_told:
        msg = (
            "y has exactly one 1 in every row and is used as multi-label. If these are classes, make it a column of "
            "class numbers; if not, task='multilabel' says so."
        )
        warnings.warn(msg, FalconWarning, stacklevel=2)


def _infer_task(seen: "DataFrame", columns: NodeColumns, single: "Column", width: int, given: Task | None) -> Task:
    is_column = not columns.is_label_array or width == 1
    is_whole = columns.is_label_whole
    if not is_whole and is_column and given in (None, "classes"):
        known = single.isNotNull() & ~F.isnan(single)
        is_whole = seen.filter(known & (single != F.rint(single))).first() is None
    if given is None:
        return ("classes" if is_whole else "regression") if is_column else "multilabel"
    if given == "classes" and not (is_column and is_whole):
        msg = "task='classes' needs whole numbers, one per node. Use task=None."
        raise GraphError(msg)
    if given == "multilabel" and not columns.is_label_array:
        msg = "task='multilabel' needs y as an array column. Use task='classes' for one label per node."
        raise GraphError(msg)
    return given
