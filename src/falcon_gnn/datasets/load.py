"""One door for every source of a graph: a known name, a file or a folder."""

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from falcon_gnn.checks import as_names, check_kind
from falcon_gnn.datasets.archive import NPZ_FIX, read_arrays
from falcon_gnn.datasets.folders import read_folder
from falcon_gnn.datasets.foreign import as_layout
from falcon_gnn.datasets.images import image_graph, is_image_archive
from falcon_gnn.datasets.layout import graph_from_arrays
from falcon_gnn.datasets.named import dataset_names, load_named, nearest_name
from falcon_gnn.datasets.options import LoadOptions
from falcon_gnn.datasets.reading import reading
from falcon_gnn.datasets.splits import Split, SplitOptions, apply_split
from falcon_gnn.datasets.tables import TableFiles, read_tables, tables_in
from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.graph_checks import GRAPH_READERS, library_of

DEFAULT_ROOT = "data"

Format = Literal["npz", "pt", "tables", "npy folder", "tables folder", "collapse folder"]

_SUFFIXES: dict[str, Format] = {
    ".npz": "npz",
    ".pt": "pt",
    ".pth": "pt",
    ".parquet": "tables",
    ".csv": "tables",
    ".csv.gz": "tables",
}
_FORMATS = (
    ".npz, .pt, .parquet, .csv or .csv.gz, a folder of .npy files with edge_index.npy, or a folder with "
    "edges.parquet or edges.csv"
)


GRAPH_FILE = "graph.npz"
"""What ``falcon-gnn collapse`` calls the reduced graph."""


