"""One run: what it trains on, what it records, what it writes."""

import json
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from falcon_gnn.errors import BudgetError, GraphError, MissingDependencyError, OptionError, OutOfMemoryError
from falcon_gnn.graph import Graph
from falcon_gnn.pipeline import shortage
from falcon_gnn.pipeline.comparison import compare_runs, training_section
from falcon_gnn.pipeline.options import RunConfig
from falcon_gnn.pipeline.outputs import predict_to_file, write_collapse, write_json
from falcon_gnn.pipeline.run import run
from falcon_gnn.pipeline.training_graph import fit_collapse, reduce_training_graph
from falcon_gnn.planning.estimate import estimate_evaluation
from falcon_gnn.planning.fit import fit_budget, shape_of_scoring
from falcon_gnn.provenance import describe_machine, describe_versions
from falcon_gnn.reduction.coarsening.config import CoarsenConfig
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.reduction.result import CollapseResult
from falcon_gnn.reporting.sections import Table
from falcon_gnn.resources import format_bytes
from falcon_gnn.training import steps
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.memory import MemoryPeak
from falcon_gnn.training.state import TrainingState
from falcon_gnn.training.steps import training_step

TRAINING = TrainConfig(ModelConfig("sign", hidden_channels=16, num_layers=2), num_epochs=3, device="cpu")
QUARTER = CollapseConfig(0.25, centrality="degree", num_clusters=3)


@pytest.fixture(scope="module")
def graph() -> Graph:
    rng = np.random.default_rng(1)
    y = np.arange(120) % 3
    x = np.eye(3, dtype=np.float32)[y] + rng.normal(0, 0.1, (120, 3)).astype(np.float32)
    return Graph.from_edges(
        rng.integers(0, 120, (2, 400)), 120, x=x, y=y, warn_one_way="never",
        train_mask=np.arange(120) < 80, val_mask=(np.arange(120) >= 80) & (np.arange(120) < 100),
        test_mask=np.arange(120) >= 100,
    )  # fmt: skip


def test_without_a_reduction_the_training_nodes_are_trained_on(graph: Graph) -> None:
    trained = reduce_training_graph(graph, RunConfig(TRAINING))
    assert trained.graph.num_nodes == 80
    assert trained.reduction is None


def test_scope_full_trains_on_the_whole_graph(graph: Graph) -> None:
    trained = reduce_training_graph(graph, RunConfig(TRAINING, scope="full"))
    assert trained.graph is graph


def test_a_train_scope_without_a_training_mask_is_refused_with_and_without_a_collapse(graph: Graph) -> None:
    unmasked = graph.replace(train_mask=None)
    for reduction in (None, replace(QUARTER, scope="train")):
        with pytest.raises(OptionError, match="scope='train' needs a graph with a train_mask"):
            reduce_training_graph(unmasked, RunConfig(TRAINING, reduction, scope="train"))
    with pytest.raises(OptionError, match="scope='train' needs a graph with a train_mask"):
        fit_budget(unmasked, TRAINING, "1GiB", scope="train")


@pytest.mark.parametrize("hops_from", ["reduced", "original"])
def test_no_second_copy_of_the_training_graph_lives_through_the_training(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, hops_from: Any
) -> None:
    copies: list[weakref.ref[Graph]] = []
    original = Graph.subgraph

    def watched(self: Graph, node_ids: Any) -> Graph:
        part = original(self, node_ids)
        copies.append(weakref.ref(part))
        return part

    alive: list[int] = []

    def look(self: Any) -> Any:
        alive.append(sum(copy() is not None for copy in copies))
        return advance(self)

    advance = TrainingState.advance
    monkeypatch.setattr(Graph, "subgraph", watched)
    monkeypatch.setattr(TrainingState, "advance", look)
    run(graph, RunConfig(TRAINING, QUARTER, hops_from=hops_from), progress=False)
    assert len(copies) == (hops_from == "original")
    assert alive == [0] * TRAINING.num_epochs


