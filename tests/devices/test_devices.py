"""Two processes on the CPU take the steps of one; a dead one is named, and what it leaves can be gone on from."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.multiprocessing.spawn import spawn

from falcon_gnn.devices.launch import WorkerError, launch
from falcon_gnn.devices.place import STOP_FILE_VARIABLE, DeviceOptions, Place, read_place
from falcon_gnn.devices.shards import PartShards, RowShards, shard_source, shard_targets
from falcon_gnn.devices.team import Team, fit_config, join_team
from falcon_gnn.errors import ConvergenceError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.labels import Task
from falcon_gnn.quantization.layers import norm_relu_dropout
from falcon_gnn.quantization.mlp import MLP
from falcon_gnn.quantization.moments import SharedBatch
from falcon_gnn.training.checkpoint import read_checkpoint
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.progress import EpochRecord, InterruptGuard
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.state import TrainingState, TrainResult
from falcon_gnn.training.targets import Targets
from falcon_gnn.training.trainer import train


def make_graph() -> Graph:
    """Return four cliques of nine nodes with nothing between them; the first has no training node."""
    rng = np.random.default_rng(0)
    pairs = np.array([(a, b) for a in range(9) for b in range(a)]).T
    y = rng.integers(0, 3, 36)
    mask = (np.arange(36) >= 9) & (rng.random(36) < 0.8)
    return Graph.from_edges(
        np.concatenate([pairs + 9 * clique for clique in range(4)], axis=1),
        36,
        x=(np.eye(3)[y] @ rng.normal(size=(3, 5)) + rng.normal(size=(36, 5))).astype(np.float32),
        y=y,
        train_mask=mask,
        val_mask=~mask & (np.arange(36) % 2 == 0),
        test_mask=~mask & (np.arange(36) % 2 == 1),
    )


def make_config(model: str, num_batches: int = 1, **options: Any) -> TrainConfig:
    sizes = ModelConfig(model, hidden_channels=8, num_layers=2, dropout=0.0, **options)  # type: ignore[arg-type]
    return TrainConfig(sizes, learning_rate=0.05, num_epochs=3, num_batches=num_batches, device="cpu")


# Without validation nodes the weights that are kept are the last ones.
UNSCORED = make_graph().replace(val_mask=None)
CONFIGS = {
    "sign": make_config("sign", num_batches=2),
    "synced": make_config("sign", num_batches=2, batch_norm=True),
    "qsign": make_config("qsign", batch_norm=False),
    "qsign synced": make_config("qsign", batch_norm=True),
    "cluster 8 bits synced": make_config("cluster-gcn", num_parts=4, batch_norm=True, bits=8),
    "cluster": make_config("cluster-gcn", num_parts=4),
    "cluster synced": make_config("cluster-gcn", num_parts=4, batch_norm=True),
}


DROPPED = replace(CONFIGS["sign"], model=replace(CONFIGS["sign"].model, dropout=0.5))


def stop_and_resume(team: Team, checkpoint: Path) -> TrainResult:
    """Stop a training after its first epoch, as an interrupted launcher does, and go on from what it wrote."""
    options: dict[str, Any] = {"checkpoint": checkpoint, "progress": False}
    stopped = Team(team.place, stop_file=Path(__file__))
    with pytest.raises(KeyboardInterrupt, match=r"after epoch 1; .* go on with resume"):
        train(make_graph(), DROPPED, crew=stopped, **options)
    distributed.barrier()
    assert len(read_checkpoint(checkpoint).facts["epochs"]) == 1
    return train(make_graph(), DROPPED, crew=team, resume=True, **options)


def train_all(rank: int, folder: Path) -> None:
    """Train every configuration in one of two processes, and write what came out."""
    torch.set_num_threads(1)
    place, results = Place(rank, 2, rank), {}
    with join_team(place, device="cpu", rendezvous=f"file://{folder / 'rendezvous'}") as team:
        for name, config in CONFIGS.items():
            crew = Team(place, synchronize_batch_norm="synced" in name)
            results[name] = train(UNSCORED, config, crew=crew, progress=False)
        results["dropout"] = train(make_graph(), DROPPED, crew=team, progress=False)
        distributed.barrier()
        results["resumed"] = stop_and_resume(team, folder / "half")
        training = TrainingState(make_graph(), make_graph(), team.fit(DROPPED), team, None)
        training.advance()
        weights = torch.cat([value.flatten() for value in training.model.state_dict().values()])
    torch.save({"results": results, "weights": weights}, folder / f"{rank}.pt")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what each of two processes got."""
    folder = tmp_path_factory.mktemp("devices")
    spawn(train_all, (folder,), nprocs=2)  # type: ignore[no-untyped-call]
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("name", ["sign", "synced", "cluster", "cluster synced"])
def test_two_processes_have_the_losses_and_the_weights_of_one(outcomes: list[dict[str, Any]], name: str) -> None:
    one, two = train(UNSCORED, CONFIGS[name], progress=False), outcomes[0]["results"][name]
    assert [record.loss for record in two.epochs] == pytest.approx([record.loss for record in one.epochs], rel=1e-5)
    # A bias before batch norm changes nothing, so that its gradient, and with it Adam's step, is rounding noise.
    noise = {"linears.0.bias", "layers.0.bias", "norms.0.running_mean"} if "synced" in name else set()
    for key in one.weights.keys() - noise:
        torch.testing.assert_close(two.weights[key], one.weights[key], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["qsign", "qsign synced", "cluster 8 bits synced"])
