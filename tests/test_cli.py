"""The command as a user types it."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from falcon_gnn.cli import commands
from falcon_gnn.cli.commands import app, main
from falcon_gnn.datasets.archive import write_npz
from falcon_gnn.datasets.load import load_graph
from falcon_gnn.errors import FalconWarning, MissingDependencyError, OptionError
from falcon_gnn.reporting.plots import learning_curve_figure
from falcon_gnn.training.checkpoint import read_checkpoint

QUICK = ["--num-epochs", "2", "--hidden-channels", "16", "--device", "cpu"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small part of the digits as a file."""
    path = tmp_path_factory.mktemp("graph") / "part.npz"
    write_npz(load_graph("digits").subgraph(np.arange(300)), path)
    return str(path)


def call(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_collapse_writes_graph_map_and_report(source: str, tmp_path: Path) -> None:
    output = call("collapse", source, "--node-budget", "50", "--centrality", "DC", "--out", str(tmp_path / "r"))
    assert {"graph.npz", "mapping.npz", "report.json", "report.html"} == {p.name for p in (tmp_path / "r").iterdir()}
    assert "label distribution error" in output
    assert json.loads((tmp_path / "r" / "report.json").read_text())["after"]["num_nodes"] == 50


def test_a_budget_with_a_decimal_point_is_a_share(source: str, tmp_path: Path) -> None:
    call("collapse", source, "--node-budget", "1.0", "--out", str(tmp_path))
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["after"]["num_nodes"] == report["before"]["num_nodes"]


def test_train_then_predict(source: str, tmp_path: Path) -> None:
    output = call(
        "train", source, "--model", "qsign", "--node-budget", "0.34", "--centrality", "pagerank",
        "--out", str(tmp_path / "run"), *QUICK,
    )  # fmt: skip
    assert "test accuracy" in output
    assert (tmp_path / "run" / "learning_curve.png").is_file()
    output = call("predict", str(tmp_path / "run"), source, "--out", str(tmp_path / "predictions.parquet"))
    assert "300 nodes labelled" in output


def test_what_another_run_left_is_neither_kept_for_this_one_nor_named(source: str, tmp_path: Path) -> None:
    words = ["train", source, "--model", "sign", "--out", str(tmp_path), *QUICK]
    reduced = call(*words, "--node-budget", "0.34", "--centrality", "degree")
    assert "mapping.npz, model.json, record.json, report.html, report.json" in reduced
    for name in ("notes.txt", "report.pdf"):
        (tmp_path / name).touch()
    left = ["checkpoint.safetensors", "learning_curve.png", "model.json", "record.json", "weights.safetensors"]
    assert f"Written to {tmp_path}/: {', '.join(left)}\n" in call(*words)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*left, "notes.txt", "report.pdf"])
    assert f"Written to {tmp_path}/: {', '.join(left)}\n" in call(*words, "--num-epochs", "3", "--resume")


def test_files_that_no_run_wrote_are_left_alone(source: str, tmp_path: Path) -> None:
    names = ("mapping.npz", "report.html", "report.json")
    for name in names:
        (tmp_path / name).write_text("mine")
    call("train", source, "--model", "sign", "--out", str(tmp_path), *QUICK)
    assert [(tmp_path / name).read_text() for name in names] == ["mine"] * 3


