"""The memory measure: exact on steps that can be counted by hand, and the goals at the paper's PPI shapes."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import binary_cross_entropy_with_logits

from falcon_gnn.quantization import bitmask, codec, cpu_ops
from falcon_gnn.quantization.mlp import MLP
from falcon_gnn.quantization.temporaries import temporary_bytes
from falcon_gnn.training.memory import KINDS, MemoryPeak, measure_peak, resident_peak

KIB = 1024


def kib(num_kib: int) -> Tensor:
    return torch.zeros(num_kib * KIB // 4)


def make_step(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(model(x), y).backward()
        optimizer.step()

    return step


def make_mlp_step(num_rows: int, bits: int | None) -> Callable[[], None]:
    """Return a step at the paper's PPI shapes."""
    return make_step(MLP(150, 1024, 121, 3, bits=bits), torch.zeros(num_rows, 150), torch.zeros(num_rows, 121))


def test_a_freed_tensor_no_longer_counts() -> None:
    def step() -> None:
        a = kib(4)
        b = kib(8)
        del a
        kib(2)
        del b

    assert measure_peak(step).total == 12 * KIB


def test_views_and_changes_in_place_cost_nothing() -> None:
    def step() -> None:
        a = kib(4)
        a[10:].mul_(2).view(-1)

    assert measure_peak(step).total == 4 * KIB


def test_a_tensor_from_outside_counts_from_the_beginning() -> None:
    outside = kib(16)

    def step() -> Tensor:
        kib(8)
        return outside + 1

    assert measure_peak(step).total == 32 * KIB
    assert measure_peak(lambda: (kib(24), outside.view(-1))[1]).inputs == 16 * KIB


def test_a_tensor_the_step_does_not_touch_does_not_count() -> None:
    outside = kib(16)
    assert measure_peak(lambda: kib(4)).total == 4 * KIB
    del outside


def test_the_peak_is_split_by_kind() -> None:
    model = nn.Linear(64, 32)
    step = make_step(nn.Sequential(model, nn.Sigmoid()), torch.ones(100, 64), torch.ones(100, 32))
    peak = measure_peak(step)
    parameters = sum(p.nbytes for p in model.parameters())
    assert peak.parameters == parameters
    # Two moments, and a step count of one float for each of the two parameters.
    assert peak.optimizer == 2 * parameters + 8
    assert peak.inputs == 100 * (64 + 32) * 4
    # The sigmoid's output, the loss and its gradient; the linear layer's output is freed.
    assert peak.activations == 100 * 32 * 4 + 8
    assert peak.total == sum(getattr(peak, kind) for kind in KINDS)


def test_state_that_the_first_step_creates_counts_from_the_beginning() -> None:
    model = nn.Linear(512, 512)
    peak = measure_peak(make_step(model, torch.ones(2, 512), torch.ones(2, 512)))
    parameters = sum(p.nbytes for p in model.parameters())
    assert peak.total >= 4 * parameters
    assert (peak.parameters, peak.gradients, peak.optimizer) == (parameters, parameters, 2 * parameters + 8)
    # Also where the peak comes before the optimizer's step.
    early = measure_peak(make_step(nn.Linear(64, 64), torch.ones(4_000, 64), torch.ones(4_000, 64)))
    assert early.optimizer == 2 * 4 * (64 * 64 + 64) + 8


def test_a_first_step_on_a_smaller_batch_gives_the_same_figure() -> None:
    model = nn.Linear(64, 32)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step(num_rows: int) -> None:
        optimizer.zero_grad()
        model(torch.ones(num_rows, 64)).sum().backward()
        optimizer.step()

    # Large enough for the peak to come before the optimizer's step, where its state only counts if it existed before.
    peak = measure_peak(partial(step, 4_000), warm_up=partial(step, 2))
    assert peak.optimizer == 2 * sum(p.nbytes for p in model.parameters()) + 8
    assert peak == measure_peak(partial(step, 4_000))


def test_a_module_may_be_called_twice() -> None:
    model, x = nn.Linear(64, 64), torch.ones(16, 64)
    assert measure_peak(lambda: model(model(x)).sum().backward()).activations > 0


def test_sparse_tensors_are_counted() -> None:
    for layout in ("to_sparse_csr", "to_sparse_coo", "to_sparse_csc"):
        matrix = getattr(torch.eye(50), layout)()
        peak = measure_peak(lambda matrix=matrix: matrix @ torch.ones(50, 8))
        assert peak.inputs >= 50 * 4
        assert peak.total >= 50 * 4 + 2 * 50 * 8 * 4


def test_declared_temporaries_inside_an_operator_are_added() -> None:
    # No kernel knows double precision.
    x = torch.randn(codec.BLOCK_VALUES).double()
    declared = temporary_bytes("falcon_gnn::quantize", x, torch.tensor(0), 2, 256)
    peak = measure_peak(lambda: codec.quantize(x))
    assert declared > 8 * x.numel()
    assert peak.temporaries == pytest.approx(declared + x.numel() // 4 + x.numel() // 64, abs=64)


def test_fake_tensors_give_the_same_figure_as_real_ones() -> None:
    def peak(bits: int | None) -> MemoryPeak:
        return measure_peak(make_step(MLP(20, 64, 5, 3, bits=bits), torch.zeros(300, 20), torch.zeros(300, 5)))

    for bits in (None, 2):
        with FakeTensorMode():
            fake = peak(bits)
        assert fake == peak(bits)


def test_the_figure_agrees_with_torchs_own_tracker() -> None:
    mem_tracker = pytest.importorskip("torch.distributed._tools.mem_tracker")
    model, x, y = (
        nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)),
        torch.ones(500, 64),
        torch.ones(500, 8),
    )
    step = make_step(model, x, y)
    ours = measure_peak(step).total
    tracker = mem_tracker.MemTracker()
    tracker.track_external(model, x, y)
    with tracker:
        step()
    theirs = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    adam = 2 * sum(p.nbytes for p in model.parameters())
    # Theirs was not told of Adam's moments, which it therefore meets in the optimizer's step only.
    assert theirs <= ours <= theirs + 1.05 * adam


