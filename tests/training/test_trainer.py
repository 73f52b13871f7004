import signal
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from falcon_gnn.errors import ConvergenceError, GraphError, MissingDependencyError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.planning.fit import fit_budget
from falcon_gnn.training import state
from falcon_gnn.training.checkpoint import fingerprint, read_checkpoint, write_checkpoint
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.inference import predict
from falcon_gnn.training.state import TrainResult
from falcon_gnn.training.trainer import train

MODELS = ["gcn", "cluster-gcn", "gas", "sign", "qsign", "sign-original"]


def _config(model="gcn", *, num_batches=None, model_options=None, **options):
    num_batches = (1 if model == "gcn" else 3) if num_batches is None else num_batches
    model_config = ModelConfig(**{"model": model, "hidden_channels": 16, "dropout": 0.2, **(model_options or {})})
    defaults = {"learning_rate": 0.02, "num_epochs": 12, "device": "cpu"}
    return TrainConfig(model=model_config, num_batches=num_batches, **{**defaults, **options})


def _losses(result: TrainResult):
    return [(record.loss, record.score) for record in result.epochs]


def _assert_same(first: TrainResult, second: TrainResult):
    assert _losses(first) == _losses(second)
    assert first.best_epoch == second.best_epoch
    assert first.test == second.test
    for name, value in first.weights.items():
        assert torch.equal(value, second.weights[name]), name


@pytest.mark.parametrize("model", MODELS)
def test_every_model_learns_three_communities(make_graph, model):
    graph = make_graph(300)
    result = train(graph, _config(model, num_epochs=40), progress=False)
    assert result.test.accuracy > 0.85
    assert result.epochs[-1].loss < result.epochs[0].loss


@pytest.mark.parametrize("model", ["gcn", "cluster-gcn", "gas", "qsign"])
@pytest.mark.parametrize("bits", [2, 8])
def test_compressed_training_of_labels_with_weights_and_batch_norm_works(make_graph, model, bits):
    graph = make_graph(300, weighted=True, multilabel=True)
    options = {"bits": bits, "batch_norm": True}
    result = train(graph, _config(model, model_options=options, validation_metric="micro_f1"), progress=False)
    assert result.spec.task == "multilabel"
    assert result.best_score == max(record.score for record in result.epochs) == result.validation.micro_f1
    assert result.test.micro_f1 > 0.7


def test_the_best_epoch_of_two_classes_can_be_that_of_the_largest_area_under_the_curve(make_graph):
    graph = make_graph(120)
    two = graph.replace(y=(graph.y > 0).astype(np.int64))
    result = train(two, _config("sign", num_epochs=6, validation_metric="roc_auc"), progress=False)
    assert result.best_score == max(record.score for record in result.epochs) == result.validation.roc_auc
    with pytest.raises(OptionError, match="validation_metric='roc_auc' needs two classes, got classes with 3 outputs"):
        train(graph, _config("sign", validation_metric="roc_auc"), progress=False)
    ones = two.replace(y=np.where(two.val_mask, 1, two.y))
    with pytest.raises(OptionError, match="validation nodes of both classes, got 0 of class 0"):
        train(ones, _config("sign", validation_metric="roc_auc"), progress=False)


def test_the_micro_f1_of_validation_nodes_without_a_label_picks_no_epoch(make_graph):
    graph = make_graph(120, multilabel=True)
    empty = graph.replace(y=np.where(graph.val_mask[:, None], 0, graph.y))
    with pytest.raises(OptionError, match="'micro_f1' needs a validation node with a label, got none"):
        train(empty, _config("sign", validation_metric="micro_f1"), progress=False)
    assert train(empty, _config("sign", num_epochs=1), progress=False).best_score is not None


def test_a_value_is_learned_by_the_squared_error(make_graph):
    graph = make_graph(300)
    values = graph.replace(y=(graph.x @ np.array([1.0, 0.5, 0, 0, 0.25])).astype(np.float32) + 0.01)
    result = train(values, _config("sign", num_epochs=60), progress=False)
    assert result.spec.task == "regression"
    assert result.test.mean_squared_error < 0.3 * float(np.var(values.y))
    assert result.best_score == pytest.approx(-result.validation.mean_squared_error)


