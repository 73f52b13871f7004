"""The search for the best options."""

import errno
from dataclasses import replace

import numpy as np
import pytest

from falcon_gnn.benchmark import search
from falcon_gnn.benchmark.arguments import SearchSpace, TuneOptions
from falcon_gnn.benchmark.search import tune
from falcon_gnn.datasets.synthetic import SyntheticShape, synthetic_graph
from falcon_gnn.errors import FalconError, OptionError
from falcon_gnn.pipeline.options import RunConfig
from falcon_gnn.pipeline.run import run
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.training.config import ModelConfig, TrainConfig

pytest.importorskip("optuna")

SPACE = SearchSpace(gammas=(0.4, 0.6), num_hops=(1, 2), centralities=("degree",), num_clusters=(1, 3))
TRAINING = TrainConfig(ModelConfig("sign", hidden_channels=4, num_layers=2), num_epochs=1)


@pytest.fixture(scope="module")
def graph():
    return synthetic_graph(SyntheticShape(90, 200, num_features=4, num_classes=3))


@pytest.fixture
def config():
    return RunConfig(TRAINING, CollapseConfig(20))


def test_validation_nodes_without_labels_are_no_score(graph, config):
    hidden = graph.replace(y=np.where(graph.val_mask, -1, graph.y))
    with pytest.raises(OptionError, match="at least one node with a label"):
        tune(hidden, config, TuneOptions(SPACE, num_trials=1))


@pytest.mark.parametrize("storage", ["trials.log", "trials.db"])
def test_a_search_goes_on_from_its_storage(graph, config, tmp_path, storage):
    numbers = []

    def tell(number, score, params):
        numbers.append(number)

    options = TuneOptions(SPACE, num_trials=1, storage=tmp_path / "deep" / storage)
    tune(graph, config, options, on_trial=tell)
    result = tune(graph, config, replace(options, num_trials=2), on_trial=tell)
    assert numbers == [0, 1]
    assert (result.num_trials, result.num_failed) == (2, 0)
    assert tune(graph, config, replace(options, num_trials=2), on_trial=tell).params == result.params
    assert numbers == [0, 1]


def test_a_search_that_goes_on_draws_other_points(graph, config, tmp_path):
    drawn = []
    options = TuneOptions(SPACE, num_trials=2, storage=tmp_path / "trials.log")
    for num_trials in (2, 4):
        tune(
            graph,
            config,
            replace(options, num_trials=num_trials),
            on_trial=lambda *told: drawn.append(told[2]["gamma"]),
        )
    assert len(set(drawn)) == 4


def test_another_split_of_a_graph_is_another_search(graph, config, tmp_path):
    options = TuneOptions(SPACE, num_trials=1, storage=tmp_path / "trials.log")
    tune(graph, config, options)
    numbers = []
    swapped = graph.replace(val_mask=graph.test_mask, test_mask=graph.val_mask)
    tune(swapped, config, options, on_trial=lambda *told: numbers.append(told[0]))
    assert numbers == [0]


def test_a_database_with_a_question_mark_in_its_name_is_refused(graph, config, tmp_path):
    with pytest.raises(OptionError, match=r"storage must be a path without '\?'"):
        tune(graph, config, TuneOptions(SPACE, num_trials=1, storage=tmp_path / "a?b.db"))
    assert not any(tmp_path.iterdir())


def test_the_best_options_are_in_the_space_and_in_the_configuration(graph, config):
    result = tune(graph, config, TuneOptions(SPACE, num_trials=2))
    assert 0.4 <= result.params["gamma"] <= 0.6
    assert result.config.reduction.gamma == result.params["gamma"]
    assert result.config.reduction.num_clusters == result.params["num_clusters"] in (1, 3)
    assert result.config.training.model.num_hops == result.params["num_hops"] in (1, 2)
    assert 0 <= result.score <= 1


def test_a_grid_tries_every_point_once_and_ends(graph, config):
    tried = []
    space = replace(SPACE, num_clusters=(1,))
    options = TuneOptions(space, num_trials=10, sampler="grid")
    tune(
        graph,
        config,
        options,
        on_trial=lambda number, score, params: tried.append((params["gamma"], params["num_hops"])),
    )
    assert sorted(tried) == [(0.4, 1), (0.4, 2), (0.6, 1), (0.6, 2)]


def test_a_value_that_is_given_twice_is_tried_once():
    assert replace(SPACE, gammas=(0.4, 0.6, 0.4)).points(with_hops=False)["gamma"] == [0.4, 0.6]


