from pathlib import Path

import pytest
import safetensors.torch
import torch

from falcon_gnn.errors import OptionError
from falcon_gnn.training.checkpoint import (
    Checkpoint,
    generator_tensors,
    optimizer_tensors,
    read_checkpoint,
    restore_generators,
    restore_optimizer,
    write_checkpoint,
)

CPU = torch.device("cpu")


def _optimizer(seed):
    torch.manual_seed(seed)
    layer = torch.nn.Linear(3, 2)
    return layer, torch.optim.Adam(layer.parameters(), fused=True)


def _step(layer, optimizer):
    layer(torch.ones(4, 3)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    shared = torch.arange(6.0).reshape(2, 3)
    checkpoint = Checkpoint({"a.x": shared, "a.y": shared.t(), "b.x": torch.tensor(3)}, {"epoch": 4, "score": None})
    write_checkpoint(tmp_path / "run.ckpt", checkpoint)
    loaded = read_checkpoint(tmp_path / "run.ckpt")
    assert loaded.facts == checkpoint.facts
    assert {name: value.tolist() for name, value in loaded.group("a").items()} == {
        "x": shared.tolist(),
        "y": shared.t().tolist(),
    }


def test_tensors_are_written_from_where_they_are_and_shared_ones_once_each(tmp_path, monkeypatch):
    whole = torch.arange(6.0)
    tensors = {"history": torch.ones(4), "whole": whole, "part": whole[:2]}
    written, save = {}, safetensors.torch.save_file
    monkeypatch.setattr(
        safetensors.torch, "save_file", lambda *given, **kept: written.update(given[0]) or save(*given, **kept)
    )
    write_checkpoint(tmp_path / "a", Checkpoint(tensors, {}))
    assert written["history"].data_ptr() == tensors["history"].data_ptr()
    assert {name: value.tolist() for name, value in read_checkpoint(tmp_path / "a").tensors.items()} == {
        name: value.tolist() for name, value in tensors.items()
    }


def test_a_failing_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    write_checkpoint(path, Checkpoint({"a": torch.ones(1)}, {}))

    def run_out_of_space(tensors, filename, metadata):
        Path(filename).write_bytes(b"half")
        raise OSError

    monkeypatch.setattr(safetensors.torch, "save_file", run_out_of_space)
    with pytest.raises(OSError):  # noqa: PT011 - the very error that was raised
        write_checkpoint(path, Checkpoint({"a": torch.zeros(1)}, {}))
    assert read_checkpoint(path).tensors["a"].item() == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.ckpt"]


@pytest.mark.parametrize("content", [None, b"", b"something else entirely", bytes(100)])
def test_what_is_not_a_checkpoint_is_refused(tmp_path, content):
    path = tmp_path / "run.ckpt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionError, match=r"run\.ckpt must be"):
        read_checkpoint(path)


def test_a_truncated_checkpoint_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    write_checkpoint(path, Checkpoint({"a": torch.ones(100)}, {}))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(OptionError, match="must be"):
        read_checkpoint(path)


def test_a_restored_optimizer_makes_the_same_next_step():
    layer, optimizer = _optimizer(0)
    _step(layer, optimizer)
    other, other_optimizer = _optimizer(1)
    other.load_state_dict(layer.state_dict())
    restore_optimizer(other_optimizer, {name: value.clone() for name, value in optimizer_tensors(optimizer).items()})
    _step(layer, optimizer)
    _step(other, other_optimizer)
    assert torch.equal(layer.weight, other.weight)


def test_restored_generators_draw_the_same_numbers():
    state = {name: tensor.clone() for name, tensor in generator_tensors(CPU).items()}
    drawn = torch.rand(5)
    restore_generators(state, CPU)
    assert torch.equal(torch.rand(5), drawn)