def test_a_training_beside_the_graph_of_a_collapse_leaves_its_map_alone(source: str, tmp_path: Path) -> None:
    call("collapse", source, "--node-budget", "50", "--centrality", "degree", "--out", str(tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    output = call("train", str(tmp_path), "--model", "sign", "--out", str(tmp_path), *QUICK)
    assert "mapping.npz" not in output
    assert all(path.read_bytes() == content for path, content in before.items())


def test_plots_that_cannot_be_drawn_do_not_leave_older_ones(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        msg = "matplotlib is needed here and is not installed."
        raise MissingDependencyError(msg)

    monkeypatch.setattr("falcon_gnn.reporting.style.save_figure", refuse)
    monkeypatch.setattr("falcon_gnn.reporting.html.write_report", refuse)
    for name in ("learning_curve.png", "report.html"):
        (tmp_path / name).touch()
    words = ["--node-budget", "50", "--centrality", "degree", "--out", str(tmp_path)]
    output = call("train", source, "--model", "sign", *words, *QUICK)
    assert "need the extra report" in output
    assert not {"learning_curve.png", "report.html"} & {path.name for path in tmp_path.iterdir()}


def test_a_regression_is_shown_by_its_error(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, Any] = {}

    def watched(epochs: Any, losses: Any, scores: Any, *arguments: Any, **names: Any) -> Any:
        drawn.update(names, scores=scores)
        return learning_curve_figure(epochs, losses, scores, *arguments, **names)

    monkeypatch.setattr("falcon_gnn.reporting.plots.learning_curve_figure", watched)
    output = call("train", source, "--task", "regression", "--model", "sign", "--out", str(tmp_path), *QUICK)
    record = json.loads((tmp_path / "record.json").read_text())
    assert "test mean squared error" in output
    assert f"{record['scores']['test']['mean_squared_error']:.4g}" in output
    assert not {"accuracy", "micro-F1", "nan"} & set(output.replace("%", " ").split())
    assert drawn["score_name"] == "Validation mean squared error"
    assert min(drawn["scores"]) == pytest.approx(-record["training"]["best_score"])


def test_plan_shows_every_model_and_draws_the_curve(source: str, tmp_path: Path) -> None:
    output = call("plan", source, "--memory", "6.2MiB", "--device", "cpu", "--out", str(tmp_path / "peaks.png"))
    assert all(model in output for model in ("gcn", "cluster-gcn", "gas", "sign", "qsign"))
    assert "171 nodes that fit 6.2MiB" in output
    assert max(map(len, output.splitlines()[:12])) <= 80
    assert (tmp_path / "peaks.png").is_file()


def test_a_plan_that_nothing_fits_fails_and_says_what_would(source: str) -> None:
    result = CliRunner().invoke(app, ["plan", source, "--memory", "1KiB", "--device", "cpu"])
    assert result.exit_code == 2
    assert result.output.count("memory must be at least") == 2
    assert "gcn; gcn, 2 bits; cluster-gcn" in result.output


def test_a_model_trained_on_a_collapsed_graph_says_that_there_is_nothing_to_score_on(
    source: str, tmp_path: Path
) -> None:
    call("collapse", source, "--node-budget", "0.5", "--out", str(tmp_path / "r"))
    output = call("train", str(tmp_path / "r"), "--out", str(tmp_path / "run"), *QUICK)
    assert "no test node to score on" in output


def test_a_first_run_tells_that_its_seconds_hold_the_compilation(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count, is_told in ((3, True), (0, False)):
        monkeypatch.setattr("falcon_gnn._kernels.num_compiled", lambda count=count: count)
        output = call("collapse", source, "--node-budget", "0.5", "--out", str(tmp_path))
        assert ("include compiling" in output) == is_told


def test_collapse_to_memory_keeps_what_fits_the_model(source: str, tmp_path: Path) -> None:
    options = ["--model", "gcn", "--hidden-channels", "256", "--batch-norm", "--device", "cpu", "--centrality", "DC"]
    output = call("collapse", source, "--memory", "5.7MiB", "--prefer", "speed", *options, "--out", str(tmp_path))
    after = json.loads((tmp_path / "report.json").read_text())["after"]["num_nodes"]
    assert f"{after} of " in output
    assert "nodes fit in 1 batch (predicted peak 5.7 MiB of 5.7 MiB)" in output


def test_collapse_to_memory_says_when_everything_fits(source: str, tmp_path: Path) -> None:
    output = call("collapse", source, "--memory", "1GiB", "--model", "gcn", "--out", str(tmp_path))
    assert "nothing needs to be collapsed" in output


def test_the_recommended_preset_leaves_the_options_given_alone(source: str, tmp_path: Path) -> None:
    words = ["--preset", "recommended", "--node-budget", "0.34"]
    call("train", source, *words, "--weight-power", "1.0", "--out", str(tmp_path), *QUICK)
    config = json.loads((tmp_path / "record.json").read_text())["config"]
    assert (config["hops_from"], config["reduction"]["groups"]) == ("original", "alike")
    assert (config["training"]["weight_power"], config["training"]["normalize_hops"]) == (1.0, True)
    call("train", source, *words, "--no-normalize-hops", "--out", str(tmp_path), *QUICK)
    assert not json.loads((tmp_path / "record.json").read_text())["config"]["training"]["normalize_hops"]


def test_predictions_are_mended_where_that_is_asked_for(source: str, tmp_path: Path) -> None:
    words = ["--preset", "recommended", "--node-budget", "0.34"]
    output = call("train", source, *words, "--correct-and-smooth", "--out", str(tmp_path), *QUICK)
    assert "orrect" in output.splitlines()[-2]
    assert "nodes labelled" in call("predict", str(tmp_path), source, "--out", str(tmp_path / "p.csv"))
    output = call("train", source, *words, "--out", str(tmp_path), *QUICK)
    assert "orrect" not in output


def test_a_correction_that_cannot_be_is_explained(source: str, tmp_path: Path) -> None:
    graph = load_graph(source).replace(val_mask=None)
    write_npz(graph, tmp_path / "unvalidated.npz")
    output = call(
        "train", str(tmp_path / "unvalidated.npz"), "--correct-and-smooth", "--out", str(tmp_path / "r"), *QUICK
    )
    assert "Not corrected: that takes" in output


def test_a_run_on_the_whole_graph_can_be_corrected_too(source: str, tmp_path: Path) -> None:
    call("train", source, "--correct-and-smooth", "--out", str(tmp_path), *QUICK)
    assert json.loads((tmp_path / "record.json").read_text())["correction"] is not None


def test_without_a_preset_the_paper_decides(source: str, tmp_path: Path) -> None:
    call("train", source, "--node-budget", "0.34", "--hops-from", "original", "--out", str(tmp_path), *QUICK)
    config = json.loads((tmp_path / "record.json").read_text())["config"]
    assert (config["hops_from"], config["reduction"]["selection"]) == ("original", "lowest")
    assert config["reduction"]["centrality"] == "eigenvector"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["collapse", "{source}", "--out", "x"], "one of node_budget"),
        (["collapse", "{source}", "--node-budget", "5", "--memory", "1GiB", "--out", "x"], "got both"),
        (["collapse", "{source}", "--node-budget", "many", "--out", "x"], "got 'many'"),
        (["train", "{source}", "--preset", "recommended", "--out", "x"], "preset says how to collapse"),
        (["train", "{source}", "--selection", "random", "--out", "x"], "selection says how to collapse"),
        (["train", "{source}", "--prefer", "speed", "--out", "x"], "prefer says what to keep of a memory budget"),
        (
            ["collapse", "{source}", "--node-budget", "5", "--prefer", "speed", "--out", "x"],
            "it needs memory, got prefer='speed' alone",
        ),
        (
            [
                "collapse",
                "{source}",
                "--node-budget",
                "9",
                "--preset",
                "recommended",
                "--model",
                "gcn",
                "--engine",
                "spark",
                "--out",
                "x",
            ],
            "groups='alike' is not on the Spark engine yet",
        ),
        (
            ["collapse", "{source}", "--memory", "1GiB", "--engine", "spark", "--out", "x"],
            "memory is not known to --engine spark",
        ),
        (["collapse", "no/such.npz", "--node-budget", "9", "--engine", "spark", "--out", "x"], "does not exist"),
        (["collapse", "{source}", "--node-budget", "0", "--out", "x"], "node_budget must be"),
        (
            ["collapse", "{source}", "--node-budget", "5", "--centrality", "pagrank", "--out", "x"],
            "Did you mean 'pagerank'",
        ),
        (["collapse", "digitz", "--node-budget", "5", "--out", "x"], "digits"),
        (["collapse", "digitz", "--memory", "1.5", "--out", "x"], "whole without a unit"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: list[str], message: str, source: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["falcon-gnn", *(word.format(source=source) for word in words)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (("training was interrupted after epoch 3",), "falcon-gnn: training was interrupted after epoch 3\n"),
        ((), "falcon-gnn: interrupted; no half-written file is left\n"),
    ],
)
def test_an_interruption_says_what_is_left(
    told: tuple[str, ...], shown: str, source: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt(*told)

    monkeypatch.setattr("falcon_gnn.pipeline.run.run", interrupt)
    monkeypatch.setattr(sys, "argv", ["falcon-gnn", "train", source, "--out", "x"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    assert capsys.readouterr().err == shown


@pytest.mark.parametrize("rank", [0, 1])
def test_of_several_processes_the_first_says_that_they_were_interrupted(
    rank: int, source: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    place = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "RANK": str(rank)}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("falcon_gnn.devices.team.join_team", interrupt)
    assert commands._run_command(["train", source, "--model", "sign", "--device", "cpu", "--out", "x"]) == 130
    assert bool(capsys.readouterr().err) is (rank == 0)


# Checkpoints are written once a minute; here after every epoch, so that one says that the training has begun.
_TRAIN = """
from falcon_gnn.training.trainer import train
train.__kwdefaults__["checkpoint_seconds"] = 0
from falcon_gnn.cli.commands import main
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM that a process could take note of")
def test_sigterm_finishes_the_epoch_and_leaves_a_checkpoint(source: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.safetensors"
    words = ["train", source, "--model", "sign", *QUICK, "--num-epochs", "1000000", "--out", str(tmp_path)]
    with subprocess.Popen([sys.executable, "-c", _TRAIN, *words], stderr=subprocess.PIPE, text=True) as process:
        while not checkpoint.exists() and process.poll() is None:
            time.sleep(0.05)
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    epoch = len(read_checkpoint(checkpoint).facts["epochs"])
    where = f"{checkpoint} holds its state, go on with resume"
    assert errors.splitlines()[-1] == f"falcon-gnn: training was interrupted after epoch {epoch}; {where}"


@pytest.mark.parametrize("on_interrupt", [signal.default_int_handler, signal.SIG_IGN], ids=["usual", "background"])
def test_sigterm_interrupts_other_work_as_ctrl_c_does(
    on_interrupt: Any, source: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("falcon_gnn.pipeline.run.run", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr(sys, "argv", ["falcon-gnn", "train", source, "--out", "x"])
    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        with pytest.raises(SystemExit) as stop:
            main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert stop.value.code == 130
    assert capsys.readouterr().err == "falcon-gnn: interrupted; no half-written file is left\n"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_exit_code_of_several_processes_is_theirs(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falcon_gnn.devices.launch.launch", lambda *_, **__: 130)
    words = ["train", source, "--devices", "2", "--num-batches", "2", "--device", "cpu", "--out", "x"]
    assert CliRunner().invoke(app, words).exit_code == 130


def test_the_recommended_collapse_is_of_alike_groups(source: str, tmp_path: Path) -> None:
    call(
        "collapse", source, "--preset", "recommended", "--model", "gcn", "--node-budget", "0.5", "--out", str(tmp_path)
    )
    assert json.loads((tmp_path / "report.json").read_text())["config"]["groups"] == "alike"


def test_the_help_loads_neither_torch_nor_scikit_learn_nor_numba() -> None:
    code = (
        "import sys\nfrom falcon_gnn.cli.commands import app\nfrom typer.testing import CliRunner\n"
        "CliRunner().invoke(app, ['--help'])\n"
        "print(sorted({'torch', 'sklearn', 'numba', 'matplotlib', 'pyarrow', 'pandas'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_the_version_is_shown() -> None:
    from falcon_gnn import __version__

    assert call("--version").strip() == __version__


@pytest.mark.parametrize(
    "features",
    [
        ["--feature-columns", "v*"],
        ["--feature-columns", "v1,v2"],
        ["--feature-columns", "v1", "--feature-columns", "v2"],
    ],
)
def test_columns_of_any_name_are_told_on_the_command(tmp_path, features):
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    (tmp_path / "nodes.csv").write_text("key,v1,v2,target\na,1,2,0\nb,3,4,1\nc,5,6,0\n")
    told = ["--label-column", "target", *features, "--id-column", "key"]
    options = ["--node-budget", "2", "--centrality", "degree", "--num-clusters", "1", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["collapse", str(tmp_path), *told, *options])
    assert result.exit_code == 0, result.output
    assert "Note: There is no training mask" in result.output
    assert load_graph(tmp_path / "out").num_features == 2


@pytest.mark.parametrize("command", ["collapse", "train", "demo", "predict", "plan"])
def test_an_out_that_cannot_be_written_is_one_line_before_any_work(tmp_path, command):
    (tmp_path / "file").touch()
    out = tmp_path / "file" if command in ("collapse", "train", "demo") else tmp_path
    arguments = {"collapse": ["digits", "--node-budget", "9"], "train": ["digits"], "demo": []}
    arguments |= {"predict": [str(tmp_path), "digits"], "plan": ["digits", "--memory", "1GiB"]}
    result = CliRunner().invoke(app, [command, *arguments[command], "--out", str(out)])
    assert isinstance(result.exception, OptionError)
    assert str(result.exception).startswith(f"--out {out} cannot be written (")


@pytest.mark.parametrize(
    ("words", "replaced"),
    [
        (["collapse", "{0}/graph.npz", "--node-budget", "9", "--out", "{0}"], "graph.npz"),
        (["collapse", "{0}", "--node-budget", "9", "--out", "{0}"], "graph.npz"),
        (["predict", "run", "{0}/edges.csv", "--nodes", "{0}/nodes.csv", "--out", "{0}/nodes.csv"], "nodes.csv"),
        (["predict", "run", "{0}/tables", "--out", "{0}/tables/nodes.csv"], "tables/nodes.csv"),
    ],
)
def test_the_graph_that_is_read_is_not_replaced(tmp_path: Path, words: list[str], replaced: str) -> None:
    (tmp_path / "tables").mkdir()
    for name in ("graph.npz", "edges.csv", "nodes.csv", "tables/edges.csv", "tables/nodes.csv"):
        (tmp_path / name).write_text("kept")
    result = CliRunner().invoke(app, [word.format(tmp_path) for word in words])
    assert isinstance(result.exception, OptionError)
    assert f"--out must be another place than that of the graph: {tmp_path / replaced}" in str(result.exception)
    assert (tmp_path / replaced).read_text() == "kept"


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (["plan", "no.npz", "--memory", "1GiB", "--out", "{0}/plan.pdf"], ".png or .svg"),
        (["predict", "run", "no.npz", "--out", "{0}/labels.txt"], ".parquet or .csv"),
    ],
)
def test_an_out_of_another_suffix_is_refused_before_any_work(tmp_path: Path, words: list[str], allowed: str) -> None:
    result = CliRunner().invoke(app, [word.format(tmp_path) for word in words])
    assert isinstance(result.exception, OptionError)
    assert f"path must end in {allowed}" in str(result.exception)


def test_a_warning_is_one_line_without_a_place_in_the_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        for category in (FalconWarning, UserWarning):
            sys.stderr.write(warnings.formatwarning("9 are used.", category, "code.py", 7, line=""))

    monkeypatch.setattr("falcon_gnn.cli.commands.app", command)
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == "falcon-gnn: warning: 9 are used.\ncode.py:7: UserWarning: 9 are used.\n"
