"""From a benchmark to its runs: each with all its options, its place in the tables and an id that stays the same."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, Self

from falcon_gnn.benchmark.arguments import Choice
from falcon_gnn.benchmark.config import (
    BenchmarkConfig,
    Budget,
    DatasetConfig,
    Kind,
    MethodConfig,
    Options,
    read_config,
)
from falcon_gnn.benchmark.options import make_reduction, make_train_config, merge_options
from falcon_gnn.benchmark.overrides import override_options
from falcon_gnn.checks import check_choice
from falcon_gnn.errors import FalconError, OptionError
from falcon_gnn.pipeline.options import RunConfig
from falcon_gnn.reduction.centrality import ABBREVIATIONS, centrality_name
from falcon_gnn.reduction.config import BY_GROUPS, CollapseConfig

SHORT_CENTRALITIES = {name: short for short, name in ABBREVIATIONS.items()}
"""The paper's abbreviations."""

_FIRST_DEFAULTS: dict[tuple[str, str], Any] = {
    ("ModelConfig", "model"): "gcn",
    ("TrainConfig", "learning_rate"): 0.0005,
    ("TrainConfig", "num_epochs"): 400,
    ("TrainConfig", "patience"): None,
    ("TrainConfig", "measure_memory"): False,
}
"""Defaults of the time when the first records were made, where they have changed since: ids must not."""

_GRAPH_FIELDS = (
    "source", "synthetic", "split", "split_index", "split_shares", "split_seed", "threshold", "normalize_rows",
)  # fmt: skip
"""What of a data set decides its graph."""


@dataclass(frozen=True)
class Cell:
    """A place in the tables; one run per seed belongs to it.

    Attributes:
        dataset: Name of the data set.
        model: Name of the model, empty where nothing is trained.
        method: Name of the method.
        centrality: The paper's abbreviation where the method is run with several, else empty.
        budget: Nodes to keep, a number or a share; None without a reduction.
    """

    dataset: str
    model: str
    method: str
    centrality: str
    budget: Budget | None

    @property
    def name(self) -> str:
        """What a person calls it among the cells of its data set."""
        parts = (self.model, self.method, self.centrality, self.budget)
        return ", ".join(str(part) for part in parts if part not in ("", None))

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Self:
        """Return the cell that a line of a recorded plan describes."""
        return cls(*(line[entry.name] for entry in fields(cls)))


