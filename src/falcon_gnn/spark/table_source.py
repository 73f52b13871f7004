"""Where the command's collapse on Spark takes its tables from: Parquet that Spark reads, or a graph sent to it."""

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.datasets.layout import graph_to_arrays
from falcon_gnn.datasets.tables import tables_in
from falcon_gnn.errors import FalconWarning, GraphError, OptionError
from falcon_gnn.graph import ROW_NAMES, Graph
from falcon_gnn.reduction.clock import OnStage
from falcon_gnn.resources import require_memory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class TableSource:
    """A source as the user named it.

    Attributes:
        source: A Parquet edge list, for which ``nodes`` is the node table; a folder, here or behind an address such as
            ``s3a://bucket/graph``, that holds ``nodes.parquet`` and ``edges.parquet``; or whatever ``load`` reads.
        nodes: The node table of an edge list.
        load: Reads a source that is no Parquet, and tells how far it is.
        options: What was told about reading it, by name; None where nothing was.
    """

    source: str
    nodes: Path | None
    load: Callable[[OnStage], Graph]
    options: Mapping[str, object]

    def open(self, spark: "SparkSession", on_stage: OnStage) -> "tuple[DataFrame | str, DataFrame | str]":
        """Return the node and the edge table: the paths of Parquet files, or else the loaded graph sent to Spark.

        Args:
            spark: The session.
            on_stage: Told that a graph is loaded.

        Raises:
            GraphError: If the source cannot be loaded or sent.
            OptionError: If an option does not concern Parquet tables.
        """
        paths = self.find_paths()
        if paths is None:
            return upload_graph(spark, self.load(on_stage))
        for name, value in self.options.items():
            if value is not None:
                msg = f"{name} has no meaning for Parquet tables that Spark reads, got {value!r}. Leave it out."
                raise OptionError(msg)
        return paths

    def check(self) -> None:
        """Look for a local source before Spark is started for nothing.

        Raises:
            OptionError: If a named file or folder is not there.
        """
        looks_local = "://" not in self.source and (Path(self.source).suffix or os.sep in self.source)
        for path in (Path(self.source) if looks_local else None, self.nodes):
            if path is not None and not path.exists():
                msg = f"{path} does not exist. Name a file or folder that is there, or a data set."
                raise OptionError(msg)

    def find_paths(self) -> tuple[str, str] | None:
        """Return the addresses of the node and the edge table where both are Parquet, else None."""
        if "://" in self.source:
            root = self.source.rstrip("/")
            return f"{root}/nodes.parquet", f"{root}/edges.parquet"
        path = Path(self.source)
        found = tables_in(path) if path.is_dir() else None
        edges, nodes = (path, self.nodes) if found is None else (found.edges, self.nodes or found.nodes)
        if nodes is None or not all(table.suffix == ".parquet" and table.exists() for table in (nodes, edges)):
            return None
        return nodes.absolute().as_uri(), edges.absolute().as_uri()


def upload_graph(spark: "SparkSession", graph: Graph) -> "tuple[DataFrame, DataFrame]":
    """Return a graph of the driver as a node and an edge table.

    Ids are a node attribute ``node_id`` of whole numbers where there is one, else 0 to N-1. Sparse features are sent as
    dense ones.

    Raises:
        GraphError: If the ids are of another kind, or dense features exceed the memory.
    """
    from falcon_gnn.spark.frames import upload_columns

    ids = graph.node_attributes.get("node_id", np.arange(graph.num_nodes))
    is_signed = ids.dtype != np.uint64 or int(ids.max(initial=0)) <= np.iinfo(np.int64).max
    if ids.dtype.kind not in "iu" or not is_signed:
        msg = (
            f"node_id must hold whole numbers on Spark, below 2**63, got {ids.dtype}. Number the nodes, or use the "
            "local engine."
        )
        raise GraphError(msg)
    arrays = graph_to_arrays(graph)
    source, target = (ids[arrays["edges"][:, end]].astype(np.int64) for end in (0, 1))
    links = {"source": source, "target": target}
    if "edge_weight" in arrays:
        links["weight"] = arrays["edge_weight"]
    columns = {"node_id": ids.astype(np.int64), **_node_columns(graph)}
    return upload_columns(spark, columns), upload_columns(spark, links)


def _node_columns(graph: Graph) -> dict[str, NDArray[Any]]:
    known = {name: getattr(graph, name) for name in ROW_NAMES} | {"x": _dense(graph.x)}
    columns = {name: _signed(value) for name, value in known.items() if value is not None}
    for name, attribute in graph.node_attributes.items():
        value = _dense(attribute)
        assert value is not None
        if value.ndim > 2:
            msg = f"The node attribute {name} has {value.ndim} dimensions and was not sent to Spark."
            warnings.warn(msg, FalconWarning, stacklevel=3)
        elif name != "node_id":
            columns[name] = _signed(value)
    return columns


def _dense(x: Any) -> NDArray[Any] | None:
    if x is None or isinstance(x, np.ndarray):
        return x
    require_memory(4 * x.shape[0] * x.shape[1], "send sparse features to Spark as dense ones")
    dense: NDArray[Any] = x.astype(np.float32).toarray()
    return dense


def _signed(values: NDArray[Any]) -> NDArray[Any]:
    """Return values of a type that Spark has: no unsigned and no half numbers."""
    if values.dtype.kind == "u":
        return values.astype(np.int64)
    if values.dtype.kind == "T":
        return values.astype(object)
    return values.astype(np.float32) if values.dtype == np.float16 else values