def test_a_full_grid_in_the_storage_is_not_tried_again(graph, config, tmp_path):
    options = TuneOptions(
        replace(SPACE, num_hops=(1,), num_clusters=(1,)), num_trials=9, sampler="grid", storage=tmp_path / "trials.log"
    )
    assert tune(graph, config, options).num_trials == 2
    assert tune(graph, config, options).num_trials == 2


def test_models_without_hop_features_keep_their_hops():
    assert "num_hops" not in SPACE.points(with_hops=False)


def test_a_search_whose_every_trial_fails_says_so(graph, config):
    hopeless = replace(config, training=replace(TRAINING, learning_rate=1e30, num_epochs=3))
    with pytest.raises(OptionError, match=r"every one of 2 trials failed; the last: the training loss became"):
        tune(graph, hopeless, TuneOptions(SPACE, num_trials=2))


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"reduction": CollapseConfig(1000)}, "node_budget must be .* got 1000"),
        ({}, {"reduction": CollapseConfig(20, scope="full"), "protect_training": True}, "at least the .* protected"),
        ({"x": None}, {}, "graph.x must hold features"),
        ({}, {"training": replace(TRAINING, num_classes=2)}, "num_classes must be above every class"),
    ],
)
def test_what_every_trial_would_fail_of_is_said_before_the_first(graph, config, changes, options, message):
    tried = []
    with pytest.raises(FalconError, match=message):
        tune(graph.replace(**changes), replace(config, **options), on_trial=lambda *told: tried.append(told))
    assert tried == []


def test_a_search_needs_validation_nodes_and_a_reduction(graph, config):
    with pytest.raises(OptionError, match="val_mask"):
        tune(graph.replace(val_mask=None), config)
    with pytest.raises(OptionError, match="CollapseConfig"):
        tune(graph, replace(config, reduction=None))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gammas": (0.5, 2.0)}, "gamma must lie in"),
        ({"num_hops": (1, -1)}, "num_hops must be"),
        ({"centralities": ("degree", "pagrank")}, "Did you mean 'pagerank'"),
        ({"num_clusters": (3, 0)}, "num_clusters must be"),
    ],
)
def test_a_value_that_no_trial_could_have_is_refused_before_the_first(graph, config, values, message):
    tried = []
    with pytest.raises(OptionError, match=message):
        tune(graph, config, TuneOptions(replace(SPACE, **values)), on_trial=lambda *trial: tried.append(trial))
    assert not tried


@pytest.mark.parametrize("name", ["graph.npz", "notes.txt", "numbers.json", "other.db"])
def test_a_file_that_is_no_storage_is_refused_and_left_as_it_was(graph, config, tmp_path, name):
    content = {"notes.txt": b"hello\n", "numbers.json": b"[1, 2]\n"}.get(name, bytes(range(256)))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OptionError, match="storage must be a new file or"):
        tune(graph, config, TuneOptions(SPACE, num_trials=1, storage=tmp_path / name))
    assert (tmp_path / name).read_bytes() == content


def test_a_storage_that_cannot_be_written_is_refused(graph, config, tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "trials.log", tmp_path):
        with pytest.raises(OptionError, match=r"storage .* cannot be written"):
            tune(graph, config, TuneOptions(SPACE, num_trials=1, storage=path))


def test_a_storage_on_a_full_disk_is_named(graph, config, tmp_path, monkeypatch):
    from optuna.storages.journal import JournalFileBackend

    write = JournalFileBackend.append_logs

    def fail_for_a_score(backend, logs):
        if any("values" in log for log in logs):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(backend, logs)

    monkeypatch.setattr(JournalFileBackend, "append_logs", fail_for_a_score)
    with pytest.raises(OptionError, match=r"trials\.log cannot be written \(No space left .* Free some space"):
        tune(graph, config, TuneOptions(SPACE, num_trials=1, storage=tmp_path / "trials.log"))


def test_a_trial_that_cannot_read_a_file_fails_and_the_storage_is_not_blamed(graph, config, tmp_path, monkeypatch):
    outcomes = iter([OSError(errno.ENOENT, "No such file or directory", "features.npy")])

    def fail_once(graph, config, **options):
        for error in outcomes:
            raise error
        return run(graph, config, **options)

    monkeypatch.setattr(search, "run", fail_once)
    result = tune(graph, config, TuneOptions(SPACE, num_trials=2, storage=tmp_path / "trials.log"))
    assert (result.num_trials, result.num_failed) == (1, 1)


def test_an_empty_space_is_refused():
    with pytest.raises(OptionError, match="gammas must hold at least one value"):
        SearchSpace(gammas=())


def test_what_is_not_given_keeps_its_default():
    assert SearchSpace.of(num_hops=[2], gammas=None) == SearchSpace(num_hops=(2,))
