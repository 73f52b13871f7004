"""Search for the collapse options and the hops that score best on the validation nodes."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from falcon_gnn.benchmark.options import make_reduction, make_train_config, merge_options
from falcon_gnn.benchmark.overrides import override_options
from falcon_gnn.errors import FalconError, OptionError, require
from falcon_gnn.graph import Graph
from falcon_gnn.pipeline import RunConfig, run
from falcon_gnn.reduction.config import CollapseConfig

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial, Trial

Sampler = Literal["tpe", "grid"]
OnTrial = Callable[[int, float | None, dict[str, Any]], None]

_DATABASES = (".db", ".sqlite", ".sqlite3")


@dataclass(frozen=True)
class SearchSpace:
    """What is searched; the ranges of γ and of the hops are the paper's.

    Attributes:
        gammas: Values of γ for the grid; TPE draws from their whole range.
        num_hops: Hops of the SIGN models; other models keep the configuration's.
        centralities: Names of centralities.
        num_clusters: Feature-label clusters.
    """

    gammas: tuple[float, ...] = (0.4, 0.45, 0.5, 0.55, 0.6)
    num_hops: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    centralities: tuple[str, ...] = ("degree", "betweenness", "closeness", "pagerank", "eigenvector")
    num_clusters: tuple[int, ...] = (50, 100, 200)

    def __post_init__(self) -> None:
        """Check that there is something to choose from."""
        for name, values in asdict(self).items():
            if not values:
                msg = f"{name} must hold at least one value to try, got none."
                raise OptionError(msg)

    @classmethod
    def of(cls, **values: Sequence[Any] | None) -> Self:
        """Return a space with the values given; what is None or empty keeps its default."""
        return cls(**{name: tuple(given) for name, given in values.items() if given})

    def points(self, *, with_hops: bool) -> dict[str, list[Any]]:
        """Return the values of each searched option."""
        points: dict[str, list[Any]] = {"gamma": list(self.gammas)}
        if with_hops:
            points["num_hops"] = list(self.num_hops)
        return points | {"centrality": list(self.centralities), "num_clusters": list(self.num_clusters)}


@dataclass(frozen=True)
class TuneOptions:
    """How the search goes.

    Attributes:
        space: What is searched.
        num_trials: Trials in all, those of earlier calls with the same storage included; a grid ends when it is full.
        sampler: ``tpe``, or ``grid``: every point of the space once, in random order.
        storage: A file that keeps the trials: a journal, or a database where its name ends in ``.db`` or ``.sqlite``;
            None: memory.
        seed: Of the sampler.
    """

    space: SearchSpace = field(default_factory=SearchSpace)
    num_trials: int = 50
    sampler: Sampler = "tpe"
    storage: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the choices."""
        if self.sampler not in get_args(Sampler):
            msg = f"sampler must be one of {', '.join(get_args(Sampler))}, got {self.sampler!r}."
            raise OptionError(msg)
        if self.num_trials < 1:
            msg = f"num_trials must be at least 1, got {self.num_trials}."
            raise OptionError(msg)


@dataclass(frozen=True)
class TuneResult:
    """What a search found.

    Attributes:
        score: The best validation score.
        params: The options that reached it.
        config: The configuration with them.
        num_trials: Finished trials in the storage.
        num_failed: Trials that ended with an error.
    """

    score: float
    params: dict[str, Any]
    config: RunConfig
    num_trials: int
    num_failed: int


def tune(
    graph: Graph,
    config: RunConfig,
    options: TuneOptions | None = None,
    *,
    name: str = "",
    on_trial: OnTrial | None = None,
) -> TuneResult:
    """Search γ, centrality, clusters and hops by the validation score of a training on the collapsed graph.

    The search can be stopped at any time; called again with the same graph, configuration and storage, it goes on.

    Args:
        graph: The original graph, with validation nodes.
        config: Training and reduction; the searched options are replaced.
        options: How the search goes.
        name: The graph's name; a storage may keep searches on several.
        on_trial: Called after each trial with its number, its score (None if it failed) and its options.

    Raises:
        OptionError: If the configuration has no FALCON reduction, the graph has no validation nodes, or every trial
            failed.
        MissingDependencyError: If optuna is not installed.
    """
    options = options or TuneOptions()
    reduction = _require_reduction(graph, config)
    optuna = require("optuna", "tune")
    points = options.space.points(with_hops=config.training.model.uses_hop_features)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = _study(optuna, name, config, options, points)

        def objective(trial: "Trial") -> float:
            return _score(graph, _with_params(config, reduction, _suggest(trial, points, options.sampler)))

        def tell(_: "Study", trial: "FrozenTrial") -> None:
            if on_trial is not None:
                on_trial(trial.number, trial.value, dict(trial.params))

        left = options.num_trials - _count(study, "COMPLETE") - _count(study, "FAIL")
        if left > 0 and not _is_full(study, points, options.sampler):
            study.optimize(objective, n_trials=left, catch=(FalconError,), callbacks=[tell])
    finally:
        optuna.logging.set_verbosity(verbosity)
    return _result(study, config, reduction)


