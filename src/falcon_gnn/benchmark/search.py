"""Search for the collapse options and the hops that score best on the validation nodes."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from falcon_gnn.benchmark.arguments import Sampler, TuneOptions
from falcon_gnn.errors import FalconError, OptionError, require
from falcon_gnn.files import check_writable, saying_where
from falcon_gnn.graph import Graph
from falcon_gnn.labels import infer_task, labelled_nodes
from falcon_gnn.pipeline.options import RunConfig
from falcon_gnn.pipeline.run import run
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.falcon import check_budget
from falcon_gnn.training.checkpoint import fingerprint
from falcon_gnn.training.sources import check_trainable

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial, Trial

OnTrial = Callable[[int, float | None, dict[str, Any]], None]

_DATABASES = (".db", ".sqlite", ".sqlite3")
_SQLITE = b"SQLite format 3\0"
"""How every database of SQLite begins."""
_LONGEST_LINE = 1 << 20


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
        GraphError: If the graph lacks what training needs.
        BudgetError: If the node budget does not fit the graph.
        OptionError: If the configuration has no FALCON reduction, the graph has no validation nodes, a value of the
            space is out of range, the storage cannot be written or holds something else, or every trial failed.
        MissingDependencyError: If optuna is not installed.
    """
    options = options or TuneOptions()
    reduction = _require_reduction(graph, config)
    check_trainable(graph, config.training)
    check_budget(graph, reduction, graph.train_mask if config.protect_training else None)
    optuna = require("optuna", "tune")
    points = options.space.points(with_hops=config.training.model.uses_hop_features)
    _check_points(config, reduction, points)
    if options.storage is not None:
        _check_storage(options.storage)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = _study(optuna, graph, name, config, options, points)
        # A search that goes on would draw once more what it has tried.
        study.sampler = _sampler(optuna, options, points, num_before=len(study.trials))

        reasons: list[str] = []

        def objective(trial: "Trial") -> float:
            params = _suggest(trial, points, options.sampler)
            try:
                return _score(graph, _with_params(config, reduction, params))
            except (FalconError, OSError) as error:
                reasons.append(str(error))
                # Outside of a trial, what the disk says is said of the storage.
                raise FalconError(str(error)) from error

        def tell(_: "Study", trial: "FrozenTrial") -> None:
            if on_trial is not None:
                on_trial(trial.number, trial.value, dict(trial.params))

        left = options.num_trials - _count(study, "COMPLETE") - _count(study, "FAIL")
        if left > 0 and not _is_full(study, points, options.sampler):
            with nullcontext() if options.storage is None else saying_where(options.storage):
                study.optimize(objective, n_trials=left, catch=(FalconError,), callbacks=[tell])
    finally:
        optuna.logging.set_verbosity(verbosity)
    return _result(study, config, reduction, reasons)


def _require_reduction(graph: Graph, config: RunConfig) -> CollapseConfig:
    if not isinstance(config.reduction, CollapseConfig):
        msg = f"reduction must be a CollapseConfig, whose options are searched, got {config.reduction!r}."
        raise OptionError(msg)
    if graph.val_mask is None or not graph.val_mask.any():
        msg = "graph.val_mask must select at least one node: the search goes by the validation score."
        raise OptionError(msg)
    if graph.y is None or not labelled_nodes(graph.y, infer_task(graph.y, config.training.task))[graph.val_mask].any():
        msg = "graph.val_mask must select at least one node with a label: the search goes by the validation score."
        raise OptionError(msg)
    return config.reduction


def _check_points(config: RunConfig, reduction: CollapseConfig, points: dict[str, list[Any]]) -> None:
    """Stop at a value of the space that no trial could have.

    Raises:
        OptionError: If it is out of range or unknown.
    """
    first = {name: values[0] for name, values in points.items()}
    for name, values in points.items():
        for value in values:
            _with_params(config, reduction, {**first, name: value})


def _check_storage(path: Path) -> None:
    """Stop where trials cannot be written, or would be added to a file of something else.

    Raises:
        OptionError: If so.
    """
    check_writable(path, is_folder=False, option="storage")
    if path.suffix in _DATABASES and "?" in str(path):
        msg = f"storage must be a path without '?', which ends the address of a database, got {path}. Rename it."
        raise OptionError(msg)
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        start = file.readline(_LONGEST_LINE)
    if not (start.startswith(_SQLITE) if path.suffix in _DATABASES else _is_of_journal(start)):
        kind = "an SQLite database" if path.suffix in _DATABASES else "a journal of trials"
        msg = f"storage must be a new file or {kind} that an earlier search wrote, got {path}. Choose another name."
        raise OptionError(msg)


def _is_of_journal(line: bytes) -> bool:
    """Whether optuna wrote a line: a JSON object that says what was done."""
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and "op_code" in entry


def _study(
    optuna: Any, graph: Graph, name: str, config: RunConfig, options: TuneOptions, points: dict[str, list[Any]]
) -> "Study":
    """Return the study of this search, new or as an earlier call left it."""
    facts = json.dumps([name, fingerprint(graph), config.to_dict(), points, options.sampler], sort_keys=True)
    digest = hashlib.sha256(facts.encode()).hexdigest()[:12]
    study: Study = optuna.create_study(
        study_name=f"{name or 'graph'}-{digest}",
        direction="maximize",
        storage=_storage(optuna, options.storage),
        load_if_exists=True,
    )
    return study


def _sampler(optuna: Any, options: TuneOptions, points: dict[str, list[Any]], num_before: int) -> "BaseSampler":
    samplers = optuna.samplers
    sampler: BaseSampler = (
        samplers.GridSampler(points, seed=options.seed)
        if options.sampler == "grid"
        else samplers.TPESampler(seed=options.seed + num_before)
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


def _result(study: "Study", config: RunConfig, reduction: CollapseConfig, reasons: Sequence[str]) -> TuneResult:
    num_done, num_failed = _count(study, "COMPLETE"), _count(study, "FAIL")
    if num_done == 0:
        why = f"the last: {reasons[-1]}" if reasons else "run one of them with falcon-gnn train to see why."
        msg = f"every one of {num_failed} trials failed; {why}"
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
