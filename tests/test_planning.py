"""Memory budgets in bytes become node budgets that fit, and the next larger one does not."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from falcon_gnn.errors import BudgetError
from falcon_gnn.graph import Graph
from falcon_gnn.pipeline.training_graph import fit_collapse
from falcon_gnn.planning import budget_text
from falcon_gnn.planning.budget_text import device_memory, parse_memory
from falcon_gnn.planning.estimate import estimate_memory
from falcon_gnn.planning.fit import (
    MemoryPlan,
    _first_fitting,
    fit_budget,
    fit_shape,
    plan_models,
    predict_curve,
    shrink_to_fit,
    standard_configs,
)
from falcon_gnn.planning.ways import CODEC_TIME, exact_ways, relative_time
from falcon_gnn.quantization.codec import SEED_ROWS
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.resources import format_bytes
from falcon_gnn.training.batches import FullBatch
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.memory import measure_peak
from falcon_gnn.training.models import build_model
from falcon_gnn.training.shapes import (
    GraphShape,
    PartShape,
    largest_batch,
    predict_step,
    row_batch,
    shape_of_graph,
)
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.steps import make_optimizer, pieces_of, training_step
from falcon_gnn.training.trainer import train
from falcon_gnn.training.workspace import CPU_WORKSPACE_BYTES, workspace_bytes

SHAPE = GraphShape(3_000, 12_000, 40, 7, "classes", 3_000, parts=PartShape(0.35, 0.3, 0.35, 0.2, 0.05, 0.0, 0.0))
SMALL = ModelConfig("gcn", hidden_channels=32, num_layers=3)
MODELS = ("gcn", "cluster-gcn", "gas", "sign", "qsign", "sign-original")


def config_of(model: str, **options: object) -> TrainConfig:
    num_batches = 1 if model == "gcn" else 3
    return TrainConfig(replace(SMALL, model=model, **options), num_batches=num_batches, device="cpu")


def budget_of_rows(num_rows: int, config: TrainConfig) -> int:
    return predict_step(SHAPE, row_batch(num_rows), config).total + CPU_WORKSPACE_BYTES


@pytest.fixture(scope="module")
def graph() -> Graph:
    rng = np.random.default_rng(0)
    num_nodes = 600
    return Graph.from_edges(
        rng.integers(0, num_nodes, (2, 2_400)),
        num_nodes,
        x=rng.random((num_nodes, 20), np.float32),
        y=rng.integers(0, 4, num_nodes),
        train_mask=np.arange(num_nodes) < 500,
        warn_one_way="never",
    )


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("2GiB", 2 * 2**30),
        ("2GB", 2 * 10**9),
        ("900MB", 900 * 10**6),
        ("900 MiB", 900 * 2**20),
        ("1.5kib", 1536),
        ("4096", 4096),
        (4096, 4096),
        ("1TB", 10**12),
        ("8.2MB", 8_200_000),
        ("9007199254740993", 2**53 + 1),
        ("80%", 800),
    ],
)
def test_units_are_read_exactly(text: str | int, num_bytes: int) -> None:
    assert parse_memory(text, lambda: 1000) == num_bytes


@pytest.mark.parametrize(
    "text", ["", "lots", "2 XB", "-1GiB", "0", "0%", "101%", "1e9", "GiB", True, None, 1.5, "1.5", "1.5B"]
)
def test_a_bad_memory_text_names_what_is_allowed(text: object) -> None:
    with pytest.raises(BudgetError, match="memory must be bytes with a unit"):
        parse_memory(text)  # type: ignore[arg-type]


def test_bytes_are_shown_in_the_unit_that_fits() -> None:
    assert [format_bytes(n) for n in (5, 2**10, 3 * 2**29, 2**50)] == ["5.0 B", "1.0 KiB", "1.5 GiB", "1,024.0 TiB"]


@pytest.mark.parametrize(
    ("model", "bits", "column_blocks"),
    [
        *((model, None, 1) for model in MODELS), ("gcn", 2, 1), ("cluster-gcn", 2, 1), ("gas", 4, 1), ("qsign", 8, 1),
        ("gas", None, 3), ("gas", 2, 3),
    ],
)  # fmt: skip
def test_the_prediction_equals_the_measure_of_a_real_step(
    model: str, bits: int | None, column_blocks: int, graph: Graph
) -> None:
    config = replace(config_of(model, bits=bits, batch_norm=bits is not None), column_blocks=column_blocks)
    trained = graph.subgraph(np.flatnonzero(graph.train_mask))
    source = make_source(trained, config, "classes", torch.device("cpu"))
    network = build_model(config.model, trained.num_features, 4).train()
    optimizer = make_optimizer(network, config)
    batches = [batch for batch in source.draw(1) if len(batch.targets)]
    measured = max(
        (
            measure_peak(partial(training_step, network, optimizer, [batch], "float32", pieces_of(config)))
            for batch in batches
        ),
        key=lambda peak: peak.total,
    )
    predicted = estimate_memory(shape_of_graph(trained, config, graph), config).total - CPU_WORKSPACE_BYTES
    # The largest sizes of different batches may come together in the prediction of the models with parts.
    slack = 1.1 if config.model.uses_parts else 1.0
    assert measured.total <= predicted <= slack * measured.total


def _with_unknown_cells(graph: Graph) -> Graph:
    y = np.random.default_rng(1).integers(-1, 2, (graph.num_nodes, 30))
    return graph.replace(y=y)


def _of_weighted_nodes(graph: Graph) -> Graph:
    return graph.replace(node_weight=np.arange(1.0, graph.num_nodes + 1))


def _of_weighted_nodes_with_unknown_cells(graph: Graph) -> Graph:
    return _of_weighted_nodes(_with_unknown_cells(graph))


def _with_probabilities(graph: Graph) -> Graph:
    return graph.replace(label_distribution=np.full((graph.num_nodes, 4), 0.25, np.float32))


@pytest.mark.parametrize("model", ["gcn", "sign", "qsign"])
@pytest.mark.parametrize(
    "change", [_with_unknown_cells, _of_weighted_nodes, _of_weighted_nodes_with_unknown_cells, _with_probabilities]
)
def test_the_prediction_knows_what_targets_hold(change: Callable[[Graph], Graph], model: str, graph: Graph) -> None:
    trained, config = change(graph.subgraph(np.arange(500))), replace(config_of(model), num_epochs=1)
    measured = train(trained, config, progress=False).memory
    assert measured is not None
    assert measured.total == estimate_memory(shape_of_graph(trained, config), config).total - CPU_WORKSPACE_BYTES


def test_the_kinds_of_a_full_batch_are_told_apart(graph: Graph) -> None:
    config = config_of("gcn")
    estimate = estimate_memory(shape_of_graph(graph, config), config)
    weights = sum(p.numel() for p in build_model(config.model, 20, 4).parameters()) * 4
    assert estimate.weights == weights
    assert 2 * weights <= estimate.optimizer <= 2 * weights + 1024
    batch = FullBatch(
        graph, np.arange(10), make_source(graph, config, "classes", torch.device("cpu")).batch.targets, False,
        torch.device("cpu"),
    )  # fmt: skip
    assert estimate.inputs >= batch.batch.inputs.aggregated.numel() * 4


@pytest.mark.parametrize(("model", "bits"), [*((model, None) for model in MODELS), ("cluster-gcn", 2), ("gas", 2)])
def test_the_budget_found_fits_and_the_next_one_does_not(model: str, bits: int | None) -> None:
    config = config_of(model, bits=bits)
    whole = estimate_memory(SHAPE, config).total
    floor = estimate_memory(SHAPE.with_nodes(1), config).total
    budget = (whole + floor) // 2
    plan = fit_shape(SHAPE, config, budget, choose_batches=False, prefer="speed")
    assert plan.needs_collapse
    assert plan.estimate.total <= budget
    assert estimate_memory(SHAPE.with_nodes(plan.node_budget + 1), config).total > budget


def test_a_sign_batch_has_the_most_rows_that_fit() -> None:
    config = config_of("sign")
    plan = fit_shape(SHAPE, config, budget_of_rows(701, config), choose_batches=False, prefer="speed")
    assert plan.node_budget == 3 * 701


@pytest.mark.parametrize("model", MODELS)
def test_the_peak_never_falls_with_more_nodes(model: str) -> None:
    config = config_of(model)
    peaks = [estimate_memory(SHAPE.with_nodes(n), config).total for n in (1, 2, 10, 200, 1_000, 2_999, 3_000)]
    assert peaks == sorted(peaks)
    assert peaks[0] < peaks[-1]


def test_every_node_stays_labelled_at_every_size() -> None:
    shape = GraphShape(44_906, 613_184, 50, 121, "multilabel", 44_906)
    assert all(shape.with_nodes(n).num_targets == n for n in range(22_000, 23_000))


@pytest.mark.parametrize("model", MODELS)
def test_the_peak_grows_with_the_hidden_size(model: str) -> None:
    peaks = [estimate_memory(SHAPE, config_of(model, hidden_channels=h)).total for h in (16, 32, 64)]
    assert peaks[0] < peaks[1] < peaks[2]


@pytest.mark.parametrize("model", sorted(set(MODELS) - {"sign"}))
def test_the_peak_grows_with_the_bits(model: str) -> None:
    peaks = [estimate_memory(SHAPE, config_of(model, bits=b, hidden_channels=64)).total for b in (1, 2, 4, 8)]
    assert peaks == sorted(peaks)
    assert peaks[0] < peaks[-1]


@pytest.mark.parametrize("model", ["sign", "qsign", "cluster-gcn", "gas"])
def test_the_peak_falls_with_more_batches(model: str, graph: Graph) -> None:
    configs = [replace(config_of(model, hidden_channels=128), num_batches=b) for b in (1, 2, 4, 8)]
    peaks = [estimate_memory(shape_of_graph(graph, config), config).total for config in configs]
    assert peaks[0] > peaks[1] > peaks[2] > peaks[3]


def test_more_batches_are_chosen_before_nodes_are_given_up() -> None:
    config = replace(config_of("sign"), num_batches=1)
    plan = fit_shape(SHAPE, config, budget_of_rows(1_500, config), prefer="speed")
    assert (plan.node_budget, plan.training.num_batches) == (3_000, 2)


def test_nodes_are_given_up_before_a_batch_has_fewer_than_1024_rows() -> None:
    config = replace(config_of("sign"), num_batches=1)
    plan = fit_shape(SHAPE, config, budget_of_rows(900, config), prefer="speed")
    assert (plan.node_budget, plan.training.num_batches) == (2_700, 3)


def test_histories_count_on_the_cpu_and_not_on_a_cuda_device() -> None:
    config = config_of("gas")
    on_cpu, on_cuda = (estimate_memory(SHAPE, replace(config, device=device)) for device in ("cpu", "cuda"))
    assert on_cpu.inputs - on_cuda.inputs == 2 * 3_000 * 32 * 4
    assert on_cuda.temporaries - on_cpu.temporaries == (64 << 20) - CPU_WORKSPACE_BYTES


@pytest.mark.parametrize(
    ("capability", "asked", "deterministic", "kib"),
    [
        ((8, 0), None, False, 2 * 8_320), ((9, 0), None, False, 2 * 32_768), ((8, 6), ":16:8", False, 2 * 128),
        ((8, 0), None, True, 2 * 32_768),
    ],
)  # fmt: skip
def test_a_workspace_is_that_of_the_card_on_two_threads(
    capability: tuple[int, int], asked: str | None, deterministic: bool, kib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    if asked is not None:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", asked)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert workspace_bytes(replace(config_of("sign"), device="auto", deterministic=deterministic)) == kib * 1024


def test_a_share_of_a_card_is_of_what_tensors_can_have_of_its_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (88 << 20, 1 << 40))
    assert parse_memory("50%", lambda: device_memory("auto")) == pytest.approx(36.5 * 2**20, abs=1)


def test_a_share_is_of_the_memory_of_the_device_trained_on(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of("gcn", hidden_channels=256)
    num_bytes = estimate_memory(shape_of_graph(graph, config), config).total
    monkeypatch.setattr(budget_text, "total_memory", lambda: num_bytes)
    assert fit_budget(graph, config, "80%") == fit_budget(graph, config, num_bytes * 4 // 5)
    assert not fit_budget(graph, config, "100%").needs_collapse


def test_everything_fits_in_plenty_of_memory(graph: Graph) -> None:
    plan = fit_budget(graph, config_of("gcn"), "1GiB")
    assert not plan.needs_collapse
    assert plan.node_budget == plan.num_nodes == 500
    assert "nothing needs to be collapsed" in plan.describe()


def test_too_little_memory_names_the_floor_and_a_change_that_fits() -> None:
    config = config_of("gcn", hidden_channels=512)
    with pytest.raises(BudgetError, match=r"weights, gradients and optimizer.*lower hidden_channels from 512 to \d+"):
        fit_shape(SHAPE, config, 6 * 2**20)


def test_the_change_named_in_the_error_fits() -> None:
    config = config_of("gcn", hidden_channels=512)
    with pytest.raises(BudgetError) as caught:
        fit_shape(SHAPE, config, 6 * 2**20)
    hidden = int(str(caught.value).rsplit("to ", 1)[1].rstrip("."))
    assert fit_shape(SHAPE, config_of("gcn", hidden_channels=hidden), 6 * 2**20).node_budget >= 1


@pytest.mark.parametrize("hidden", [64, 100, 200, 333])
def test_the_memory_named_in_the_error_is_enough(hidden: int) -> None:
    config = config_of("gcn", hidden_channels=hidden)
    with pytest.raises(BudgetError) as caught:
        fit_shape(SHAPE, config, 1)
    enough = str(caught.value).rsplit("raise the memory to ", 1)[1].rstrip(".")
    assert fit_shape(SHAPE, config, parse_memory(enough)).node_budget >= 1


def test_a_denser_collapse_than_expected_is_shrunk(graph: Graph) -> None:
    config = config_of("gcn")
    trained = graph.subgraph(np.flatnonzero(graph.train_mask))
    shape = shape_of_graph(trained, config)
    total = estimate_memory(shape, config).total
    tight = MemoryPlan(total - 1, 500, 500, shape.num_edges, config, estimate_memory(shape, config), 1.0)
    found, smaller = shrink_to_fit(tight, trained)
    assert found.estimate.total == total
    assert smaller is not None
    assert smaller < 500
    assert shrink_to_fit(replace(tight, memory_bytes=total), trained)[1] is None


def test_a_collapse_with_more_edges_than_expected_is_repeated(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of("gcn")
    trained = graph.subgraph(np.flatnonzero(graph.train_mask))
    budget = estimate_memory(shape_of_graph(trained, config), config).total - 3_000

    def expect_few_edges(shape: GraphShape, num_nodes: int) -> GraphShape:
        return shape if num_nodes == shape.num_nodes else replace(shape, num_nodes=num_nodes, num_edges=num_nodes)

    monkeypatch.setattr(GraphShape, "with_nodes", expect_few_edges)
    fit = fit_collapse(graph, CollapseConfig(1.0, num_clusters=5), config, budget, prefer="speed")
    assert fit.result is not None
    assert fit.plan.num_edges == fit.result.graph.num_edges > 2 * fit.plan.node_budget
    assert estimate_memory(shape_of_graph(fit.result.graph, config), config).total <= budget


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("model", ["sign", "qsign", "sign-original", "gcn", "cluster-gcn", "gas"])
def test_pieces_come_before_fewer_nodes_and_fit(model: str, batch_norm: bool, graph: Graph) -> None:
    config = config_of(model, hidden_channels=128, batch_norm=batch_norm)
    shape = GraphShape(3_000, 12_000, 40, 7, "classes", 3_000) if not config.model.uses_parts else SHAPE
    whole, (_, *families) = estimate_memory(shape, config).total, [[config], *exact_ways(shape, config)]
    leanest = min(estimate_memory(shape, family[-1]).total for family in families)
    assert leanest < whole
    plan = fit_shape(shape, config, (leanest + whole) // 2)
    assert not plan.needs_collapse
    assert max(plan.training.micro_batches, plan.training.column_blocks) > 1
    assert plan.training.model.bits == config.model.bits
    assert plan.estimate.total <= (leanest + whole) // 2
    assert plan.relative_time >= 1
    assert fit_shape(shape, config, whole).training == config
    fast = fit_shape(shape, config, (leanest + whole) // 2, choose_batches=False, prefer="speed")
    assert fast.needs_collapse
    assert fast.relative_time < plan.relative_time


@pytest.mark.parametrize("seed", range(20))
def test_the_search_for_a_way_finds_what_a_walk_finds(seed: int) -> None:
    """Peaks of any falling form, near a line in 1 / pieces or far from it."""
    rng = np.random.default_rng(seed)
    config = config_of("gcn")
    family = [replace(config, column_blocks=n) for n in np.unique(np.append(1, rng.integers(2, 129, 30))).tolist()]
    bent = np.sort(rng.random(len(family)) ** rng.uniform(0.2, 5))[::-1] * rng.choice([0, 200, 2_000])
    peaks = {way: int(100 + 1_000 / way.column_blocks + extra) for way, extra in zip(family, bent, strict=True)}
    for budget in sorted(peaks[way] + off for way in family[2:] for off in (-1, 0, 1)):
        if peaks[family[1]] > budget:
            walked = next((way for way in family if peaks[way] <= budget), None)
            assert _first_fitting(family, peaks.__getitem__, budget) == walked


def test_the_fastest_way_that_fits_is_taken() -> None:
    config = config_of("sign", hidden_channels=128, batch_norm=True)
    for ways in exact_ways(SHAPE, config):
        peaks = [estimate_memory(SHAPE, way).total for way in ways]
        assert peaks == sorted(peaks, reverse=True)
        for way, peak in zip(ways, peaks, strict=True):
            chosen = fit_shape(SHAPE, config, peak).training
            assert estimate_memory(SHAPE, chosen).total <= peak
            assert relative_time(SHAPE, chosen) <= relative_time(SHAPE, way)


def test_the_time_of_sweeps_counts_every_product() -> None:
    """Two norms, one matrix kept: by hand from the module's list of sweeps, in units of a hidden product."""
    shape = GraphShape(5_000, 0, 300, 100, "classes", 5_000)
    config = TrainConfig(ModelConfig("sign", 1_000, 3, batch_norm=True, num_hops=0), micro_batches=5)
    first, hidden, head = 0.3, 1.0, 0.1
    unsplit = 3 * (first + hidden + head) - first
    moments = first + hidden
    backward = 3 * head + 2 * head + first + 2 * (first + hidden) - first
    correction = 3 * first - first
    assert relative_time(shape, config) == pytest.approx((moments + backward + correction) / unsplit)
    assert relative_time(shape, replace(config, micro_batches=1)) == 1


