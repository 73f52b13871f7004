"""The memory peak of a training step: what it holds at most, by kind, on the CPU, on CUDA and under fake tensors.

On the CPU the peak is the most bytes that live tensors occupy at one time: parameters, gradients, optimizer state,
inputs and all that the step computes. A dispatch mode sees every operator, and weak references tell when a storage is
freed; so ``FakeTensorMode`` works as well and needs no data. Torch ships a tracker of this kind
(``torch.distributed._tools``), but it is private, fails on sparse tensors and on modules that are called twice, and
must be told beforehand of every tensor that exists. Neither sees inside an operator, so the operators of this project
declare their temporary bytes, which are added.

Not seen is what libraries keep for themselves, such as MKL's buffers for the packed blocks of a matrix product;
:func:`resident_peak` is the check on that.
"""

import ctypes
import gc
import multiprocessing
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from falcon_gnn.quantization.temporaries import temporary_bytes
from falcon_gnn.resources import peak_resident_memory

# glibc's number for the size from which a block is mapped, and so unmapped, by itself.
_M_MMAP_THRESHOLD = -3

Kind = Literal["parameters", "gradients", "optimizer", "activations", "inputs", "temporaries"]
Measure = Literal["tensors", "allocated"]
KINDS: tuple[Kind, ...] = ("parameters", "gradients", "optimizer", "activations", "inputs", "temporaries")


@dataclass(frozen=True)
class MemoryPeak:
    """The memory peak of a step, in bytes.

    Attributes:
        total: The peak: of live tensors, or on CUDA of what the allocator handed out.
        parameters: Share of the trained parameters.
        gradients: Share of their gradients.
        optimizer: Share of the optimizer's state.
        activations: Share of what was computed before the backward pass and still alive when it began.
        inputs: Share of all other tensors from outside the step: features, labels, running statistics.
        temporaries: The rest, with the declared bytes inside operators.
        reserved: CUDA: most bytes the allocator had reserved; None elsewhere.
        device_used: CUDA: bytes in use on the whole device after the step, other processes included; None elsewhere.
    """

    total: int
    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    inputs: int = 0
    temporaries: int = 0
    reserved: int | None = None
    device_used: int | None = None

    @property
    def measure(self) -> Measure:
        """What the peak is a peak of: live ``tensors``, or on CUDA bytes ``allocated`` by torch."""
        return "tensors" if self.reserved is None else "allocated"

    @property
    def total_mib(self) -> float:
        """The peak in MiB."""
        return self.total / 2**20


def measure_peak(
    step: Callable[[], object],
    device: torch.device | str = "cpu",
    warm_up: Callable[[], object] | None = None,
    known: Callable[[], Iterable[Tensor]] | None = None,
) -> MemoryPeak:
    """Return the memory peak of a training step.

    The step runs twice, on CUDA three times: a first time so that lazily created state, such as Adam's moments, exists.

    Args:
        step: The whole step: gradients to None, forward, loss, backward, optimizer.
        device: Where the step computes. Fake CUDA tensors are measured as CPU tensors are.
        warm_up: Run in place of the first step; a step on a smaller batch leaves the same state behind.
        known: Returns, after the first step, the tensors from outside that the step may touch; by default all tensors
            of the process are looked for, which takes a third of a second.
    """
    device = torch.device(device)
    (warm_up or step)()
    with _StorageTracker(device.type, _all_tensors() if known is None else known()) as tracker:
        step()
    kinds = tracker.peak_by_kind()
    if device.type != "cuda" or not torch.cuda.is_available():
        return MemoryPeak(sum(kinds.values()), **kinds)
    torch.cuda.synchronize(device)
    # What the allocator still holds of earlier work would count as reserved.
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    allocated, (free, capacity) = torch.cuda.max_memory_allocated(device), torch.cuda.mem_get_info(device)
    kinds["temporaries"] = max(0, allocated - sum(kinds.values()) + kinds["temporaries"])
    return MemoryPeak(allocated, **kinds, reserved=torch.cuda.max_memory_reserved(device), device_used=capacity - free)


