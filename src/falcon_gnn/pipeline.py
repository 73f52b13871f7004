"""One run: collapse a graph, train on what is left, score it on the original, and record everything."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.outputs import RunOutcome, plain_values, write_run
from falcon_gnn.provenance import describe_machine, describe_versions
from falcon_gnn.reduction.config import CoarsenConfig, CollapseConfig, Scope
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.reduction.grouping import averaging_matrix
from falcon_gnn.reduction.result import CollapseResult
from falcon_gnn.training.configs import TrainConfig

if TYPE_CHECKING:
    from falcon_gnn.planning import MemoryPlan
    from falcon_gnn.training.correction import CorrectedScores
    from falcon_gnn.training.hops import Readout
    from falcon_gnn.training.state import TrainResult

HopsFrom = Literal["reduced", "original"]
OnStage = Callable[[str], None]

CHECKPOINT_FILE = "checkpoint.safetensors"


@dataclass(frozen=True)
class RunConfig:
    """What one run does.

    Attributes:
        training: The model and how to train it.
        reduction: How the training graph is reduced: FALCON, coarsening, or None for the whole training graph.
        scope: What is trained on without a reduction: ``"train"`` the subgraph of the training nodes (as the paper),
            ``"full"`` the whole graph with its training mask; None as a collapse decides. A reduction has its own.
        hops_from: For SIGN models, and a GCN trained on rows: where the survivors' hop features are computed: on the
            ``"reduced"`` graph (the paper) or on the ``"original"`` training graph, which costs no memory in training
            and does not shift the neighborhoods. A survivor of ``merge="mean"``, and a node of a coarsened graph, then
            has the mean over its group.
        protect_training: With scope full: never remove a training node.
        correct_and_smooth: Whether the labels of all training nodes, removed ones too, mend the predictions on the
            original graph, where held-out nodes say that it helps (:mod:`falcon_gnn.training.correction`).
    """

    training: TrainConfig = field(default_factory=TrainConfig)
    reduction: CollapseConfig | CoarsenConfig | None = None
    scope: Scope | None = None
    hops_from: HopsFrom = "reduced"
    protect_training: bool = False
    correct_and_smooth: bool = False

    def __post_init__(self) -> None:
        """Check the combination.

        Raises:
            OptionError: If the hops are wanted from the original graph for a model without hop features.
        """
        if self.hops_from not in get_args(HopsFrom):
            msg = f"hops_from must be one of {', '.join(get_args(HopsFrom))}, got {self.hops_from!r}."
            raise OptionError(msg)
        if self.hops_from == "original" and not self.training.trains_on_rows:
            msg = (
                "hops_from='original' needs a SIGN model, or a gcn with train_on='rows', got "
                f"model={self.training.model.model!r}."
            )
            raise OptionError(msg)

    @classmethod
    def recommended(
        cls,
        training: TrainConfig,
        node_budget: int | float,
        *,
        hops_from: HopsFrom | None = None,
        correct_and_smooth: bool = True,
        **options: Any,
    ) -> "RunConfig":
        """Return a run with the reduction that we recommend for a model; measured in ``docs/budgets.md``.

        By PageRank. SIGN models: survivors of the whole range of ranks, with their hops on the original graph. Models
        that read the reduced graph: :meth:`CollapseConfig.recommended`. Both: predictions corrected by the labels.

        Args:
            training: The model and how to train it.
            node_budget: As in :class:`CollapseConfig`.
            hops_from: As in the class; by default the original graph for SIGN models.
            correct_and_smooth: As in the class.
            options: Fields of :class:`CollapseConfig`; they override the recommendation.
        """
        if hops_from is None:
            hops_from = "original" if training.model.uses_hop_features else "reduced"
        if hops_from == "original" and options.get("groups") != "alike":
            options = {"selection": "stratified", "merge": "hub", **options}
        reduction = CollapseConfig.recommended(node_budget, **options)
        return cls(training, reduction, hops_from=hops_from, correct_and_smooth=correct_and_smooth)

    def with_seed(self, seed: int) -> "RunConfig":
        """Return the same run with another seed for the reduction and the training."""
        reduction = None if self.reduction is None else replace(self.reduction, seed=seed)
        return replace(self, training=replace(self.training, seed=seed), reduction=reduction)

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON-ready values."""
        kind = None if self.reduction is None else type(self.reduction).__name__
        shown = self
        if isinstance(self.reduction, CollapseConfig):
            shown = replace(self, reduction=self.reduction.resolved())
        return {**asdict(shown), "reduction_kind": kind}


