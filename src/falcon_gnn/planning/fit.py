"""From bytes to a training that fits: the same step in pieces, then bits, then fewer nodes (Eq. 1, Ψ in bytes)."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from math import ceil
from typing import Any, get_args

import numpy as np

from falcon_gnn.checks import check_choice, check_kind
from falcon_gnn.errors import BudgetError
from falcon_gnn.graph import Graph
from falcon_gnn.graph_checks import require_graph
from falcon_gnn.planning.budget_text import Prefer, device_memory, parse_memory
from falcon_gnn.planning.estimate import (
    MemoryEstimate,
    estimate_batch,
    estimate_evaluation,
    estimate_memory,
)
from falcon_gnn.planning.ways import exact_ways, relative_time
from falcon_gnn.reduction.config import Scope
from falcon_gnn.reduction.scope import part_in_scope
from falcon_gnn.resources import format_bytes
from falcon_gnn.training.config import DEFAULT_PIECE_BYTES, ModelName, TrainConfig
from falcon_gnn.training.evaluation_shapes import EvaluationShape, evaluation_of_graph
from falcon_gnn.training.shapes import GraphShape, kept_bytes, row_batch, shape_of_graph
from falcon_gnn.training.usual_torch import usual_torch
from falcon_gnn.training.workspace import workspace_bytes

FEWEST_BATCH_ROWS = 1_024
"""Rows below which a batch of a SIGN model is not made smaller to keep more nodes."""

_FEWEST_PART_BATCHES = 10
_SMALLEST_PIECE_BYTES = DEFAULT_PIECE_BYTES // 4**6
_FEWEST_BITS = 2
_TABLE_CLOSENESS = 0.005
"""Share of a budget that a plan for comparison may leave: each prediction of a large step takes a second."""
_STANDARD: tuple[tuple[ModelName, int | None], ...] = (
    ("gcn", None), ("gcn", 2), ("cluster-gcn", None), ("cluster-gcn", 2), ("gas", None), ("gas", 2),
    ("sign", None), ("qsign", 2),
)  # fmt: skip


@dataclass(frozen=True)
class MemoryPlan:
    """The largest training that fits a memory budget.

    Attributes:
        memory_bytes: The budget.
        node_budget: Nodes to keep, at most the nodes to train on.
        num_nodes: Nodes to train on without a collapse.
        num_edges: Edges expected among the kept nodes.
        training: The configuration with batches, micro-batches, blocks and bits chosen.
        estimate: The predicted peak of its training step.
        evaluation_bytes: The predicted peak of an evaluation on the original graph; 0 where none was asked for.
        relative_time: Predicted time of an epoch in that of the whole graph without pieces and bits, from the products
            of matrices and the codec.
    """

    memory_bytes: int
    node_budget: int
    num_nodes: int
    num_edges: int
    training: TrainConfig
    estimate: MemoryEstimate
    relative_time: float
    evaluation_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """The predicted peak of the training, whichever phase it is in."""
        return max(self.estimate.total, self.evaluation_bytes)

    @property
    def needs_collapse(self) -> bool:
        """Whether anything has to be removed."""
        return self.node_budget < self.num_nodes

    def describe(self) -> str:
        """Return one sentence for the user."""
        peak = f"predicted peak {format_bytes(self.peak_bytes)} of {format_bytes(self.memory_bytes)}"
        batches = self.describe_batches()
        if not self.needs_collapse:
            return f"All {self.num_nodes:,} nodes fit in {batches} ({peak}); nothing needs to be collapsed."
        return f"{self.node_budget:,} of {self.num_nodes:,} nodes fit in {batches} ({peak})."

    def describe_batches(self) -> str:
        """Return in how many batches and pieces the nodes are gone through."""
        training = self.training
        batches = f"{training.num_batches} batch{'es' if training.num_batches > 1 else ''}"
        if training.micro_batches > 1:
            return f"{batches}, each in {training.micro_batches} pieces"
        return f"{batches}, {training.column_blocks} blocks of columns" if training.column_blocks > 1 else batches


def fit_budget(
    graph: Graph,
    config: TrainConfig,
    memory: str | int,
    *,
    scope: Scope | None = None,
    choose_batches: bool = True,
    prefer: Prefer = "nodes",
    closeness: float = 0.0,
) -> MemoryPlan:
    """Return the fastest training of all nodes that fits a memory budget, or of as many as fit, by prediction.

    What changes no number comes first: micro-batches of rows, blocks of columns (:mod:`falcon_gnn.planning.ways`).
    Then, for a GCN without bits, activations at 2 bits, whole and by columns; then, for the SIGN models, more and
    smaller batches of at least 1,024 rows; then nodes are given up.

    Args:
        graph: The original graph.
        config: The model and how it is trained.
        memory: The budget, as :func:`parse_memory` reads it.
        scope: As in :class:`~falcon_gnn.reduction.config.CollapseConfig`.
        choose_batches: Whether the number of batches of a SIGN model may be raised.
        prefer: ``nodes``, or ``speed``, which gives up nodes before it takes a step in pieces.
        closeness: Share of the budget that may be left where nodes are given up.

    Raises:
        GraphError: If ``graph`` is no ``Graph``, or lacks what training needs.
        OptionError: If another argument is of another kind.
        BudgetError: If ``memory`` is no budget, or not even one node fits; names the floor and the smallest change that
            would fit.
    """
    require_graph(graph, Graph)
    check_kind("config", config, TrainConfig)
    check_choice("prefer", prefer, get_args(Prefer))
    budget = parse_memory(memory, partial(device_memory, config.device))
    shapes = _Shapes(graph, scope)
    with usual_torch():
        return shapes.fit(config, budget, choose_batches=choose_batches, prefer=prefer, closeness=closeness)


def fit_shape(
    whole: GraphShape,
    config: TrainConfig,
    budget: int,
    scored: EvaluationShape | None = None,
    *,
    choose_batches: bool = True,
    prefer: Prefer = "nodes",
    closeness: float = 0.0,
) -> MemoryPlan:
    """Return the training of a graph, given by its shape, whose step fits ``budget`` bytes, and its evaluations.

    Other arguments and errors as in :func:`fit_budget`.

    Args:
        whole: What may be trained on.
        config: The model and how it is trained.
        budget: Bytes.
        scored: The original graph, on which the model is scored; None for steps alone.
        choose_batches: Whether the number of batches of a SIGN model may be raised.
        prefer: What is given up first.
        closeness: Share of the budget that may be left.
    """
    config = _fit_evaluation(config, budget, scored)
    if prefer == "nodes":
        chosen, leanest = _fit_whole(whole, config, budget)
        if chosen is not None:
            return _plan(whole, chosen, budget, whole.num_nodes, scored)
        config = leanest
    if config.trains_on_rows:
        return _fit_rows(whole, config, budget, scored, choose_batches=choose_batches)

    @cache
    def peak(num_nodes: int) -> int:
        return estimate_memory(whole.with_nodes(num_nodes), config).total

    largest = _largest_fitting(peak, _fewest_nodes(config), whole.num_nodes, budget, closeness)
    if largest == 0:
        raise _floor_error(whole, config, budget)
    return _plan(whole, config, budget, largest, scored)


class _Shapes:
    """The shapes of a graph for several configurations: bits change none, so that each is found once for two of them.

    Args:
        graph: The original graph.
        scope: As in :func:`fit_budget`.
    """

    def __init__(self, graph: Graph, scope: Scope | None) -> None:
        self._graph, self._part = graph, part_in_scope(graph, scope)[0]
        self._trained: dict[TrainConfig, GraphShape] = {}
        self._scored: dict[TrainConfig, EvaluationShape] = {}

    def fit(self, config: TrainConfig, budget: int, **how: Any) -> MemoryPlan:
        """Return the training that fits; other arguments and errors as in :func:`fit_shape`."""
        name = "sign" if config.model.model == "qsign" else config.model.model
        exact = replace(config, model=replace(config.model, model=name, bits=None))
        if exact not in self._trained:
            self._trained[exact] = shape_of_graph(self._part, exact, self._graph)
        scored = _as_scored(exact)
        if scored not in self._scored:
            self._scored[scored] = shape_of_scoring(self._graph, scored)
        return fit_shape(self._trained[exact], config, budget, self._scored[scored], **how)


def shape_of_scoring(graph: Graph, config: TrainConfig) -> EvaluationShape:
    """Return what the memory of scoring a model on the original graph depends on."""
    return evaluation_of_graph(graph, shape_of_graph(graph, _as_scored(config), graph))


def _as_scored(config: TrainConfig) -> TrainConfig:
    """Return the configuration of the model that is scored: the full-batch GCN that the models of parts approximate."""
    if not config.model.uses_parts:
        return config
    model = replace(config.model, model="gcn", num_parts=None)
    return replace(config, model=model, num_batches=1, micro_batches=1, column_blocks=1)


def _fit_evaluation(config: TrainConfig, budget: int, scored: EvaluationShape | None) -> TrainConfig:
    """Return the configuration with pieces of an evaluation that fit: of 16 MiB, a quarter, and so on.

    Raises:
        BudgetError: If the smallest do not fit; no collapse makes an evaluation smaller.
    """
    if scored is None:
        return config
    while (needed := estimate_evaluation(scored, config)) > budget:
        if config.eval_piece_bytes <= _SMALLEST_PIECE_BYTES:
            msg = (
                f"memory must be at least {format_bytes(needed, round_up=True)} to score the model on the original "
                f"graph ({scored.graph.num_nodes:,} nodes) between epochs, got {format_bytes(budget)}. A collapse does "
                "not make that smaller. Raise the memory, or lower hidden_channels."
            )
            raise BudgetError(msg)
        config = replace(config, eval_piece_bytes=config.eval_piece_bytes // 4)
    return config


def _fit_whole(whole: GraphShape, config: TrainConfig, budget: int) -> tuple[TrainConfig | None, TrainConfig]:
    """Return the fastest way to train on all nodes that fits, None if none does; and the leanest one."""

    @cache
    def peak(way: TrainConfig) -> int:
        return estimate_memory(whole, way).total

    families = _families(whole, config)
    if config.model.bits is None and not config.model.uses_hop_features and config.train_on == "graph":
        coded = replace(config, model=replace(config.model, bits=_FEWEST_BITS), column_blocks=1)
        families += _families(whole, coded)
    for family in families:
        fastest = _fastest_fitting(family, peak, budget)
        if fastest is not None:
            return fastest, family[-1]
    return None, min((family[-1] for family in families), key=peak)


def _fastest_fitting(family: list[TrainConfig], peak: Callable[[TrainConfig], int], budget: int) -> TrainConfig | None:
    """Return the fastest way of a family that fits, None if none does."""

    def fits(way: TrainConfig) -> bool:
        return peak(way) <= budget

    # The unsplit step of a whole graph, whose prediction takes longest, is looked at only where the next leaner fits.
    if (len(family) == 1 or family[0].num_batches > 1) and fits(family[0]):
        return family[0]
    if len(family) == 1:
        return None
    if fits(family[1]):
        return family[0] if fits(family[0]) else family[1]
    return _first_fitting(family, peak, budget)


def _first_fitting(family: list[TrainConfig], peak: Callable[[TrainConfig], int], budget: int) -> TrainConfig | None:
    """Return the first way that fits, the second does not; None if none does.

    The peak is nearly linear in the share of the matrix that a piece is, so that two ways tell where the next lies.
    """

    def share(way: TrainConfig) -> float:
        return 1 / max(way.micro_batches, way.column_blocks)

    too_large, fits, last = 1, len(family), len(family) - 1
    # Before two ways are known: as if pieces made all of the peak smaller, which is too good and so never too far.
    near, other = (share(family[1]), peak(family[1])), (0.0, 0)
    while fits - too_large > 1 and too_large < last:
        slope = (near[1] - other[1]) / (near[0] - other[0])
        wanted = near[0] + (budget - near[1]) / slope if slope > 0 else 0.0
        guess = bisect_left(family, -wanted, key=lambda way: -share(way))
        guess = min(max(guess, too_large + 1), fits - 1)
        near, other = (share(family[guess]), peak(family[guess])), near
        if near[1] <= budget:
            fits = guess
        else:
            too_large = guess
    return family[fits] if fits <= last else None


def _families(whole: GraphShape, config: TrainConfig) -> list[list[TrainConfig]]:
    """Return the ways of a configuration; the first family begins with the unsplit step."""
    first, *others = exact_ways(whole, config) or [[]]
    return [[config, *first], *others]


def plan_models(
    graph: Graph,
    configs: Mapping[str, TrainConfig],
    memory: str | int,
    *,
    scope: Scope | None = None,
    prefer: Prefer = "nodes",
) -> dict[str, "MemoryPlan | BudgetError"]:
    """Return what fits a memory budget for several configurations, side by side.

    Args:
        graph: The original graph.
        configs: Configurations by name.
        memory: As in :func:`fit_budget`.
        scope: As in :func:`fit_budget`.
        prefer: As in :func:`fit_budget`.

    Returns:
        A plan per name, or the error that says why nothing fits.

    Raises:
        BudgetError: If ``memory`` is not a budget.
    """
    plans: dict[str, MemoryPlan | BudgetError] = {}
    shapes = _Shapes(graph, scope)
    for name, config in configs.items():
        budget = parse_memory(memory, partial(device_memory, config.device))
        try:
            plans[name] = shapes.fit(config, budget, prefer=prefer, closeness=_TABLE_CLOSENESS)
        except BudgetError as error:
            plans[name] = error
    return plans


def predict_curve(
    graph: Graph, config: TrainConfig, *, scope: Scope | None = None, num_points: int = 5
) -> tuple[list[int], list[int]]:
    """Return node budgets from a tenth of the training nodes to all, and the predicted peak at each, in bytes."""
    whole = shape_of_graph(part_in_scope(graph, scope)[0], config, graph)
    budgets = np.unique(np.linspace(max(2, whole.num_nodes / 10), whole.num_nodes, num_points).astype(int)).tolist()
    return budgets, [estimate_memory(whole.with_nodes(budget), config).total for budget in budgets]


def standard_configs(config: TrainConfig, num_batches: int = 1) -> dict[str, TrainConfig]:
    """Return the models and bits worth comparing, otherwise trained as ``config`` says.

    Args:
        config: The sizes and the training.
        num_batches: Batches per epoch of all models but the full-batch GCN; Cluster-GCN and GAS have at least 10.
    """
    chosen: dict[str, TrainConfig] = {}
    for model, bits in _STANDARD:
        spec = replace(config.model, model=model, bits=bits, concat_self=False)
        name = model if bits is None else f"{model}, {bits} bits"
        fewest = _FEWEST_PART_BATCHES if spec.uses_parts else 1
        batches = 1 if model == "gcn" else max(num_batches, fewest)
        chosen[name] = replace(config, model=spec, num_batches=batches, micro_batches=1, column_blocks=1)
    return chosen


def shrink_to_fit(plan: MemoryPlan, reduced: Graph) -> tuple[MemoryPlan, int | None]:
    """Return the plan as the collapsed graph turned out, and a smaller node budget where it does not fit, else None.

    Args:
        plan: The plan that the graph was collapsed for.
        reduced: The collapsed graph, whose edges and sparse features were estimated.
    """
    actual = shape_of_graph(reduced, plan.training)
    if estimate_memory(actual, plan.training).total > plan.memory_bytes and kept_bytes(actual, plan.training):
        plan = replace(plan, training=replace(plan.training, features_on="host"))
    estimate = estimate_memory(actual, plan.training)
    found = replace(
        plan,
        node_budget=reduced.num_nodes,
        num_edges=reduced.num_edges,
        estimate=estimate,
        relative_time=relative_time(actual, plan.training) * reduced.num_nodes / plan.num_nodes,
    )
    if estimate.total <= plan.memory_bytes:
        return found, None
    smaller = fit_shape(actual, plan.training, plan.memory_bytes, choose_batches=False, prefer="speed").node_budget
    return found, min(smaller, reduced.num_nodes - 1)


def _fit_rows(
    whole: GraphShape, config: TrainConfig, budget: int, scored: EvaluationShape | None, *, choose_batches: bool
) -> MemoryPlan:
    """Fit a SIGN model, whose step depends on the rows of a batch only."""

    @cache
    def peak(num_rows: int) -> int:
        return estimate_batch(whole, row_batch(num_rows), config).total

    num_nodes = whole.num_nodes
    rows = _largest_fitting(peak, _fewest_nodes(config), num_nodes, budget)
    if rows == 0:
        raise _floor_error(whole, config, budget)
    num_batches = config.batches_of_rows(num_nodes)
    if choose_batches and ceil(num_nodes / num_batches) > rows:
        fewest_rows = min(FEWEST_BATCH_ROWS, rows)
        num_batches = max(num_batches, min(ceil(num_nodes / rows), num_nodes // fewest_rows))
    chosen = replace(config, num_batches=num_batches)
    return _plan(whole, chosen, budget, min(num_nodes, rows * num_batches), scored)


def _plan(
    whole: GraphShape, config: TrainConfig, budget: int, node_budget: int, scored: EvaluationShape | None
) -> MemoryPlan:
    kept = whole.with_nodes(node_budget)
    evaluation = 0 if scored is None else estimate_evaluation(scored, config)
    config = _place_features(kept, config, budget, evaluation)
    estimate = estimate_memory(kept, config)
    time = relative_time(kept, config) * node_budget / whole.num_nodes
    evaluation += kept_bytes(kept, config) if evaluation else 0
    return MemoryPlan(budget, node_budget, whole.num_nodes, kept.num_edges, config, estimate, time, evaluation)


def _place_features(shape: GraphShape, config: TrainConfig, budget: int, evaluation: int) -> TrainConfig:
    """Return the configuration with features on the device if they fit beside a step and beside an evaluation."""
    on_device = replace(config, features_on="device")
    num_bytes = kept_bytes(shape, on_device)
    if config.features_on != "auto" or not num_bytes:
        return config
    fits = max(estimate_memory(shape, config).total, evaluation) + num_bytes <= budget
    return on_device if fits else replace(config, features_on="host")


def _fewest_nodes(config: TrainConfig) -> int:
    """Return the smallest batch a step can be taken on: batch norm needs two rows."""
    return 2 if config.model.batch_norm else 1


def _largest_fitting(peak: Callable[[int], int], least: int, most: int, budget: int, closeness: float = 0.0) -> int:
    """Return an n in [least, most] with ``peak(n) <= budget``, 0 if there is none; ``peak`` never falls.

    It is the largest, or one that leaves at most the share ``closeness`` of the budget.
    """
    if peak(most) <= budget:
        return most
    if most <= least or peak(least) > budget:
        return 0
    fits, too_large = least, most
    is_halving = False
    while too_large - fits > 1 and budget - peak(fits) > closeness * budget:
        width = too_large - fits
        # The peak is nearly linear in n, so the line between the ends meets the budget close to the answer.
        rise = (budget - peak(fits)) / (peak(too_large) - peak(fits))
        guess = (fits + too_large) // 2 if is_halving else fits + int(rise * width)
        guess = min(max(guess, fits + 1), too_large - 1)
        if peak(guess) <= budget:
            fits = guess
        else:
            too_large = guess
        is_halving = not is_halving and too_large - fits > width // 2
    return fits


def _floor_error(whole: GraphShape, config: TrainConfig, budget: int) -> BudgetError:
    """Return the error for a budget that not even one node fits, with the smallest change that would."""
    floor = estimate_memory(_smallest(whole, config), config)
    fixed = floor.weights + floor.gradients + floor.optimizer
    needed = format_bytes(floor.total, round_up=True)
    hint = f"raise the memory to {needed}"
    hidden = _largest_hidden(whole, config, budget)
    if hidden:
        hint += f", or lower hidden_channels from {config.model.hidden_channels} to {hidden}"
    msg = (
        f"memory must be at least {needed} for the smallest step, {format_bytes(fixed)} of it for weights, gradients "
        f"and optimizer and {format_bytes(workspace_bytes(config))} for the matrix libraries' workspace, got "
        f"{format_bytes(budget)}. To fit, {hint}."
    )
    return BudgetError(msg)


def _smallest(whole: GraphShape, config: TrainConfig) -> GraphShape:
    return whole.with_nodes(min(whole.num_nodes, _fewest_nodes(config)))


def _largest_hidden(whole: GraphShape, config: TrainConfig, budget: int) -> int:
    def peak(hidden: int) -> int:
        narrower = replace(config, model=replace(config.model, hidden_channels=hidden))
        return estimate_memory(_smallest(whole, config), narrower).total

    return _largest_fitting(peak, 1, config.model.hidden_channels, budget)