@pytest.mark.parametrize(
    ("num_rows", "bits", "goal_mib"), [(4491, None, 182), (1500, None, 72), (4491, 2, 99), (1500, 2, 48)]
)
def test_a_step_at_the_papers_ppi_shapes_stays_below_its_goal(num_rows: int, bits: int | None, goal_mib: int) -> None:
    with FakeTensorMode():
        peak = measure_peak(make_mlp_step(num_rows, bits))
    assert 20 < peak.total_mib <= goal_mib


def operator_calls() -> list[tuple[object, str, tuple[object, ...]]]:
    """Return implementations, names and arguments of calls of the operators: odd, transposed, half, double."""
    calls: list[tuple[object, str, tuple[object, ...]]] = []
    seed = torch.tensor(1)
    for x in (
        torch.randn(300, 1024),
        torch.randn(777, 555),
        torch.randn(640, 512).t(),
        torch.randn(300, 1024).bfloat16(),
        torch.randn(300, 1024).double(),
    ):
        packed = bitmask.pack_bits(x > 0)
        q = codec.quantize(x)
        calls += [
            (codec._quantize, "quantize", (x, seed, 2, 256)),
            (codec._quantize, "quantize", (x, None, 8, 256)),
            (codec._dequantize, "dequantize", (q.packed, q.zero, q.scale, 2, 256, torch.empty_like(x.contiguous()))),
            (bitmask._pack_bits, "pack_bits", (x > 0,)),
            (bitmask._unpack_bits, "unpack_bits", (packed, x.shape)),
            (bitmask.relu_dropout_, "relu_dropout_", (x.contiguous(), seed, 0.5)),
            (bitmask.apply_mask_, "apply_mask_", (x.contiguous(), packed, 2.0)),
        ]
    return calls


@pytest.mark.parametrize(("operator", "name", "arguments"), operator_calls())
def test_what_an_operator_declares_is_what_it_holds(operator: object, name: str, arguments: tuple[object, ...]) -> None:
    is_double = any(isinstance(value, Tensor) and value.dtype == torch.float64 for value in arguments)
    implementation = operator._init_fn if is_double else getattr(cpu_ops, name)  # type: ignore[attr-defined]
    inside = measure_peak(lambda: implementation(*arguments))
    outside = measure_peak(lambda: getattr(torch.ops.falcon_gnn, name)(*arguments))
    assert inside.total <= outside.total + 4096
    assert outside.temporaries <= 1.3 * inside.temporaries + 1e5


def test_the_resident_peak_is_that_of_the_call_beyond_the_warm_up() -> None:
    size = 64 * 2**20
    peak = resident_peak(partial(bytearray, size), warm_up=partial(bytearray, 3 * size))
    assert peak == pytest.approx(size, rel=0.1)


@pytest.mark.filterwarnings("ignore")
def test_a_measured_process_that_fails_is_reported() -> None:
    with pytest.raises(RuntimeError, match="exit code 1"):
        resident_peak(partial(int, "x"))


class FakeCard:
    """Stands for torch's allocator on a card: what it handed out and what it reserved, now and at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, earlier: int) -> None:
        self.live, self.reserved, self.most_live, self.most_reserved = 0, earlier, 0, earlier
        names = ("empty_cache", "reset_peak_memory_stats", "max_memory_allocated", "max_memory_reserved")
        for name in names:
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60 * KIB, 100 * KIB))

    def step(self, num_bytes: int, reserved: int) -> None:
        """Take and give back some bytes; what is reserved stays."""
        self.reserved = max(self.reserved, reserved)
        self.most_live = max(self.most_live, self.live + num_bytes)
        self.most_reserved = max(self.most_reserved, self.reserved)

    def empty_cache(self) -> None:
        self.reserved = self.live

    def reset_peak_memory_stats(self, device: object) -> None:
        self.most_live, self.most_reserved = self.live, self.reserved

    def max_memory_allocated(self, device: object) -> int:
        return self.most_live

    def max_memory_reserved(self, device: object) -> int:
        return self.most_reserved


def test_what_a_card_reserved_for_earlier_work_is_no_part_of_a_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    card = FakeCard(monkeypatch, earlier=90 * KIB)
    card.step(80 * KIB, 90 * KIB)
    peak = measure_peak(lambda: card.step(7 * KIB, 8 * KIB), "cuda")
    assert (peak.total, peak.reserved, peak.device_used) == (7 * KIB, 8 * KIB, 40 * KIB)
    assert peak.measure == "allocated"
    assert sum(getattr(peak, kind) for kind in KINDS) == peak.total
