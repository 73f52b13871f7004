"""The three commands, as a user calls them."""

import numpy as np
import pytest
from tests.benchmark.conftest import FALCON
from typer.testing import CliRunner

from falcon_gnn.cli.commands import app
from falcon_gnn.datasets.archive import write_npz
from falcon_gnn.datasets.synthetic import SyntheticShape, synthetic_graph
from falcon_gnn.errors import OptionError


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def test_bench_then_tables(write_config, tmp_path):
    records = tmp_path / "records.jsonl"
    config = write_config(FALCON, seeds=2, kind="label_error", metrics='["label_distribution_error"]')
    done = call("bench", config, "--records", records, "--set", "gamma=0.4", "--only", "seed=0")
    assert (done.exit_code, "1 runs done, 0 were recorded, 0 are left" in done.output) == (0, True)
    shown = call("tables", records, "--out", tmp_path / "out")
    assert shown.exit_code == 0
    assert "(1 of 2 runs; not run)" in shown.output
    assert "Differs from the configuration: collapse.gamma = 0.4." in shown.output
    assert (tmp_path / "out" / "tiny.tex").is_file()


def test_a_quick_bench_runs_one_seed_by_one_centrality_into_a_file_of_its_own(write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = write_config("[methods.FALCON]\ncentralities = ['DC', 'EC']", seeds=3, kind="label_error")
    done = call("bench", config, "--quick")
    assert "1 runs done, 0 were recorded, 0 are left. Records: results/tiny_quick.jsonl" in done.output
    shown = call("tables", tmp_path / "results" / "tiny_quick.jsonl")
    assert "seeds = 1, centralities = ['eigenvector']" in shown.output
    asked = call("bench", config, "--quick", "--set", "seeds=2", "--records", tmp_path / "two.jsonl")
    assert "2 runs done" in asked.output


def test_tables_can_check_figures_and_write_the_page_of_all_of_them(write_config, tmp_path):
    records, page = tmp_path / "records.jsonl", tmp_path / "page.md"
    call("bench", write_config(FALCON, kind="label_error"), "--records", records)
    checked = call("tables", records, "--check")
    assert checked.output == "No figure stands beside one of the paper.\n"
    written = call("tables", records, "--paper-page", page)
    assert written.output == f"Written: {page}\n"
    assert "Of 1,150 figures 0 have ours beside them." in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "unread"),
    [(("--paper-page", "p.md", "--out", "t"), "--out"), (("--check", "--format", "csv"), "--format csv")],
)
def test_tables_refuse_an_option_that_another_one_leaves_unread(options, unread):
    with pytest.raises(OptionError, match=f"got {unread}"):
        call("tables", "records.jsonl", *options)


def test_bench_names_what_failed_and_exits_with_one(write_config, tmp_path):
    config = write_config("[methods.FALCON]\ncollapse.node_budget = 1000", kind="label_error")
    done = call("bench", config, "--records", tmp_path / "records.jsonl")
    assert done.exit_code == 1
    assert "Failed (tiny, FALCON, 1000, seed 0): BudgetError" in done.output


def test_tables_leave_out_lines_that_no_benchmark_wrote_and_say_so(write_config, tmp_path):
    records, other = tmp_path / "records.jsonl", tmp_path / "other.jsonl"
    call("bench", write_config(FALCON, kind="label_error"), "--records", records)
    other.write_text('{"nodes": 3, "seconds": 1.5}\n[1, 2]\n', encoding="utf-8")
    shown = call("tables", records, other)
    assert shown.exit_code == 0
    assert f"Left out of {other}: lines that no benchmark wrote (2)" in shown.output
    assert "| FALCON |" in shown.output


def test_records_that_are_not_there_or_a_folder_are_refused(write_config, tmp_path):
    config = write_config(FALCON, kind="label_error")
    for words, message in (
        (("tables", tmp_path / "nofile.jsonl"), "does not exist"),
        (("tables", tmp_path), "cannot be read"),
        (("bench", config, "--records", tmp_path), "cannot be read"),
    ):
        with pytest.raises(OptionError, match=message):
            call(*words)


def test_tune_prints_the_best_options(tmp_path):
    pytest.importorskip("optuna")
    found = call(
        "tune", "digits", "--node-budget", "0.1", "--num-trials", 1, "--model", "sign", "--centralities", "degree",
        "--num-clusters", 2, "--num-hops", 1, "--storage", tmp_path / "trials.log", "--num-epochs", 1,
        "--hidden-channels", 4, "--num-layers", 2,
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    assert "Best of 1 trials (0 failed): validation accuracy 0." in found.output
    assert "centrality = degree" in found.output


def test_tune_shows_a_regression_by_its_error(tmp_path):
    pytest.importorskip("optuna")
    graph = synthetic_graph(SyntheticShape(60, 120, num_features=4, num_classes=3))
    write_npz(graph.replace(y=np.linspace(0.5, 3, 60)), tmp_path / "graph.npz")
    found = call(
        "tune", tmp_path / "graph.npz", "--node-budget", 20, "--num-trials", 1, "--model", "sign", "--centralities",
        "degree", "--num-epochs", 1, "--hidden-channels", 4, "--num-clusters", 2,
    )  # fmt: skip
    assert "trial 0: validation mean squared error " in found.output
    assert "Best of 1 trials (0 failed): validation mean squared error " in found.output
    assert "error -" not in found.output
