"""Collapse a graph that is too big to train on, train memory-lean GNNs on it, and map every node back.

    import falcon_gnn as fg

    graph = fg.load_graph("digits")
    result = fg.collapse(graph, fg.CollapseConfig(node_budget=0.34))
    result.graph, result.assignment, result.report

Everything is imported on first use: ``import falcon_gnn`` loads neither torch nor scikit-learn.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from falcon_gnn.version import __version__ as __version__

if TYPE_CHECKING:
    from falcon_gnn.datasets.load import load_graph
    from falcon_gnn.errors import (
        BudgetError,
        ConvergenceError,
        DownloadError,
        FalconError,
        FalconWarning,
        GraphError,
        MissingDependencyError,
        OptionError,
        OutOfMemoryError,
    )
    from falcon_gnn.graph import Graph
    from falcon_gnn.interop.dgl import from_dgl, to_dgl
    from falcon_gnn.interop.networkx import from_networkx, to_networkx
    from falcon_gnn.interop.pyg import from_pyg, to_pyg
    from falcon_gnn.pipeline.options import RunConfig
    from falcon_gnn.pipeline.outcome import RunOutcome
    from falcon_gnn.pipeline.run import run
    from falcon_gnn.planning.fit import fit_budget
    from falcon_gnn.quantization.hooks import compressed_activations
    from falcon_gnn.reduction.coarsening.config import CoarsenConfig
    from falcon_gnn.reduction.coarsening.door import CoarsenResult, coarsen
    from falcon_gnn.reduction.config import CollapseConfig
    from falcon_gnn.reduction.falcon import collapse
    from falcon_gnn.reduction.report import CollapseReport
    from falcon_gnn.reduction.result import CollapseResult
    from falcon_gnn.reporting.drawing import draw_collapse
    from falcon_gnn.training.config import ModelConfig, TrainConfig


_MODULES: Mapping[str, tuple[str, ...]] = {
    "datasets.load": ("load_graph",),
    "errors": (
        "BudgetError",
        "ConvergenceError",
        "DownloadError",
        "FalconError",
        "FalconWarning",
        "GraphError",
        "MissingDependencyError",
        "OptionError",
        "OutOfMemoryError",
    ),
    "graph": ("Graph",),
    "interop.dgl": ("from_dgl", "to_dgl"),
    "interop.networkx": ("from_networkx", "to_networkx"),
    "interop.pyg": ("from_pyg", "to_pyg"),
    "pipeline.options": ("RunConfig",),
    "pipeline.outcome": ("RunOutcome",),
    "pipeline.run": ("run",),
    "planning.fit": ("fit_budget",),
    "quantization.hooks": ("compressed_activations",),
    "reduction.coarsening.config": ("CoarsenConfig",),
    "reduction.coarsening.door": ("CoarsenResult", "coarsen"),
    "reduction.config": ("CollapseConfig",),
    "reduction.falcon": ("collapse",),
    "reduction.report": ("CollapseReport",),
    "reduction.result": ("CollapseResult",),
    "reporting.drawing": ("draw_collapse",),
    "training.config": ("ModelConfig", "TrainConfig"),
}
_SOURCES = {name: f"falcon_gnn.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "BudgetError",
    "CoarsenConfig",
    "CoarsenResult",
    "CollapseConfig",
    "CollapseReport",
    "CollapseResult",
    "ConvergenceError",
    "DownloadError",
    "FalconError",
    "FalconWarning",
    "Graph",
    "GraphError",
    "MissingDependencyError",
    "ModelConfig",
    "OptionError",
    "OutOfMemoryError",
    "RunConfig",
    "RunOutcome",
    "TrainConfig",
    "coarsen",
    "collapse",
    "compressed_activations",
    "draw_collapse",
    "fit_budget",
    "from_dgl",
    "from_networkx",
    "from_pyg",
    "load_graph",
    "run",
    "to_dgl",
    "to_networkx",
    "to_pyg",
]


def __getattr__(name: str) -> Any:
    """Import a public name on its first use."""
    if name not in _SOURCES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from falcon_gnn.errors import naming_extras

    with naming_extras():
        return getattr(import_module(_SOURCES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