def recommended_collapse(training: TrainConfig, node_budget: int | float, **options: Any) -> CollapseConfig:
    """Return the collapse of :meth:`RunConfig.recommended`; arguments as there."""
    reduction = RunConfig.recommended(training, node_budget, **options).reduction
    assert isinstance(reduction, CollapseConfig)
    return reduction


@dataclass(frozen=True)
class MemoryFit:
    """A collapse made to fit a memory budget.

    Attributes:
        plan: The node budget and the number of batches that fit, and the predicted peak.
        result: The collapse, or None where everything fits without one.
    """

    plan: "MemoryPlan"
    result: CollapseResult | None


@dataclass(frozen=True)
class _TrainingGraph:
    """What is trained on, the unreduced graph it comes from, and what of that graph each of its nodes stands for.

    Attributes:
        graph: What is trained on, n nodes.
        source: The unreduced graph, N nodes.
        readout: A node of ``source`` per node, shape ``(n,)``, or where the reduction averages, the weights of its
            group, SciPy CSR of shape ``(n, N)``.
        reduction: How it was reduced, if it was.
    """

    graph: Graph
    source: Graph
    readout: "Readout"
    reduction: CollapseResult | None


def run(
    graph: Graph,
    config: RunConfig,
    *,
    name: str = "",
    memory: str | int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    on_stage: OnStage | None = None,
    log_dir: str | Path | None = None,
    train_with: Callable[..., "TrainResult"] | None = None,
) -> RunOutcome:
    """Reduce, train and score on the original graph.

    Args:
        graph: The original graph, with the masks to train, validate and test on.
        config: What to do.
        name: The graph's name, for the record.
        memory: Bytes that a training step may take, as :func:`falcon_gnn.planning.parse_memory` reads them: sets the
            node budget of ``config.reduction``, which must be a FALCON collapse, and the number of batches.
        out: A folder for the record, the best weights, the learning curve, the map and the report.
        resume: Go on from the checkpoint in ``out``.
        progress: Whether to show a progress bar where standard error is a terminal.
        on_stage: Called with the name of each stage as it begins.
        log_dir: A folder for TensorBoard curves.
        train_with: What trains, with the arguments of :func:`falcon_gnn.training.trainer.train`, which it is by
            default; for several devices a ``functools.partial`` of
            ``falcon_gnn.distributed.data_parallel.train_on_devices``.

    Raises:
        OptionError: If the graph and the options do not fit.
        BudgetError: If the budget does not fit the graph.
    """
    from falcon_gnn.training.trainer import train

    tell = on_stage or (lambda _: None)
    started = perf_counter()
    tell("reduction")
    plan = None
    if memory is None:
        trained_on = reduce_training_graph(graph, config, on_stage)
    else:
        config, trained_on, plan = _fit_training_graph(graph, config, memory, on_stage)
    reduced_at = perf_counter()
    tell("training")
    result = (train_with or train)(
        trained_on.graph,
        config.training,
        eval_graph=graph,
        hop_source=(trained_on.source, trained_on.readout) if config.hops_from == "original" else None,
        checkpoint=None if out is None else Path(out) / CHECKPOINT_FILE,
        resume=resume,
        progress=progress,
        log_dir=log_dir,
    )
    trained_at = perf_counter()
    seconds = {"reduction": reduced_at - started, "training": trained_at - reduced_at}
    corrected = None
    if config.correct_and_smooth:
        tell("correction")
        corrected = _correct(graph, result, config.training, trained_on.reduction)
        seconds["correction"] = perf_counter() - trained_at
    record = _make_record(graph, config, name, trained_on, result, seconds)
    if corrected is not None:
        result = replace(result, spec=corrected.spec)
        _add_corrected_scores(record, corrected)
    if plan is not None:
        record["plan"] = plain_values(
            {**asdict(plan.estimate), "total": plan.estimate.total, "budget": plan.memory_bytes}
        )
    outcome = RunOutcome(record, result, trained_on.reduction)
    if out is not None:
        tell("files")
        write_run(outcome, out)
    return outcome