def test_compressed_models_start_with_the_loss_of_one_process_and_learn(
    outcomes: list[dict[str, Any]], name: str
) -> None:
    one, two = train(UNSCORED, CONFIGS[name], progress=False), outcomes[0]["results"][name]
    assert two.epochs[0].loss == pytest.approx(one.epochs[0].loss, rel=1e-5)
    assert two.epochs[-1].loss < two.epochs[0].loss


@pytest.mark.parametrize("norm_of", ["chain", "layer"])
def test_a_second_device_with_the_same_rows_changes_no_compressed_gradient(norm_of: str) -> None:
    # Twice the sums over twice the rows are the same moments and the same mean gradients.
    class Doubled(nn.BatchNorm1d):
        def share_batch(self, num_rows: int) -> SharedBatch:
            return SharedBatch(lambda value: 2 * value, 2 * num_rows)

    def gradients(kind: type[nn.BatchNorm1d]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        rows = torch.randn(40, 6, requires_grad=True)
        mlp = MLP(6, 6, 3, num_layers=3, dropout=0.0, bits=2)
        mlp.norms = nn.ModuleList(kind(6) for _ in mlp.norms)
        output = mlp(rows) if norm_of == "chain" else norm_relu_dropout(rows, kind(6), 0.0, 2)
        output.square().sum().backward()
        return [value.grad for value in (rows, *mlp.parameters()) if value.grad is not None]

    torch.testing.assert_close(gradients(Doubled), gradients(nn.BatchNorm1d))


def test_only_the_first_process_scores(outcomes: list[dict[str, Any]]) -> None:
    assert outcomes[0]["results"]["sign"].test is not None
    assert {result.test for result in outcomes[1]["results"].values()} == {None}


def test_all_processes_keep_the_same_weights_under_dropout(outcomes: list[dict[str, Any]]) -> None:
    assert torch.equal(outcomes[0]["weights"], outcomes[1]["weights"])


def test_a_stopped_training_goes_on_bit_for_bit(outcomes: list[dict[str, Any]]) -> None:
    whole, resumed = (outcomes[0]["results"][name] for name in ("dropout", "resumed"))
    assert [(r.epoch, r.loss, r.score) for r in resumed.epochs] == [(r.epoch, r.loss, r.score) for r in whole.epochs]
    assert all(torch.equal(value, resumed.weights[key]) for key, value in whole.weights.items())


def kill_second_process(record: EpochRecord) -> None:
    """Die in the second epoch, as if the system were out of memory."""
    if record.epoch == 2 and distributed.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def train_in_team(
    graph: Graph, config: TrainConfig, checkpoint: Path | None = None, on_epoch: Any = None
) -> TrainResult:
    """Train in a process that a launcher started."""
    with join_team(read_place(), device="cpu") as team:
        return train(
            graph, config, crew=team, progress=False, checkpoint=checkpoint, on_epoch=on_epoch, checkpoint_seconds=0
        )


def test_a_killed_process_is_named_and_one_process_can_go_on_from_the_checkpoint(tmp_path: Path) -> None:
    checkpoint, job = tmp_path / "checkpoint.safetensors", (make_graph(), CONFIGS["sign"])
    with pytest.raises(WorkerError, match=r"process 1 of 2 was killed by SIGKILL.*checkpoint.*resume"):
        launch(train_in_team, *job, checkpoint, kill_second_process, num_devices=2, checkpoint=checkpoint)
    assert len(read_checkpoint(checkpoint).facts["epochs"]) in (1, 2)
    assert list(tmp_path.iterdir()) == [checkpoint]
    resumed = train(*job, checkpoint=checkpoint, resume=True, progress=False)
    whole = train(*job, progress=False)
    assert [record.loss for record in resumed.epochs] == pytest.approx([r.loss for r in whole.epochs], rel=1e-5)


def test_an_error_in_a_process_comes_out_as_itself() -> None:
    diverging = replace(CONFIGS["sign"], learning_rate=1e30)
    with pytest.raises(ConvergenceError, match="Lower learning_rate"):
        launch(train_in_team, make_graph(), diverging, num_devices=1)


def interrupt_parent(record: EpochRecord) -> None:
    """Press Ctrl-C, once, where the person sits."""
    if record.epoch == 1:
        os.kill(os.getppid(), signal.SIGINT)


def terminate_parent(record: EpochRecord) -> None:
    """Send SIGTERM, once, to where the processes were started."""
    if record.epoch == 1:
        os.kill(os.getppid(), signal.SIGTERM)


def test_the_callers_own_meaning_of_sigterm_stays(tmp_path: Path) -> None:
    endless = replace(CONFIGS["sign"], num_epochs=100_000)
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt, match=r"interrupted after epoch .* holds its state"):
            launch(train_in_team, make_graph(), endless, tmp_path / "checkpoint", terminate_parent, num_devices=1)
    finally:
        signal.signal(signal.SIGTERM, before)


