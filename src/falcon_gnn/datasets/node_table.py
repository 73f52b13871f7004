"""The columns of a node table as arrays: features, labels, masks and whatever else it says about each node."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import GraphError

_SERIES = {"x_": "x", "feature_": "x", "y_": "y"}


def node_columns(table: Any) -> dict[str, NDArray[Any]]:
    """Return the columns of a pyarrow table by name, series such as ``x_0``, ``x_1`` stacked into one matrix.

    Args:
        table: A row per node. ``x_<number>`` and ``y_<number>`` are ordered by number; ``feature_<anything>`` is as
            well if all are numbers, else it stays in the table's order.

    Raises:
        GraphError: If a column is neither numbers, booleans, strings nor equally long lists of numbers, or if
            the features or labels are given twice.
    """
    arrays: dict[str, NDArray[Any]] = {}
    series: dict[str, list[str]] = {}
    for name in table.column_names:
        prefix = _series_prefix(name)
        if prefix is None:
            arrays[name] = _array(name, table.column(name))
        else:
            series.setdefault(prefix, []).append(name)
    for prefix, names in series.items():
        target = _SERIES[prefix]
        if target in arrays:
            msg = f"{target} must be given once, but {names[0]} stands beside other columns for it. Keep one."
            raise GraphError(msg)
        arrays[target] = _stack([_array(name, table.column(name)) for name in _ordered(prefix, names)])
    return arrays


def _series_prefix(name: str) -> str | None:
    for prefix in _SERIES:
        rest = name.removeprefix(prefix)
        if name.startswith(prefix) and (rest.isdigit() or (prefix == "feature_" and rest)):
            return prefix
    return None


def _ordered(prefix: str, names: list[str]) -> list[str]:
    numbers = [name.removeprefix(prefix) for name in names]
    return sorted(names, key=lambda name: int(name.removeprefix(prefix))) if all(map(str.isdigit, numbers)) else names


def _stack(columns: list[NDArray[Any]]) -> NDArray[Any]:
    matrix = np.empty((len(columns[0]), len(columns)), np.result_type(*columns))
    for i, column in enumerate(columns):
        matrix[:, i] = column
    return matrix


def _array(name: str, column: Any) -> NDArray[Any]:
    """Return a column as an array of its own kind: numbers (a missing one is NaN), booleans, strings or lists."""
    import pyarrow as pa

    chunk = column.combine_chunks()
    if pa.types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_decode()
    kind = chunk.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _matrix(name, chunk)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(chunk.fill_null("").to_pylist(), np.str_)
    is_plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not is_plain or (pa.types.is_boolean(kind) and chunk.null_count):
        msg = f"column {name} must hold numbers, strings, lists of numbers, or true or false in every row, got {kind}."
        raise GraphError(msg)
    array: NDArray[Any] = chunk.to_numpy(zero_copy_only=False)
    return array


def _matrix(name: str, column: Any) -> NDArray[Any]:
    from pyarrow import compute

    lengths = compute.unique(compute.list_value_length(column))
    if column.null_count or len(lengths) != 1:
        msg = f"column {name} must have a list of the same length in every row."
        raise GraphError(msg)
    values: NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biuf":
        msg = f"column {name} must have lists of numbers, got {column.type}."
        raise GraphError(msg)
    return values.reshape(len(column), -1)
