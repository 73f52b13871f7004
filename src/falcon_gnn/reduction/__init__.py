"""The collapse: centrality, feature-label clusters, budgets, contraction, report."""

from typing import TYPE_CHECKING

from falcon_gnn._lazy import lazy_exports

if TYPE_CHECKING:
    from falcon_gnn.reduction.coarsening import CoarsenResult, coarsen
    from falcon_gnn.reduction.config import CoarsenConfig, CollapseConfig
    from falcon_gnn.reduction.falcon import collapse
    from falcon_gnn.reduction.report import CollapseReport
    from falcon_gnn.reduction.result import CollapseResult
    from falcon_gnn.reduction.spectrum import restricted_spectral_error

__all__ = [
    "CoarsenConfig",
    "CoarsenResult",
    "CollapseConfig",
    "CollapseReport",
    "CollapseResult",
    "coarsen",
    "collapse",
    "restricted_spectral_error",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "CoarsenConfig": "falcon_gnn.reduction.config",
        "CoarsenResult": "falcon_gnn.reduction.coarsening",
        "CollapseConfig": "falcon_gnn.reduction.config",
        "CollapseReport": "falcon_gnn.reduction.report",
        "CollapseResult": "falcon_gnn.reduction.result",
        "coarsen": "falcon_gnn.reduction.coarsening",
        "collapse": "falcon_gnn.reduction.falcon",
        "restricted_spectral_error": "falcon_gnn.reduction.spectrum",
    },
)
