"""The runs of a benchmark: what is multiplied with what, and which options each has."""

from pathlib import Path

import pytest
from tests.benchmark.conftest import FALCON, NONE

from falcon_gnn.benchmark.overrides import parse_choice
from falcon_gnn.benchmark.plan import choose_runs, make_plan
from falcon_gnn.errors import OptionError
from falcon_gnn.reduction.coarsening.config import CoarsenConfig
from falcon_gnn.reduction.config import CollapseConfig

PAPER = Path(__file__).resolve().parents[2] / "configs" / "paper"


def ids(path, **overrides):
    return [run.run_id for run in make_plan(path, overrides).runs]


def test_the_runs_are_the_product_of_models_budgets_centralities_and_seeds(write_config):
    path = write_config("[methods.FALCON]\ncentralities = ['PR', 'DC']", seeds=3, models='["sign", "gcn"]')
    runs = make_plan(path, {"budgets": [0.5, 10]}).runs
    assert len(runs) == len({run.run_id for run in runs}) == 2 * 2 * 2 * 3
    assert {(run.cell.model, run.cell.budget, run.cell.centrality, run.seed) for run in runs} == {
        (model, budget, centrality, seed)
        for model in ("sign", "gcn")
        for budget in (0.5, 10)
        for centrality in ("PR", "DC")
        for seed in (0, 1, 2)
    }


@pytest.mark.parametrize(("split", "key"), [("'random'", "split_seed"), ("'public'", "split_index")])
def test_each_seed_has_a_split_of_its_own_where_the_file_says_so(write_config, split, key):
    runs = make_plan(write_config(f"split = {split}\nnew_splits = true", FALCON, seeds=3)).runs
    assert [getattr(run.dataset, key) for run in runs] == [run.seed for run in runs] == [0, 1, 2]
    # A file that names the split is the same run.
    alone = make_plan(write_config(f"split = {split}\n{key} = 2", FALCON, seeds=3)).runs
    assert alone[2].run_id == runs[2].run_id


def test_a_run_on_the_full_graph_has_no_budget_and_is_planned_once(write_config):
    runs = make_plan(write_config(FALCON, NONE), {"budgets": [0.5, 0.2]}).runs
    assert [run.cell.budget for run in runs if run.cell.method == "none"] == [None]


def test_the_seed_reaches_the_reduction_and_the_training(write_config):
    run = make_plan(write_config(FALCON), {"seeds": [5]}).runs[0]
    assert (run.config.training.seed, run.config.reduction.seed) == (5, 5)


def test_the_options_of_a_method_win_over_those_of_a_data_set_and_an_override_over_all(write_config):
    path = write_config(
        "collapse.gamma = 0.4\ncollapse.num_clusters = 5\ntraining.patience = 3",
        "[methods.FALCON]\ncollapse.num_clusters = 1",
    )
    reduction = make_plan(path).runs[0].config.reduction
    assert (reduction.gamma, reduction.num_clusters) == (0.4, 1)
    changed = make_plan(path, {"collapse.num_clusters": 7, "training.patience": "none"}).runs[0].config
    assert (changed.reduction.num_clusters, changed.training.patience) == (7, None)


def test_models_budgets_and_seeds_of_a_data_set_are_its_own_unless_overridden(write_config):
    path = write_config("models = ['gcn']\nbudgets = [0.5, 0.1]\nseeds = [3]", FALCON)

    def axes(runs):
        return [(run.cell.model, run.cell.budget, run.seed) for run in runs]

    assert axes(make_plan(path).runs) == [("gcn", 0.5, 3), ("gcn", 0.1, 3)]
    assert axes(make_plan(path, {"models": ["sign"], "budgets": [7], "seeds": [1]}).runs) == [("sign", 7, 1)]


def test_overridden_centralities_are_for_the_methods_that_are_run_with_several(write_config):
    path = write_config("[methods.FALCON]\ncentralities = ['PR', 'DC']", "[methods.other]")
    runs = make_plan(path, {"centralities": ["EC"]}).runs
    assert [(run.cell.method, run.config.reduction.centrality) for run in runs] == [
        ("FALCON", "eigenvector"),
        ("other", "degree"),
    ]


def test_a_full_batch_model_has_one_batch_and_a_sign_model_no_concatenation(write_config):
    path = write_config(
        "training.num_batches = 4\nmodel.concat_self = true", FALCON, models='["gcn", "cluster-gcn", "sign"]'
    )
    found = [
        (run.cell.model, run.config.training.num_batches, run.config.training.model.concat_self)
        for run in make_plan(path).runs
    ]
    assert found == [("gcn", 1, True), ("cluster-gcn", 4, True), ("sign", 4, False)]