def test_a_run_survives_json(graph: Graph) -> None:
    for reduction in (None, QUARTER.resolved(), CoarsenConfig(0.5)):
        config = RunConfig(TRAINING, reduction, correct_and_smooth=True)
        assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_the_options_of_a_user_make_the_run_they_name() -> None:
    paper = RunConfig.of(TRAINING, 0.5, {"gamma": 0.3, "hops_from": "original", "seed": 4})
    assert paper == RunConfig(TRAINING, CollapseConfig(0.5, gamma=0.3, seed=4), hops_from="original")
    whole = RunConfig.of(TRAINING, None, {"scope": "full", "seed": 4, "num_hops": 1})
    assert whole == RunConfig(TRAINING, scope="full")
    assert RunConfig.of(TRAINING, 0.5, {"gamma": 0.3}, "recommended") == RunConfig.recommended(TRAINING, 0.5, gamma=0.3)
    for given in ({"gamma": 0.3}, {"protect_training": True}):
        with pytest.raises(BudgetError, match=f"{next(iter(given))} says how to collapse"):
            RunConfig.of(TRAINING, None, given)


def test_a_model_in_place_of_its_training_is_refused() -> None:
    for make in (RunConfig.recommended, lambda model, budget: RunConfig.of(model, budget, {})):
        with pytest.raises(OptionError, match="training must be a TrainConfig, got ModelConfig"):
            make(ModelConfig(), 0.5)  # type: ignore[arg-type]


def test_the_survivors_are_found_in_the_unreduced_training_graph(graph: Graph) -> None:
    trained = reduce_training_graph(graph, RunConfig(TRAINING, QUARTER, hops_from="original"))
    assert trained.graph.num_nodes == 20
    source, readout = trained.hop_source()
    np.testing.assert_array_equal(source.x[readout], trained.graph.x)


@pytest.mark.parametrize("reduction", [replace(QUARTER, merge="mean"), CoarsenConfig(30)])
def test_survivors_that_average_read_the_mean_of_their_group(graph: Graph, reduction: Any) -> None:
    trained = reduce_training_graph(graph, RunConfig(TRAINING, reduction, hops_from="original"))
    source, readout = trained.hop_source()
    np.testing.assert_allclose(readout @ source.x, trained.graph.x, rtol=1e-5)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (ModelConfig("qsign"), ("original", "graph", 0.3)),
        (ModelConfig("gcn"), ("original", "rows", 0.3)),
        (ModelConfig("gcn", concat_self=True), ("reduced", "graph", 0.0)),
        (ModelConfig("gas"), ("reduced", "graph", 0.0)),
    ],
)
def test_the_recommendation_depends_on_what_the_model_can_be_trained_on(
    model: ModelConfig, expected: tuple[str, str, float]
) -> None:
    config = RunConfig.recommended(TrainConfig(model), 0.5, num_clusters=7)
    hops_from, train_on, soft_labels = expected
    assert (config.hops_from, config.training.train_on) == (hops_from, train_on)
    assert (config.training.normalize_hops, config.training.weight_power) == (True, 0.5)
    assert config.reduction == CollapseConfig(0.5, groups="alike", num_clusters=7, soft_labels=soft_labels)
    assert not config.correct_and_smooth


def test_what_a_user_says_of_the_training_wins_over_the_recommendation() -> None:
    training = TrainConfig(ModelConfig("gcn"), weight_power=0.0)
    told = RunConfig.of(training, 0.5, {"weight_power": 0.0, "train_on": "graph"}, "recommended")
    assert (told.training.weight_power, told.training.train_on, told.hops_from) == (0.0, "graph", "reduced")
    columns = RunConfig.recommended(TrainConfig(ModelConfig("gcn"), column_blocks=2), 0.5)
    assert (columns.training.train_on, columns.hops_from) == ("graph", "reduced")
    assert RunConfig.recommended(TrainConfig(ModelConfig("gcn")), 0.5, hops_from="reduced").training.train_on == "graph"
    sign = TrainConfig(ModelConfig("sign"))
    for options in ({"soft_labels": 0.0}, {"cluster_on": "teacher"}):
        reduction = RunConfig.recommended(sign, 0.5, **options).reduction
        assert isinstance(reduction, CollapseConfig)
        assert reduction.soft_labels == 0


def test_the_preset_is_what_was_judged() -> None:
    from falcon_gnn.benchmark.plan import make_plan

    judged = make_plan(Path(__file__).resolve().parents[1] / "configs" / "beyond" / "judged.toml")
    for planned in judged.runs:
        if planned.cell.method in ("preset with soft labels", "preset of a GCN with soft labels"):
            reduction, training = planned.config.reduction, planned.config.training
            assert isinstance(reduction, CollapseConfig)
            # Batches are the file's own; a GCN that is not told to train on rows has one.
            plain = replace(training, normalize_hops=False, weight_power=1.0, train_on="graph", num_batches=1)
            preset = RunConfig.recommended(
                plain, reduction.node_budget, correct_and_smooth=True, centrality="pagerank", seed=reduction.seed
            )
            assert replace(planned.config, training=replace(training, num_batches=1)) == preset