def load_graph(
    source: str | Path,
    *,
    root: str | Path | None = None,
    split: Split | None = None,
    split_index: int | None = None,
    split_shares: tuple[float, float, float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    threshold: float | None = None,
    num_nodes: int | None = None,
    nodes: str | Path | None = None,
    label_column: str | None = None,
    feature_columns: str | Sequence[str] | None = None,
    id_column: str | None = None,
    download: bool = False,
) -> Graph:
    """Return a graph from a known name or from any supported file or folder.

    Args:
        source: A name of :func:`falcon_gnn.datasets.named.dataset_names`, or a path. A name wins over a file in the
            working folder that is called the same; ``./cora`` is the file.
        root: For names: the folder with the raw files; ``data`` by default.
        split: ``"public"``: the source's own masks, which must be there. ``"full"``: train on every node that is
            neither validation nor test. ``"random"``: a seeded split. None: the source's own masks, if any.
        split_index: Which one, where the source holds several splits; None means the masks it marks as its own,
            else split 0.
        split_shares: For ``"random"``: shares of the labelled nodes for training, validation and test.
        seed: For ``"random"``; a whole number of at least 0.
        threshold: For image sets: the cosine above which two images are linked.
        num_nodes: For an edge list without node table: N.
        nodes: For an edge list: the path of its node table.
        label_column: Column or array with the labels, where it is called otherwise than ``y`` or ``label``; for tables
            several with commas, or a pattern such as ``tag_*``, which are multi-label then.
        feature_columns: Columns or arrays with the features, a sequence or one text with commas; ``v*`` stands for all
            that begin with v. A name with a comma in it is taken whole.
        id_column: Column of a node table with the ids that the edges use, where it is not ``node_id``.
        download: For names: fetch the raw files that are missing from their publisher, into ``root``. Nothing is ever
            fetched without it.

    Raises:
        DownloadError: If a file cannot be fetched, or is not the one that it should be.
        GraphError: If what a file holds makes no graph.
        OptionError: If the source is unknown, missing or damaged, or an option is of another kind or does not concern
            it.

    Example:
        >>> graph = load_graph("digits")
        >>> graph.num_nodes, graph.num_edges, int(graph.train_mask.sum())
        (1797, 38540, 1078)
    """
    _check_source(source)
    for name, path in (("source", source), ("root", root), ("nodes", nodes)):
        if path == "":
            msg = f"{name} must be {'a name or ' * (name == 'source')}a path, got ''. '.' is this folder."
            raise OptionError(msg)
    options = SplitOptions(split, split_shares, seed)
    told = LoadOptions(
        split_index=split_index,
        threshold=threshold,
        num_nodes=num_nodes,
        nodes=_as_path(nodes),
        label_column=label_column,
        feature_columns=None if feature_columns is None else as_names("feature_columns", feature_columns),
        id_column=id_column,
        download=download,
    )
    check_kind("root", root, str, os.PathLike, type(None))
    if isinstance(source, str) and source.lower() in dataset_names():
        unused = ("num_nodes", "nodes", "split_index", "label_column", "feature_columns", "id_column")
        _refuse(told, unused, f"the data set {source.lower()}")
        graph = load_named(source.lower(), Path(DEFAULT_ROOT if root is None else root), threshold, download=download)
    else:
        path = _existing(source)
        for name, is_told in (("root", root is not None), ("download", download)):
            if is_told:
                msg = f"{name} is for data sets known by name, got the path {path}. Leave it out."
                raise OptionError(msg)
        graph = _load_path(path, told)
    return apply_split(graph, options)


def detect_format(path: Path) -> Format:
    """Return how a graph is stored at a path that exists, by its name, else by its content.

    Raises:
        OptionError: If it is none of the supported formats.
    """
    if path.is_dir():
        return _folder_format(path)
    for suffix, name in _SUFFIXES.items():
        if path.name.lower().endswith(suffix):
            return name
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            entries = archive.namelist()
        return "pt" if any(entry.endswith("data.pkl") for entry in entries) else "npz"
    msg = f"{path} is in none of the supported formats: {_FORMATS}."
    raise OptionError(msg)


def _folder_format(path: Path) -> Format:
    if (path / "edge_index.npy").exists() or (path / "edges.npy").exists():
        return "npy folder"
    if tables_in(path) is not None:
        return "tables folder"
    if path.suffix == ".parquet":
        return "tables"
    if (path / GRAPH_FILE).is_file():
        return "collapse folder"
    msg = (
        f"{path} holds no graph: it has neither edge_index.npy nor edges.parquet, edges.csv or edges.csv.gz, nor the "
        f"{GRAPH_FILE} of a collapse."
    )
    raise OptionError(msg)


def _load_path(path: Path, told: LoadOptions) -> Graph:
    kind = detect_format(path)
    if kind == "npz":
        return _load_archive(path, told)
    if kind == "collapse folder":
        return _load_archive(path / GRAPH_FILE, told)
    _refuse(told, ("threshold",), f"{path}, which has edges")
    if kind == "tables":
        _check_nodes(told, told.nodes, path)
        return read_tables(TableFiles(path, told.nodes, told.num_nodes), split_index=told.split_index, options=told)
    if kind == "tables folder":
        files = tables_in(path)
        assert files is not None
        nodes = files.nodes if told.nodes is None else told.nodes
        _check_nodes(told, nodes, path)
        return read_tables(TableFiles(files.edges, nodes, told.num_nodes), split_index=told.split_index, options=told)
    _refuse(told, ("num_nodes", "nodes"), str(path))
    if kind == "npy folder":
        return read_folder(path, split_index=told.split_index, options=told)
    from falcon_gnn.interop.pyg_files import read_pt

    _refuse(told, ("id_column",), str(path))
    return read_pt(path, split_index=told.split_index, label_attr=told.label_column, feature_attrs=told.feature_columns)


def _load_archive(path: Path, told: LoadOptions) -> Graph:
    _refuse(told, ("num_nodes", "nodes"), str(path))
    with reading(path, "an .npz graph", NPZ_FIX):
        arrays = read_arrays(path)
        if is_image_archive(list(arrays)):
            _refuse(told, ("split_index", "label_column", "feature_columns", "id_column"), "an image archive")
            return image_graph(arrays, told.threshold)
        _refuse(told, ("threshold",), "a file that has edges")
        return graph_from_arrays(as_layout(arrays, told), told.split_index)


def _check_source(source: Any) -> None:
    """Stop at a graph of another library, and say what reads it."""
    if isinstance(source, str | os.PathLike):
        return
    library = library_of(source)
    fix = f"use falcon_gnn.{GRAPH_READERS[library]}" if library else "docs/data.md names what is read"
    msg = f"source must be a name or a path, got {type(source).__name__}; {fix}."
    raise OptionError(msg)


def _as_path(nodes: Any) -> Path | None:
    if nodes is None or isinstance(nodes, str | os.PathLike):
        return None if nodes is None else Path(nodes)
    msg = f"nodes must be the path of a node table, got {type(nodes).__name__}. Write it to a .parquet or .csv file."
    raise OptionError(msg)


def _existing(source: str | Path) -> Path:
    path = Path(source)
    if path.exists():
        return path
    if isinstance(source, Path) or len(path.parts) > 1 or path.suffix:
        msg = f"source must be a known name or an existing path, and {path} does not exist. Formats: {_FORMATS}."
        raise OptionError(msg)
    close = nearest_name(source)
    hint = f" Did you mean {close!r}?" if close else ""
    msg = f"source must be an existing path or one of {', '.join(dataset_names())}, got {source!r}.{hint}"
    raise OptionError(msg)


def _check_nodes(told: LoadOptions, nodes: Path | None, path: Path) -> None:
    """Stop at a node table that is not there, and at options about its columns where there is none."""
    if nodes is not None and not nodes.exists():
        msg = f"nodes must be the path of a node table, and {nodes} does not exist. Check its name and folder."
        raise OptionError(msg)
    if nodes is None:
        _refuse(told, ("label_column", "feature_columns", "id_column"), f"{path}, which has no node table")


def _refuse(told: LoadOptions, names: tuple[str, ...], source: str) -> None:
    """Say so when an option was given that the source has no use for."""
    for name in names:
        if getattr(told, name) is not None:
            msg = f"{name} has no meaning for {source}, got {getattr(told, name)!r}. Leave it out."
            raise OptionError(msg)