@pytest.mark.parametrize("model", MODELS)
def test_the_same_seed_repeats_to_the_last_bit_and_another_differs(graph, model):
    first, again = (train(graph, _config(model, num_epochs=4), progress=False) for _ in range(2))
    _assert_same(first, again)
    other = train(graph, _config(model, num_epochs=4, seed=1), progress=False)
    assert _losses(other) != _losses(first)


def test_training_neither_reads_nor_changes_the_global_generator(graph):
    torch.manual_seed(1)
    first = train(graph, _config(num_epochs=2), progress=False)
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after)
    _assert_same(train(graph, _config(num_epochs=2), progress=False), first)


def test_deterministic_training_gives_the_same(graph):
    config = _config("gas", num_epochs=3)
    _assert_same(
        train(graph, config, progress=False), train(graph, replace(config, deterministic=True), progress=False)
    )


@pytest.mark.parametrize("model", MODELS)
def test_resumed_training_equals_an_uninterrupted_one(graph, model, tmp_path):
    options = {"batch_norm": True}
    whole = train(graph, _config(model, model_options=options), progress=False)
    path = tmp_path / "run.ckpt"
    train(graph, _config(model, model_options=options, num_epochs=5), checkpoint=path, progress=False)
    resumed = train(graph, _config(model, model_options=options), checkpoint=path, resume=True, progress=False)
    _assert_same(resumed, whole)


def _interrupt_at(epoch, how):
    def on_epoch(record):
        if record.epoch == epoch:
            how()

    return on_epoch


def _raise_interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("how", [_raise_interrupt, lambda: signal.raise_signal(signal.SIGINT)])
def test_ctrl_c_finishes_the_epoch_and_writes_a_checkpoint_to_go_on_from(graph, tmp_path, how):
    path = tmp_path / "run.ckpt"
    with pytest.raises(KeyboardInterrupt, match=r"after epoch 4; .*go on with resume"):
        train(graph, _config("qsign"), checkpoint=path, on_epoch=_interrupt_at(4, how), progress=False)
    assert len(read_checkpoint(path).facts["epochs"]) == 4
    resumed = train(graph, _config("qsign"), checkpoint=path, resume=True, progress=False)
    _assert_same(resumed, train(graph, _config("qsign"), progress=False))


def test_a_second_ctrl_c_stops_at_once_and_the_handler_is_given_back(graph, tmp_path):
    before = signal.getsignal(signal.SIGINT)

    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(graph, _config(), checkpoint=tmp_path / "a", on_epoch=_interrupt_at(1, twice), progress=False)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_without_a_checkpoint_says_how_far_it_got(graph):
    with pytest.raises(KeyboardInterrupt, match=r"after epoch 2$"):
        train(graph, _config(), on_epoch=_interrupt_at(2, _raise_interrupt), progress=False)


def test_checkpoints_are_written_as_time_passes(graph, tmp_path):
    path, seen = tmp_path / "run.ckpt", []

    def look(record):
        seen.append(path.exists())

    options = {"checkpoint": path, "checkpoint_seconds": 0.0, "on_epoch": look, "progress": False}
    train(graph, _config(num_epochs=3), **options)
    assert seen == [False, True, True]


def test_a_finished_training_resumes_to_its_result(graph, tmp_path):
    config, path = _config(num_epochs=3), tmp_path / "run.ckpt"
    first = train(graph, config, checkpoint=path, progress=False)
    _assert_same(train(graph, config, checkpoint=path, resume=True, progress=False), first)


def test_resuming_another_training_is_refused_with_what_differs(graph, tmp_path):
    path = tmp_path / "run.ckpt"
    train(graph, _config(num_epochs=1), checkpoint=path, progress=False)
    with pytest.raises(OptionError, match=r"learning_rate \(0.02 there, 0.1 here\), seed \(0 there, 3 here\)"):
        train(graph, _config(learning_rate=0.1, seed=3), checkpoint=path, resume=True, progress=False)