def test_corrected_predictions_are_scored_and_written(tmp_path: Path) -> None:
    import pyarrow.parquet

    ids = np.arange(120)
    # A path for each class; the features say nothing.
    paths = Graph.from_edges(
        np.stack([ids[:-3], ids[3:]]), 120, x=np.zeros((120, 1), np.float32), y=ids % 3, warn_one_way="never",
        train_mask=ids % 4 > 1, val_mask=ids % 4 == 0, test_mask=ids % 4 == 1,
    )  # fmt: skip
    config = RunConfig.recommended(TRAINING, 0.5, correct_and_smooth=True)
    outcome = run(paths, config, out=tmp_path, progress=False)
    correction, test = outcome.correction, outcome.scores.test
    assert test.accuracy > correction.model_alone.test.accuracy + 0.5
    assert correction.labels_alone.accuracy > 0.9
    assert outcome.seconds.correction > 0
    predict_to_file(tmp_path, paths, tmp_path / "p.parquet")
    predicted = pyarrow.parquet.read_table(tmp_path / "p.parquet")["prediction"].to_numpy()
    assert (predicted == paths.y)[paths.test_mask].mean() == pytest.approx(test.accuracy)


def test_without_correction_the_record_says_so(graph: Graph) -> None:
    record = run(graph, RunConfig(TRAINING, QUARTER), progress=False).to_dict()
    assert record["correction"] is None


def test_a_regression_target_is_not_corrected(graph: Graph) -> None:
    target = graph.replace(y=np.linspace(0, 1, 120) ** 2)
    record = run(target, RunConfig(TRAINING, QUARTER, correct_and_smooth=True), progress=False).to_dict()
    assert record["correction"] is None
    assert record["scores"]["test"]["mean_squared_error"] is not None


def test_training_nodes_can_be_protected(graph: Graph) -> None:
    config = RunConfig(TRAINING, replace(QUARTER, node_budget=100, scope="full"), protect_training=True)
    trained = reduce_training_graph(graph, config)
    assert int(trained.graph.train_mask.sum()) == 80


def test_coarsening_is_a_reduction_like_any_other(graph: Graph) -> None:
    record = run(graph, RunConfig(TRAINING, CoarsenConfig(30)), progress=False).to_dict()
    assert record["trained_on"]["num_nodes"] == 30
    assert record["config"]["reduction_kind"] == "CoarsenConfig"


def test_a_run_leaves_its_record_weights_map_and_plots(graph: Graph, tmp_path: Path) -> None:
    outcome = run(graph, RunConfig(TRAINING, QUARTER), name="toy", out=tmp_path / "run", progress=False)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {
        "record.json",
        "weights.safetensors",
        "model.json",
        "mapping.npz",
        "report.json",
        "learning_curve.png",
    } <= names
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record == outcome.to_dict()
    assert record["graph"]["name"] == "toy"
    assert 0 <= record["scores"]["test"]["accuracy"] <= 1


def test_the_record_holds_no_name_of_this_machine() -> None:
    text = json.dumps([describe_machine(), describe_versions()])
    assert str(Path.cwd()) not in text
    assert {"cpu", "cores"} <= set(describe_machine())


def test_a_run_on_the_cpu_names_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: f"Card {device}")
    names = [describe_machine(device)["device"] for device in ("cpu", "auto", "cuda", "cuda:1")]
    assert names == ["cpu", "Card None", "Card None", "Card cuda:1"]


def test_predictions_name_every_node_of_the_original_graph(graph: Graph, tmp_path: Path) -> None:
    import pyarrow.parquet

    run(graph, RunConfig(TRAINING), out=tmp_path, progress=False)
    assert predict_to_file(tmp_path, graph, tmp_path / "p.parquet") == 120
    table = pyarrow.parquet.read_table(tmp_path / "p.parquet").to_pydict()
    assert table["node_id"] == list(range(120))
    assert set(table["prediction"]) <= {0, 1, 2}
    assert all(0 < p <= 1 for p in table["probability"])


