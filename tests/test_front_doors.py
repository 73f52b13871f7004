"""Every way into the product has the defaults of the dataclasses, and describes an option in their words."""

import dataclasses
import inspect
import json
from typing import Any

import numpy as np
import pytest
import typer

import falcon_gnn as fg
from falcon_gnn.benchmark.arguments import BenchOptions, SearchSpace, TuneOptions
from falcon_gnn.benchmark.options import make_reduction, make_train_config, merge_options
from falcon_gnn.cli.commands import app
from falcon_gnn.cli.fields import described
from falcon_gnn.datasets.load import load_graph
from falcon_gnn.datasets.options import LoadOptions
from falcon_gnn.devices.place import DeviceOptions
from falcon_gnn.pipeline.options import BudgetOptions, RunConfig
from falcon_gnn.reduction.coarsening.config import CoarsenConfig
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.spark.job import read_config
from falcon_gnn.training.config import ModelConfig, TrainConfig

CONFIGS: dict[str, tuple[type, ...]] = {
    "collapse": (BudgetOptions, CollapseConfig, LoadOptions, ModelConfig, TrainConfig),
    "train": (BudgetOptions, ModelConfig, TrainConfig, CollapseConfig, RunConfig, DeviceOptions, LoadOptions),
    "plan": (ModelConfig, TrainConfig, RunConfig, LoadOptions),
    "predict": (LoadOptions,),
    "bench": (BenchOptions,),
    "tune": (SearchSpace, TuneOptions, ModelConfig, TrainConfig, CollapseConfig, RunConfig, LoadOptions),
}
STATED = {
    "model": "qsign", "hidden_channels": 256, "num_layers": 3, "dropout": 0.5, "batch_norm": False, "num_hops": 2,
    "learning_rate": 0.001, "weight_decay": 0.0, "num_epochs": 200, "patience": 50, "eval_every": 1, "num_batches": 1,
    "seed": 0, "centrality": "eigenvector", "num_clusters": 100, "gamma": 0.5,
}  # fmt: skip


def options_of(command: str) -> dict[str, Any]:
    return {option.name: option for option in typer.main.get_command(app).commands[command].params}  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", CONFIGS)
def test_an_option_of_the_command_is_the_field_of_its_configuration(command: str) -> None:
    options, found = options_of(command), 0
    for config in CONFIGS[command]:
        for entry in dataclasses.fields(config):
            option = options.get(entry.name)
            if option is None or entry.default is dataclasses.MISSING or isinstance(entry.default, tuple):
                continue
            first = next(c for c in CONFIGS[command] if entry.name in {f.name for f in dataclasses.fields(c)})
            default = next(f.default for f in dataclasses.fields(first) if f.name == entry.name)
            assert option.default == (list(default) if isinstance(default, tuple) else default)
            assert option.help == described(first)[entry.name], entry.name
            assert f"--{entry.name.replace('_', '-')}" in option.opts
            found += 1
    assert found


@pytest.mark.parametrize("command", CONFIGS)
def test_every_option_has_a_help_of_one_sentence(command: str) -> None:
    for name, option in options_of(command).items():
        if isinstance(option, typer.core.TyperOption) and name != "help":
            assert option.help, name
            assert "``" not in option.help, name
            assert option.help[-1] in ".!?", name
            assert option.help.count("(") <= option.help.count(")"), name


def test_the_defaults_are_the_stated_ones_at_every_front_door() -> None:
    from_python = {**vars(ModelConfig()), **vars(TrainConfig()), **vars(CollapseConfig(1))}
    from_python["model"] = ModelConfig().model
    on_command = {name: option.default for name, option in options_of("train").items()}
    for name, value in STATED.items():
        assert from_python[name] == on_command[name] == value, name
    assert ModelConfig().bits == 2
    assert RunConfig().training == TrainConfig()
    assert read_config('{"node_budget": 0.3}') == CollapseConfig(0.3)
    empty = merge_options()
    assert make_train_config("resources", "qsign", empty) == TrainConfig()
    assert make_reduction("falcon", empty, 0.3) == CollapseConfig(0.3)
    assert make_reduction("coarsen", empty, 0.3) == CoarsenConfig(0.3)


def test_a_graph_is_loaded_with_the_same_defaults() -> None:
    signature = inspect.signature(load_graph)
    for entry in dataclasses.fields(LoadOptions):
        assert signature.parameters[entry.name].default == entry.default