def hang_up() -> str:
    """Close the terminal, for the process that started this one and for this one."""
    for number in (os.getppid(), os.getpid()):
        os.kill(number, signal.SIGHUP)
    time.sleep(1)
    return "went on"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGHUP")
def test_nohup_keeps_the_processes_when_the_terminal_closes() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert launch(hang_up, num_devices=1) == "went on"
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_ends_the_processes_with_a_checkpoint(tmp_path: Path) -> None:
    checkpoint, endless = tmp_path / "checkpoint.safetensors", replace(CONFIGS["sign"], num_epochs=100_000)
    with pytest.raises(KeyboardInterrupt, match=r"interrupted after epoch .* holds its state"):
        launch(train_in_team, make_graph(), endless, checkpoint, interrupt_parent, num_devices=1)
    assert 1 <= len(read_checkpoint(checkpoint).facts["epochs"]) < 100_000


def press_ctrl_c() -> None:
    """Press Ctrl-C where the person sits, and wait until it is taken note of."""
    os.kill(os.getppid(), signal.SIGINT)
    while not Path(os.environ[STOP_FILE_VARIABLE]).exists():
        time.sleep(0.01)


def interrupt_before_joining() -> None:
    """Get a Ctrl-C while the other process waits for this one."""
    place = read_place()
    if place.rank == 0:
        press_ctrl_c()
        os.kill(os.getpid(), signal.SIGINT)
    with join_team(place, device="cpu"):
        pytest.fail("the stop file was there before")


def interrupt_while_loading() -> None:
    """End as a process does that gets a Ctrl-C while Python loads its libraries."""
    press_ctrl_c()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(("work", "num_devices"), [(interrupt_before_joining, 2), (interrupt_while_loading, 1)])
