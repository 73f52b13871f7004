"""One planned run: load the graph, do it, and return its line for the records."""

import os
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from falcon_gnn.benchmark.config import DatasetConfig
from falcon_gnn.benchmark.plan import PlannedRun
from falcon_gnn.datasets.load import load_graph
from falcon_gnn.datasets.named import dataset_names
from falcon_gnn.datasets.splits import SplitOptions, apply_split
from falcon_gnn.datasets.synthetic import SyntheticShape, synthetic_graph
from falcon_gnn.errors import FalconError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.pipeline.run import run, run_reduction
from falcon_gnn.pipeline.shortage import is_out_of_memory
from falcon_gnn.pipeline.training_graph import reduce_training_graph

_GRAPHS_IN_MEMORY = 2
_WARM_UP_NODES = 300


class MissingDataError(Exception):
    """A data set of the benchmark cannot be loaded."""


@dataclass
class Workplace:
    """Where runs are done: the data folder, the conditions, and the graphs loaded last.

    Attributes:
        data: Folder of the graph files.
        num_workers: Processes that run at the same time, for the record.
        download: Whether missing files of named data sets are fetched.
        graphs: Graphs by data set, the latest last.
        warm: Reductions whose kernels have been compiled.
    """

    data: Path
    num_workers: int = 1
    download: bool = False
    graphs: dict[str, Graph] = field(default_factory=dict)
    warm: set[str] = field(default_factory=set)

    def graph(self, dataset: DatasetConfig) -> Graph:
        """Return the graph of a data set, loaded once.

        Raises:
            MissingDataError: If it cannot be loaded.
        """
        key = repr(replace(dataset, options={}))
        if key not in self.graphs:
            while len(self.graphs) >= _GRAPHS_IN_MEMORY:
                self.graphs.pop(next(iter(self.graphs)))
            try:
                self.graphs[key] = load_dataset(dataset, self.data, download=self.download)
            except (FalconError, OSError) as error:
                raise MissingDataError(str(error)) from error
        return self.graphs[key]


def do_run(planned: PlannedRun, place: Workplace) -> dict[str, Any]:
    """Do a run and return its line: a record, an error, or word that its data set is missing.

    Only an interruption is let through.
    """
    started, used = perf_counter(), process_time()
    line: dict[str, Any] = {"id": planned.run_id, "run": planned.name, "seed": planned.seed}
    try:
        graph = place.graph(planned.dataset)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            record = _record(planned, graph, place)
    except MissingDataError as error:
        return {"missing_data": planned.dataset.name, "error": str(error)}
    except Exception as error:
        return line | {"error": f"{type(error).__name__}: {error}", "out_of_memory": is_out_of_memory(error)}
    told = sorted({str(warning.message) for warning in caught})
    conditions = {
        "workers": place.num_workers,
        "threads": _num_threads(),
        "total_seconds": perf_counter() - started,
        "cpu_seconds": process_time() - used,
    }
    return line | {"kind": planned.kind, "conditions": conditions, "warnings": told, "record": record}


def load_dataset(dataset: DatasetConfig, data: Path, *, download: bool = False) -> Graph:
    """Return the graph of a data set.

    Args:
        dataset: What to load or draw.
        data: Folder that its path is relative to; for a known name, the root.
        download: For a known name: whether missing files are fetched.

    Raises:
        DownloadError: If they cannot be.
        OptionError: If it is not there.
        GraphError: If it is unusable.
    """
    told = {
        "split": dataset.split, "split_shares": dataset.split_shares, "seed": dataset.split_seed,
        "split_index": dataset.split_index, "threshold": dataset.threshold,
    }  # fmt: skip
    if dataset.synthetic is not None:
        graph = _draw(dataset, dataset.synthetic)
    elif dataset.source.lower() in dataset_names():
        graph = load_graph(dataset.source, root=data, download=download, **told)  # type: ignore[arg-type]
    else:
        graph = load_graph(data / dataset.source, **told)  # type: ignore[arg-type]
    return _with_normal_rows(graph) if dataset.normalize_rows else graph


def _draw(dataset: DatasetConfig, shape: SyntheticShape) -> Graph:
    for name, value in (("split_index", dataset.split_index), ("threshold", dataset.threshold)):
        if value is not None:
            msg = f"{name} has no meaning for a drawn graph, got {value!r}. Leave it out; new_splits takes random ones."
            raise OptionError(msg)
    options = SplitOptions(dataset.split, dataset.split_shares, dataset.split_seed)
    return apply_split(synthetic_graph(shape), options)


def _record(planned: PlannedRun, graph: Graph, place: Workplace) -> dict[str, Any]:
    if planned.kind in ("train", "resources"):
        return run(graph, planned.config, name=planned.dataset.name, progress=False).to_dict()
    if planned.kind == "collapse_time":
        _warm_up(planned, graph, place)
    return run_reduction(graph, planned.config, name=planned.dataset.name).to_dict()


def _warm_up(planned: PlannedRun, graph: Graph, place: Workplace) -> None:
    """Reduce a small part of the graph once, so that no time holds a compilation."""
    reduction = planned.config.reduction
    assert reduction is not None
    method = f"{planned.dataset.name} {type(reduction).__name__} {getattr(reduction, 'centrality', '')}"
    if method in place.warm:
        return
    nodes = np.arange(graph.num_nodes) if graph.train_mask is None else np.flatnonzero(graph.train_mask)
    small = graph.replace(val_mask=None, test_mask=None).subgraph(nodes[:_WARM_UP_NODES])
    # A piece of the graph can be unfit (an iteration that does not converge, say); the kernels are compiled then.
    with suppress(FalconError):
        reduce_training_graph(small, replace(planned.config, reduction=replace(reduction, node_budget=0.5)))
    place.warm.add(method)


def _with_normal_rows(graph: Graph) -> Graph:
    """Return the graph with each row of its features divided by its sum; rows of zeros stay."""
    from scipy.sparse import csr_array, diags_array, issparse

    assert graph.x is not None
    sums = np.asarray(graph.x.sum(axis=1), np.float64).reshape(-1)
    scale = np.divide(1, sums, out=np.zeros_like(sums), where=sums != 0).astype(np.float32)
    if issparse(graph.x):
        return graph.replace(x=csr_array(diags_array(scale) @ graph.x))
    return graph.replace(x=graph.x * scale[:, None])


def _num_threads() -> int:
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() else os.cpu_count() or 1