def search_config(model: str, overrides: Mapping[str, Any], seed: int = 0) -> RunConfig:
    """Return what a search trains: a model on a collapsed graph.

    Args:
        model: Name of the model.
        overrides: Options as :func:`falcon_gnn.benchmark.overrides.parse_overrides` returns them; ``node_budget`` must
            be among them.
        seed: Of every run.

    Raises:
        OptionError: If an option is out of range or the budget is missing.
    """
    options = merge_options(override_options(overrides))
    budget = options["collapse"].get("node_budget")
    if budget is None:
        msg = "node_budget is needed: a whole number of nodes, or a share with a decimal point, such as 0.34."
        raise OptionError(msg)
    config = RunConfig(
        make_train_config("train", model, options), make_reduction("falcon", options, budget), **options["run"]
    )
    return config.with_seed(seed)


def _require_reduction(graph: Graph, config: RunConfig) -> CollapseConfig:
    if not isinstance(config.reduction, CollapseConfig):
        msg = f"reduction must be a CollapseConfig, whose options are searched, got {config.reduction!r}."
        raise OptionError(msg)
    if graph.val_mask is None or not graph.val_mask.any():
        msg = "graph.val_mask must select at least one node: the search goes by the validation score."
        raise OptionError(msg)
    return config.reduction


def _study(optuna: Any, name: str, config: RunConfig, options: TuneOptions, points: dict[str, list[Any]]) -> "Study":
    """Return the study of this search, new or as an earlier call left it."""
    facts = json.dumps([name, config.to_dict(), points, options.sampler], sort_keys=True)
    digest = hashlib.sha256(facts.encode()).hexdigest()[:12]
    study: Study = optuna.create_study(
        study_name=f"{name or 'graph'}-{digest}",
        direction="maximize",
        sampler=_sampler(optuna, options, points),
        storage=_storage(optuna, options.storage),
        load_if_exists=True,
    )
    return study


def _sampler(optuna: Any, options: TuneOptions, points: dict[str, list[Any]]) -> "BaseSampler":
    samplers = optuna.samplers
    sampler: BaseSampler = (
        samplers.GridSampler(points, seed=options.seed)
        if options.sampler == "grid"
        else samplers.TPESampler(seed=options.seed)
    )
    return sampler


def _storage(optuna: Any, path: Path | None) -> "BaseStorage | str | None":
    if path is None:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in _DATABASES:
        return f"sqlite:///{path}"
    journal = require("optuna.storages.journal", "tune")
    storage: BaseStorage = optuna.storages.JournalStorage(journal.JournalFileBackend(str(path)))
    return storage


def _suggest(trial: "Trial", points: dict[str, list[Any]], sampler: Sampler) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for name, values in points.items():
        if name == "gamma" and sampler == "tpe":
            params[name] = trial.suggest_float(name, min(values), max(values))
        else:
            params[name] = trial.suggest_categorical(name, values)
    return params


def _with_params(config: RunConfig, reduction: CollapseConfig, params: dict[str, Any]) -> RunConfig:
    model = config.training.model
    if "num_hops" in params:
        model = replace(model, num_hops=params["num_hops"])
    chosen = replace(reduction, **{key: value for key, value in params.items() if key != "num_hops"})
    return replace(config, training=replace(config.training, model=model), reduction=chosen)


def _score(graph: Graph, config: RunConfig) -> float:
    score = run(graph, config, progress=False).result.best_score
    return math.nan if score is None else score


def _count(study: "Study", state: str) -> int:
    return sum(trial.state.name == state for trial in study.trials)


def _is_full(study: "Study", points: dict[str, list[Any]], sampler: Sampler) -> bool:
    """Whether every point of the grid has been tried; optuna would start over."""
    tried = {tuple(sorted(trial.params.items())) for trial in study.trials if trial.state.name in ("COMPLETE", "FAIL")}
    return sampler == "grid" and len(tried) >= math.prod(len(values) for values in points.values())


def _result(study: "Study", config: RunConfig, reduction: CollapseConfig) -> TuneResult:
    num_done, num_failed = _count(study, "COMPLETE"), _count(study, "FAIL")
    if num_done == 0:
        msg = f"every one of {num_failed} trials failed; run one of them with falcon-gnn train to see why."
        raise OptionError(msg)
    best = study.best_trial
    assert best.value is not None
    return TuneResult(
        score=best.value,
        params=dict(best.params),
        config=_with_params(config, reduction, dict(best.params)),
        num_trials=num_done,
        num_failed=num_failed,
    )