def test_ctrl_c_before_the_training_ends_the_processes(work: Any, num_devices: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        launch(work, num_devices=num_devices)


ORPHAN = """
import os, signal
from falcon_gnn.devices.launch import launch

def be_left_alone():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.kill(os.getppid(), signal.SIGKILL)

if __name__ == "__main__":
    launch(be_left_alone, num_devices=1)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_process_ends_though_the_one_that_started_it_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN, encoding="utf-8")
    # Its output ends with the last process that could write to it.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # The killed one leaves its folder.
    words = [sys.executable, str(script)]
    done = subprocess.run(words, env=environment, capture_output=True, check=False, timeout=540)
    assert done.returncode == -signal.SIGKILL


LEAVES = """
import sys
from pathlib import Path
import falcon_gnn as fg
from falcon_gnn.devices.jobs import run_on_team
from falcon_gnn.devices.place import Place
from falcon_gnn.devices.team import join_team

sizes, rate = fg.ModelConfig("sign", hidden_channels=8), float(sys.argv[2])
training = fg.TrainConfig(sizes, learning_rate=rate, num_epochs=3, device="cpu")
try:
    with join_team(Place(0, 1, 0), device="cpu", rendezvous=f"file://{sys.argv[1]}") as team:
        run_on_team(fg.load_graph("digits"), fg.RunConfig(training), team)
except fg.ConvergenceError as error:
    print("raised")
    held = error
print([task.read_text() for task in Path("/proc/self/task").glob("*/comm") if "gloo" in task.read_text()])
"""


# The frames of an error hold the model; with the group in it, to let go of both would now and again be a deadlock.
@pytest.mark.parametrize(("learning_rate", "printed"), [("0.01", "[]"), ("1e30", "raised\n[]")])
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are listed under Linux only")
def test_no_thread_of_the_group_outlives_it(tmp_path: Path, learning_rate: str, printed: str) -> None:
    words = [sys.executable, "-c", LEAVES, str(tmp_path / "meet"), learning_rate]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=540)
    assert done.stdout.strip() == printed


@pytest.mark.parametrize("launcher", ["torchrun", "devices"])
def test_both_launchers_run_the_command_and_one_process_writes_and_warns(tmp_path: Path, launcher: str) -> None:
    graph = make_graph()
    half = {"edge_index": np.array([[0, 1, 0], [1, 0, 2]])}
    np.savez(tmp_path / "graph.npz", x=graph.x, y=graph.y, train_mask=graph.train_mask, val_mask=graph.val_mask, **half)
    sizes = {"model": "sign", "hidden-channels": 8, "num-layers": 2, "num-epochs": 2, "num-batches": 2}
    words = [str(tmp_path / "graph.npz"), "--out", str(tmp_path / "run"), "--scope", "full", "--device", "cpu"]
    words += [f"--{name}={value}" for name, value in sizes.items()]
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    if launcher == "devices":
        start, words = [sys.executable], [*words, "--devices", "2"]
    done = subprocess.run(
        [*start, "-m", "falcon_gnn", "train", *words], capture_output=True, text=True, check=False, timeout=540
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Written to") == 1
    assert done.stderr.count("symmetrised") == done.stderr.count("falcon-gnn: warning: symmetrised") == 1
    assert json.loads((tmp_path / "run" / "record.json").read_text())["training"]["num_epochs"] == 2
    assert len(read_checkpoint(tmp_path / "run" / "checkpoint.safetensors").facts["epochs"]) == 2


@pytest.mark.parametrize("model", ["gcn", "gas"])
def test_models_that_cannot_be_shared_out_are_refused(model: str) -> None:
    with pytest.raises(OptionError, match=f"model='{model}'.*one device"):
        fit_config(make_config(model), 2)


@pytest.mark.parametrize(
    ("changes", "num_devices", "message"),
    [
        ({"device": "mps"}, 2, "device must be auto, cpu or"),
        ({"micro_batches": 2}, 2, "micro_batches must be 1 on several devices, got 2"),
        ({"model": ModelConfig("cluster-gcn", num_parts=3), "num_batches": 2}, 2, r"num_batches x devices \(4\)"),
    ],
)
def test_what_does_not_fit_several_devices_is_refused(changes: dict[str, Any], num_devices: int, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fit_config(replace(make_config("sign"), **changes), num_devices)


def test_less_than_one_device_is_refused() -> None:
    with pytest.raises(OptionError, match="devices must be a whole number of at least 1, got 0"):
        DeviceOptions(0)


def test_parts_are_one_per_batch_and_device_where_none_are_set() -> None:
    config = fit_config(make_config("cluster-gcn", num_batches=3), 2)
    assert config.model.num_parts == 6


def test_scaled_shard_losses_average_to_the_loss_of_the_whole_batch() -> None:
    values = torch.tensor([[1.0, 0.0], [float("nan"), 1.0], [0.0, float("nan")], [1.0, 1.0], [0.0, 1.0]])
    whole, logits = Targets(values, "multilabel", has_unknown=True), torch.linspace(-1, 1, 10).reshape(5, 2)
    shards = [slice(0, 3), slice(3, 5), slice(5, 5)]
    losses = [shard_targets(whole.take(torch.arange(5)[part]), whole, 3).loss(logits[part]) for part in shards]
    assert float(sum(losses)) / 3 == pytest.approx(float(whole.loss(logits)))


@pytest.mark.parametrize("task", ["classes", "multilabel"])
def test_weighted_shard_losses_average_to_the_weighted_loss_of_the_whole_batch(task: Task) -> None:
    values = torch.tensor([0, 1, 1, 0, 1]) if task == "classes" else torch.tensor([[1.0, float("nan")], [0.0, 1.0]] * 2)
    weights = torch.tensor([1.0, 7.0, 2.0, 3.0, 0.5])[: len(values)]
    whole = Targets(values, task, has_unknown=task != "classes", weights=weights)
    logits = torch.linspace(-1, 1, 2 * len(values)).reshape(-1, 2).sin()
    shards = [slice(0, 3), slice(3, 5), slice(5, 5)]
    ids = torch.arange(len(values))
    parts = [shard_targets(whole.take(ids[part]), whole, 3) for part in shards]
    losses = [part.loss(logits[place]) for part, place in zip(parts, shards, strict=True)]
    assert float(sum(losses)) / 3 == pytest.approx(float(whole.loss(logits)))
    assert {float(part.total_weight) for part in parts} == {float(weights.sum())}


@pytest.mark.parametrize("name", ["sign", "cluster"])
def test_the_shards_of_a_batch_hold_every_target_once(name: str) -> None:
    source = make_source(make_graph(), CONFIGS[name], "classes", torch.device("cpu"))
    shares = [list(shard_source(source, Place(rank, 2, rank), batch_norm=False).draw(5)) for rank in range(2)]
    for whole, *parts in zip(source.draw(5), *shares, strict=True):
        counts = sum(torch.bincount(part.targets.values, minlength=3) for part in parts)
        assert torch.equal(counts, torch.bincount(whole.targets.values, minlength=3))
        assert [len(part.targets) for part in parts] == [len(whole.targets)] * 2


def test_no_batch_is_too_small_for_batch_norm_on_every_device() -> None:
    source = make_source(make_graph(), make_config("sign", num_batches=20), "classes", torch.device("cpu"))
    shares = shard_source(source, Place(1, 4, 1), batch_norm=True)
    assert isinstance(shares, RowShards)
    assert min(batch.features.shape[0] for batch in shares.draw(1)) >= 2


def test_the_sizes_are_those_of_the_fewer_batches_that_are_shared_out() -> None:
    source = make_source(make_graph(), make_config("sign", num_batches=20), "classes", torch.device("cpu"))
    shares = shard_source(source, Place(0, 4, 0), batch_norm=True)
    largest = max(len(batch.targets) for batch in shares.draw(1))
    assert [drawn.size.num_targets for drawn in shares.sizes(1)] == [largest]


def test_more_devices_than_parts_are_refused() -> None:
    source = make_source(make_graph(), CONFIGS["cluster"], "classes", torch.device("cpu"))
    assert isinstance(shard_source(source, Place(0, 4, 0), batch_norm=False), PartShards)
    with pytest.raises(OptionError, match="at least 5 parts to share out, got 4"):
        shard_source(source, Place(0, 5, 0), batch_norm=False)


def test_the_error_says_that_a_launcher_must_start_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(OptionError, match="torchrun --nproc-per-node 2 -m falcon_gnn train"):
        read_place()


def test_a_second_signal_of_the_launcher_is_no_second_ctrl_c() -> None:
    with InterruptGuard(active=True, grace=60.0) as guard:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        assert guard.requested


def test_a_process_group_on_cards_is_told_which_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, object] = {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(distributed, "init_process_group", lambda backend, **options: told.update(options))
    monkeypatch.setattr(distributed, "destroy_process_group", lambda: None)
    with join_team(Place(rank=3, num_devices=4, local_rank=1), device="cuda"):
        assert told["device_id"] == torch.device("cuda", 1)