def _correct(
    graph: Graph, result: "TrainResult", training: TrainConfig, reduction: CollapseResult | None
) -> "CorrectedScores | None":
    """Return what the training labels make of a model's predictions; removed nodes, unless averaged, help to choose."""
    from falcon_gnn.training.correction import choose_correction
    from falcon_gnn.training.steps import resolve_device

    model = result.model().to(resolve_device(training.device))
    unseen = None
    if reduction is not None and reduction.config.merge != "mean":
        unseen = np.setdiff1d(np.arange(graph.num_nodes), reduction.kept, assume_unique=True)
    return choose_correction(model, result.spec, graph, training.validation_metric, unseen)


def _add_corrected_scores(record: dict[str, Any], corrected: "CorrectedScores") -> None:
    """Make the scores of a record those of the corrected predictions, and keep the others beside them."""
    scores = {name: getattr(corrected, name) for name in ("validation", "test")}
    record["correction"] = {
        "correct": corrected.spec.correct,
        "smooth": corrected.spec.smooth,
        "model_alone": record["scores"],
        "labels_alone": plain_values(corrected.labels_alone and asdict(corrected.labels_alone)),
    }
    record["scores"] = {name: plain_values(part and asdict(part)) for name, part in scores.items()}


def reduce_training_graph(graph: Graph, config: RunConfig, on_stage: OnStage | None = None) -> _TrainingGraph:
    """Return the graph that a run trains on."""
    reduction = config.reduction
    scope = config.scope if reduction is None else reduction.scope
    source, scope_ids = _unreduced(graph, scope)
    if reduction is None:
        return _TrainingGraph(source, source, np.arange(len(scope_ids)), None)
    protect = graph.train_mask if config.protect_training else None
    if isinstance(reduction, CoarsenConfig):
        if protect is not None:
            msg = "protect_training needs a FALCON reduction, got coarsening, which has no survivors to protect."
            raise OptionError(msg)
        from falcon_gnn.reduction.coarsening import coarsen

        result: CollapseResult = coarsen(graph, **asdict(reduction), on_stage=on_stage)
    else:
        result = collapse(graph, reduction, protect=protect, on_stage=on_stage)
    return _reduced_graph(source, scope_ids, result)


def fit_collapse(
    graph: Graph,
    reduction: CollapseConfig,
    training: TrainConfig,
    memory: str | int,
    *,
    protect: NDArray[np.bool_] | None = None,
    on_stage: OnStage | None = None,
) -> MemoryFit:
    """Return the largest collapse on which a training step fits a memory budget.

    The edges of the reduced graph are predicted first and counted after the collapse; where there are too many, a
    smaller budget is tried.

    Args:
        graph: The original graph.
        reduction: How to collapse; its ``node_budget`` is replaced.
        training: The model and how it is trained.
        memory: As in :func:`run`.
        protect: As in :func:`falcon_gnn.collapse`.
        on_stage: As in :func:`run`.

    Raises:
        BudgetError: If not even one node fits; names the floor and the smallest change that would fit.
    """
    from falcon_gnn.planning import fit_budget, shrink_to_fit

    if on_stage is not None:
        on_stage("planning")
    plan = fit_budget(graph, training, memory, scope=reduction.scope)
    if not plan.needs_collapse:
        return MemoryFit(plan, None)
    budget: int | None = plan.node_budget
    while budget is not None:
        result = collapse(graph, replace(reduction, node_budget=budget), protect=protect, on_stage=on_stage)
        plan, budget = shrink_to_fit(plan, result.graph)
    return MemoryFit(plan, result)


