"""What a benchmark consists of: a TOML file as frozen configurations, every key checked.

A file may lie over another one (``extends``, a path from its own folder) and choose among the data sets (``use``).
"""

import math
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

from falcon_gnn.benchmark.metrics import METRICS
from falcon_gnn.benchmark.paper import paper_figures
from falcon_gnn.benchmark.shipped import find_config
from falcon_gnn.checks import check_choice, check_flag
from falcon_gnn.datasets.splits import Split
from falcon_gnn.datasets.synthetic import SyntheticShape
from falcon_gnn.errors import OptionError
from falcon_gnn.reduction.coarsening.config import CoarsenConfig
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.training.config import ModelConfig, ModelName, TrainConfig

Kind = Literal["train", "resources", "label_error", "collapse_time"]
Reduction = Literal["none", "falcon", "coarsen"]
Budget = int | float
Options = Mapping[str, Mapping[str, Any]]
"""Options by section (``training``, ``model``, ...) and by the name of their field."""


def _names(config: Any, *but: str) -> frozenset[str]:
    return frozenset(entry.name for entry in fields(config)) - set(but)


SECTIONS: dict[str, frozenset[str]] = {
    "training": _names(TrainConfig, "model", "seed"),
    "model": _names(ModelConfig, "model"),
    "collapse": _names(CollapseConfig, "seed", "scope"),
    "coarsen": _names(CoarsenConfig, "seed", "scope", "node_budget", "task", "num_classes"),
    "run": frozenset(("scope", "hops_from", "protect_training", "correct_and_smooth")),
}
"""The options a file can set, by section. Budget, task and number of classes of a coarsening are the collapse's."""

_MOST_SEEDS = 10_000
_TYPES: dict[type, str] = {dict: "table", str: "text", list: "list"}
_TABLE_KEYS = frozenset(("paper", "metrics"))
_FIGURE_KEYS = frozenset(("metric", "methods"))
_FILE_KEYS = frozenset(
    ("extends", "use", "title", "kind", "seeds", "models", "budgets", "datasets", "methods", "table", "figure")
)


@dataclass(frozen=True)
class DatasetConfig:
    """A graph to run on.

    Attributes:
        name: As shown in the tables.
        source: A known name, or a path below the data folder.
        synthetic: In place of a source: the shape of a graph to draw.
        split: As in :func:`falcon_gnn.load_graph`.
        split_index: Likewise.
        split_shares: Likewise.
        split_seed: Likewise, ``seed`` there.
        new_splits: Whether each seed has a split of its own: a random one drawn by it, or that of its place among the
            source's. By default all seeds share one.
        threshold: Likewise.
        normalize_rows: Whether each row of the features is divided by its sum.
        paper: Name in the paper's tables, or None.
        note: What a reader must know about it; shown below its tables.
        models: The models for this graph; None: the file's.
        budgets: The budgets for this graph; None: the file's.
        seeds: The seeds for this graph; None: the file's.
        without_metrics: Metrics of the file that its tables leave out.
        options: Options that differ from the file's.
    """

    name: str
    source: str = ""
    synthetic: SyntheticShape | None = None
    split: Split | None = None
    split_index: int | None = None
    split_shares: tuple[float, float, float] = (0.6, 0.2, 0.2)
    split_seed: int = 0
    new_splits: bool = False
    threshold: float | None = None
    normalize_rows: bool = False
    paper: str | None = None
    note: str = ""
    models: tuple[str, ...] | None = None
    budgets: tuple[Budget, ...] | None = None
    seeds: tuple[int, ...] | None = None
    without_metrics: tuple[str, ...] = ()
    options: Options = field(default_factory=dict)

    def for_seed(self, seed: int) -> "DatasetConfig":
        """Return the graph that the runs of a seed read: with the split of that seed, where each has its own."""
        if not self.new_splits:
            return self
        chosen = {"split_seed": seed} if self.split == "random" else {"split_index": seed}
        return replace(self, new_splits=False, **chosen)  # type: ignore[arg-type]


@dataclass(frozen=True)
class MethodConfig:
    """A way to make the training graph.

    Attributes:
        name: As shown in the tables.
        reduction: ``none``, ``falcon`` or ``coarsen``.
        centralities: One run each; empty: the one in the options.
        models: The models it is run with; None: all.
        paper: Name of the reduction in the paper's tables, or None.
        options: Options that differ from the file's and the data set's.
    """

    name: str
    reduction: Reduction = "falcon"
    centralities: tuple[str, ...] = ()
    models: tuple[str, ...] | None = None
    paper: str | None = None
    options: Options = field(default_factory=dict)


