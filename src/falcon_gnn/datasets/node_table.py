"""The columns of a node table as arrays: ids, features, labels, masks and whatever else it says about each node."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.checks import pick_name, pick_names
from falcon_gnn.datasets.ids import id_array, is_text, text_of
from falcon_gnn.datasets.layout import RESERVED_NAMES
from falcon_gnn.datasets.options import FEATURE_NAMES, LABEL_NAMES, LoadOptions
from falcon_gnn.datasets.table_splits import add_masks, add_split
from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.graph import ROW_NAMES
from falcon_gnn.masks import PARTS

ID_NAME = "node_id"

_MASK_COLUMNS = frozenset(f"{part}_mask" for parts in PARTS.values() for part in parts)
_SERIES = {"x_": "x", "feature_": "x", "y_": "y"}
_INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")
_ID_LIKE = ("id", "nodeid", "node", "vertex_id", "osmid")
_WHOLE_END = 2.0**53
"""Below it every whole number is a float64."""
_SEPARATORS = re.compile(r"[,;\s|]+")


@dataclass(frozen=True)
class ColumnRoles:
    """Which columns of a node table hold what.

    Attributes:
        id: The ids, or None.
        x: The features, in order.
        y: The labels, in order.
        is_x_told: Whether the user named the features.
        is_y_told: Whether the user named the labels.
    """

    id: str | None
    x: tuple[str, ...] = ()
    y: tuple[str, ...] = ()
    is_x_told: bool = False
    is_y_told: bool = False

    @property
    def others(self) -> frozenset[str]:
        """What is no attribute."""
        return frozenset((*self.x, *self.y, *((self.id,) if self.id is not None else ())))


def find_roles(names: Sequence[str], options: LoadOptions) -> ColumnRoles:
    """Return which columns hold the ids, the features and the labels.

    Told ones first; else ``node_id``; ``x``, or ``x_0``, ``x_1`` ... and ``feature_...``, or one of
    :data:`falcon_gnn.datasets.options.FEATURE_NAMES`, or columns called ``0``, ``1`` ...; ``y``, or ``y_0`` ..., or one
    of :data:`falcon_gnn.datasets.options.LABEL_NAMES`.

    Args:
        names: The table's columns.
        options: What was told.

    Raises:
        OptionError: If a told column is not there.
        GraphError: If features or labels are given twice.
    """
    id_column = ID_NAME if ID_NAME in names else None
    if options.id_column is not None:
        id_column = pick_name("id_column", options.id_column, names)
    label, features = options.label_column, options.feature_columns
    y = () if label is None else tuple(pick_names("label_column", [label], names))
    x = () if features is None else tuple(pick_names("feature_columns", features, names))
    twice = set(x) & set(y) | ({id_column} & {*x, *y})
    if twice:
        msg = f"feature_columns must not name the labels or ids, got {sorted(map(str, twice))} for both. Leave it out."
        raise OptionError(msg)
    rest = [name for name in names if name not in (*x, *y, id_column)]
    return ColumnRoles(
        id_column,
        x or _series("x", rest) or _alias(FEATURE_NAMES, rest) or _numbered(rest),
        y or _series("y", rest) or _alias(LABEL_NAMES, rest),
        bool(x),
        bool(y),
    )


def node_columns(table: Any, roles: ColumnRoles) -> dict[str, Any]:
    """Return the columns of a pyarrow table by name, the features as ``x``, the labels as ``y``, ids as ``node_id``.

    Columns that cannot be attributes (dictionaries, bytes) are left out with a warning. A column ``split`` with the
    words train, val and test becomes the masks, and so do ``valid_mask`` and the like. An attribute that is called as
    an array of the layout gets another name, with a warning.

    Args:
        table: A row per node.
        roles: Which columns hold what.

    Raises:
        GraphError: If features or labels are no numbers, a list column has lists of unequal length, or a mask has other
            values than true and false, or 1 and 0.
    """
    arrays: dict[str, Any] = {}
    for name in table.column_names:
        if name in roles.others or (name in _INDEX_NAMES and _is_row_number(table.column(name))):
            continue
        values = _mask(name, table.column(name)) if name in _MASK_COLUMNS else _attribute(name, table.column(name))
        if values is not None:
            arrays[_attribute_name(name, table.column_names, roles)] = values
    if roles.id is not None:
        arrays[ID_NAME] = id_array(table.column(roles.id), roles.id)
    if roles.x:
        arrays["x"] = _matrix_of("x", roles.x, table)
        if roles.is_x_told and arrays["x"].ndim == 1:
            arrays["x"] = arrays["x"][:, None]
    if roles.y:
        labels = _labels(roles, table)
        arrays["y" if labels.dtype.kind in "biuf" else roles.y[0]] = labels
    add_split(arrays)
    add_masks(arrays, table.num_rows)
    _warn_about_ids(arrays)
    return arrays


def _attribute_name(name: str, names: Sequence[str], roles: ColumnRoles) -> str:
    """Return what a column is called as a node attribute: its own name, unless that has another meaning in a graph."""
    taken = {"x": roles.x, "y": roles.y, ID_NAME: roles.id}
    is_free = not taken[name] if name in taken else name not in RESERVED_NAMES or name in ROW_NAMES
    if name and is_free:
        return name
    kept = f"{name}_column" if name else "unnamed"
    while kept in names:
        kept += "_column"
    if name:
        msg = (
            f"column {name} was kept as the node attribute {kept}, since {name} means something else in a graph. "
            "Rename the column to choose another name."
        )
        warnings.warn(msg, FalconWarning, stacklevel=3)
    return kept


def _series(target: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the column called ``target``, or its series in order; an error where there are both."""
    found: dict[str, list[str]] = {}
    for name in names:
        for prefix in (prefix for prefix, role in _SERIES.items() if role == target and name.startswith(prefix)):
            rest = name.removeprefix(prefix)
            if rest.isdigit() or (prefix == "feature_" and rest):
                found.setdefault(prefix, []).append(name)
    given = [target] if target in names else []
    if len(found) + len(given) > 1:
        first = next(iter(found.values()))[0]
        msg = f"{target} must be given once, but {first} stands beside other columns for it. Keep one."
        raise GraphError(msg)
    for prefix, series in found.items():
        numbers = [name.removeprefix(prefix) for name in series]
        if all(map(str.isdigit, numbers)):
            series.sort(key=lambda name: int(name.removeprefix(prefix)))
        return tuple(series)
    return tuple(given)


