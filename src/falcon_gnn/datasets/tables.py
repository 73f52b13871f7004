"""Edge lists in Parquet or CSV, with an optional table of nodes.

Edges: columns ``source`` and ``target`` (or ``src`` and ``dst``), perhaps ``weight`` (or ``edge_weight``).
Nodes: perhaps ``node_id``; ``x`` as a list column, or ``x_0``, ``x_1`` ..., or columns that begin with ``feature_``;
``y`` or ``y_0``, ``y_1`` ...; ``train_mask``, ``val_mask``, ``test_mask``; every other column is a node attribute.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.adjacency import EdgeChunk
from falcon_gnn.datasets.layout import SPLITS_NAMES, node_arrays
from falcon_gnn.datasets.node_table import node_columns
from falcon_gnn.datasets.reading import reading
from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.graph import Graph

SUFFIXES = (".parquet", ".csv", ".csv.gz")

_ENDS = (("source", "target"), ("src", "dst"))
_WEIGHTS = ("weight", "edge_weight")
_BATCH_ROWS = 1 << 20
_FIX = "docs/data.md names the columns of an edge list and of a node table."


@dataclass(frozen=True)
class TableFiles:
    """Where a graph's tables are.

    Attributes:
        edges: The edge list: a ``.parquet``, ``.csv`` or ``.csv.gz`` file, or a folder of Parquet part files.
        nodes: The node table, likewise; or None.
        num_nodes: N; needed without a node table.
    """

    edges: Path
    nodes: Path | None = None
    num_nodes: int | None = None


def tables_in(folder: Path) -> TableFiles | None:
    """Return the tables ``edges`` and ``nodes`` of a folder, or None where there is no edge list."""
    found = {stem: [p for p in (folder / f"{stem}{s}" for s in SUFFIXES) if p.exists()] for stem in ("edges", "nodes")}
    if not found["edges"]:
        return None
    return TableFiles(found["edges"][0], found["nodes"][0] if found["nodes"] else None)


def read_tables(files: TableFiles, *, split_index: int | None = None) -> Graph:
    """Return the graph of an edge list and its node table; the edges are streamed, never whole in memory.

    Node i is row i of the node table. Ids that are not 0 ... N-1 in this order (strings, gaps) are looked up in
    ``node_id`` and kept as the node attribute of that name.

    Args:
        files: Where the tables are.
        split_index: Which split, where masks are list columns.

    Raises:
        GraphError: If a file is unreadable, a column is missing, an id is unknown, or N is not told.
    """
    columns: dict[str, NDArray[Any]] = {}
    if files.nodes is not None:
        with reading(files.nodes, "a node table", _FIX):
            columns = node_columns(_read_whole(files.nodes))
    num_nodes = _count_nodes(files, columns)
    for name in SPLITS_NAMES.keys() & columns.keys():
        columns[name] = columns[name].T  # a row per node, where the layout has a row per split
    ids = columns.pop("node_id", None)
    if ids is not None and np.array_equal(ids, np.arange(num_nodes)):
        ids = None
    if ids is not None:
        _check_node_ids(ids)
        columns["node_id"] = ids
    with reading(files.edges, "an edge list", _FIX):
        walk, weight_dtype = _edge_walk(files.edges, ids)
        arrays = node_arrays(columns, num_nodes, split_index)
        return Graph.from_edge_chunks(walk, num_nodes, weight_dtype=weight_dtype, **arrays)


def _count_nodes(files: TableFiles, columns: dict[str, NDArray[Any]]) -> int:
    num_rows = len(next(iter(columns.values()))) if columns else None
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
    names = _column_names(path)
    ends = next((pair for pair in _ENDS if set(pair) <= set(names)), None)
    if ends is None:
        msg = f"it needs the columns source and target (or src and dst), and has {', '.join(names)}."
        raise GraphError(msg)
    weight = next((name for name in _WEIGHTS if name in names), None)
    unused = [name for name in names if name not in (*ends, weight)]
    if unused:
        msg = f"{path}: the edge columns {', '.join(unused)} were left out; only weights are used."
        warnings.warn(msg, FalconWarning, stacklevel=3)
    wanted = [*ends, weight] if weight else list(ends)
    id_type = None if ids is None else _arrow_ids(ids).type

    def walk() -> Iterator[EdgeChunk]:
        for batch in _batches(path, wanted, id_type):
            source, target = (_ids(batch.column(i), ids, ends[i]) for i in (0, 1))
            yield source, target, _weights(batch.column(2)) if weight else None

    return walk, np.dtype(np.float64) if weight else None


def _column_names(path: Path) -> list[str]:
    from pyarrow import csv, parquet

    if _is_parquet(path):
        names: list[str] = parquet.read_schema(_part_files(path)[0]).names
        return names
    with csv.open_csv(path) as reader:
        return list(reader.schema.names)


def _batches(path: Path, columns: list[str], id_type: Any) -> Iterator[Any]:
    """Yield record batches of the wanted columns, in file order; ids of a CSV file have the node table's type."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    if _is_parquet(path):
        for part in _part_files(path):
            with parquet.ParquetFile(part) as file:
                for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
                    yield batch.select(columns)
        return
    types = dict.fromkeys(columns[:2], id_type or pa.int64()) | dict.fromkeys(columns[2:], pa.float64())
    options = csv.ConvertOptions(column_types=types, include_columns=columns)
    with csv.open_csv(path, csv.ReadOptions(block_size=1 << 24), convert_options=options) as reader:
        yield from reader


