"""Running a benchmark: what is recorded, skipped, resumed, and what a failure costs."""

import json
import multiprocessing
import os
import signal
from contextlib import closing

import pytest
from tests.benchmark.conftest import FALCON, NONE

from falcon_gnn.benchmark import arguments, execute, runs, workers
from falcon_gnn.benchmark.arguments import BenchOptions
from falcon_gnn.benchmark.metrics import METRICS
from falcon_gnn.benchmark.plan import make_plan
from falcon_gnn.benchmark.runs import run_benchmark
from falcon_gnn.errors import GraphError, OptionError
from falcon_gnn.pipeline.shortage import is_out_of_memory


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def bench(config, records, **options):
    return run_benchmark(config, records, BenchOptions(**options), progress=False)


@pytest.fixture
def records(tmp_path):
    return tmp_path / "records.jsonl"


def test_a_run_is_recorded_with_all_that_can_be_asked_about_it(write_config, records):
    outcome = bench(write_config(FALCON), records)
    plan, line = lines(records)
    assert (outcome.num_done, outcome.num_left, outcome.is_complete) == (1, 0, True)
    assert plan["plan"] == line["benchmark"] == "tiny"
    record = line["record"]
    assert record["config"]["reduction"]["node_budget"] == record["trained_on"]["num_nodes"] == 20
    assert 0 <= record["scores"]["test"]["accuracy"] <= 1
    assert {"seconds", "memory", "machine", "versions", "training"} <= set(record)
    assert line["conditions"]["workers"] == 1
    assert line["seed"] == record["config"]["training"]["seed"] == 0


def test_runs_that_are_recorded_are_skipped(write_config, records, monkeypatch):
    config = write_config(FALCON, seeds=2)
    bench(config, records)
    before = records.read_bytes()
    monkeypatch.setattr(execute, "run", None)
    outcome = bench(config, records)
    assert (outcome.num_done, outcome.num_skipped, outcome.num_left) == (0, 2, 0)
    assert records.read_bytes() == before


def test_a_benchmark_that_was_stopped_goes_on_where_it_was(write_config, records):
    config = write_config(FALCON, seeds=3, kind="label_error")
    assert bench(config, records, max_runs=1).num_left == 2
    outcome = bench(config, records)
    assert (outcome.num_done, outcome.num_skipped, outcome.num_left) == (2, 1, 0)
    assert [line["seed"] for line in lines(records)[1:]] == [0, 1, 2]


