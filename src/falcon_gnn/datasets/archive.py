"""Graphs in one `.npz` file: our own layout read and written without pickle, and MedMNIST's images read."""

import warnings
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.datasets.foreign import as_layout
from falcon_gnn.datasets.layout import RESERVED_NAMES, Arrays, edges_to_blocks, graph_from_arrays, nodes_to_arrays
from falcon_gnn.datasets.options import FEATURE_NAMES, LABEL_NAMES, LoadOptions
from falcon_gnn.datasets.reading import reading
from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.files import replacing, write_archive
from falcon_gnn.graph import Graph
from falcon_gnn.resources import require_memory

NPZ_FIX = (
    "Write the file again with falcon_gnn.datasets.archive.write_npz or numpy.savez_compressed; docs/data.md names the "
    "arrays."
)


def read_npz(path: str | Path, *, split_index: int | None = None, options: LoadOptions | None = None) -> Graph:
    """Return the graph stored in a `.npz` file.

    Args:
        path: A file with the arrays that :mod:`falcon_gnn.datasets.layout` names.
        split_index: Which split, where the file holds several; None means its own masks, else split 0.
        options: What labels and features are called, if otherwise than usual.

    Raises:
        GraphError: If the file lacks an array, or one does not fit.
        OptionError: If it is missing or damaged, or holds pickled objects.
    """
    source = Path(path)
    with reading(source, "an .npz graph", NPZ_FIX):
        return graph_from_arrays(as_layout(read_arrays(source), options), split_index)


def read_arrays(path: Path) -> Arrays:
    """Return every array of a `.npz` file by name; pickled ones are left out with a warning, and never loaded.

    Raises:
        GraphError: If an array is longer than what the file holds of it: nothing is allocated for it then.
    """
    if not zipfile.is_zipfile(path):
        with path.open("rb"):  # a missing or forbidden file says so, and not that it is no archive
            msg = "it is no zip archive; perhaps its download or copy was cut short"
            raise zipfile.BadZipFile(msg)
    arrays: dict[str, NDArray[Any]] = {}
    pickled = []
    with zipfile.ZipFile(path) as archive:
        entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
        total = sum(entry.file_size for entry in entries)
        require_memory(total, f"unpack the arrays of {path}")
        for entry in entries:
            name = entry.filename.removesuffix(".npy")
            if _is_whole(archive, entry):
                with archive.open(entry) as stream:
                    arrays[name] = np.lib.format.read_array(stream, allow_pickle=False)
            elif name in (*RESERVED_NAMES, *FEATURE_NAMES, *LABEL_NAMES):
                msg = f"{name} holds Python objects, which need pickle; allow_pickle is never set"
                raise ValueError(msg)
            else:
                pickled.append(name)
    if pickled:
        msg = f"{path}: {', '.join(pickled)} left out: they hold pickled Python objects, which are never loaded."
        warnings.warn(msg, FalconWarning, stacklevel=2)
    return arrays


def _is_whole(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    """Compare what an array's header promises with what its entry holds, before anything is allocated for it.

    Returns:
        False for Python objects.

    Raises:
        GraphError: If the header promises more.
    """
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        if dtype.hasobject:
            return False
        promised, held = prod(shape) * dtype.itemsize, entry.file_size - stream.tell()
    if min(shape, default=0) < 0 or promised > held:
        msg = f"{entry.filename} must hold {promised} bytes for shape {shape} of {dtype}, got {held}. {NPZ_FIX}"
        raise GraphError(msg)
    return True


def write_npz(graph: Graph, path: str | Path) -> None:
    """Write a graph to a compressed `.npz` file that :func:`read_npz` gives back whole; an old file is replaced.

    Args:
        graph: The graph; features may be sparse.
        path: The file to write, ending in ``.npz``.

    Raises:
        GraphError: If a node attribute cannot be stored without pickle.
        OptionError: If the name ends otherwise.
    """
    target = Path(path)
    if target.suffix != ".npz":
        msg = f"path must end in .npz, got {target}."
        raise OptionError(msg)
    arrays = nodes_to_arrays(graph)
    check_storable(arrays)
    with replacing(target) as temporary:
        write_archive(temporary, arrays, edges_to_blocks(graph))


def check_storable(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Stop before an array of Python objects would need pickle, or a name would leave the archive."""
    for name, array in arrays.items():
        if array.dtype.hasobject:
            msg = (
                f"node_attributes[{name!r}] holds Python objects, which need pickle. Turn them into numbers or strings."
            )
            raise GraphError(msg)
        if not name or Path(name).name != name or "\0" in name:
            msg = f"node_attributes names must be plain file names, got {name!r}. Rename it."
            raise GraphError(msg)