_DATASET_KEYS = _names(DatasetConfig, "name", "options")
_METHOD_KEYS = _names(MethodConfig, "name", "options")


@dataclass(frozen=True)
class BenchmarkConfig:
    """A benchmark: every data set with every model, method, budget and seed.

    Attributes:
        name: The file's, without suffix.
        title: Heading of its tables.
        kind: What a run does: ``train`` (reduce, train, score), ``resources`` (the same with the memory measured),
            ``label_error`` or ``collapse_time`` (reduce only; the second after a warm-up).
        datasets: The graphs.
        models: Names of models; empty where nothing is trained.
        methods: Ways to make the training graph.
        budgets: Node budgets; empty: each data set's own ``node_budget``.
        seeds: One run each.
        metrics: What the tables show.
        paper: The paper's table that the results stand beside, or None.
        figure: The metric that is drawn over the budgets, or None.
        drawn_methods: The methods that are drawn; empty: all.
        options: Options of all runs.
        overrides: What the user changed, by key; it is part of the options already.
    """

    name: str
    title: str
    kind: Kind
    datasets: tuple[DatasetConfig, ...]
    models: tuple[str, ...]
    methods: tuple[MethodConfig, ...]
    budgets: tuple[Budget, ...]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    paper: str | None
    figure: str | None
    drawn_methods: tuple[str, ...]
    options: Options
    overrides: Mapping[str, Any]

    @property
    def trains(self) -> bool:
        """Whether a run trains a model."""
        return self.kind in ("train", "resources")


def read_config(path: str | Path, overrides: Mapping[str, Any] | None = None) -> BenchmarkConfig:
    """Return the benchmark that a TOML file describes.

    Args:
        path: The file, or the name of one that comes with the package (:mod:`falcon_gnn.benchmark.shipped`).
        overrides: Values that win over the file's, by key: ``seeds``, ``models``, ``budgets``, ``centralities``, the
            names of ``datasets`` and ``methods`` to keep, or an option as ``section.field``.

    Raises:
        OptionError: If the file is missing or no TOML, or a key or value is unknown; the message names the nearest key.
    """
    path = find_config(path)
    content, place, given = _read_toml(path), path.name, dict(overrides or {})
    _check_values(place, content)
    _check_values("overrides", given)
    table, figure = content.get("table", {}), content.get("figure", {})
    _check_type(f"{place}: table", table, dict)
    _check_type(f"{place}: figure", figure, dict)
    for name, value in (
        ("title", content.get("title", "")), ("table.paper", table.get("paper", "")),
        ("figure.metric", figure.get("metric", "")),
    ):  # fmt: skip
        _check_type(f"{place}: {name}", value, str)
    check_keys(table, _TABLE_KEYS, f"{place}, [table]")
    check_keys(figure, _FIGURE_KEYS, f"{place}, [figure]")
    config = BenchmarkConfig(
        name=path.stem,
        title=content.get("title", path.stem),
        kind=_choice("kind", content.get("kind", "train"), get_args(Kind), place),
        datasets=_kept("datasets", _used(_named(content, "datasets", _dataset, place), content, place), given),
        models=_strings("models", given.get("models", content.get("models", [])), place),
        methods=_with_centralities(_kept("methods", _named(content, "methods", _method, place), given), given),
        budgets=_budgets(given.get("budgets", content.get("budgets", [])), place),
        seeds=_seeds(given.get("seeds", content.get("seeds", 1)), place),
        metrics=_strings("metrics", table.get("metrics", ["accuracy"]), place),
        paper=table.get("paper"),
        figure=figure.get("metric"),
        drawn_methods=_strings("methods", figure.get("methods", []), f"{place}, [figure]"),
        options=_sections(content, place),
        overrides=given,
    )
    _check_names(config, place)
    _check_models(config, place)
    return config


def check_keys(given: Iterable[str], known: Collection[str], place: str) -> None:
    """Stop at the first key that is not known.

    Raises:
        OptionError: The message names the nearest known key, or all of them.
    """
    for key in given:
        if key not in known:
            by_lower = {name.lower(): name for name in known}
            close = get_close_matches(key.lower(), by_lower, n=1, cutoff=0.5)
            hint = f"Did you mean {by_lower[close[0]]!r}?" if close else f"It knows {', '.join(sorted(known))}."
            msg = f"{place} has no key {key!r}. {hint}"
            raise OptionError(msg)