def _fit_training_graph(
    graph: Graph, config: RunConfig, memory: str | int, on_stage: OnStage | None
) -> tuple[RunConfig, _TrainingGraph, "MemoryPlan"]:
    """Return the run with what fits the memory budget, the graph it trains on, and the plan."""
    if not isinstance(config.reduction, CollapseConfig):
        msg = "memory= sets the node budget of a FALCON collapse; give one: reduction=CollapseConfig(node_budget=1.0)."
        raise OptionError(msg)
    protect = graph.train_mask if config.protect_training else None
    fit = fit_collapse(graph, config.reduction, config.training, memory, protect=protect, on_stage=on_stage)
    config = replace(config, training=fit.plan.training)
    if fit.result is None:
        whole = replace(config, reduction=None, scope=config.reduction.scope if config.reduction else None)
        return whole, reduce_training_graph(graph, whole, on_stage), fit.plan
    source, scope_ids = _unreduced(graph, fit.result.config.scope)
    return replace(config, reduction=fit.result.config), _reduced_graph(source, scope_ids, fit.result), fit.plan


def _reduced_graph(source: Graph, scope_ids: NDArray[np.int64], result: CollapseResult) -> _TrainingGraph:
    readout: Readout = np.searchsorted(scope_ids, result.kept)
    if result.config.merge == "mean":
        readout = averaging_matrix(result.assignment[scope_ids], len(result.kept))
    return _TrainingGraph(result.graph, source, readout, result)


def _unreduced(graph: Graph, scope: str | None) -> tuple[Graph, NDArray[np.int64]]:
    """Return what would be trained on without a reduction, and which input nodes these are."""
    if scope == "full" or graph.train_mask is None:
        return graph, np.arange(graph.num_nodes)
    scope_ids = np.flatnonzero(graph.train_mask)
    return graph.subgraph(scope_ids), scope_ids


def _make_record(
    graph: Graph,
    config: RunConfig,
    name: str,
    trained_on: _TrainingGraph,
    result: "TrainResult",
    seconds: dict[str, float],
) -> dict[str, Any]:
    reduction = trained_on.reduction
    summary = None
    if reduction is not None:
        report = reduction.report
        labels = report.labels
        summary = {
            "num_dropped": report.num_dropped,
            "seconds": report.seconds,
            "label_distribution_error": labels and labels.label_distribution_error,
            "label_distribution_error_relative": labels and labels.label_distribution_error_relative,
        }
    record = {
        "graph": {"name": name, **_sizes(graph)},
        "trained_on": _sizes(trained_on.graph),
        "config": config.to_dict(),
        "reduction": summary,
        "scores": {
            "validation": None if result.validation is None else asdict(result.validation),
            "test": None if result.test is None else asdict(result.test),
        },
        "correction": None,
        "training": {
            "num_epochs": len(result.epochs),
            "best_epoch": result.best_epoch,
            "best_score": result.best_score,
            "stopped_early": result.stopped_early,
            "num_parameters": result.num_parameters,
            "epoch_seconds_quartiles": list(result.epoch_seconds),
        },
        "memory": None if result.memory is None else asdict(result.memory),
        "seconds": seconds,
        "machine": describe_machine(),
        "versions": describe_versions(),
    }
    plain: dict[str, Any] = plain_values(record)
    return plain


def _sizes(graph: Graph) -> dict[str, int]:
    return {"num_nodes": graph.num_nodes, "num_edges": graph.num_edges, "num_features": graph.num_features}