def test_a_method_can_be_kept_to_some_models(write_config):
    path = write_config(
        FALCON, "[methods.original]\nrun.hops_from = 'original'\nmodels = ['sign']", models='["gcn", "sign"]'
    )
    assert [run.cell.model for run in make_plan(path).runs if run.cell.method == "original"] == ["sign"]


def test_a_coarsening_takes_budget_and_scope_from_the_shared_options(write_config):
    run = make_plan(write_config('[methods.c]\nreduction = "coarsen"\nrun.scope = "full"')).runs[0]
    assert run.config.reduction == CoarsenConfig(20, scope="full")
    assert run.cell.centrality == ""


def test_nothing_is_trained_for_label_errors(write_config):
    runs = make_plan(write_config(FALCON, kind="label_error")).runs
    assert [run.cell.model for run in runs] == [""]


def test_resources_are_measured_with_the_memory(write_config):
    assert make_plan(write_config(FALCON, kind="resources")).runs[0].config.training.measure_memory


def test_an_id_depends_on_what_decides_the_outcome_and_on_nothing_else(write_config):
    first = ids(write_config(FALCON))
    assert first == ids(write_config("note = 'seen'\npaper = 'Cora'", FALCON.replace("FALCON", "renamed")))
    assert first == ids(write_config("training.weight_decay = 0.0", FALCON))
    assert first != ids(write_config(FALCON), **{"training.num_epochs": 3})
    assert first != ids(write_config(FALCON), seeds=[1])
    assert first != ids(write_config(FALCON, kind="resources"))
    assert first != ids(write_config("split = 'random'", FALCON))


def test_ids_stay_the_same_from_version_to_version(write_config):
    assert ids(write_config(FALCON)) == ["6b46e6b4574c"]


def test_an_option_given_as_its_default_leaves_an_id_as_it_is(write_config):
    given = (
        "[methods.FALCON]\ncollapse = { merge = 'hub', selection = 'lowest', order = 'cluster', edge_weights = 'none' }"
    )
    assert ids(write_config(given)) == ids(write_config(FALCON))
    alike = "[methods.FALCON]\ncollapse.groups = 'alike'"
    assert ids(write_config(alike)) != ids(write_config(FALCON))
    assert ids(write_config(alike + "\ncollapse.merge = 'mean'")) == ids(write_config(alike))
    assert ids(write_config(alike + "\ncollapse.merge = 'hub'")) != ids(write_config(alike))


def test_runs_are_chosen_by_their_labels(write_config):
    runs = make_plan(write_config(FALCON, NONE, seeds=2)).runs
    chosen = choose_runs(runs, parse_choice(["method=falcon", "seed=1"]))
    assert [run.name for run in chosen] == ["tiny, sign, FALCON, 20, seed 1"]
    runs = make_plan(write_config(FALCON + "\ncentralities = ['degree', 'pagerank']")).runs
    for name in ("degree", "DC"):
        chosen = choose_runs(runs, parse_choice([f"centrality={name}"]))
        assert [run.cell.centrality for run in chosen] == ["DC"]


def test_an_option_out_of_range_names_file_data_set_and_method(write_config):
    with pytest.raises(OptionError, match=r"tiny: tiny, sign, FALCON: gamma must lie in"):
        make_plan(write_config("[methods.FALCON]\ncollapse.gamma = 2"))


def test_a_method_without_any_budget_is_refused(write_config):
    with pytest.raises(OptionError, match=r"needs budgets, or collapse\.node_budget"):
        make_plan(write_config(FALCON), {"collapse.node_budget": "none"})


def test_the_papers_hyperparameters_are_the_defaults_of_its_benchmarks():
    runs = {run.cell.dataset: run.config for run in make_plan(PAPER / "main_result.toml").runs if run.cell.budget}
    ppi = next(
        run.config
        for run in make_plan(PAPER / "main_result.toml").runs
        if run.cell.dataset == "PPI" and run.cell.model == "qsign" and run.cell.centrality == "EC"
    )
    model, training = ppi.training.model, ppi.training
    assert isinstance(ppi.reduction, CollapseConfig)
    assert (model.num_layers, model.hidden_channels, model.dropout, model.num_hops) == (3, 1024, 0.2, 2)
    assert (training.num_batches, training.learning_rate) == (10, 0.005)
    assert (ppi.reduction.node_budget, ppi.reduction.gamma, ppi.reduction.num_clusters) == (15000, 0.52, 100)
    flickr = runs["Flickr"].training
    assert (flickr.model.hidden_channels, flickr.model.dropout, flickr.model.num_hops) == (2048, 0.5, 5)
    assert (flickr.num_batches, flickr.learning_rate) == (5, 0.0005)