def test_predictions_for_several_labels_are_lists(graph: Graph, tmp_path: Path) -> None:
    import pyarrow.parquet

    several = graph.replace(y=np.tri(3, dtype=np.uint8)[graph.y])
    run(several, RunConfig(TRAINING), out=tmp_path, progress=False)
    predict_to_file(tmp_path, several, tmp_path / "p.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "p.parquet").to_pydict()
    assert len(table["prediction"][0]) == 3
    assert set(table["prediction"][0]) <= {0, 1}


def test_predictions_can_be_csv(graph: Graph, tmp_path: Path) -> None:
    run(graph, RunConfig(TRAINING), out=tmp_path, progress=False)
    predict_to_file(tmp_path, graph, tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text().splitlines()[0] == '"node_id","prediction","probability"'


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_several_outputs_are_a_column_each_in_csv(graph: Graph, tmp_path: Path, task: Any) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    several = graph.replace(y=np.tri(3)[graph.y] if task == "regression" else np.tri(3, dtype=np.uint8)[graph.y])
    run(several, RunConfig(replace(TRAINING, task=task)), out=tmp_path, progress=False)
    for name in ("p.csv", "p.parquet"):
        predict_to_file(tmp_path, several, tmp_path / name)
    table, lists = pyarrow.csv.read_csv(tmp_path / "p.csv"), pyarrow.parquet.read_table(tmp_path / "p.parquet")
    shown = ["prediction"] if task == "regression" else ["prediction", "probability"]
    assert table.column_names == ["node_id", *(f"{name}_{i}" for name in shown for i in range(3))]
    for name in shown:
        columns = np.stack([table[f"{name}_{i}"] for i in range(3)], axis=1)
        assert columns == pytest.approx(np.stack(lists[name].to_pylist()), rel=1e-6)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("first", ["a1", (1, 2)])
def test_ids_of_several_kinds_are_written_as_text(graph: Graph, tmp_path: Path, ending: str, first: Any) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    ids = np.arange(graph.num_nodes).astype(object)
    ids[0] = first
    named = graph.replace(node_attributes={"node_id": ids})
    run(named, RunConfig(TRAINING), out=tmp_path, progress=False)
    predict_to_file(tmp_path, named, tmp_path / f"p.{ending}")
    read = {"csv": pyarrow.csv.read_csv, "parquet": pyarrow.parquet.read_table}[ending]
    assert read(tmp_path / f"p.{ending}")["node_id"].to_pylist()[:3] == [str(first), "1", "2"]


def test_an_interrupted_run_goes_on_where_it_was(graph: Graph, tmp_path: Path) -> None:
    whole = run(graph, RunConfig(TRAINING), progress=False).to_dict()
    run(graph, RunConfig(replace(TRAINING, num_epochs=1)), out=tmp_path, progress=False)
    resumed = run(graph, RunConfig(TRAINING), out=tmp_path, resume=True, progress=False).to_dict()
    assert resumed["scores"] == whole["scores"]


def test_hops_from_the_original_need_a_sign_model() -> None:
    with pytest.raises(OptionError, match="hops_from='original' needs a SIGN model"):
        RunConfig(replace(TRAINING, model=ModelConfig("gcn")), hops_from="original")


def test_a_seed_reaches_reduction_and_training() -> None:
    config = RunConfig(TRAINING, QUARTER).with_seed(5)
    assert (config.training.seed, config.reduction.seed) == (5, 5)


def test_a_memory_budget_sets_the_node_budget(graph: Graph) -> None:
    training = replace(TRAINING, model=ModelConfig("gcn", hidden_channels=64), num_epochs=1)
    whole = fit_collapse(graph, QUARTER, training, "1GiB")
    assert whole.result is None
    tight = whole.plan.estimate.total - 20_000
    blocked = run(graph, RunConfig(training, QUARTER), memory=tight, progress=False)
    assert blocked.reduction is None
    assert blocked.config.training.column_blocks > 1
    assert blocked.memory.total <= tight
    outcome = run(graph, RunConfig(training, QUARTER), memory=tight, prefer="speed", progress=False)
    assert outcome.reduction is not None
    assert 1 <= outcome.to_dict()["trained_on"]["num_nodes"] < 80
    assert outcome.to_dict()["plan"]["total"] <= tight


SHORTAGES = [
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total capacity of 4 GiB."),
]


@pytest.mark.parametrize("error", SHORTAGES, ids=["host", "card"])
def test_running_out_of_memory_says_what_fits(
    error: Exception, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = replace(TRAINING, model=ModelConfig("gcn", hidden_channels=64), num_epochs=2)
    needed = fit_budget(graph, training, "1GiB").estimate.total
    run(graph, RunConfig(training), out=tmp_path, progress=False)
    longer, taken = replace(training, num_epochs=5), 0

    def fail(*arguments: Any) -> Any:
        nonlocal taken
        taken += 1
        if taken > 2:
            raise error
        return training_step(*arguments)

    monkeypatch.setattr(steps, "training_step", fail)
    monkeypatch.setattr(shortage, "free_memory", lambda device: needed - 20_000)
    pattern = r"needs .* by prediction; .* are free; what fits is column_blocks=\d+.*; .* is whole, go on with resume"
    with pytest.raises(OutOfMemoryError, match=pattern) as caught:
        run(graph, RunConfig(longer), out=tmp_path, resume=True, progress=False)
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    changes = str(caught.value).split("what fits is ")[1].split(";")[0].split(", ")
    smaller = replace(longer, **{name: int(value) for name, value in (change.split("=") for change in changes)})
    assert fit_budget(graph, smaller, needed - 20_000).training == smaller
    assert len(run(graph, RunConfig(smaller), out=tmp_path, resume=True, progress=False).result.epochs) == 5


def test_where_no_smaller_step_fits_a_shortage_says_so(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortage, "free_memory", lambda device: 1_000)
    assert "no smaller step" in str(shortage.explain_shortage(graph, graph, TRAINING, None))


def test_a_record_names_which_memory_a_peak_is_of(graph: Graph) -> None:
    outcome = run(graph, RunConfig(replace(TRAINING, num_epochs=1)), progress=False)
    assert outcome.to_dict()["memory"]["measure"] == "tensors"
    on_card = replace(outcome.result, memory=MemoryPeak(7, temporaries=7, reserved=8, device_used=9))
    facts = replace(outcome, result=on_card).to_dict()["memory"]
    assert {name: facts[name] for name in ("measure", "total", "reserved", "device_used")} == {
        "measure": "allocated", "total": 7, "reserved": 8, "device_used": 9,
    }  # fmt: skip


def test_running_out_of_memory_in_an_evaluation_names_smaller_pieces_of_it(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = TrainConfig(ModelConfig("sign", hidden_channels=512, num_layers=2), num_batches=40)
    x, y, mask = np.zeros((20_000, 3), np.float32), np.arange(20_000) % 3, np.arange(20_000) < 10_000
    scored = Graph.from_edges(np.array([[0], [1]]), 20_000, x=x, y=y, train_mask=mask, val_mask=~mask)
    needed = [
        estimate_evaluation(shape_of_scoring(scored, config), config)
        for config in (training, replace(training, eval_piece_bytes=4 * 2**20))
    ]
    monkeypatch.setattr(shortage, "free_memory", lambda device: sum(needed) // 2)
    said = str(shortage.explain_shortage(graph, scored, training, None))
    assert f"an evaluation needs {format_bytes(needed[0], round_up=True)} by prediction" in said
    assert "what fits is eval_piece_bytes=4194304" in said


def test_a_run_goes_on_in_other_pieces(graph: Graph, tmp_path: Path) -> None:
    training = replace(TRAINING, model=ModelConfig("gcn", hidden_channels=64), num_epochs=2)
    run(graph, RunConfig(training), out=tmp_path, progress=False)
    longer = replace(training, num_epochs=4, column_blocks=4)
    whole = run(graph, RunConfig(replace(longer, column_blocks=1)), progress=False)
    resumed = run(graph, RunConfig(longer), out=tmp_path, resume=True, progress=False)
    losses = [[epoch.loss for epoch in outcome.result.epochs] for outcome in (resumed, whole)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_memory_without_a_collapse_to_size_is_refused(graph: Graph) -> None:
    with pytest.raises(OptionError, match="sets the node budget of a FALCON collapse"):
        run(graph, RunConfig(TRAINING), memory="1GiB", progress=False)


def test_a_collapse_is_written_whole(graph: Graph, tmp_path: Path) -> None:
    from falcon_gnn.datasets.load import load_graph

    result = collapse(graph, QUARTER)
    write_collapse(graph, result, tmp_path / "out")
    read = load_graph(tmp_path / "out" / "graph.npz")
    np.testing.assert_array_equal(read.indices, result.graph.indices)
    with np.load(tmp_path / "out" / "mapping.npz", allow_pickle=False) as mapping:
        np.testing.assert_array_equal(mapping["assignment"], result.assignment)


def test_the_page_of_a_run_shows_what_was_trained(graph: Graph, tmp_path: Path) -> None:
    outcome = run(graph, RunConfig(TRAINING, QUARTER), out=tmp_path, progress=False)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    test, memory = outcome.scores.test, outcome.memory
    assert test is not None
    assert memory is not None
    rows = [f'<td class="number">{test.accuracy:.2%}</td>', f'<td class="number">{memory.total_mib:.1f} MiB</td>']
    assert all(row in page for row in rows)
    assert "Validation accuracy" in page
    split = training_section({"sign": outcome}).blocks[-1]
    assert isinstance(split, Table)
    *kinds, total = [float(str(row[1])) for row in split.rows]
    assert sum(kinds) == pytest.approx(total)
    assert total == pytest.approx(memory.total_mib)


def test_the_page_of_a_collapse_compares_runs(graph: Graph, tmp_path: Path) -> None:
    outcomes = {
        name: run(graph, RunConfig(TRAINING, reduction), progress=False)
        for name, reduction in (("all of it", None), ("a quarter", QUARTER))
    }
    reduction = outcomes["a quarter"].reduction
    assert isinstance(reduction, CollapseResult)
    write_collapse(graph, reduction, tmp_path, outcomes=outcomes)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(f'<th scope="row">{name}</th>' in page for name in outcomes)
    assert [row[:2] for row in compare_runs(outcomes).rows] == [("all of it", "80 nodes"), ("a quarter", "20 nodes")]


def test_json_keeps_no_nan(tmp_path: Path) -> None:
    write_json({"a": float("nan"), "b": np.float32(1.5), "c": (np.int64(2),)}, tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": None, "b": 1.5, "c": [2]}


def test_patience_counts_evaluations_not_epochs(graph: Graph) -> None:
    training = replace(TRAINING, num_epochs=40, eval_every=3, patience=1)
    trained = run(graph, RunConfig(training), progress=False).to_dict()["training"]
    assert trained["num_epochs"] % 3 == 0 or trained["num_epochs"] == 40
    assert trained["num_epochs"] >= trained["best_epoch"] + 3 or trained["num_epochs"] == 40


ALIKE = CollapseConfig(0.25, groups="alike", num_clusters=3)


def test_a_run_on_groups_of_alike_nodes_reads_the_means_of_the_original_hops(graph: Graph) -> None:
    trained = reduce_training_graph(graph, RunConfig(TRAINING, ALIKE, hops_from="original"))
    source, readout = trained.hop_source()
    np.testing.assert_allclose(readout @ source.x, trained.graph.x, rtol=1e-5)
    assert trained.graph.node_weight is not None
    assert trained.graph.node_weight.sum() == 80
    outcome = run(graph, RunConfig(TRAINING, ALIKE, hops_from="original"), progress=False)
    assert outcome.trained_on.num_nodes == 20


@pytest.mark.parametrize("train_on", ["graph", "rows"])
def test_a_gcn_learns_from_groups_with_their_edges_or_without(graph: Graph, train_on: Any) -> None:
    network = ModelConfig("gcn", hidden_channels=16, num_layers=2)
    training = replace(
        TRAINING, model=network, train_on=train_on, normalize_hops=True, num_epochs=60, learning_rate=0.02
    )
    hops: Any = "original" if train_on == "rows" else "reduced"
    outcome = run(graph, RunConfig(training, ALIKE, hops_from=hops), progress=False)
    assert outcome.scores.test.accuracy > 0.5
    assert outcome.result.spec.normalize_hops


def test_original_hops_are_for_what_trains_on_rows() -> None:
    with pytest.raises(OptionError, match="needs a SIGN model, or a gcn with train_on='rows'"):
        RunConfig(replace(TRAINING, model=ModelConfig("gcn")), QUARTER, hops_from="original")


def test_the_recommendation_may_be_overridden_by_the_papers_groups() -> None:
    config = RunConfig.recommended(TRAINING, 0.1, groups="neighbors", selection="stratified")
    assert isinstance(config.reduction, CollapseConfig)
    assert (config.reduction.resolved().merge, config.hops_from) == ("hub", "original")


def test_a_teacher_labels_the_groups_that_are_trained_on(graph: Graph) -> None:
    few = graph.replace(train_mask=np.arange(120) < 12)
    reduction = CollapseConfig(24, groups="alike", cluster_on="teacher", scope="full")
    outcome = run(few, RunConfig(TRAINING, reduction, hops_from="original"), progress=False)
    assert outcome.trained_on.num_nodes == 24
    assert outcome.reduction is not None
    assert outcome.reduction.graph.label_distribution is not None
    assert outcome.teacher is not None
    said = outcome.reduction.teacher.argmax(axis=1)[graph.test_mask] == graph.y[graph.test_mask]
    assert outcome.teacher.accuracy == pytest.approx(said.mean())
    assert outcome.to_dict()["teacher"]["accuracy"] == outcome.teacher.accuracy


def test_a_task_that_one_half_of_a_run_is_told_is_the_others_too() -> None:
    counted = replace(TRAINING, task="regression")
    for config in (
        RunConfig(counted, QUARTER),
        RunConfig(TRAINING, replace(QUARTER, task="regression")),
        RunConfig(counted, CoarsenConfig(0.5)),
        RunConfig.recommended(counted, 0.25),
    ):
        assert config.reduction is not None
        assert (config.training.task, config.reduction.task) == ("regression", "regression")
        assert RunConfig.from_dict(config.to_dict()).training == config.training
    with pytest.raises(OptionError, match=r"task must be the same .* 'regression' and 'classes'"):
        RunConfig(counted, replace(QUARTER, task="classes"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_mask": None}, "graph must have a train_mask beside its val_mask and test_mask, got none"),
        ({"x": None}, r"graph.x must hold features of shape \(N, F\) for training, got none"),
        ({"y": None}, r"graph.y must hold labels of shape \(N,\) or \(N, L\) for training, got None"),
        ({"y": np.full(120, -1)}, "graph must have a labelled training node, got none"),
    ],
)
def test_a_graph_that_cannot_be_trained_on_is_refused_before_the_collapse(
    graph: Graph, changes: dict[str, Any], message: str
) -> None:
    stages: list[str] = []
    with pytest.raises(GraphError, match=message):
        run(graph.replace(**changes), RunConfig(TRAINING, QUARTER), on_stage=stages.append, progress=False)
    assert stages == ["reduction"]


def test_options_that_do_not_fit_the_labels_are_refused_before_the_collapse(graph: Graph) -> None:
    stages: list[str] = []
    for changes, message in (({"num_classes": 2}, "num_classes"), ({"validation_metric": "roc_auc"}, "two classes")):
        config = RunConfig(replace(TRAINING, **changes), QUARTER)
        with pytest.raises(OptionError, match=message):
            run(graph, config, on_stage=stages.append, progress=False)
    assert stages == ["reduction", "reduction"]


@pytest.mark.parametrize("sizes", [{"hidden_channels": 10**7}, {"num_layers": 10**9}, {"num_hops": 10**12}])
def test_a_model_that_fits_no_memory_is_refused_before_the_collapse(graph: Graph, sizes: dict[str, int]) -> None:
    stages: list[str] = []
    with pytest.raises(BudgetError, match=r"are needed to hold a model of .* available.* Lower hidden_channels"):
        run(graph, RunConfig(TrainConfig(ModelConfig("sign", **sizes)), QUARTER), on_stage=stages.append)
    assert stages == ["reduction"]


def test_a_run_that_has_nothing_to_resume_stops_before_the_collapse(graph: Graph, tmp_path: Path) -> None:
    stages: list[str] = []
    for out, message in ((None, "out=None"), (tmp_path, "checkpoint .* must be a file that an interrupted training")):
        with pytest.raises(OptionError, match=message):
            run(graph, RunConfig(TRAINING, QUARTER), out=out, resume=True, on_stage=stages.append, progress=False)
    assert stages == []


def test_curves_that_cannot_be_written_are_refused_before_the_collapse(graph, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    stages = []
    with pytest.raises(MissingDependencyError, match=r"falcon-gnn\[tensorboard\]"):
        run(graph, log_dir=tmp_path / "curves", on_stage=stages.append)
    assert stages == []
