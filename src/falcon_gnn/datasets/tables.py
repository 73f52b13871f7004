"""Edge lists in Parquet or CSV, with an optional table of nodes.

Edges: columns ``source`` and ``target`` (or ``src`` and ``dst``, ``src_id`` and ``dst_id``), perhaps ``weight`` (or
``edge_weight``). Nodes: see :mod:`falcon_gnn.datasets.node_table`.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.adjacency import EdgeChunk
from falcon_gnn.datasets.ids import IdLookup, check_distinct, has_padded, is_text
from falcon_gnn.datasets.layout import SPLITS_NAMES, node_arrays
from falcon_gnn.datasets.node_table import ID_NAME, ColumnRoles, find_roles, node_columns
from falcon_gnn.datasets.options import LoadOptions
from falcon_gnn.datasets.reading import reading
from falcon_gnn.datasets.table_files import (
    TABLE_FIX,
    WEIGHT_FIX,
    check_distinct_names,
    column_names,
    find_table,
    is_parquet,
    read_batches,
    read_text,
    read_whole,
)
from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.graph import MASK_NAMES, ROW_NAMES, Graph

_ENDS = (("source", "target"), ("src", "dst"), ("src_id", "dst_id"))
_BATCH_ROWS = 1 << 20
_WEIGHTS = ("weight", "edge_weight")


@dataclass(frozen=True)
class TableFiles:
    """Where a graph's tables are.

    Attributes:
        edges: The edge list: a ``.parquet``, ``.csv`` or ``.csv.gz`` file, or a folder of part files.
        nodes: The node table, likewise; or None.
        num_nodes: N; needed without a node table.
    """

    edges: Path
    nodes: Path | None = None
    num_nodes: int | None = None


def tables_in(folder: Path) -> TableFiles | None:
    """Return the tables ``edges`` and ``nodes`` of a folder, or None where there is no edge list."""
    edges = find_table(folder, "edges")
    return None if edges is None else TableFiles(edges, find_table(folder, "nodes"))


def read_tables(files: TableFiles, *, split_index: int | None = None, options: LoadOptions | None = None) -> Graph:
    """Return the graph of an edge list and its node table; the edges are streamed, never whole in memory.

    Node i is row i of the node table. Ids that are not 0 ... N-1 in this order (strings, gaps) are looked up in
    ``node_id`` and kept as the node attribute of that name.

    Args:
        files: Where the tables are.
        split_index: Which split, where masks are list columns.
        options: Which columns hold labels, features and ids, where they are called otherwise than usual.

    Raises:
        GraphError: If a column is missing or an id is unknown.
        OptionError: If a file is missing or damaged, or N is not told.
    """
    columns: dict[str, Any] = {}
    if files.nodes is not None:
        with reading(files.nodes, "a node table", TABLE_FIX):
            columns = _read_nodes(files.nodes, options or LoadOptions())
    num_nodes = _count_nodes(files, columns)
    for name in SPLITS_NAMES.keys() & columns.keys():
        columns[name] = columns[name].T  # a row per node, where the layout has a row per split
    ids = columns.pop(ID_NAME, None)
    if ids is not None and np.array_equal(ids, np.arange(num_nodes)):
        ids = None
    if ids is not None:
        columns[ID_NAME] = ids
    with reading(files.nodes or files.edges, "a node table", TABLE_FIX):
        if ids is not None:
            check_distinct(ids, ID_NAME)
        attribute_names = columns.keys() - {*ROW_NAMES, *SPLITS_NAMES}
        arrays = node_arrays(columns, num_nodes, split_index, attribute_names)
        # An edgeless graph checks the arrays, so that what is wrong in this file is not laid at the edges' door.
        Graph(np.zeros(num_nodes + 1, np.int64), np.zeros(0, np.int32), **_given(arrays))
    with reading(files.edges, "an edge list", TABLE_FIX):
        walk, weight_dtype = _edge_walk(files.edges, ids)
        return Graph.from_edge_chunks(walk, num_nodes, weight_dtype=weight_dtype, **arrays)


def _given(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arrays.items() if value is not None}


def _read_nodes(path: Path, options: LoadOptions) -> dict[str, Any]:
    """Return the columns of a node table; what CSV's guess of a type would change is read as the text it is."""
    table = read_whole(path)
    roles = find_roles(table.column_names, options)
    if not is_parquet(path):
        table = _with_text(path, table, roles)
    return node_columns(table, roles)