def _read_whole(path: Path) -> Any:
    from pyarrow import csv, parquet

    if not _is_parquet(path):
        return csv.read_csv(path)
    import pyarrow as pa

    return pa.concat_tables([parquet.read_table(part) for part in _part_files(path)])


def _is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet" or path.is_dir()


def _part_files(path: Path) -> list[Path]:
    """Return a Parquet file itself, or the part files of a folder such as Spark writes."""
    if not path.is_dir():
        return [path]
    parts = sorted(path.glob("*.parquet"))
    if not parts:
        msg = f"{path} is a folder without .parquet files."
        raise OptionError(msg)
    return parts


def _ids(column: Any, ids: NDArray[Any] | None, name: str) -> NDArray[np.int64]:
    """Return node numbers of a column of ids."""
    import pyarrow as pa
    from pyarrow import compute

    if column.null_count:
        msg = f"column {name} must not have missing ids, and {column.null_count} are missing."
        raise GraphError(msg)
    if ids is None:
        if not pa.types.is_integer(column.type):
            msg = f"column {name} must hold integers, got {column.type}. Pass a node table with a node_id column."
            raise GraphError(msg)
        return np.ascontiguousarray(column.to_numpy(zero_copy_only=False), np.int64)
    known = _arrow_ids(ids)
    found = compute.index_in(column.cast(known.type), value_set=known)
    if found.null_count:
        first = column[int(np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))[0])]
        msg = f"column {name} has the id {first.as_py()!r}, which the node table's node_id lacks. Add such nodes to it."
        raise GraphError(msg)
    return np.ascontiguousarray(found.to_numpy(zero_copy_only=False), np.int64)


def _weights(column: Any) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = column.to_numpy(zero_copy_only=False).astype(np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any():
        msg = "weights must be finite and not negative. Drop or mend such edges first."
        raise GraphError(msg)
    return weights


def _arrow_ids(ids: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.array(ids.tolist() if ids.dtype.kind == "U" else ids)


def _check_node_ids(ids: NDArray[Any]) -> None:
    if ids.dtype.kind not in "iuU":
        msg = f"node_id must hold integers or strings, none of them missing, got {ids.dtype}."
        raise GraphError(msg)
    values, counts = np.unique(ids, return_counts=True)
    if counts.max(initial=1) > 1:
        msg = f"node_id must be distinct, but {values[counts.argmax()]!r} stands {counts.max()} times. Merge such rows."
        raise GraphError(msg)
