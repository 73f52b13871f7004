"""What goes to a card and comes from it, as far as a CPU and fakes can show it."""

import logging

import numpy as np
import pytest
import torch

from falcon_gnn.errors import OptionError
from falcon_gnn.training import history, transfer
from falcon_gnn.training.batches import RowBatches
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.history import Histories
from falcon_gnn.training.steps import check_precision, own_randomness
from falcon_gnn.training.targets import Targets
from falcon_gnn.training.transfer import locked_empty, read_ahead, send

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_nothing_is_copied_on_the_cpu() -> None:
    x = torch.randn(3, 2)
    assert send(x, CPU) is x
    assert send(x, None) is x


def test_without_lockable_memory_copies_are_ordinary_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    # A CPU build of torch locks none.
    transfer._note_unlocked.cache_clear()
    x = torch.randn(3, 2)
    with caplog.at_level(logging.WARNING):
        assert transfer.locked(x) is x
        assert locked_empty(3, 2).shape == (3, 2)
        transfer.locked(x)
    assert len({record.message for record in caplog.records}) == len(caplog.records) <= 2


def test_items_are_read_ahead_in_order_and_errors_come_out() -> None:
    assert list(read_ahead(iter(range(5)))) == list(range(5))

    def failing() -> object:
        yield 1
        raise ValueError("broken file")

    items = read_ahead(failing())
    assert next(items) == 1
    with pytest.raises(ValueError, match="broken file"):
        next(items)


class Waiting:
    """Stands for a copy in flight: its event."""

    def __init__(self) -> None:
        self.waited = 0

    def synchronize(self) -> None:
        self.waited += 1


def test_a_history_waits_for_what_is_coming_when_it_is_asked_for() -> None:
    histories, early, late, other = Histories(4, 2, 2), Waiting(), Waiting(), Waiting()
    ids = torch.tensor([1, 3])
    for level, event, value in ((0, early, 1.0), (0, late, 2.0), (1, other, 3.0)):
        coming = history._Coming(level, ids, history.ALL_COLUMNS, torch.full((2, 2), value), event)  # type: ignore[arg-type]
        histories._coming.append(coming)
    assert histories.pull(0, torch.tensor([0, 1]), CPU).tolist() == [[0, 0], [2, 2]]
    assert (early.waited, late.waited, other.waited) == (1, 1, 0)
    assert histories.levels[1][3].tolist() == [3, 3]
    assert other.waited == 1


def test_a_batch_that_is_all_of_an_epoch_stays_on_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falcon_gnn.training.batches.send", lambda tensor, device: tensor)
    monkeypatch.setattr("falcon_gnn.training.targets.send", lambda tensor, device: tensor)
    features = np.arange(12, dtype=np.float32).reshape(6, 2)
    source = RowBatches(features, Targets(torch.arange(6), "classes"), 1, 0).staying_on(CUDA)
    first, second = next(source.draw(1)), next(source.draw(2))
    assert first is second
    assert torch.equal(first.features, torch.from_numpy(features))
    several = RowBatches(features, Targets(torch.arange(6), "classes"), 2, 0).staying_on(CUDA)
    assert next(several.draw(1)) is not next(several.draw(1))


def test_a_precision_that_the_device_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_precision("bf16", CPU)
    with pytest.raises(OptionError, match="'tf32' is a way of CUDA cards"):
        check_precision("tf32", CPU)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Old Card")
    with pytest.raises(OptionError, match="bfloat16, got Old Card"):
        check_precision("bf16", CUDA)
    check_precision("tf32", CUDA)


def test_deterministic_training_fills_no_memory_that_is_written_anyway() -> None:
    fills = torch.utils.deterministic.fill_uninitialized_memory
    with own_randomness(0, CPU, deterministic=True):
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert torch.utils.deterministic.fill_uninitialized_memory == fills


def test_the_generator_that_is_seeded_and_put_back_is_that_of_the_current_card(monkeypatch: pytest.MonkeyPatch) -> None:
    forked: list[list[int]] = []
    cards = [torch.Generator().manual_seed(seed) for seed in (5, 6, 7)]
    monkeypatch.setattr(torch.cuda, "default_generators", tuple(cards))
    fork = torch.random.fork_rng
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: forked.append(devices) or fork([]))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    for device in (CUDA, torch.device("cuda", 0)):
        with own_randomness(3, device, deterministic=False):
            pass
    assert forked == [[2], [0]]
    assert [card.initial_seed() for card in cards] == [3, 6, 3]


def test_tf32_is_a_precision_of_a_training() -> None:
    assert TrainConfig(ModelConfig("sign"), precision="tf32").precision == "tf32"
