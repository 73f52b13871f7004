"""What several commands make of their options: the graph, the training, the node budget."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from falcon_gnn.cli.fields import chosen
from falcon_gnn.datasets.options import LoadOptions
from falcon_gnn.errors import OptionError
from falcon_gnn.pipeline.options import BudgetOptions
from falcon_gnn.progress import telling_time_left
from falcon_gnn.reduction.budgets import parse_budget
from falcon_gnn.training.config import ModelConfig, TrainConfig

if TYPE_CHECKING:
    from falcon_gnn.graph import Graph


def _names() -> list[str]:
    """Return the names that a shell may complete; it completes paths by itself."""
    from falcon_gnn.datasets.named import dataset_names

    return list(dataset_names())


Source = Annotated[
    str, typer.Argument(help="A data set's name, or the path of a graph file or folder.", autocompletion=_names)
]


def make_budget(values: Mapping[str, Any]) -> BudgetOptions:
    """Return how far to reduce."""
    text = values["node_budget"]
    budget: BudgetOptions = chosen(
        BudgetOptions, {**values, "node_budget": None if text is None else parse_budget(text)}
    )
    return budget


def make_training(values: Mapping[str, Any]) -> TrainConfig:
    """Return the model and how to train it."""
    without_model = {name: value for name, value in values.items() if name != "model"}
    training: TrainConfig = chosen(TrainConfig, without_model, model=chosen(ModelConfig, values))
    return training


def check_not_read(written: Iterable[Path], option: str, source: str, values: Mapping[str, Any]) -> None:
    """Stop before a file that the graph is read from is replaced by what is made of it.

    Args:
        written: Files or folders that the command writes.
        option: The option that says where, for the message.
        source: A name or a path.
        values: The options given.
    """
    from falcon_gnn.datasets.load import GRAPH_FILE
    from falcon_gnn.datasets.tables import tables_in

    tables = tables_in(Path(source))
    read = [Path(source), Path(source) / GRAPH_FILE, values["nodes"], *((tables.edges, tables.nodes) if tables else ())]
    for path in written:
        for other in read:
            if other is not None and other.exists() and path.exists() and path.samefile(other):
                msg = f"{option} must be another place than that of the graph: {other} would be replaced."
                raise OptionError(msg)


def load_source(source: str, values: Mapping[str, Any], on_stage: Callable[[str], None] = lambda _: None) -> "Graph":
    """Return the graph that a source names.

    Args:
        source: A name or a path.
        values: The options given.
        on_stage: Told that it is loaded, and how far that is.
    """
    from falcon_gnn.datasets.load import load_graph

    told = {name: values[name] for name in (*vars(LoadOptions()), "seed") if name in values}
    # A download draws a bar of its own.
    stage = "downloading" if told.get("download") else "loading"
    on_stage(stage)
    with telling_time_left(stage, on_stage):
        return load_graph(source, **told)