def _alias(known: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    return next(((name,) for name in known if name in names), ())


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns 0, 1 ... F-1, as a data frame without names is written."""
    numbers = sorted((name for name in names if name.isdigit()), key=int)
    return tuple(numbers) if len(numbers) > 1 and numbers == [str(i) for i in range(len(numbers))] else ()


def _matrix_of(role: str, names: Sequence[str], table: Any) -> Any:
    columns = [_numbers(role, name, table.column(name)) for name in names]
    if len(columns) == 1:
        return columns[0]
    if any(not isinstance(column, np.ndarray) for column in columns):
        msg = f"{role} must be one vector column or several of numbers, got {', '.join(names)}. Name one."
        raise GraphError(msg)
    if all(column.ndim == 1 for column in columns):
        matrix = np.empty((len(columns[0]), len(columns)), np.result_type(*columns))
        for i, column in enumerate(columns):
            matrix[:, i] = column
        return matrix
    return np.concatenate([column.reshape(len(column), -1) for column in columns], axis=1)


def _labels(roles: ColumnRoles, table: Any) -> NDArray[Any]:
    """Return the labels; text under a name that only may mean labels stays text, with a warning."""
    only = roles.y[0]
    if len(roles.y) > 1 or not is_text(table.column(only).type):
        return np.asarray(_matrix_of("y", roles.y, table))
    try:
        return np.asarray(_numbers("y", only, table.column(only)))
    except GraphError:
        if roles.is_y_told or only == "y":
            raise
        msg = f"column {only} holds text and was kept as a node attribute, not as labels. {_ENCODE}"
        warnings.warn(msg, FalconWarning, stacklevel=2)
        return text_of(table.column(only))


_ENCODE = "Number the classes from 0 (pandas.factorize, sklearn's LabelEncoder) and call the column y."


def _numbers(role: str, name: str, column: Any) -> Any:
    """Return a column of features or labels as numbers: shape ``(N,)``, ``(N, L)``, or SciPy CSR."""
    import pyarrow as pa

    chunk = _decoded(column)
    kind = chunk.type
    if pa.types.is_struct(kind) and {"type", "size", "indices", "values"} <= {field.name for field in kind}:
        return _spark_vectors(name, chunk)
    if is_text(kind):
        return _parsed(role, name, chunk.to_pylist())
    values = _attribute(name, chunk)
    if values is None or values.dtype.kind not in "biuf":
        hint = _ENCODE if role == "y" else "Leave it out with feature_columns, or turn it into numbers."
        msg = f"column {name} must hold numbers or lists of numbers, got {kind}. {hint}"
        raise GraphError(msg)
    return values


def _parsed(role: str, name: str, texts: list[str | None]) -> NDArray[np.float64]:
    """Return rows such as ``"0.5, 0.1"`` or ``"[1 0 1]"`` as numbers."""
    rows = [_SEPARATORS.split(text.strip("[](){} \t\r\n")) for text in (text or "" for text in texts)]
    width = len(rows[0]) if rows else 0
    bad = next((i for i, row in enumerate(rows) if len(row) != width), None)
    try:
        values = np.array(rows if bad is None else [], np.float64)
    except ValueError as error:
        hint = _ENCODE if role == "y" else "Turn it into numbers, or leave it out with feature_columns."
        msg = f"column {name} must hold numbers ({role}), got text: {error}. {hint}"
        raise GraphError(msg) from error
    if bad is not None:
        msg = f"column {name} must hold {width} numbers in every row, got {texts[bad]!r} in row {bad}. Mend such rows."
        raise GraphError(msg)
    return values[:, 0] if width == 1 else values


def _spark_vectors(name: str, column: Any) -> Any:
    """Return Spark ML's vectors (dense: type 1; sparse: type 0) as a matrix, SciPy CSR where any is sparse."""
    from scipy.sparse import csr_array

    rows = column.to_pylist()
    widths = {row["size"] if row["type"] == 0 else len(row["values"]) for row in rows if row is not None}
    if len(widths) != 1 or column.null_count:
        msg = f"column {name} must have a vector of the same length in every row. Mend such rows."
        raise GraphError(msg)
    width = widths.pop()
    if all(row["type"] == 1 for row in rows):
        return np.array([row["values"] for row in rows], np.float64)
    indices = [row["indices"] if row["type"] == 0 else range(width) for row in rows]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in indices])])
    values = np.array([value for row in rows for value in row["values"]], np.float64)
    ids = np.array([i for row in indices for i in row], np.int32)
    matrix = csr_array((values, ids, starts.astype(np.int32)), shape=(len(rows), width))
    matrix.check_format(full_check=True)
    return matrix