def test_rows_of_a_gcn_are_taken_in_pieces_where_no_batch_norm_joins_them() -> None:
    shape = replace(SHAPE, num_nodes=5 * SEED_ROWS, num_targets=5 * SEED_ROWS)
    config = TrainConfig(ModelConfig("gcn", 64, 2), train_on="rows")
    assert [[way.micro_batches for way in family] for family in exact_ways(shape, config)] == [[2, 3, 5]]
    assert exact_ways(shape, replace(config, model=replace(config.model, batch_norm=True))) == []


def test_a_narrow_input_spares_the_sweeps_of_the_first_norm() -> None:
    """By hand as above, for 200 inputs to 1,000 hidden values: no correction; without a kept matrix no first sweep."""
    shape = GraphShape(5_000, 0, 200, 100, "classes", 5_000)
    config = TrainConfig(ModelConfig("sign", 1_000, 3, batch_norm=True, num_hops=0), micro_batches=5)
    first, hidden, head = 0.2, 1.0, 0.1
    unsplit, below = 3 * (first + hidden + head) - first, first + hidden
    kept = below + 3 * head + 2 * head + first + 2 * below - first
    assert relative_time(shape, config) == pytest.approx(kept / unsplit)
    none_kept = below + 3 * head + below + 2 * head + below + 2 * below - first
    assert relative_time(shape, replace(config, keep_matrix=False)) == pytest.approx(none_kept / unsplit)
    shallow = replace(config, model=replace(config.model, num_layers=2))
    assert relative_time(shape, shallow) == pytest.approx(1)