def test_a_checkpoint_of_another_graph_is_refused(graph, make_graph, tmp_path):
    path, config = tmp_path / "state.safetensors", _config(num_epochs=2)
    train(graph, config, checkpoint=path, progress=False)
    shuffled = graph.replace(y=np.roll(graph.y, 1))
    others = {
        "original graph, training graph": (shuffled, shuffled),
        "original graph": (graph, graph.replace(x=graph.x + 1)),
        "training graph": (make_graph(seed=1).replace(x=graph.x), graph),
    }
    for name in ("node_weight", "self_weight"):
        weighted = graph.replace(**{name: np.full(graph.num_nodes, 2.0)})
        assert fingerprint(weighted) != fingerprint(graph)
    for names, (trained_on, scored) in others.items():
        with pytest.raises(OptionError, match="checkpoint is of another training: ") as caught:
            train(trained_on, config, eval_graph=scored, checkpoint=path, resume=True, progress=False)
        assert ", ".join(name for name in ("original graph", "training graph") if name in str(caught.value)) == names
    same = graph.replace(y=graph.y.astype(np.int32), x=graph.x.astype(np.float64).astype(np.float32))
    assert len(train(same, config, checkpoint=path, resume=True, progress=False).epochs) == 2


def test_a_checkpoint_of_softer_labels_is_refused(graph, tmp_path):
    path, config = tmp_path / "state.safetensors", _config(num_epochs=1)
    hard = np.eye(graph.y.max() + 1)[graph.y]

    def with_share(share):
        return graph.replace(label_distribution=(1 - share) * hard + share / hard.shape[1])

    train(with_share(0.3), config, eval_graph=graph, checkpoint=path, progress=False)
    with pytest.raises(OptionError, match="checkpoint is of another training: training graph"):
        train(with_share(0.29), config, eval_graph=graph, checkpoint=path, resume=True, progress=False)
    last_bits = with_share(0.3 + 1e-8)
    assert len(train(last_bits, config, eval_graph=graph, checkpoint=path, resume=True, progress=False).epochs) == 1
    assert fingerprint(last_bits) != fingerprint(with_share(0.3)) != fingerprint(graph)


def test_hops_of_another_graph_are_refused_when_resuming(graph, tmp_path):
    path, config = tmp_path / "state.safetensors", _config("sign", num_epochs=2)
    train(graph, config, checkpoint=path, progress=False)
    everyone = np.arange(graph.num_nodes)
    with pytest.raises(OptionError, match=r"another training: hops_from \(reduced there, original here\)"):
        train(graph, config, hop_source=lambda: (graph, everyone), checkpoint=path, resume=True, progress=False)


def test_a_checkpoint_without_fingerprints_goes_on(graph, tmp_path):
    """Those of 0.2.0 have none."""
    path, config = tmp_path / "state.safetensors", _config(num_epochs=2)
    train(graph, config, checkpoint=path, progress=False)
    old = read_checkpoint(path)
    for name in ("original graph", "training graph", "hops_from"):
        del old.facts["training"][name]
    write_checkpoint(path, old)
    assert len(train(graph, config, checkpoint=path, resume=True, progress=False).epochs) == 2


def test_held_out_nodes_without_marked_training_nodes_are_never_trained_on(graph):
    for masks in ({}, {"val_mask": None}, {"test_mask": None}):
        with pytest.raises(GraphError, match=r"graph must have a train_mask beside its .* split='full'"):
            train(graph.replace(train_mask=None, **masks), _config(), progress=False)
    bare = graph.replace(train_mask=None, val_mask=None, test_mask=None)
    assert train(bare, _config(num_epochs=1, patience=None), progress=False).test is None


@pytest.mark.parametrize(("checkpoint", "message"), [(None, "resume needs"), ("missing", "must be a file")])
def test_resuming_from_nothing_is_refused(graph, tmp_path, checkpoint, message):
    path = checkpoint and tmp_path / checkpoint
    with pytest.raises(OptionError, match=message):
        train(graph, _config(), checkpoint=path, resume=True, progress=False)


def test_patience_stops_and_the_best_epoch_is_kept(make_graph):
    result = train(make_graph(300), _config("sign", num_epochs=200, patience=5), progress=False)
    scores = [record.score for record in result.epochs]
    assert result.stopped_early
    assert result.best_epoch == 1 + int(np.argmax(scores)) == len(scores) - 5
    assert result.validation.accuracy == result.best_score == max(scores)


