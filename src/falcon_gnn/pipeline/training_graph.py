"""The graph that a run trains on: reduced as its options say, or as far as a memory budget asks for."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.pipeline.options import RunConfig
from falcon_gnn.reduction.clock import OnStage
from falcon_gnn.reduction.coarsening.config import CoarsenConfig
from falcon_gnn.reduction.coarsening.door import coarsen
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.reduction.grouping import averaging_matrix
from falcon_gnn.reduction.result import CollapseResult
from falcon_gnn.reduction.scope import part_in_scope
from falcon_gnn.training.config import TrainConfig

if TYPE_CHECKING:
    from falcon_gnn.planning.budget_text import Prefer
    from falcon_gnn.planning.fit import MemoryPlan
    from falcon_gnn.training.hops import Readout
    from falcon_gnn.training.sources import HopSource


@dataclass(frozen=True)
class TrainingGraph:
    """What is trained on.

    Attributes:
        graph: The graph, n nodes.
        reduction: How it was reduced, if it was.
        hop_source: What the hop features are read from in place of ``graph``, made when it is called.
    """

    graph: Graph
    reduction: CollapseResult | None = None
    hop_source: "HopSource | None" = None


@dataclass(frozen=True)
class MemoryFit:
    """A collapse made to fit a memory budget.

    Attributes:
        plan: The node budget and the number of batches that fit, and the predicted peak.
        result: The collapse, or None where everything fits without one.
    """

    plan: "MemoryPlan"
    result: CollapseResult | None


def prepare(
    graph: Graph,
    config: RunConfig,
    memory: str | int | None = None,
    on_stage: OnStage | None = None,
    *,
    prefer: "Prefer" = "nodes",
) -> tuple[RunConfig, TrainingGraph, "MemoryPlan | None"]:
    """Return a run with what a memory budget changes of it, the graph that it trains on, and the plan of the budget.

    Args:
        graph: The original graph.
        config: What the run does.
        memory: As in :func:`falcon_gnn.run`.
        on_stage: Called with the name of each stage as it begins.
        prefer: As in :func:`falcon_gnn.run`.

    Raises:
        GraphError: If the graph lacks what training needs; that is said before it is reduced.
        OptionError: If the graph and the options do not fit.
        BudgetError: If the budget does not fit the graph.
    """
    from falcon_gnn.training.sources import check_trainable

    check_trainable(graph, config.training)
    if memory is None:
        return config, reduce_training_graph(graph, config, on_stage), None
    if not isinstance(config.reduction, CollapseConfig):
        msg = "memory= sets the node budget of a FALCON collapse; give one: reduction=CollapseConfig(node_budget=1.0)."
        raise OptionError(msg)
    protect = graph.train_mask if config.protect_training else None
    fit = fit_collapse(
        graph, config.reduction, config.training, memory, protect=protect, on_stage=on_stage, prefer=prefer
    )
    reduction, config = config.reduction, replace(config, training=fit.plan.training)
    if fit.result is None:
        whole = replace(config, reduction=None, scope=reduction.scope)
        return whole, reduce_training_graph(graph, whole, on_stage), fit.plan
    return replace(config, reduction=fit.result.config), _reduced(graph, config, fit.result), fit.plan


def reduce_training_graph(graph: Graph, config: RunConfig, on_stage: OnStage | None = None) -> TrainingGraph:
    """Return the graph that a run trains on."""
    reduction = config.reduction
    if reduction is None:
        return TrainingGraph(part_in_scope(graph, config.scope)[0])
    protect = graph.train_mask if config.protect_training else None
    if isinstance(reduction, CoarsenConfig):
        if protect is not None:
            msg = "protect_training needs a FALCON reduction, got coarsening, which has no survivors to protect."
            raise OptionError(msg)
        return _reduced(graph, config, coarsen(graph, reduction, on_stage=on_stage))
    return _reduced(graph, config, collapse(graph, reduction, protect=protect, on_stage=on_stage))


def fit_collapse(
    graph: Graph,
    reduction: CollapseConfig,
    training: TrainConfig,
    memory: str | int,
    *,
    protect: NDArray[np.bool_] | None = None,
    on_stage: OnStage | None = None,
    prefer: "Prefer" = "nodes",
) -> MemoryFit:
    """Return the largest collapse on which a training step fits a memory budget.

    The edges of the reduced graph are predicted first and counted after the collapse; where there are too many, a
    smaller budget is tried.

    Args:
        graph: The original graph.
        reduction: How to collapse; its ``node_budget`` is replaced.
        training: The model and how it is trained.
        memory: As in :func:`falcon_gnn.run`.
        protect: As in :func:`falcon_gnn.collapse`.
        on_stage: Called with the name of each stage as it begins.
        prefer: As in :func:`falcon_gnn.run`.

    Raises:
        BudgetError: If not even one node fits; names the floor and the smallest change that would fit.
    """
    from falcon_gnn.planning.fit import fit_budget, shrink_to_fit

    if on_stage is not None:
        on_stage("planning")
    plan = fit_budget(graph, training, memory, scope=reduction.scope, prefer=prefer)
    if not plan.needs_collapse:
        return MemoryFit(plan, None)
    budget: int | None = plan.node_budget
    while budget is not None:
        result = collapse(graph, replace(reduction, node_budget=budget), protect=protect, on_stage=on_stage)
        plan, budget = shrink_to_fit(plan, result.graph)
    return MemoryFit(plan, result)


def original_hops(graph: Graph, result: CollapseResult) -> tuple[Graph, "Readout"]:
    """Return the unreduced training graph, and what of it each node of the reduced one reads.

    Returns:
        The graph, N nodes, and a node of it per reduced node, shape ``(n,)``, or where the reduction averages, the
        weights of its group, SciPy CSR of shape ``(n, N)``.
    """
    source, scope_ids = part_in_scope(graph, result.config.scope)
    if result.config.merge == "mean":
        return source, averaging_matrix(result.assignment[scope_ids], len(result.kept), source.node_weight)
    return source, np.searchsorted(scope_ids, result.kept)


def _reduced(graph: Graph, config: RunConfig, result: CollapseResult) -> TrainingGraph:
    reads_original = config.hops_from == "original"
    return TrainingGraph(result.graph, result, (lambda: original_hops(graph, result)) if reads_original else None)