def resident_peak(run: Callable[[], object], warm_up: Callable[[], object] | None = None) -> int:
    """Return how far a call raises the resident memory of a fresh process, in bytes.

    With glibc that process gives freed blocks back at once, so the figure does not hold what its allocator would
    retain. It stays above the peak of live tensors by what libraries keep for themselves.

    Args:
        run: Builds the model and data and takes the steps; must be picklable, such as a function of a module.
        warm_up: Called before: a tiny version of the same work loads the code it needs, which then does not count.

    Raises:
        RuntimeError: If the process ends without an answer, for example because ``run`` raised.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_report_peak, args=(run, warm_up, sender))
    process.start()
    sender.close()
    try:
        return int(receiver.recv())
    except EOFError:
        process.join()
        msg = f"the measured process ended with exit code {process.exitcode} before it could report; its error is above"
        raise RuntimeError(msg) from None
    finally:
        process.join()
        receiver.close()


def _report_peak(run: Callable[[], object], warm_up: Callable[[], object] | None, sender: Connection) -> None:
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 1 << 16)
    if warm_up is not None:
        warm_up()
    baseline = _reset_resident_peak()
    run()
    sender.send(_resident_peak_so_far() - baseline)


def _reset_resident_peak() -> int:
    """Set the process's resident peak back to its current size, where the system can, and return it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _resident_peak_so_far()


def _resident_peak_so_far() -> int:
    peak = peak_resident_memory()
    if peak is None:
        msg = "the resident memory of a process is not known on this system. Run: pip install psutil"
        raise RuntimeError(msg)
    return peak


@dataclass(eq=False)
class _Record:
    """One storage that the step uses."""

    storage: "weakref.ref[torch.UntypedStorage]"
    num_bytes: int
    kind: Kind


