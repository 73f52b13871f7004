"""The node table as the Spark engine sees it: checked columns, the nodes in scope and their dense index."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from falcon_gnn.datasets.options import FEATURE_NAMES, LABEL_NAMES
from falcon_gnn.errors import GraphError
from falcon_gnn.graph import MASK_NAMES
from falcon_gnn.spark.frames import F, number_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WHOLE_TYPES = ("tinyint", "smallint", "int", "bigint")
NUMBER_TYPES = (*WHOLE_TYPES, "float", "double", "boolean")


@dataclass(frozen=True)
class NodeColumns:
    """What the node table holds.

    Attributes:
        x: The features as ``array<double>``, or None.
        y: The labels as a double or, where ``is_label_array``, as ``array<double>``; or None.
        is_label_array: Whether ``y`` is an array.
        is_label_whole: Whether ``y`` is of a whole-number type.
    """

    x: "Column | None"
    y: "Column | None"
    is_label_array: bool
    is_label_whole: bool


def describe_columns(nodes: "DataFrame") -> NodeColumns:
    """Return how features and labels are read from the node table's columns.

    ``x`` and ``y`` may be array columns or series ``x_0``, ``x_1`` ... (or ``feature_0`` ...); ``y`` may be a number.

    Raises:
        GraphError: If ``node_id`` is missing or not a whole number, or ``x`` or ``y`` is of another type.
    """
    types = dict(nodes.dtypes)
    if types.get("node_id") not in WHOLE_TYPES:
        msg = f"nodes must have a column node_id of whole numbers, got the columns {_listed(types)}."
        raise GraphError(msg)
    x, x_type = _number_column("x", ("x_", "feature_"), types)
    y, y_type = _number_column("y", ("y_",), types)
    if x is None:
        x, x_type = _other_column(FEATURE_NAMES, types, is_label=False)
    if y is None:
        y, y_type = _other_column(LABEL_NAMES, types, is_label=True)
    if x is not None and x_type == "vector":
        from pyspark.ml.functions import vector_to_array

        x = vector_to_array(x)
    return NodeColumns(
        None if x is None else x.cast("array<double>"),
        None if y is None else y.cast("array<double>" if y_type.startswith("array") else "double"),
        y_type.startswith("array"),
        y_type in WHOLE_TYPES,
    )


def check_nodes(nodes: "DataFrame", columns: NodeColumns) -> dict[str, int]:
    """Return the number of ``rows`` and of nodes in each mask, once every value is known to be usable.

    Raises:
        GraphError: If an id is missing or stands twice, a feature is not finite or missing, arrays differ in length, or
            masks overlap, have gaps or select nothing.
    """
    masks = [name for name in MASK_NAMES if name in nodes.columns]
    sums = [F.sum(F.col(name).cast("int")).alias(name) for name in masks]
    gaps = [F.count_if(F.col(name).isNull()).alias(f"gaps_{name}") for name in masks]
    overlap = F.count_if(sum((F.coalesce(F.col(n).cast("int"), F.lit(0)) for n in masks), F.lit(0)) > 1)
    facts = nodes.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count("node_id").alias("ids"),
        F.count_distinct("node_id").alias("distinct"),
        overlap.alias("overlap"),
        *_array_facts("x", columns.x),
        *_array_facts("y", columns.y if columns.is_label_array else None, is_label=True),
        *sums,
        *gaps,
    ).first()
    assert facts is not None
    found: dict[str, Any] = facts.asDict()
    _check_ids(found)
    _check_masks(found, masks)
    for name, column in (("x", columns.x), ("y", columns.y if columns.is_label_array else None)):
        if column is not None and (found[f"{name}_bad"] or found[f"{name}_short"] != found[f"{name}_long"]):
            msg = (
                f"{name} must hold the same number of finite values in every row; {found[f'{name}_bad']} rows hold "
                f"missing or infinite ones, and lengths run from {found[f'{name}_short']} to {found[f'{name}_long']}."
            )
            raise GraphError(msg)
    return {name: int(found[name]) for name in ("rows", *masks)}


def index_scope(nodes: "DataFrame", scope: str) -> "DataFrame":
    """Return the nodes in scope with ``index``, their position in ascending ``node_id``.

    It is the node number that the local engine gives them, which all seeded draws go by.
    """
    chosen = nodes.filter(F.col("train_mask").cast("boolean")) if scope == "train" else nodes
    return number_rows(chosen, ["node_id"], "index")


def _number_column(name: str, prefixes: tuple[str, ...], types: dict[str, str]) -> "tuple[Column | None, str]":
    """Return a column, or the array of a series of columns, and its type."""
    series = [(p, c.removeprefix(p)) for p in prefixes for c in types if c.startswith(p)]
    numbered = sorted((int(rest), f"{prefix}{rest}") for prefix, rest in series if rest.isdigit())
    if name in types:
        kind = types[name]
        inner = kind.removeprefix("array<").removesuffix(">")
        fits = inner in NUMBER_TYPES and (kind != inner or name == "y")
        if not fits or numbered:
            msg = (
                f"{name} must be one array column of numbers or a series {name}_0, {name}_1 ..., got {_listed(types)}."
            )
            raise GraphError(msg)
        return F.col(name), kind
    if not numbered:
        return None, ""
    return F.array(*[F.col(column).cast("double") for _, column in numbered]), "array<double>"


def _other_column(names: tuple[str, ...], types: dict[str, str], *, is_label: bool) -> "tuple[Column | None, str]":
    """Return the first column of one of these names that holds numbers, as Spark ML's ``features`` and ``label``."""
    for name in names:
        kind = types.get(name, "")
        inner = kind.removeprefix("array<").removesuffix(">")
        if (inner in NUMBER_TYPES and (kind != inner or is_label)) or (kind == "vector" and not is_label):
            return F.col(name), kind
    return None, ""


def _array_facts(name: str, column: "Column | None", *, is_label: bool = False) -> "list[Column]":
    if column is None:
        return []

    def is_bad(value: "Column") -> "Column":
        infinite = F.abs(value) == float("inf")
        return infinite if is_label else value.isNull() | F.isnan(value) | infinite

    bad = F.count_if(column.isNull() | F.coalesce(F.exists(column, is_bad), F.lit(False)))
    return [
        bad.alias(f"{name}_bad"),
        F.min(F.size(column)).alias(f"{name}_short"),
        F.max(F.size(column)).alias(f"{name}_long"),
    ]


def _check_ids(found: dict[str, Any]) -> None:
    if not found["rows"] or found["ids"] != found["rows"] or found["distinct"] != found["rows"]:
        msg = (
            f"node_id must be there and distinct in every row, at least one; got {found['rows']} rows with "
            f"{found['distinct']} distinct ids and {found['rows'] - found['ids']} missing ones."
        )
        raise GraphError(msg)


def _check_masks(found: dict[str, Any], masks: list[str]) -> None:
    for name in masks:
        if not found[name] or found[f"gaps_{name}"]:
            msg = f"{name} must be true or false in every row and true in some; leave the column out otherwise."
            raise GraphError(msg)
    if found["overlap"]:
        msg = f"{', '.join(masks)} overlap at {found['overlap']} nodes. Remove them from one."
        raise GraphError(msg)


def _listed(types: dict[str, str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in types.items())
