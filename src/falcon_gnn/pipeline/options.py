"""What one run does: its options, the presets, and the run that a user's options ask for."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self, get_args

from falcon_gnn.checks import check_choice, check_flag, check_kind
from falcon_gnn.errors import BudgetError, OptionError
from falcon_gnn.planning.budget_text import Prefer, parse_memory
from falcon_gnn.reduction.coarsening.config import CoarsenConfig
from falcon_gnn.reduction.config import CollapseConfig, Scope
from falcon_gnn.training.config import ModelConfig, TrainConfig

HopsFrom = Literal["reduced", "original"]
Preset = Literal["paper", "recommended"]

_RECOMMENDED_TRAINING: dict[str, Any] = {"normalize_hops": True, "weight_power": 0.5, "train_on": "graph"}
"""What of a training belongs to the recommended preset."""
_RECOMMENDED_SOFT_LABELS = 0.3
"""Of what trains on rows; the other models were not tried with them."""
_REDUCTIONS: dict[str, type[CollapseConfig | CoarsenConfig]] = {
    "CollapseConfig": CollapseConfig,
    "CoarsenConfig": CoarsenConfig,
}


@dataclass(frozen=True)
class BudgetOptions:
    """How far a graph is reduced, and by whose rules.

    Attributes:
        node_budget: Nodes to keep: a whole number, or a share with a decimal point (0.34).
        memory: In place of a node budget, bytes that a training step may take: ``2GiB``, ``900MB``, or ``80%`` of the
            device's memory.
        prefer: What to keep of a memory budget: all ``nodes``, by taking a step in pieces that change no result, or
            ``speed``, by removing nodes first.
        preset: How to reduce where no option says so: as the ``paper``, or as we found best (``recommended``). The
            latter groups alike nodes, puts features on one scale, lets the root of a group's size count, and trains
            SIGN models and a GCN on means of the original graph's hops, with soft labels.
    """

    node_budget: int | float | None = None
    memory: str | None = None
    prefer: Prefer = "nodes"
    preset: Preset = "paper"

    def __post_init__(self) -> None:
        """Check that there are not two budgets.

        Raises:
            BudgetError: If both are given, ``memory`` is none, or ``prefer`` is told without it.
            OptionError: If a value is not allowed.
        """
        check_choice("prefer", self.prefer, get_args(Prefer))
        if self.node_budget is not None and self.memory is not None:
            msg = f"one of node_budget and memory is needed, got both: {self.node_budget} and {self.memory!r}."
            raise BudgetError(msg)
        if self.memory is None and self.prefer != "nodes":
            msg = f"prefer says what to keep of a memory budget: it needs memory, got prefer={self.prefer!r} alone."
            raise BudgetError(msg)
        if self.memory is not None:
            # How much a share is of the device's is asked where the device is known.
            parse_memory(self.memory, lambda: 1)

    @property
    def nodes(self) -> int | float | None:
        """The node budget, or where a memory budget decides all nodes; None for no budget."""
        return 1.0 if self.memory is not None else self.node_budget

    def required(self) -> int | float:
        """Return :attr:`nodes`.

        Raises:
            BudgetError: If there is no budget.
        """
        if self.nodes is None:
            msg = (
                "one of node_budget (a whole number of nodes, or a share with a decimal point, such as 0.34) and "
                "memory (bytes, such as 2GiB) is needed, got neither."
            )
            raise BudgetError(msg)
        return self.nodes


@dataclass(frozen=True)
class RunConfig:
    """What one run does.

    Attributes:
        training: The model and how to train it.
        reduction: How the training graph is reduced: FALCON, coarsening, or None for the whole training graph. Its
            ``task`` and that of ``training`` are one: where only one is told, both have it.
        scope: What is trained on without a reduction: ``train``, the subgraph of the training nodes (as the paper), or
            ``full``, the whole graph with its training mask; by default as a collapse decides. A reduction has its own.
        hops_from: Where the survivors' hop features come from, for SIGN models and a GCN trained on rows: the
            ``reduced`` graph (the paper) or the ``original`` training graph. The latter costs no memory in training and
            does not shift the neighborhoods. A survivor of ``merge="mean"``, and a node of a coarsened graph, then has
            the mean over its group.
        protect_training: Never remove a training node; with scope full.
        correct_and_smooth: Mend the predictions on the original graph with the labels of all training nodes, where
            held-out nodes say that it helps. The labels of removed nodes count too
            (:mod:`falcon_gnn.training.correction`).
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
            OptionError: If the hops are wanted from the original graph for a model without hop features, or the
                reduction and the training are told different tasks.
        """
        check_kind("training", self.training, TrainConfig)
        check_kind("reduction", self.reduction, CollapseConfig, CoarsenConfig, type(None))
        check_choice("scope", self.scope, (*get_args(Scope), None))
        check_choice("hops_from", self.hops_from, get_args(HopsFrom))
        for name in ("protect_training", "correct_and_smooth"):
            check_flag(name, getattr(self, name))
        if self.hops_from == "original" and not self.training.trains_on_rows:
            msg = (
                "hops_from='original' needs a SIGN model, or a gcn with train_on='rows', got "
                f"model={self.training.model.model!r}."
            )
            raise OptionError(msg)
        if self.reduction is not None and self.reduction.task != self.training.task:
            self._share_task(self.reduction)

    def _share_task(self, reduction: CollapseConfig | CoarsenConfig) -> None:
        told = [task for task in (self.training.task, reduction.task) if task is not None]
        if len(told) > 1:
            msg = (
                f"task must be the same for training and reduction, got {told[0]!r} and {told[1]!r}. Tell one of them."
            )
            raise OptionError(msg)
        object.__setattr__(self, "training", replace(self.training, task=told[0]))
        object.__setattr__(self, "reduction", replace(reduction, task=told[0]))

    @classmethod
    def recommended(
        cls,
        training: TrainConfig,
        node_budget: int | float,
        *,
        hops_from: HopsFrom | None = None,
        correct_and_smooth: bool = False,
        **options: Any,
    ) -> Self:
        """Return a run with the reduction that we recommend for a model, and what of its training belongs to that.

        Groups of alike nodes (:meth:`CollapseConfig.recommended`), features on one scale, and the loss weighted by the
        roots of their sizes. SIGN models and a GCN read means of the original graph's hops and soft labels, the GCN
        being trained on rows; other models, and a GCN with ``concat_self`` or ``column_blocks``, read the reduced
        graph. Chosen by validation scores and judged on other sets in ``docs/judged.md``.

        Args:
            training: The model and how to train it.
            node_budget: As in :class:`CollapseConfig`.
            hops_from: As in the class; by default the original graph for models that train on rows.
            correct_and_smooth: As in the class.
            options: Fields of :class:`CollapseConfig`, and ``normalize_hops``, ``weight_power`` and ``train_on`` of
                :class:`TrainConfig`; they override the recommendation.

        Raises:
            OptionError: If ``training`` is no ``TrainConfig``, or an option is not allowed.
            BudgetError: If the budget is not.
        """
        check_kind("training", training, TrainConfig)
        of_training = {name: options.pop(name) for name in _RECOMMENDED_TRAINING if name in options}
        can_train_on_rows = training.model.model == "gcn" and not training.model.concat_self
        if can_train_on_rows and training.column_blocks == 1 and hops_from != "reduced":
            of_training.setdefault("train_on", "rows")
        training = replace(training, **{**_RECOMMENDED_TRAINING, **of_training})
        if hops_from is None:
            hops_from = "original" if training.trains_on_rows else "reduced"
        if training.trains_on_rows and options.get("cluster_on") != "teacher":
            options.setdefault("soft_labels", _RECOMMENDED_SOFT_LABELS)
        reduction = CollapseConfig.recommended(node_budget, **options)
        return cls(training, reduction, hops_from=hops_from, correct_and_smooth=correct_and_smooth)

    @classmethod
    def of(
        cls, training: TrainConfig, node_budget: int | float | None, given: Mapping[str, Any], preset: Preset = "paper"
    ) -> Self:
        """Return the run that options of a user ask for.

        Args:
            training: The model and how to train it.
            node_budget: As in :class:`CollapseConfig`; None to reduce nothing.
            given: The fields that the user set, of this class, of :class:`CollapseConfig` and of :class:`TrainConfig`.
            preset: What decides the others: ``paper`` or ``recommended``.

        Raises:
            BudgetError: If an option says how to collapse and there is no budget.
            OptionError: If the preset is unknown.
        """
        check_kind("training", training, TrainConfig)
        check_choice("preset", preset, get_args(Preset))
        of_run = {name: value for name, value in given.items() if name in _own_names(cls) and name != "scope"}
        of_collapse = {name: value for name, value in given.items() if name in _own_names(CollapseConfig)}
        scope = given.get("scope")
        if node_budget is None:
            _refuse_without_budget(given, preset)
            return cls(training, scope=scope, **of_run)
        if preset == "recommended":
            of_training = {name: value for name, value in given.items() if name in _RECOMMENDED_TRAINING}
            return cls.recommended(training, node_budget, **of_run, **of_collapse, **of_training)
        return cls(training, CollapseConfig(node_budget, **of_collapse), scope=scope, **of_run)

    def with_seed(self, seed: int) -> Self:
        """Return the same run with another seed for the reduction and the training."""
        reduction = None if self.reduction is None else replace(self.reduction, seed=seed)
        return replace(self, training=replace(self.training, seed=seed), reduction=reduction)

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON-ready values, with those that ``groups`` decides as it does."""
        kind = None if self.reduction is None else type(self.reduction).__name__
        shown = self
        if isinstance(self.reduction, CollapseConfig):
            shown = replace(self, reduction=self.reduction.resolved())
        return {**asdict(shown), "reduction_kind": kind}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the run that :meth:`to_dict` wrote."""
        own = {name: value for name, value in values.items() if name != "reduction_kind"}
        kind = values.get("reduction_kind")
        reduction = None if kind is None else _REDUCTIONS[kind](**own["reduction"])
        return cls(**{**own, "training": TrainConfig.from_dict(own["training"]), "reduction": reduction})


def _own_names(config: type) -> set[str]:
    return {entry.name for entry in fields(config)} - {"training", "reduction", "node_budget"}


_SHARED = {"scope"} | _own_names(TrainConfig) | _own_names(ModelConfig)
"""Options that say something about a training without a collapse as well."""


def _refuse_without_budget(given: Mapping[str, Any], preset: Preset) -> None:
    """Refuse options that say how to collapse where nothing says how far."""
    of_collapse = _own_names(CollapseConfig) | {"hops_from", "protect_training"}
    names = [name for name in given if name in of_collapse and name not in _SHARED]
    for name in ["preset"] * (preset != "paper") + names:
        msg = f"{name} says how to collapse: it needs a node_budget or memory, got neither."
        raise BudgetError(msg)