def test_evaluation_runs_every_few_epochs_and_after_the_last(graph):
    result = train(graph, _config(num_epochs=8, eval_every=3), progress=False)
    assert [record.epoch for record in result.epochs if record.score is not None] == [3, 6, 8]


def test_without_validation_nodes_the_last_epoch_is_the_result(graph):
    result = train(graph.replace(val_mask=None), _config(patience=2), progress=False)
    assert (result.best_epoch, result.best_score, result.validation) == (12, None, None)
    assert not result.stopped_early


@pytest.mark.parametrize("model", ["gcn", "sign"])
def test_evaluation_is_on_the_original_graph_with_all_its_edges(graph, model):
    nodes = np.flatnonzero(graph.train_mask)
    reduced = graph.replace(train_mask=None, val_mask=None, test_mask=None).subgraph(nodes)
    result = train(reduced, _config(model), eval_graph=graph, progress=False)
    logits = predict(result.model(), result.spec.config, graph)
    guess = logits.argmax(axis=1)
    assert result.test.accuracy == pytest.approx((guess == graph.y)[graph.test_mask].mean())
    assert result.validation.accuracy == pytest.approx((guess == graph.y)[graph.val_mask].mean())


def test_validation_and_test_labels_never_reach_the_weights(graph):
    hidden = graph.replace(y=np.where(graph.train_mask, graph.y, 0))
    config = _config(num_epochs=3, num_classes=3)
    first, second = (train(g, config, progress=False) for g in (graph, hidden))
    assert [record.loss for record in first.epochs] == [record.loss for record in second.epochs]


@pytest.mark.parametrize("model", MODELS)
def test_unlabelled_nodes_are_ignored(graph, model):
    y = np.where(np.arange(60) % 4 == 0, np.nan, graph.y)
    result = train(graph.replace(y=y), _config(model, num_epochs=3), progress=False)
    assert result.test.num_nodes == int((graph.test_mask & (np.arange(60) % 4 != 0)).sum())
    assert np.isfinite([record.loss for record in result.epochs]).all()


@pytest.mark.parametrize("model", MODELS)
def test_a_graph_without_edges_can_be_trained_on(graph, model):
    bare = Graph.from_edges(
        np.zeros((2, 0), int),
        60,
        x=graph.x,
        y=graph.y,
        train_mask=graph.train_mask,
        val_mask=graph.val_mask,
        test_mask=graph.test_mask,
    )
    assert np.isfinite(train(bare, _config(model, num_epochs=2), progress=False).epochs[-1].loss)


@pytest.mark.parametrize("model", MODELS)
def test_one_training_node_is_enough(graph, model):
    mask = np.arange(60) == np.flatnonzero(graph.train_mask)[0]
    config = _config(model, num_epochs=2, model_options={"batch_norm": model in ("gcn", "gas", "cluster-gcn")})
    result = train(graph.replace(train_mask=mask), config, progress=False)
    assert np.isfinite(result.epochs[-1].loss)


def test_sparse_features_train_to_the_same_scores():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 80)
    x = csr_array((np.ones(80, np.float32), (np.arange(80), y * 100 + rng.integers(0, 20, 80))), (80, 300))
    part = np.arange(80) % 2 == 0
    graph = Graph.from_edges(rng.integers(0, 80, (2, 60)), 80, x=x, y=y, train_mask=part, val_mask=~part)
    sparse = train(graph, _config(), progress=False)
    dense = train(graph.replace(x=x.toarray()), _config(), progress=False)
    assert [record.loss for record in sparse.epochs] == pytest.approx(
        [record.loss for record in dense.epochs], rel=1e-3
    )


def test_a_diverging_training_says_so(graph):
    huge = graph.replace(x=graph.x * 1e30)
    with pytest.raises(ConvergenceError, match=r"loss became .* in epoch .*learning_rate"):
        train(huge, _config(learning_rate=1e30), progress=False)


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_value_whose_square_is_no_number_lets_no_epoch_be_the_best(graph):
    y = np.where(graph.val_mask, 1e200, 1.5)
    with pytest.raises(ConvergenceError, match=r"mean squared error on validation nodes was never finite"):
        train(graph.replace(y=y), _config("sign", num_epochs=2), progress=False)


