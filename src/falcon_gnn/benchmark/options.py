"""From options by section to the configurations of a run."""

import dataclasses
from typing import Any

from falcon_gnn.benchmark.config import SECTIONS, Budget, Kind, Options, Reduction
from falcon_gnn.reduction.coarsening.config import CoarsenConfig
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.training.config import ModelConfig, TrainConfig


def merge_options(*layers: Options) -> Options:
    """Return options by section, the later layers' where several have one; the text ``none`` becomes None."""
    merged: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for layer in layers:
        for section, values in layer.items():
            merged[section].update(values)
    for values in merged.values():
        for name, value in values.items():
            # "none" is a value of its own there.
            if value == "none" and name != "edge_weights":
                values[name] = None
    return merged


def make_train_config(kind: Kind, model: str, options: Options) -> TrainConfig:
    """Return a training; what a model has no use for (batches of a full-batch GCN, say) is left out for it.

    Args:
        kind: ``resources`` measures the memory.
        model: Name of the model; empty for the defaults, where nothing is trained.
        options: Merged options.

    Raises:
        OptionError: If an option is out of range.
    """
    if not model:
        return TrainConfig()
    sizes, training = dict(options["model"]), dict(options["training"])
    network = ModelConfig(model, **{**sizes, "concat_self": False})  # type: ignore[arg-type]
    if not network.uses_hop_features and sizes.get("concat_self"):
        network = dataclasses.replace(network, concat_self=True)
    if model == "gcn" and training.get("train_on") != "rows":
        training["num_batches"] = 1
    training.setdefault("measure_memory", kind == "resources")
    return TrainConfig(network, **training)


def make_reduction(
    method: Reduction, options: Options, budget: Budget | None, centrality: str = ""
) -> CollapseConfig | CoarsenConfig | None:
    """Return a reduction, or None without a budget.

    Args:
        method: ``falcon`` or ``coarsen``.
        options: Merged options.
        budget: Nodes to keep, a number or a share.
        centrality: In place of the options' one, or empty.

    Raises:
        OptionError: If an option is out of range.
        BudgetError: If the budget is not positive.
    """
    if budget is None:
        return None
    scope = options["run"].get("scope")
    collapse = {**options["collapse"], "node_budget": budget}
    if method == "coarsen":
        shared = {name: collapse[name] for name in ("node_budget", "task", "num_classes") if name in collapse}
        return CoarsenConfig(**shared, **options["coarsen"], scope=scope)
    if centrality:
        collapse["centrality"] = centrality
    return CollapseConfig(**collapse, scope=scope)
