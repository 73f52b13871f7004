"""Who carries out an operator: Triton kernels on CUDA where they run, else plain torch.

The layout of packed bytes belongs to who made them: a block of values is what is worked on at a time, and that is a
group for a kernel, 4,194,304 values for plain torch on a device that has to be told every operation, and 524,288
values, which stay in the cache, on the CPU. Codes and masks do not leave the device on which they were made.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef

from falcon_gnn.errors import FalconWarning

_OLDEST_CAPABILITY = (8, 0)

_STANDS_FOR: ContextVar[str | None] = ContextVar("stands_for", default=None)

_COUNTS_EVERYWHERE: ContextVar[bool] = ContextVar("counts_everywhere", default=False)


def device_type(x: Tensor) -> str:
    """Return the type of the device that a tensor is on or, inside :func:`standing_for`, stands for."""
    return _STANDS_FOR.get() or x.device.type


@contextmanager
def standing_for(name: str) -> Iterator[None]:
    """Let the CPU's tensors inside stand for those of another type of device, to predict what a step needs there."""
    token = _STANDS_FOR.set(name)
    try:
        yield
    finally:
        _STANDS_FOR.reset(token)


def expects_kernels(x: Tensor) -> bool:
    """Whether kernels carry out the operators on a tensor; without a card at hand, whether they would on CUDA."""
    if device_type(x) != "cuda":
        return False
    return not torch.cuda.is_available() or kernels_for(x.device) is not None


def kernels_for(device: torch.device) -> ModuleType | None:
    """Return :mod:`falcon_gnn.quantization.triton_ops`, imported, where a CUDA device runs it, else None."""
    is_given = device.type == "cuda" and device.index is not None
    return _load_kernels(device.index if is_given else torch.cuda.current_device())


@cache
def _load_kernels(index: int) -> ModuleType | None:
    reason = None
    capability = torch.cuda.get_device_capability(index)
    if capability < _OLDEST_CAPABILITY:
        reason = f"this card's compute capability is {capability[0]}.{capability[1]}, and they need 8.0"
    else:
        try:
            from falcon_gnn.quantization import triton_ops
        except ImportError as error:
            reason = f"Triton cannot be imported ({error}). Run: pip install triton"
        else:
            return triton_ops
    _warn_once(reason)
    return None


@cache
def _warn_once(reason: str) -> None:
    msg = f"activations are compressed by plain torch, which takes many more kernel launches than Triton's: {reason}"
    warnings.warn(msg, FalconWarning, stacklevel=2)


def run_kernel_on_cuda(operator: CustomOpDef, name: str, fits: Callable[..., bool] | None = None) -> None:
    """Let a function of the Triton kernels carry out an operator on CUDA, where they run.

    Args:
        operator: A registered operator, whose own body is its meaning in plain torch.
        name: The function, which takes and returns what the operator does.
        fits: Whether the function knows such arguments; by default any.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        devices = [value.device for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        kernels = kernels_for(next(device for device in devices if device.type == "cuda"))
        if kernels is None or not (fits is None or fits(*args, **kwargs)):
            return plain(*args, **kwargs)
        return getattr(kernels, name)(*args, **kwargs)

    plain = operator._init_fn
    operator.register_kernel("cuda")(run)


def draws_by_place(device: torch.device) -> bool:
    """Whether random numbers are counted (:mod:`falcon_gnn.quantization.philox`), not drawn from a generator."""
    return device.type != "cpu" or _COUNTS_EVERYWHERE.get()


@contextmanager
def counted_draws() -> Iterator[None]:
    """Let the CPU draw inside as an accelerator does, to compare the two."""
    token = _COUNTS_EVERYWHERE.set(True)
    try:
        yield
    finally:
        _COUNTS_EVERYWHERE.reset(token)
