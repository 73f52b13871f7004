"""Archives of other tools as the named arrays of :mod:`falcon_gnn.datasets.layout`.

Known are SciPy's ``save_npz`` (an adjacency), gnn-benchmark's (``adj_data`` ..., ``attr_data`` ..., ``labels``; also
spelled ``adj_matrix.data``), and, by the names of their arrays alone, heterophilous-graphs' and OGB's.
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.checks import pick_name, pick_names
from falcon_gnn.datasets.layout import ATTRIBUTES_NAME, Arrays
from falcon_gnn.datasets.options import LoadOptions
from falcon_gnn.errors import FalconWarning, GraphError, OptionError

_ADJACENCY = ("adj_", "adj_matrix.", "adj.")
_ATTRIBUTES = ("attr_", "attr_matrix.", "attr.")
_CSR = ("data", "indices", "indptr", "shape")


class Renamed(Mapping[str, Any]):
    """Arrays under the names of the layout; each is still read when it is asked for.

    Args:
        arrays: Arrays by their own name.
        label: Name of the labels.
        features: Names of the features; several are put side by side.
    """

    def __init__(self, arrays: Arrays, label: str | None, features: tuple[str, ...]) -> None:
        self._arrays, self._label, self._features = arrays, label, features
        told = {*features, *((label,) if label else ())}
        replaced = {
            *(("x", "x_indptr", "x_indices", "x_data", "x_shape") if features else ()),
            *(("y",) if label else ()),
        }
        self._names = [name for name in arrays if name not in told and name not in replaced]
        self._names += (["y"] if label else []) + (["x"] if features else [])

    def __getitem__(self, name: str) -> Any:
        if name == "y" and self._label:
            return self._arrays[self._label]
        if name == "x" and self._features:
            columns = [np.asarray(self._arrays[feature]) for feature in self._features]
            if len(columns) == 1:
                return columns[0] if columns[0].ndim > 1 else columns[0].reshape(-1, 1)
            return np.concatenate([column.reshape(len(column), -1) for column in columns], axis=1)
        if name not in self._names:
            raise KeyError(name)
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def as_layout(arrays: Arrays, options: LoadOptions | None = None) -> Arrays:
    """Return arrays under the names of the layout, whichever tool wrote them.

    Args:
        arrays: Arrays by name.
        options: The names of features and labels, if they were told.

    Raises:
        OptionError: If a told name is not there, or ``id_column`` was told, which is for tables.
        GraphError: If a known archive is broken.
    """
    told = options or LoadOptions()
    if told.id_column is not None:
        msg = f"id_column is for node tables, got {told.id_column!r}. Leave it out: edges of arrays are row numbers."
        raise OptionError(msg)
    names = sorted(set(arrays) - {ATTRIBUTES_NAME})
    if told.label_column is not None or told.feature_columns is not None:
        label = None if told.label_column is None else pick_name("label_column", told.label_column, names)
        features = () if told.feature_columns is None else pick_names("feature_columns", told.feature_columns, names)
        return Renamed(arrays, label, tuple(features))
    if ATTRIBUTES_NAME in arrays:
        return arrays  # our own, whose attributes may be called anything
    if {"format", "shape", "data"} <= set(names) and "num_nodes" not in names:
        return _from_save_npz(arrays)
    prefix = next((prefix for prefix in _ADJACENCY if {f"{prefix}{part}" for part in _CSR} <= set(names)), None)
    return arrays if prefix is None else _from_gnn_benchmark(arrays, prefix)


def _from_save_npz(arrays: Arrays) -> Arrays:
    kind = arrays["format"].item()
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    shape = tuple(int(size) for size in arrays["shape"])
    if kind == "coo":
        row, column = arrays["coords"] if "coords" in arrays else (arrays["row"], arrays["col"])
    elif kind in ("csr", "csc"):
        row, column = _entries(arrays["indices"], arrays["indptr"], shape[0 if kind == "csr" else 1])
        row, column = (row, column) if kind == "csr" else (column, row)
    else:
        msg = f"a matrix of SciPy's save_npz must be csr, csc or coo, got {kind!r}. Save matrix.tocsr() instead."
        raise GraphError(msg)
    if len(shape) != 2 or shape[0] != shape[1]:
        msg = (
            f"a matrix of SciPy's save_npz is read as an adjacency and must be square, got shape {shape}. Save "
            "features as x_indptr, x_indices, x_data and x_shape beside the edges; docs/data.md says how."
        )
        raise GraphError(msg)
    msg = (
        f"the file holds one matrix of shape {shape} ({', '.join(sorted(arrays))}), which was taken as the adjacency: "
        "the graph has no features and no labels. Set them with graph.replace(x=..., y=...)."
    )
    warnings.warn(msg, FalconWarning, stacklevel=2)
    return _edges(row, column, arrays["data"], shape[0])


def _from_gnn_benchmark(arrays: Arrays, prefix: str) -> Arrays:
    adjacency = {part: arrays[f"{prefix}{part}"] for part in _CSR}
    num_nodes = int(adjacency["shape"][0])
    rest = {name: arrays[name] for name in arrays if not name.startswith(prefix)}
    found = dict(_edges(*_entries(adjacency["indices"], adjacency["indptr"], num_nodes), adjacency["data"], num_nodes))
    for attribute in _ATTRIBUTES:
        if {f"{attribute}{part}" for part in _CSR} <= set(rest):
            found |= {f"x_{part}": rest.pop(f"{attribute}{part}") for part in _CSR}
    if "attr_matrix" in rest:
        found["x"] = rest.pop("attr_matrix")
    # Names of nodes, features and classes stand beside the graph.
    beside = {name for name, value in rest.items() if value.shape[:1] != (num_nodes,)}
    if beside:
        msg = f"{', '.join(sorted(beside))} left out: they do not have one row for each of {num_nodes} nodes."
        warnings.warn(msg, FalconWarning, stacklevel=2)
    return found | {name: value for name, value in rest.items() if name not in beside}


def _entries(indices: NDArray[Any], indptr: NDArray[Any], num_rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
    starts = np.asarray(indptr)
    is_fit = starts.shape == (num_rows + 1,) and starts.dtype.kind in "iu" and np.asarray(indices).ndim == 1
    if not (is_fit and starts[0] == 0 and (np.diff(starts) >= 0).all() and starts[-1] == len(indices)):
        msg = f"indptr must ascend from 0 to {len(indices)}, one row for each of {num_rows} nodes. Save it anew."
        raise GraphError(msg)
    return np.repeat(np.arange(num_rows), np.diff(starts)), np.asarray(indices)


def _edges(row: NDArray[Any], column: NDArray[Any], data: NDArray[Any], num_nodes: int) -> Arrays:
    if np.shape(data) != np.shape(column):
        msg = (
            f"data must have one value for each of the {len(column)} entries, got shape {np.shape(data)}. Save it anew."
        )
        raise GraphError(msg)
    stored = np.asarray(data) != 0
    found = {"num_nodes": np.array(num_nodes), "edge_index": np.stack([row[stored], column[stored]])}
    weight = np.asarray(data)[stored]
    return found if bool((weight == 1).all()) else found | {"edge_weight": weight}