@dataclass(frozen=True)
class PlannedRun:
    """A run to be done.

    Attributes:
        run_id: Twelve hexadecimal digits that stand for everything that decides the outcome.
        kind: What is done.
        dataset: The graph.
        cell: Its place in the tables.
        paper_reduction: Name of the method in the paper's tables, or None.
        config: The options, seed included.
    """

    run_id: str
    kind: Kind
    dataset: DatasetConfig
    cell: Cell
    paper_reduction: str | None
    config: RunConfig

    @property
    def seed(self) -> int:
        """The seed of the reduction and the training."""
        return self.config.training.seed

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"{self.cell.dataset}, {self.cell.name}, seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """A benchmark and its runs, those of one data set one after the other; cells may share a run, by its id."""

    config: BenchmarkConfig
    runs: tuple[PlannedRun, ...]


def make_plan(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Plan:
    """Return the runs that a configuration file asks for.

    Args:
        path: The TOML file.
        overrides: As :func:`falcon_gnn.benchmark.overrides.parse_overrides` returns them.

    Raises:
        OptionError: If a key or an option is unknown or out of range; the message names the file and the run.
    """
    config = read_config(path, overrides)
    runs = chain.from_iterable(
        _method_runs(config, dataset, method) for dataset in config.datasets for method in config.methods
    )
    return Plan(config, tuple(runs))


def choose_runs(runs: tuple[PlannedRun, ...], choice: Choice) -> tuple[PlannedRun, ...]:
    """Return the runs whose labels are among the chosen values; a centrality is called by either of its names.

    Raises:
        OptionError: If no run has a value, or any of its label.
    """
    labels = [_labels(run) for run in runs]
    wanted: dict[str, set[str]] = {}
    for label, values in choice.items():
        known = list(dict.fromkeys(found[label] for found in labels if found[label]))
        if not known:
            msg = f"--only {label} fits no run here: they do not differ in it. Leave it out."
            raise OptionError(msg)
        wanted[label] = {SHORT_CENTRALITIES.get(value, value).lower() for value in values}
        for value in sorted(wanted[label]):
            check_choice(f"--only {label}", value, known)
    return tuple(
        run
        for run, found in zip(runs, labels, strict=True)
        if all(found[label] in values for label, values in wanted.items())
    )


def _labels(run: PlannedRun) -> dict[str, str]:
    """Return what a run can be chosen by, in small letters."""
    return {label: str(value).lower() for label, value in {**asdict(run.cell), "seed": run.seed}.items()}


def run_id_of(kind: Kind, dataset: DatasetConfig, config: RunConfig) -> str:
    """Return the id of a run, the same on every machine.

    Options at the default they first had do not enter it, so that a new option, or a new default, leaves the ids of
    earlier records as they are; nor do the training's where nothing is trained, nor a data set's name and notes.
    """
    graph = {name: value for name, value in _changed(dataset).items() if name in _GRAPH_FIELDS}
    facts: dict[str, Any] = {"kind": kind, "graph": graph}
    reduction = config.reduction
    facts["reduction"] = [type(reduction).__name__, _changed(reduction)]
    if isinstance(reduction, CollapseConfig):
        # Given or not: what is as the rule of grouping has it does not enter.
        usual = BY_GROUPS[reduction.groups]
        changed = facts["reduction"][1]
        facts["reduction"][1] = {name: value for name, value in changed.items() if value != usual.get(name, ...)}
    facts["run"] = {"scope": config.scope, "protect_training": config.protect_training}
    if kind in ("train", "resources"):
        facts["run"]["hops_from"] = config.hops_from
        if config.correct_and_smooth:
            facts["run"]["correct_and_smooth"] = True
        facts["training"] = _changed(config.training)
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _method_runs(config: BenchmarkConfig, dataset: DatasetConfig, method: MethodConfig) -> Iterator[PlannedRun]:
    """Yield the runs of one method on one data set: budgets, centralities, models, seeds."""
    options = merge_options(config.options, dataset.options, method.options, override_options(config.overrides))
    models = _models(config, dataset, method)
    seeds = config.seeds if dataset.seeds is None or "seeds" in config.overrides else dataset.seeds
    for budget in _budget_axis(config, dataset, method, options):
        for centrality in method.centralities or ("",):
            for model in models:
                base = _run_config(config, dataset, method, options, (budget, centrality, model))
                cell = _cell(dataset, method, base, model, bool(centrality))
                for seed in seeds:
                    run, graph = base.with_seed(seed), dataset.for_seed(seed)
                    run_id = run_id_of(config.kind, graph, run)
                    yield PlannedRun(run_id, config.kind, graph, cell, method.paper, run)


def _models(config: BenchmarkConfig, dataset: DatasetConfig, method: MethodConfig) -> tuple[str, ...]:
    if not config.trains:
        return ("",)
    models = config.models if dataset.models is None or "models" in config.overrides else dataset.models
    return tuple(model for model in models if method.models is None or model in method.models)


def _budget_axis(
    config: BenchmarkConfig, dataset: DatasetConfig, method: MethodConfig, options: Options
) -> tuple[Budget | None, ...]:
    if method.reduction == "none":
        return (None,)
    budgets = config.budgets if dataset.budgets is None or "budgets" in config.overrides else dataset.budgets
    own = options["collapse"].get("node_budget")
    if not budgets and own is None:
        msg = f"{config.name}: {dataset.name} needs budgets, or collapse.node_budget, for the method {method.name!r}."
        raise OptionError(msg)
    return budgets or (own,)


def _run_config(
    config: BenchmarkConfig,
    dataset: DatasetConfig,
    method: MethodConfig,
    options: Options,
    point: tuple[Budget | None, str, str],
) -> RunConfig:
    budget, centrality, model = point
    try:
        return RunConfig(
            training=make_train_config(config.kind, model, options),
            reduction=make_reduction(method.reduction, options, budget, centrality),
            **options["run"],
        )
    except (FalconError, TypeError) as error:
        labels = ", ".join(str(part) for part in (dataset.name, model, method.name, centrality) if part)
        msg = f"{config.name}: {labels}: {error}"
        raise OptionError(msg) from error


def _cell(dataset: DatasetConfig, method: MethodConfig, config: RunConfig, model: str, names_centrality: bool) -> Cell:
    reduction = config.reduction
    centrality = ""
    if names_centrality and isinstance(reduction, CollapseConfig):
        name = centrality_name(reduction.centrality)
        centrality = SHORT_CENTRALITIES.get(name, name)
    budget = None if reduction is None else reduction.node_budget
    return Cell(dataset.name, model, method.name, centrality, budget)


def _changed(config: Any) -> Any:
    """Return the fields of a nested dataclass that differ from the default they first had, JSON-ready."""
    if not dataclasses.is_dataclass(config):
        return config
    changed = {}
    for entry in dataclasses.fields(config):
        value = getattr(config, entry.name)
        default = _FIRST_DEFAULTS.get((type(config).__name__, entry.name), entry.default)
        has_default = default is not dataclasses.MISSING and value == default
        if not has_default:
            changed[entry.name] = _changed(value)
    return {name: value for name, value in changed.items() if value != {}}