def _read_toml(path: Path, extended: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the content of a file laid over that of the file which it extends."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"config must be a readable TOML file, and {path} is not: {error}."
        raise OptionError(msg) from error
    check_keys(content, _FILE_KEYS | set(SECTIONS), path.name)
    if "extends" not in content:
        return content
    _check_type(f"{path.name}: extends", content["extends"], str)
    base = (path.parent / content.pop("extends")).resolve()
    if base in extended:
        msg = f"{path.name} extends {base.name}, which extends it again. Remove one of the two."
        raise OptionError(msg)
    return _laid_over(_read_toml(base, (*extended, base)), content)


def _laid_over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables merged; where both have a value, the upper one's."""
    both = {
        key: _laid_over(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
        for key, value in top.items()
    }
    return {**base, **both}


def _used(datasets: tuple[DatasetConfig, ...], content: Mapping[str, Any], place: str) -> tuple[DatasetConfig, ...]:
    """Return the data sets that the file names under ``use``, or all."""
    return _kept("datasets", datasets, {"datasets": content["use"]}, f"{place}, use") if "use" in content else datasets


def _named(content: Mapping[str, Any], key: str, build: Any, place: str) -> tuple[Any, ...]:
    tables = content.get(key)
    if not isinstance(tables, dict) or not tables or not all(isinstance(entry, dict) for entry in tables.values()):
        msg = f"{place} must hold at least one table [{key}.NAME], got {tables!r}."
        raise OptionError(msg)
    return tuple(build(name, entry, f"{place}, [{key}.{name}]") for name, entry in tables.items())


def _dataset(name: str, entry: Mapping[str, Any], place: str) -> DatasetConfig:
    check_keys(entry, _DATASET_KEYS | set(SECTIONS), place)
    values = {key: value for key, value in entry.items() if key in _DATASET_KEYS}
    if ("source" in values) == ("synthetic" in values):
        msg = f"{place} must have either source or synthetic, got {', '.join(sorted(values)) or 'neither'}."
        raise OptionError(msg)
    _check_texts_and_flags(values, place)
    if "synthetic" in values:
        _check_type(f"{place}: synthetic", values["synthetic"], dict)
        check_keys(values["synthetic"], _names(SyntheticShape), f"{place}, synthetic")
        missing = [name for name in ("num_nodes", "num_edges") if name not in values["synthetic"]]
        if missing:
            msg = f"{place}: synthetic needs num_nodes and num_edges, and {', '.join(missing)} is missing."
            raise OptionError(msg)
        values["synthetic"] = SyntheticShape(**values["synthetic"])
    for key in ("models", "without_metrics"):
        if key in values:
            values[key] = _strings(key, values[key], place)
    if "budgets" in values:
        values["budgets"] = _budgets(values["budgets"], place)
    if "seeds" in values:
        values["seeds"] = _seeds(values["seeds"], place)
    if "split_shares" in values:
        _check_type(f"{place}: split_shares", values["split_shares"], list)
        values["split_shares"] = tuple(values["split_shares"])
    return DatasetConfig(name, **values, options=_sections(entry, place))


def _method(name: str, entry: Mapping[str, Any], place: str) -> MethodConfig:
    check_keys(entry, _METHOD_KEYS | set(SECTIONS), place)
    values = {key: value for key, value in entry.items() if key in _METHOD_KEYS}
    _check_texts_and_flags(values, place)
    values["reduction"] = _choice("reduction", values.get("reduction", "falcon"), get_args(Reduction), place)
    for key in ("centralities", "models"):
        if key in values:
            values[key] = _strings(key, values[key], place)
    if values.get("centralities") and values["reduction"] != "falcon":
        msg = (
            f"{place}: centralities are for reduction='falcon', got reduction={values['reduction']!r}. Leave them out."
        )
        raise OptionError(msg)
    return MethodConfig(name, **values, options=_sections(entry, place))


def _check_type(name: str, value: Any, kind: type) -> None:
    """Stop at a value that TOML has as something else."""
    if not isinstance(value, kind):
        msg = f"{name} must be a {_TYPES[kind]}, got {value!r}."
        raise OptionError(msg)


def _check_values(name: str, value: Any) -> None:
    """Stop at a date or an infinite number, which TOML has and a record cannot hold."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            _check_values(f"{name}, {key}", entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            _check_values(name, entry)
    elif not isinstance(value, str | int | float | None) or (isinstance(value, float) and not math.isfinite(value)):
        msg = f"{name} must be text, a finite number, true, false, a list or a table, got {value}."
        raise OptionError(msg)


def _check_texts_and_flags(values: Mapping[str, Any], place: str) -> None:
    """Stop at a text or a switch of a data set or a method that is something else; "no" would be taken for true."""
    for name, value in values.items():
        if name in ("source", "paper", "note"):
            _check_type(f"{place}: {name}", value, str)
        if name in ("new_splits", "normalize_rows"):
            check_flag(f"{place}: {name}", value)


def _sections(content: Mapping[str, Any], place: str) -> Options:
    options = {}
    for section, known in SECTIONS.items():
        given = content.get(section, {})
        _check_type(f"{place}: {section}", given, dict)
        check_keys(given, known, f"{place}, {section}")
        options[section] = given
    return options


def _kept(key: str, entries: tuple[Any, ...], wanted: Mapping[str, Any], place: str = "overrides") -> tuple[Any, ...]:
    """Return the entries whose names are wanted, in that order, or all."""
    if key not in wanted:
        return entries
    by_name = {entry.name.lower(): entry for entry in entries}
    names = [name.lower() for name in _strings(key, wanted[key], place)]
    check_keys(names, by_name, f"{place}, {key}")
    return tuple(by_name[name] for name in names)


def _with_centralities(methods: tuple[MethodConfig, ...], overrides: Mapping[str, Any]) -> tuple[MethodConfig, ...]:
    """Return the methods with the centralities of an override, where they are run with several."""
    if "centralities" not in overrides:
        return methods
    chosen = _strings("centralities", overrides["centralities"], "overrides")
    return tuple(replace(method, centralities=chosen) if method.centralities else method for method in methods)


def _check_names(config: BenchmarkConfig, place: str) -> None:
    """Stop at a model, a metric or a table of the paper that there is none of, and where no metric is asked for."""
    models = [dataset.models or () for dataset in config.datasets]
    models += [method.models or () for method in config.methods]
    check_keys(chain(config.models, *models), get_args(ModelName), f"{place}, models")
    left_out = [dataset.without_metrics for dataset in config.datasets]
    check_keys(chain(config.metrics, *left_out), METRICS, f"{place}, metrics")
    if "methods" not in config.overrides:
        check_keys(config.drawn_methods, [method.name for method in config.methods], f"{place}, [figure] methods")
    check_keys(() if config.figure is None else (config.figure,), METRICS, f"{place}, [figure] metric")
    if config.paper is not None:
        check_choice(f"{place}: table.paper", config.paper, sorted({figure.table for figure in paper_figures()}))
    if not config.metrics:
        msg = f"{place}: table.metrics must name at least one metric, got none. It knows {', '.join(METRICS)}."
        raise OptionError(msg)


def _check_models(config: BenchmarkConfig, place: str) -> None:
    has_models = bool(config.models) or any(dataset.models for dataset in config.datasets)
    if config.trains != has_models:
        need = "needs models" if config.trains else "trains nothing and takes no models"
        msg = f"{place}: kind={config.kind!r} {need}, got models={list(config.models)}."
        raise OptionError(msg)
    untrained = [method.name for method in config.methods if method.reduction == "none"]
    if untrained and not config.trains:
        msg = f"{place}: kind={config.kind!r} needs a reduction, and the method {untrained[0]!r} has none."
        raise OptionError(msg)


def _choice(name: str, value: Any, choices: tuple[str, ...], place: str) -> Any:
    check_choice(f"{place}: {name}", value, choices)
    return value


def _strings(name: str, value: Any, place: str) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(entry, str) for entry in listed):
        msg = f"{place}: {name} must be a list of names, got {value!r}."
        raise OptionError(msg)
    return tuple(listed)


def _budgets(value: Any, place: str) -> tuple[Budget, ...]:
    listed = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(entry, int | float) and not isinstance(entry, bool) for entry in listed):
        msg = f"{place}: budgets must be node counts (int) or shares (float), got {value!r}."
        raise OptionError(msg)
    return tuple(listed)


def _seeds(value: Any, place: str) -> tuple[int, ...]:
    """Return the seeds; a number n stands for 0 ... n − 1."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and value > _MOST_SEEDS:
        msg = f"{place}: seeds must be at most {_MOST_SEEDS:,}, got {value}. One seed of that number is [{value}]."
        raise OptionError(msg)
    listed = list(range(value)) if is_number else value
    is_valid = isinstance(listed, list | tuple) and all(type(seed) is int and seed >= 0 for seed in listed)
    if not is_valid or not listed:
        msg = f"{place}: seeds must be a number of seeds or a list of whole numbers, got {value!r}."
        raise OptionError(msg)
    return tuple(listed)