def _with_text(path: Path, table: Any, roles: ColumnRoles) -> Any:
    """Return a CSV table with dates, ids and zero-padded numbers as text."""
    import pyarrow as pa

    roled = {*roles.x, *roles.y, *MASK_NAMES}
    suspects = [
        field.name
        for field in table.schema
        if field.name not in roled
        and (pa.types.is_integer(field.type) or pa.types.is_temporal(field.type) or field.name == roles.id)
    ]
    if not suspects:
        return table
    texts = read_text(path, suspects)
    for name in suspects:
        kind = table.schema.field(name).type
        if name == roles.id or pa.types.is_temporal(kind) or has_padded(texts.column(name)):
            table = table.set_column(table.column_names.index(name), name, texts.column(name))
    return table


def _count_nodes(files: TableFiles, columns: dict[str, Any]) -> int:
    first = next(iter(columns.values())) if columns else None
    num_rows = None if first is None else int(first.shape[0])
    if files.num_nodes is None and num_rows is None:
        msg = (
            f"{files.edges} alone does not tell how many nodes there are, since some may have no edge. Pass "
            "num_nodes=, or a node table with nodes=."
        )
        raise OptionError(msg)
    if None not in (files.num_nodes, num_rows) and files.num_nodes != num_rows:
        msg = f"num_nodes must be the {num_rows} rows of {files.nodes} or be left out, got {files.num_nodes}."
        raise OptionError(msg)
    return num_rows if num_rows is not None else int(files.num_nodes or 0)


def _edge_walk(path: Path, ids: NDArray[Any] | None) -> tuple[Callable[[], Iterator[EdgeChunk]], np.dtype[Any] | None]:
    """Return a function that walks the edges in chunks, and the dtype of their weights."""
    import pyarrow as pa

    names = column_names(path)
    ends = next((pair for pair in _ENDS if set(pair) <= set(names)), None)
    if ends is None:
        msg = (
            f"it needs the columns source and target (or src and dst), and has {', '.join(map(_shown, names))}. Rename "
            "them; Spark writes names to CSV with header=True only."
        )
        raise GraphError(msg)
    weight = next((name for name in _WEIGHTS if name in names), None)
    unused = [name for name in names if name not in (*ends, weight)]
    if unused:
        msg = f"{path}: the edge columns {', '.join(unused)} were left out; only weights are used."
        warnings.warn(msg, FalconWarning, stacklevel=3)
    wanted = [*ends, weight] if weight else list(ends)
    check_distinct_names(names, wanted)
    types = dict.fromkeys(ends, pa.string()) | ({weight: pa.float64()} if weight else {})
    lookup = IdLookup(ids)

    def walk() -> Iterator[EdgeChunk]:
        for batch in read_batches(path, wanted, types, may_break=bool(unused), num_rows=_BATCH_ROWS):
            source, target = (lookup.find(batch.column(i), ends[i]) for i in (0, 1))
            yield source, target, _weights(path, weight, batch.column(2)) if weight else None

    return walk, np.dtype(np.float64) if weight else None


def _shown(name: str) -> str:
    """Return a name as it is, in quotes where spaces hide in it."""
    return name if name and name == name.strip() else repr(name)


def _weights(path: Path, name: str, column: Any) -> NDArray[np.float64]:
    """Return a batch of weights, shape ``(num_rows,)``; numbers written as text are read.

    Raises:
        GraphError: If the column holds anything else, empty cells, or weights that are not finite or below 0.
    """
    if column.null_count:
        msg = f"column {name} must be a number in every row; {_count_empty(path, name)} are empty. Fill these in."
        raise GraphError(msg)
    weights = _as_floats(name, column)
    is_fit = np.isfinite(weights) & (weights >= 0)
    if not is_fit.all():
        msg = (
            f"column {name} must be finite and not negative, got {weights[~is_fit][0]}. Drop or mend such edges first."
        )
        raise GraphError(msg)
    return weights


def _count_empty(path: Path, name: str) -> int:
    import pyarrow as pa

    batches = read_batches(path, [name], {name: pa.float64()}, may_break=True, num_rows=_BATCH_ROWS)
    return sum(int(batch.column(0).null_count) for batch in batches)


def _as_floats(name: str, column: Any) -> NDArray[np.float64]:
    import pyarrow as pa
    from pyarrow import types

    column = column.dictionary_decode() if types.is_dictionary(column.type) else column
    try:
        if is_text(column.type) or types.is_decimal(column.type):
            column = column.cast(pa.float64())
    except pa.ArrowInvalid as error:
        msg = f"column {name} must be a number in every row, got text ({error}). {WEIGHT_FIX}"
        raise GraphError(msg) from error
    if not (types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type)):
        msg = f"column {name} must be a number in every row, got {column.type}. {WEIGHT_FIX}"
        raise GraphError(msg)
    weights: NDArray[np.float64] = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return weights
