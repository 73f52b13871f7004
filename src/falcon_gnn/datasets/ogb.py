"""ogbn-arxiv and ogbn-products from the raw files that the Open Graph Benchmark publishes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.datasets.reading import reading
from falcon_gnn.errors import GraphError
from falcon_gnn.graph import MASK_NAMES, Graph
from falcon_gnn.masks import mask_of_ids

SCHEMES = {"ogbn-arxiv": "time", "ogbn-products": "sales_ranking"}

_FIX = "Get the data set's zip file from the Open Graph Benchmark again and unpack it."


def file_names(name: str) -> tuple[str, ...]:
    """Return the files of ``"ogbn-arxiv"`` or ``"ogbn-products"``, relative to the data set's folder."""
    raw = ("edge", "node-feat", "node-label", "num-node-list")
    split = ("train", "valid", "test")
    return (*(f"raw/{part}.csv.gz" for part in raw), *(f"split/{SCHEMES[name]}/{part}.csv.gz" for part in split))


def read_ogb(folder: Path, name: str) -> Graph:
    """Return an OGB node data set as an undirected graph, with its own split.

    Citations of ogbn-arxiv are directed and are taken as undirected; ``node_year`` is kept if it is there.

    Args:
        folder: Where ``raw`` and ``split`` are.
        name: ``"ogbn-arxiv"`` or ``"ogbn-products"``.

    Raises:
        GraphError: If a file does not fit the others.
        OptionError: If one is missing or damaged.
    """
    num_nodes = int(_read_matrix(folder / "raw" / "num-node-list.csv.gz", np.int64)[0, 0])
    names = [f"split/{SCHEMES[name]}/{part}.csv.gz" for part in ("train", "valid", "test")]
    year = folder / "raw" / "node_year.csv.gz"
    with reading(folder, f"the raw files of {name}", _FIX):
        return Graph.from_edges(
            _read_matrix(folder / "raw" / "edge.csv.gz", np.int32).T,
            num_nodes,
            warn_one_way="never",
            x=_read_matrix(folder / "raw" / "node-feat.csv.gz", np.float32, num_nodes),
            y=_whole(_read_matrix(folder / "raw" / "node-label.csv.gz", np.float64)),
            node_attributes={"node_year": _read_matrix(year, np.int64)[:, 0]} if year.is_file() else {},
            **{mask: _mask(num_nodes, folder / path) for mask, path in zip(MASK_NAMES, names, strict=True)},
        )


def _read_matrix(path: Path, dtype: Any, num_rows: int | None = None) -> NDArray[Any]:
    """Return a CSV file without header; with ``num_rows`` it is filled in place and never held twice."""
    with reading(path, "gzipped CSV", _FIX):
        if num_rows is None:
            return np.concatenate(list(_row_blocks(path, dtype)))
        matrix, filled = None, 0
        for block in _row_blocks(path, dtype):
            matrix = np.empty((num_rows, block.shape[1]), dtype) if matrix is None else matrix
            if filled + len(block) > num_rows:
                break
            matrix[filled : filled + len(block)] = block
            filled += len(block)
        if matrix is None or filled != num_rows:
            msg = f"it must have {num_rows} rows, as raw/num-node-list.csv.gz says. {_FIX}"
            raise GraphError(msg)
        return matrix


def _row_blocks(path: Path, dtype: Any) -> Iterator[NDArray[Any]]:
    import pyarrow as pa
    from pyarrow import csv

    no_header = csv.ReadOptions(autogenerate_column_names=True)
    with csv.open_csv(path, read_options=no_header) as reader:
        names = reader.schema.names
    types = csv.ConvertOptions(column_types={name: pa.from_numpy_dtype(np.dtype(dtype)) for name in names})
    with csv.open_csv(path, read_options=no_header, convert_options=types) as reader:
        for batch in reader:
            block = np.empty((batch.num_rows, batch.num_columns), dtype)
            for i, column in enumerate(batch.columns):
                block[:, i] = column.to_numpy(zero_copy_only=False)
            yield block


def _whole(labels: NDArray[np.float64]) -> NDArray[Any]:
    """Return whole labels as int64; a missing one (NaN) keeps all of them floats."""
    return labels.astype(np.int64) if np.isfinite(labels).all() else labels


def _mask(num_nodes: int, path: Path) -> NDArray[np.bool_]:
    with reading(path, "a list of node ids", _FIX):
        return mask_of_ids("the split", _read_matrix(path, np.int64), num_nodes)
