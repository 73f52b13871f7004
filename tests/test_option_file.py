"""Options of the command from a TOML file: printed whole, read back, laid under the flags; the shell's completion."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from falcon_gnn.cli.commands import app
from falcon_gnn.cli.option_file import file_commands
from falcon_gnn.datasets.archive import write_npz
from falcon_gnn.datasets.options import LoadOptions
from falcon_gnn.devices.place import DeviceOptions
from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.pipeline.options import BudgetOptions, RunConfig
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.training.config import ModelConfig, TrainConfig

COMMANDS = ("collapse", "train", "predict", "plan", "demo", "bench", "tables", "tune")


def call(*words: Any) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def values(text: str) -> dict[str, Any]:
    """Return what a printed file holds, lines at their default included."""
    return tomllib.loads(re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE))


@pytest.fixture
def write_file(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "options.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_every_option_of_every_command_is_printed_with_its_default() -> None:
    printed = values(call("config"))
    assert tuple(printed) == COMMANDS
    for name, command in file_commands(typer.main.get_command(app)).items():
        options = {option.name for option in command.params if option.param_type_name == "option"}
        assert set(printed[name]) == options - {"config_file", "help"}
    assert printed["train"]["hidden_channels"] == 256
    assert printed["train"]["node_budget"] == "none"
    assert printed["tune"]["gammas"] == [0.4, 0.45, 0.5, 0.55, 0.6]


def test_a_printed_file_sets_nothing_and_one_with_every_line_set_says_the_same(write_file: Any) -> None:
    printed = call("config")
    assert not any(tomllib.loads(printed).values())
    path = write_file(re.sub(r"^# (\w+ = )", r"\1", printed, flags=re.MULTILINE))
    for name in COMMANDS:
        assert values(call("config", name, "--config", path)) == {name: values(printed)[name]}


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(write_file: Any) -> None:
    path = write_file('[train]\nhidden_channels = 64\nnum_layers = 2\npatience = "none"\nkeep_matrix = false\n')
    lines = call("config", "train", "--config", path, "--hidden-channels", 32).splitlines()
    assert [line for line in lines if line and line[0] not in "#["] == [
        "hidden_channels = 32  # from the command line; default 256",
        f"num_layers = 2  # from {path}; default 3",
        f"keep_matrix = false  # from {path}; default true",
        f'patience = "none"  # from {path}; default 50',
    ]
    assert "# dropout = 0.5  # default" in lines
    assert '# out = "none"  # required' in lines


def test_a_command_does_what_its_file_says_as_if_it_were_typed(write_file: Any, tmp_path: Path) -> None:
    x = [[0.0, 1.0], [0.2, 1.0], [1.0, 0.0], [1.0, 0.3], [0.1, 0.9], [0.8, 0.0]]
    write_npz(Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 4]], 6, x=x, y=[0, 0, 1, 1, 0, 1]), tmp_path / "graph.npz")
    out = tmp_path / "out"
    path = write_file(f"""
        [collapse]
        out = {json.dumps(str(out))}
        preset = "recommended"
        node_budget = 0.5
        merge = "hub"       # given, so that the preset leaves it alone
        num_clusters = 1
        num_samples = "none"
        memory = "none"
        edge_weights = "none"
        [train]
        hidden_channels = 64
        """)
    call("collapse", tmp_path / "graph.npz", "--config", path, "--seed", 3)
    config = json.loads((out / "report.json").read_text())["config"]
    wanted = {"node_budget": 0.5, "merge": "hub", "num_clusters": 1, "num_samples": None, "seed": 3}
    assert {name: config[name] for name in wanted} == wanted
    assert (config["groups"], config["edge_weights"]) == ("alike", "none")


def test_an_option_that_repeats_takes_a_list(write_file: Any) -> None:
    path = write_file('[tune]\ngammas = [0.4, 0.6]\nfeature_columns = "v*"\n')
    printed = values(call("config", "tune", "--config", path))["tune"]
    assert (printed["gammas"], printed["feature_columns"]) == ([0.4, 0.6], ["v*"])
    assert values(call("config", "tune", "--config", path, "--gammas", 0.5))["tune"]["gammas"] == [0.5]


@pytest.mark.parametrize("words", [["--memory", "none", "--bits=none"], ["--bits", "none", "--memory=none"]])
def test_a_flag_takes_back_what_the_file_says(write_file: Any, words: list[str]) -> None:
    path = write_file('[train]\nmemory = "2GiB"\nbits = 4\nedge_weights = "count"\npatience = 9\n')
    more = ["--edge-weights", "", "--patience", "none", "--label-column", "none"]
    told = values(call("config", "train", "--config", path, *words, *more))["train"]
    assert [told[name] for name in ("memory", "bits", "edge_weights", "patience")] == ["none", "none", "", "none"]
    kept = values(call("config", "train", "--config", path, "--edge-weights", "none", "--nodes", "none.csv"))["train"]
    assert [kept[name] for name in ("memory", "edge_weights", "nodes")] == ["2GiB", "none", "none.csv"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train\n", "--config must be a readable TOML file"),
        ("hidden_channels = 64\n", r"hidden_channels must stand in the table of a command, such as \[train\]"),
        ("[training]\n", r"has no use for the table \[training\]. Did you mean 'train'"),
        ("[train]\nhidden-channels = 64\n", r"\[train\]: there is no option hidden-channels. Did you mean 'hidden_ch"),
        ("[train]\nconfig_file = 'x'\n", "there is no option config_file"),
        ("[train]\nhidden_channels = 2.5\n", r"\[train\]: hidden_channels = 2.5 is refused: "),
        ("[train]\nhidden_channels = 'none'\n", 'hidden_channels = "none" is refused'),
        ("[train]\nhidden_channels = true\n", "hidden_channels must be one value, got True"),
        ("[train]\nhidden_channels = [64]\n", r"hidden_channels must be one value, got \[64\]"),
        ("[train]\nbatch_norm = 'yes'\n", "batch_norm must be true or false, got 'yes'"),
        ("[train]\nprecision = 'float8'\n", 'precision = "float8" is refused'),
    ],
)
def test_a_mistake_in_the_file_names_file_table_and_key(text: str, message: str, write_file: Any) -> None:
    path = write_file(text)
    with pytest.raises(OptionError, match=message) as raised:
        call("config", "train", "--config", path)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"nowhere\.toml is not: .*No such file"):
        call("demo", "--config", tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    "config", [BudgetOptions, CollapseConfig, LoadOptions, ModelConfig, TrainConfig, RunConfig, DeviceOptions]
)
def test_only_edge_weights_know_a_value_none(config: type) -> None:
    kinds = get_type_hints(config)
    knowing = {name for name, kind in kinds.items() if "none" in str(kind).lower().replace("nonetype", "").split("'")}
    assert knowing <= {"edge_weights"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_names_and_choices(tmp_path: Path) -> None:
    command = tmp_path / "falcon-gnn"
    command.write_text(f"#!{sys.executable}\nfrom falcon_gnn.cli.commands import main\nmain()\n", encoding="utf-8")
    command.chmod(0o755)
    script = f"""
        PATH="{tmp_path}:$PATH"
        eval "$(_FALCON_GNN_COMPLETE=source_bash falcon-gnn)"
        complete() {{
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _falcon_gnn_completion falcon-gnn; echo "${{COMPREPLY[*]}}"
        }}
        complete falcon-gnn tr
        complete falcon-gnn train ci
        complete falcon-gnn train cora --model q
    """
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["train", "citeseer", "qsign"]


@pytest.mark.parametrize(
    ("words", "called"),
    [
        (["collapse", "digits", "--node-budget", "9", "--out", ""], "--out"),
        (["collapse", "", "--node-budget", "9", "--out", "x"], "source"),
        (["train", "digits", "--out", "x", "--nodes="], "--nodes"),
        (["predict", "", "digits", "--out", "x.csv"], "run"),
        (["tables", "records.jsonl", ""], "records"),
    ],
)
def test_an_empty_text_is_no_value_and_not_the_current_folder(words: list[str], called: str) -> None:
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, OptionError)
    assert str(result.exception).startswith(f"{called} must have a value, got an empty text.")


def test_an_empty_text_in_a_file_is_refused_too(write_file: Any) -> None:
    result = CliRunner().invoke(app, ["train", "digits", "--config", str(write_file('[train]\nout = ""\n'))])
    assert isinstance(result.exception, OptionError)
    assert "[train]: out must have a value" in str(result.exception)