def test_an_interruption_keeps_what_is_done(write_config, records, monkeypatch):
    original = execute.run_reduction

    def interrupted(graph, config, **options):
        if config.training.seed == 1:
            raise KeyboardInterrupt
        return original(graph, config, **options)

    monkeypatch.setattr(execute, "run_reduction", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench(write_config(FALCON, seeds=3, kind="label_error"), records)
    assert [line["seed"] for line in lines(records)[1:]] == [0]


def test_a_run_that_cannot_be_told_of_is_recorded(write_config, records, monkeypatch):
    def report(*_):
        raise BrokenPipeError

    monkeypatch.setattr(runs.BenchProgress, "report", report)
    with pytest.raises(BrokenPipeError):
        bench(write_config(FALCON, seeds=2, kind="label_error"), records)
    assert [line["seed"] for line in lines(records)[1:]] == [0]


def test_a_failing_run_is_named_and_the_others_are_done(write_config, records):
    config = write_config("[methods.too_many]\ncollapse.node_budget = 1000", FALCON, kind="label_error")
    outcome = bench(config, records)
    assert (outcome.num_done, outcome.num_left, outcome.is_complete) == (1, 1, False)
    assert list(outcome.failed) == ["tiny, too_many, 1000, seed 0"]
    assert "BudgetError" in outcome.failed["tiny, too_many, 1000, seed 0"]
    assert [set(line) >= {"id", "error"} for line in lines(records)[1:]] == [True, False]


def test_a_failed_run_is_tried_again(write_config, records, monkeypatch):
    config = write_config(FALCON, kind="label_error")
    with monkeypatch.context() as patch:
        patch.setattr(execute, "run_reduction", None)
        assert bench(config, records).num_done == 0
    assert bench(config, records).num_done == 1


def test_a_data_set_that_is_not_there_is_told_once(write_config, records, tmp_path):
    config = write_config(FALCON, "[datasets.gone]\nsource = 'gone.npz'", seeds=3, kind="label_error")
    outcome = bench(config, records, data=tmp_path)
    assert (outcome.num_done, outcome.is_complete) == (3, False)
    assert "gone.npz does not exist" in outcome.missing_data["gone"]
    assert sum("missing_data" in line for line in lines(records)) == 1


def test_only_the_chosen_runs_are_done(write_config, records):
    config = write_config(FALCON, NONE, seeds=2)
    outcome = bench(config, records, only={"method": frozenset({"none"}), "seed": frozenset({"1"})})
    assert outcome.num_done == 1
    with pytest.raises(OptionError, match="no run of tiny fits budget=20, method=none"):
        bench(config, records, only={"budget": frozenset({"20"}), "method": frozenset({"none"})})


def test_a_chosen_value_that_no_run_has_is_refused_with_those_there(write_config, records):
    config = write_config(FALCON, NONE)
    with pytest.raises(
        OptionError, match=r"--only method must be one of falcon, none, got 'nones'\. Did you mean 'none'"
    ):
        bench(config, records, only={"method": frozenset({"none", "nones"})})
    with pytest.raises(OptionError, match="--only centrality fits no run here"):
        bench(config, records, only={"centrality": frozenset({"ec"})})


def test_runs_that_two_benchmarks_share_are_done_once(write_config, records, tmp_path):
    first = write_config(FALCON, kind="label_error")
    second = tmp_path / "second.toml"
    second.write_text(first.read_text(encoding="utf-8").replace("Tiny", "Other"), encoding="utf-8")
    bench(first, records)
    assert bench(second, records).num_skipped == 1
    assert [line["plan"] for line in lines(records) if "plan" in line] == ["tiny", "second"]


def test_a_run_that_stands_in_two_cells_is_done_once(write_config, records):
    config = write_config(FALCON, "[methods.same]", kind="label_error")
    assert bench(config, records).num_done == 1
    first, second = lines(records)[0]["cells"]
    assert (first["method"], second["method"]) == ("FALCON", "same")
    assert first["ids"] == second["ids"]


def test_an_override_is_recorded(write_config, records):
    bench(write_config(FALCON, kind="label_error"), records, overrides={"collapse.gamma": 0.4})
    plan, line = lines(records)
    assert plan["overrides"] == {"collapse.gamma": 0.4}
    assert line["record"]["config"]["reduction"]["gamma"] == 0.4


def test_a_warning_of_a_run_is_recorded(write_config, records):
    bench(write_config("[methods.many]\ncollapse.num_clusters = 1000", kind="label_error"), records)
    assert "clusters" in lines(records)[1]["warnings"][0]


def test_the_spectral_error_of_a_coarsening_is_recorded(write_config, records):
    bench(write_config('[methods.c]\nreduction = "coarsen"', kind="label_error"), records)
    reduction = lines(records)[1]["record"]["reduction"]
    assert reduction["spectral_error"]["epsilon"] >= 0
    assert reduction["num_nodes_in_scope"] == 54


def test_the_kernels_are_warm_before_a_collapse_is_timed(write_config, records, monkeypatch):
    sizes = []

    def watch(name):
        original = getattr(execute, name)

        def watched(graph, config, **options):
            sizes.append(graph.num_nodes)
            return original(graph, config, **options)

        monkeypatch.setattr(execute, name, watched)

    watch("reduce_training_graph")
    watch("run_reduction")
    bench(write_config(FALCON, seeds=2, kind="collapse_time"), records)
    assert sizes == [54, 90, 90]


def test_processes_give_the_same_records(write_config, records, tmp_path):
    config = write_config(FALCON, seeds=3, kind="label_error")
    bench(config, records)
    outcome = bench(config, tmp_path / "parallel.jsonl", num_workers=2)

    def results(path):
        done = [line for line in lines(path) if "record" in line]
        return {line["id"]: line["record"]["reduction"]["label_distribution_error"] for line in done}

    assert outcome.num_done == 3
    assert results(records) == results(tmp_path / "parallel.jsonl")


def test_a_process_that_dies_costs_one_run(write_config, monkeypatch, tmp_path):
    started = []
    original = workers._start

    def start(place):
        worker = original(place)
        if not started:
            worker.process.kill()
        started.append(worker)
        return worker

    monkeypatch.setattr(workers, "_start", start)
    planned = make_plan(write_config(FALCON, seeds=2, kind="label_error")).runs
    with closing(workers.run_in_processes(planned, execute.Workplace(tmp_path, 1))) as done:
        found = {run.seed: line for run, line in done}
    assert found[0]["out_of_memory"]
    assert "exit code -9" in found[0]["error"]
    assert "record" in found[1]


def test_a_process_whose_parent_was_killed_ends_without_an_error(monkeypatch, tmp_path):
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    workers._work(theirs, execute.Workplace(tmp_path))


def test_ctrl_c_reaches_no_process_that_is_starting(write_config, monkeypatch, tmp_path):
    original = workers._start

    def start(place):
        worker = original(place)
        os.kill(worker.process.pid, signal.SIGINT)
        return worker

    monkeypatch.setattr(workers, "_start", start)
    planned = make_plan(write_config(FALCON, kind="label_error")).runs
    with closing(workers.run_in_processes(planned, execute.Workplace(tmp_path, 1))) as done:
        assert ["record" in line for _, line in done] == [True]


def test_resources_hold_the_memory_and_the_time_of_an_epoch(write_config, records):
    bench(write_config(FALCON, kind="resources"), records)
    record = lines(records)[1]["record"]
    assert METRICS["gpu_memory"].read(record) > 0
    assert METRICS["epoch_time"].read(record) > 0


@pytest.mark.parametrize("kind", ["collapse_time", "resources"])
def test_runs_that_are_timed_have_the_machine_to_themselves(write_config, records, kind):
    with pytest.raises(OptionError, match="num_workers must be 1"):
        bench(write_config(FALCON, kind=kind), records, num_workers=2)


def test_the_data_folder_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv(arguments.DATA_VARIABLE, str(tmp_path))
    assert BenchOptions().data_folder == tmp_path


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (GraphError("gamma must lie in [0, 1]"), False),
    ],
)
def test_running_out_of_memory_is_told_from_other_errors(error, expected):
    assert is_out_of_memory(error) is expected


def test_rows_of_features_can_be_normalised(write_config, tmp_path):
    dataset = make_plan(write_config("normalize_rows = true", FALCON)).runs[0].dataset
    x = execute.load_dataset(dataset, tmp_path).x
    assert x.sum(axis=1) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("table", ["source = 'digits'", "synthetic = {num_nodes = 50, num_edges = 99}"])
def test_a_split_index_is_refused_where_a_graph_has_none(write_config, tmp_path, table):
    config = write_config(f"{FALCON}\n[datasets.other]\n{table}\nsplit_index = 2", kind="label_error")
    outcome = run_benchmark(config, tmp_path / "records.jsonl", BenchOptions(overrides={"datasets": ["other"]}))
    assert "split_index" in outcome.missing_data["other"]