@pytest.fixture(scope="module")
def foreign() -> dict[str, Any]:
    """What is not a Graph, by what the message says of it."""
    networkx, pyg = pytest.importorskip("networkx"), pytest.importorskip("torch_geometric.data")
    path = fg.Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 4]], num_nodes=5)

    class OwnData(pyg.Data):  # type: ignore[misc]
        pass

    return {
        "got Data of torch_geometric. Convert it with falcon_gnn.from_pyg.": pyg.Data(),
        "got OwnData of torch_geometric. Convert it with falcon_gnn.from_pyg.": OwnData(),
        "got DiGraph of networkx. Convert it with falcon_gnn.from_networkx.": networkx.DiGraph(),
        "got csr_array of scipy. Convert it with falcon_gnn.Graph.from_scipy.": path.to_scipy(),
        "got CollapseResult. Pass its graph: result.graph.": fg.collapse(path, node_budget=2, centrality="degree"),
        "got str. Load it with falcon_gnn.load_graph.": "digits",
        "got list. Make one with falcon_gnn.load_graph or falcon_gnn.Graph.from_edges.": [[0, 1], [1, 2]],
    }


@pytest.mark.parametrize(
    ("door", "arguments"),
    [
        ("collapse", (fg.CollapseConfig(5),)), ("coarsen", (fg.CoarsenConfig(5),)), ("run", ()), ("to_pyg", ()),
        ("to_dgl", ()), ("fit_budget", (fg.TrainConfig(), "1GiB")), ("to_networkx", ()), ("draw_collapse", (None,)),
    ],
)  # fmt: skip
def test_what_is_no_graph_is_refused_with_what_makes_one_of_it(
    door: str, arguments: tuple[Any, ...], foreign: dict[str, Any]
) -> None:
    for message, given in foreign.items():
        with pytest.raises(fg.GraphError) as error:
            getattr(fg, door)(given, *arguments)
        assert str(error.value) == f"graph must be a falcon_gnn.Graph, {message}"


def test_numbers_of_numpy_are_pythons_in_every_configuration():
    model = fg.ModelConfig("qsign", hidden_channels=np.int64(8), bits=np.int64(2), dropout=np.float32(0.5))
    training = fg.TrainConfig(model, learning_rate=np.float32(0.5), seed=np.int64(3), patience=np.int32(4))
    reduction = fg.CollapseConfig(np.float32(0.5), gamma=np.float32(0.25), seed=np.uint8(1), num_samples=np.int16(7))
    for config in (training, reduction, fg.CoarsenConfig(np.int64(5), seed=np.int64(2))):
        assert all(not isinstance(value, np.generic) for value in dataclasses.asdict(config).values())
    assert json.loads(json.dumps(training.to_dict())) == training.to_dict()


@pytest.mark.parametrize("bits", [True, 2.0, np.float64(2), np.array([2]), "2"])
def test_what_equals_a_choice_and_is_none_is_refused(bits):
    with pytest.raises(fg.OptionError, match="bits must be one of"):
        fg.ModelConfig("qsign", bits=bits)


def test_a_preference_that_is_none_is_refused_without_a_budget_too():
    graph = fg.load_graph("digits")
    with pytest.raises(fg.OptionError, match=r"prefer must be one of nodes, speed, got 'sped'. Did you mean 'speed'"):
        fg.fit_budget(graph, fg.TrainConfig(), "1GiB", prefer="sped")
    with pytest.raises(fg.OptionError, match="prefer must be one of"):
        fg.run(graph, prefer="sped")


@pytest.mark.parametrize("out", ["", "~/run", 3])
def test_a_folder_that_only_a_shell_knows_is_refused(out):
    with pytest.raises(fg.OptionError, match=r"out must be a path, got .*\. Write it out"):
        fg.run(fg.load_graph("digits"), out=out)


def test_what_is_returned_is_shown_in_a_line():
    graph = fg.load_graph("digits")
    result = fg.collapse(graph, node_budget=20, centrality="degree", num_clusters=3)
    assert repr(result).startswith("CollapseResult(1797 nodes to Graph(num_nodes=20, ")
    assert "\n" not in repr(result)
    assert len(repr(result)) < 200
    coarse = fg.coarsen(graph, node_budget=0.5, method="heavy_edge")
    assert repr(coarse).startswith("CoarsenResult(1797 nodes to Graph(num_nodes=539, ")