def _attribute(name: str, column: Any) -> NDArray[Any] | None:
    """Return a column as an array of its own kind, a missing number NaN; None, with a warning, if it has none.

    Dates and times become text, decimals floats.
    """
    import pyarrow as pa

    chunk = _decoded(column)
    kind = chunk.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _matrix(name, chunk)
    if is_text(kind):
        return text_of(chunk)
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        return text_of(chunk.cast(pa.string()))
    if pa.types.is_decimal(kind) or pa.types.is_null(kind) or (pa.types.is_boolean(kind) and chunk.null_count):
        chunk = chunk.cast(pa.int8()).cast(pa.float64()) if pa.types.is_boolean(kind) else chunk.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        msg = f"column {name} was left out: {kind} is none of numbers, text, dates, true or false, or lists of numbers."
        warnings.warn(msg, FalconWarning, stacklevel=2)
        return None
    array: NDArray[Any] = chunk.to_numpy(zero_copy_only=False)
    if pa.types.is_integer(kind) and array.dtype.kind == "f" and np.fmax.reduce(np.abs(array), initial=0) >= _WHOLE_END:
        msg = (
            f"column {name} holds whole numbers of 2**53 or more beside empty cells: as floats they lose their last "
            "digits. Fill the cells in, or write the column as text."
        )
        warnings.warn(msg, FalconWarning, stacklevel=2)
    return array


def _mask(name: str, column: Any) -> NDArray[np.bool_] | None:
    """Return a column that is called as a mask, true or false, or 1 and 0 of any kind of number."""
    values = _attribute(name, column)
    if values is None:
        return None
    num_empty = int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
    if num_empty:
        msg = f"column {name} must be true or false in every row; {num_empty} are empty. Fill these in."
        raise GraphError(msg)
    is_fit = (values == 0) | (values == 1) if values.dtype.kind in "biuf" else np.zeros(values.shape, np.bool_)
    if not is_fit.all():
        first = repr(values[~is_fit][:1].tolist()[0])
        got = f"text such as {first}" if values.dtype.kind in "UT" else first
        msg = (
            f"column {name} must be true or false (or 1 and 0) in every row, got {got}. Correct it, or rename it if it "
            "is no mask."
        )
        raise GraphError(msg)
    return values.astype(np.bool_)


def _matrix(name: str, column: Any) -> NDArray[Any] | None:
    from pyarrow import compute, types

    if not types.is_primitive(column.type.value_type):
        msg = f"column {name} was left out: it must have lists of numbers, got {column.type}."
        warnings.warn(msg, FalconWarning, stacklevel=2)
        return None
    lengths = compute.unique(compute.list_value_length(column))
    if column.null_count or len(lengths) != 1:
        msg = f"column {name} must have a list of the same length in every row. Pad the lists, or leave it out."
        raise GraphError(msg)
    values: NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biuf":
        msg = f"column {name} must have lists of numbers, got {column.type}."
        raise GraphError(msg)
    return values.reshape(len(column), -1)


def _decoded(column: Any) -> Any:
    import pyarrow as pa

    chunk = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk


def _is_row_number(column: Any) -> bool:
    """Tell the index that pandas writes beside a data frame."""
    import pyarrow as pa

    return bool(pa.types.is_integer(column.type)) and column.to_pylist() == list(range(len(column)))


def _warn_about_ids(arrays: Mapping[str, Any]) -> None:
    """Say so where a column looks like ids and is not used as such."""
    if ID_NAME in arrays:
        return
    for name, values in arrays.items():
        is_id = name.lower() in _ID_LIKE and values.ndim == 1 and values.dtype.kind in "iuUT"
        if is_id and not (values.dtype.kind in "iu" and np.array_equal(values, np.arange(len(values)))):
            msg = (
                f"column {name} was kept as a node attribute and the edges are read as row numbers. If {name} holds "
                f"the ids that the edges use, pass id_column={name!r} or rename it to node_id."
            )
            warnings.warn(msg, FalconWarning, stacklevel=2)