class _StorageTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of live storages on one type of device while it is entered, and remembers their peak.

    A storage from outside counts from the beginning, whenever the step first touches it; one that the step does not
    touch does not count. A kind is final only at the end: what was an unnamed result at the peak may have become a
    gradient.
    """

    def __init__(self, device_type: str, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known: Iterable[Tensor] = known
        self._device_type = device_type
        self._outside: dict[int, _Record] = {}
        self._records: dict[int, _Record] = {}
        self._parameters: list[weakref.ref[Tensor]] = []
        self._peak, self._live, self._declared, self._is_backward = 0, 0, 0, False
        self._peak_records: list[_Record] = []
        self._handles: list[Any] = []

    def peak_by_kind(self) -> dict[Kind, int]:
        """Return the bytes of each kind at the peak."""
        kinds: dict[Kind, int] = dict.fromkeys(KINDS, 0)
        kinds["temporaries"] = self._declared
        for record in self._peak_records:
            kinds[record.kind] += record.num_bytes
        return kinds

    def __enter__(self) -> Self:
        known, self._known = self._known, ()
        for tensor in known:
            kind: Kind = "parameters" if isinstance(tensor, nn.Parameter) else "inputs"
            self._note_outside(tensor, kind)
            if tensor.is_leaf and tensor.requires_grad and tensor.grad is not None:
                self._note_outside(tensor.grad, "gradients")
        self._handles = [
            register_optimizer_step_pre_hook(self._before_optimizer),
            register_optimizer_step_post_hook(self._after_optimizer),
        ]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call]
        for handle in self._handles:
            handle.remove()
        for reference in self._parameters:
            self._name_gradient(reference())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            # Torch asks a fake tensor for its device all the time: half of what a prediction would cost.
            device = getattr(args[0], "fake_device", None)
            return func(*args) if device is None else device
        kwargs = kwargs or {}
        self._note_backward()
        for tensor in _tensors_in((args, kwargs)):
            self._meet(tensor, is_result=False)
        result = func(*args, **kwargs)
        for tensor in _tensors_in(result):
            self._meet(tensor, is_result=True)
        self._note_peak(temporary_bytes(func.name(), *args, **kwargs))
        return result

    def _note_backward(self) -> None:
        is_backward = torch._C._current_graph_task_id() != -1
        if is_backward and not self._is_backward:
            for record in self._records.values():
                if record.kind == "temporaries":
                    record.kind = "activations"
        self._is_backward = is_backward

    def _note_outside(self, tensor: Tensor, kind: Kind) -> None:
        for storage in _storages(tensor, self._device_type):
            known = self._outside.get(id(storage))
            # A parameter may be seen through a view first: the more telling kind stays.
            if known is None or known.kind == "inputs":
                self._outside[id(storage)] = _Record(weakref.ref(storage), storage.nbytes(), kind)

    def _note_peak(self, declared: int) -> None:
        if self._live + declared > self._peak:
            self._peak, self._declared = self._live + declared, declared
            self._peak_records = list(self._records.values())

    def _meet(self, tensor: Tensor, *, is_result: bool) -> None:
        if isinstance(tensor, nn.Parameter):
            self._parameters.append(weakref.ref(tensor))
        for storage in _storages(tensor, self._device_type):
            record = self._records.get(id(storage))
            if record is None:
                self._add(storage, is_result=is_result)
            elif record.num_bytes != storage.nbytes():
                self._live += storage.nbytes() - record.num_bytes
                record.num_bytes = storage.nbytes()

    def _add(self, storage: torch.UntypedStorage, *, is_result: bool) -> None:
        key = id(storage)
        outside = self._outside.get(key)
        is_outside = outside is not None and outside.storage() is storage
        kind: Kind = "temporaries" if is_result else "inputs"
        if outside is not None and is_outside:
            kind = outside.kind
        record = _Record(weakref.ref(storage, partial(self._free, key)), storage.nbytes(), kind)
        self._records[key] = record
        self._live += record.num_bytes
        if is_outside:
            self._peak += record.num_bytes
            self._peak_records.append(record)

    def _free(self, key: int, _: "weakref.ref[torch.UntypedStorage]") -> None:
        self._live -= self._records.pop(key).num_bytes

    def _name(self, tensor: Tensor, kind: Kind) -> None:
        for storage in _storages(tensor, self._device_type):
            if id(storage) in self._records:
                self._records[id(storage)].kind = kind

    def _name_gradient(self, parameter: Tensor | None) -> None:
        if parameter is not None and parameter.grad is not None:
            self._name(parameter.grad, "gradients")

    def _before_optimizer(self, optimizer: Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._name(parameter, "parameters")
                self._name_gradient(parameter)

    def _after_optimizer(self, optimizer: Optimizer, *_: Any) -> None:
        for state in optimizer.state.values():
            for tensor in _tensors_in(state):
                self._name(tensor, "optimizer")


def tensors_within(thing: object) -> Iterator[Tensor]:
    """Yield the tensors that an object holds: in its attributes and, at any depth, in theirs and in containers."""
    seen: set[int] = set()
    waiting = [thing]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)
        elif hasattr(part, "__dict__") and not isinstance(part, type | ModuleType | FunctionType):
            waiting.extend(vars(part).values())


def _all_tensors() -> Iterator[Tensor]:
    # type(), not isinstance(): lazy objects answer isinstance() by importing what they stand for. There are millions of
    # objects and a few thousand types, so the types are looked at first.
    objects = gc.get_objects()
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, Tensor)}
    return (thing for thing in objects if type(thing) in kinds)


def _tensors_in(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        yield from _tensors_in(list(tree.values()))
    elif isinstance(tree, (list, tuple)):
        for branch in tree:
            yield from _tensors_in(branch)


def _storages(tensor: Tensor, device_type: str) -> Iterator[torch.UntypedStorage]:
    if tensor.device.type != device_type:
        return
    if tensor.layout == torch.strided:
        parts = [tensor]
    elif tensor.layout == torch.sparse_coo:
        parts = [tensor._indices(), tensor._values()]
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    else:
        parts = []
    yield from (part.untyped_storage() for part in parts)