def test_codes_are_kept_from_sweep_to_sweep() -> None:
    """By hand: what codes know of the first norm's input is no linear function of it, so that it has its correction."""
    shape = GraphShape(5_000, 0, 200, 100, "classes", 5_000)
    config = TrainConfig(ModelConfig("qsign", 1_000, 3, batch_norm=True, num_hops=0, bits=2), micro_batches=5)
    first, hidden, head = 0.2, 1.0, 0.1
    moments, forward = first + hidden, first + hidden + head
    backward = 2 * head + head + 2 * (first + hidden) - first
    expected = CODEC_TIME * (moments + forward + backward + first) / (3 * (first + hidden + head) - first)
    assert relative_time(shape, config) == pytest.approx(expected)
    assert relative_time(shape, replace(config, keep_matrix=False)) == pytest.approx(expected)


def test_a_table_of_models_goes_on_past_one_that_does_not_fit(graph: Graph) -> None:
    configs = {"small": config_of("gcn"), "large": config_of("gcn", hidden_channels=2_048)}
    plans = plan_models(graph, configs, "8MiB")
    assert isinstance(plans["small"], MemoryPlan)
    assert isinstance(plans["large"], BudgetError)


def test_a_table_of_models_has_the_plan_of_each(graph: Graph) -> None:
    configs = standard_configs(config_of("gcn"), 2)
    plans = plan_models(graph, configs, "200KiB")
    assert {name: str(plan) for name, plan in plans.items()} == {
        name: str(_plan_or_error(graph, config)) for name, config in configs.items()
    }


def _plan_or_error(graph: Graph, config: TrainConfig) -> MemoryPlan | BudgetError:
    try:
        return fit_budget(graph, config, "200KiB", closeness=0.005)
    except BudgetError as error:
        return error


def test_a_table_of_models_refuses_a_bad_memory_text(graph: Graph) -> None:
    with pytest.raises(BudgetError, match="memory must be bytes with a unit"):
        plan_models(graph, {"small": config_of("gcn")}, "2 gigs")


def test_the_curve_ends_at_the_whole_graph(graph: Graph) -> None:
    budgets, peaks = predict_curve(graph, config_of("gcn"), num_points=4)
    assert budgets[-1] == 500
    assert peaks == sorted(peaks)


def test_standard_configs_cover_every_model_but_the_original_sign() -> None:
    models = {config.model.model for config in standard_configs(config_of("gcn")).values()}
    assert models == set(MODELS) - {"sign-original"}


def test_a_batch_of_parts_is_never_larger_than_its_graph() -> None:
    config = config_of("gas")
    batch = largest_batch(SHAPE, config)
    assert batch.num_nodes + batch.halo_nodes <= SHAPE.num_nodes