def test_graphs_with_different_features_are_refused(graph):
    with pytest.raises(GraphError, match="graph and eval_graph must have the same features"):
        train(graph, _config(), eval_graph=graph.replace(x=graph.x[:, :2]), progress=False)


@pytest.mark.parametrize("model", ["gcn", "sign", "sign-original"])
def test_a_graph_without_features_is_refused_in_the_same_words_by_every_model(graph, model):
    config, bare = _config(model), graph.replace(x=None)
    for refused in (lambda: train(bare, config, progress=False), lambda: fit_budget(bare, config, "1GiB")):
        with pytest.raises(GraphError, match="must hold features of shape"):
            refused()


def test_the_result_describes_the_training(graph):
    result = train(graph, _config(measure_memory=True), progress=False)
    low, median, high = result.epoch_seconds
    assert 0 < low <= median <= high
    assert result.num_parameters == 5 * 16 + 16 + 16 * 16 + 16 + 16 * 3 + 3
    assert result.memory.total > 4 * 4 * result.num_parameters
    assert all(value.device.type == "cpu" for value in result.weights.values())


@pytest.mark.parametrize("model", MODELS)
def test_measuring_memory_leaves_the_result_as_it_is(graph, model):
    config = _config(model, num_epochs=2)
    measured = train(graph, replace(config, measure_memory=True), progress=False)
    _assert_same(measured, train(graph, config, progress=False))
    assert measured.memory.total > 0


def test_tensorboard_curves_are_written(graph, tmp_path):
    pytest.importorskip("tensorboard")
    train(graph, _config(num_epochs=2), log_dir=tmp_path / "log", progress=False)
    assert [path.name.startswith("events") for path in (tmp_path / "log").iterdir()] == [True]


def test_missing_tensorboard_names_the_extra(graph, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingDependencyError, match=r"falcon-gnn\[tensorboard\]"):
        train(graph, _config(), log_dir=tmp_path, progress=False)


def test_no_scorer_is_left_when_the_peak_is_measured(graph, monkeypatch):
    scorers = []
    make_scorer, measure = state.make_scorer, state.TrainingState._measure_memory

    def watched(*arguments):
        scorer = make_scorer(*arguments)
        scorers.append(weakref.ref(scorer))
        return scorer

    def look(training):
        assert [scorer() for scorer in scorers] == [None, None]
        return measure(training)

    monkeypatch.setattr(state, "make_scorer", watched)
    monkeypatch.setattr(state.TrainingState, "_measure_memory", look)
    config = TrainConfig(ModelConfig("gcn", hidden_channels=4), num_epochs=1, device="cpu", measure_memory=True)
    assert train(graph, config, progress=False).memory.total > 0


def _weights(result):
    return {name: value.tolist() for name, value in result.weights.items()}


@pytest.mark.parametrize("model", ["gcn", "qsign"])
def test_trainings_in_threads_are_those_of_one_after_another(graph, model):
    config = _config(model, num_epochs=4)
    expected = _weights(train(graph, config, progress=False))
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: _weights(train(graph, config, progress=False)), range(3)))
    assert found == [expected] * 3


@contextmanager
def _default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "switched",
    [
        _default_dtype,
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.device("meta"),
        lambda: torch.autocast("cpu", torch.bfloat16),
    ],
)
@pytest.mark.parametrize("model", ["gcn", "qsign"])
def test_what_a_user_switched_in_torch_is_no_part_of_a_training(graph, model, switched):
    config = _config(model, num_epochs=2)
    plain = train(graph, config, progress=False)
    outputs = predict(plain.model(), config.model, graph)
    with switched():
        result = train(graph, config, progress=False)
        found = predict(result.model(), config.model, graph)
        before = (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_default_device())
    with switched():
        assert before == (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_default_device())
    assert _weights(result) == _weights(plain)
    assert result.memory == plain.memory
    assert np.array_equal(found, outputs)
