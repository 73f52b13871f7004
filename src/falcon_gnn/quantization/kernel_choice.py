"""Who carries out an operator: Numba's kernels on the CPU, Triton's on CUDA where they run, else plain torch.

All of them draw the same numbers (:mod:`falcon_gnn.quantization.philox`) and pack the same bytes.
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

_CPU_TYPES = torch.float32, torch.bfloat16, torch.float16, torch.bool, torch.uint8


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
    if device_type(x) == "cpu":
        return x.dtype in _CPU_TYPES
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


def run_kernels(
    operator: CustomOpDef,
    name: str,
    fits: Callable[..., bool] | None = None,
    *,
    fits_cpu: Callable[..., bool] | None = None,
) -> None:
    """Let kernels carry out an operator on CUDA and on the CPU.

    Args:
        operator: A registered operator, whose own body is its meaning in plain torch.
        name: The function of :mod:`falcon_gnn.quantization.triton_ops` and of :mod:`falcon_gnn.quantization.cpu_ops`,
            which takes and returns what the operator does.
        fits: Whether the functions know such arguments; by default any.
        fits_cpu: Whether the CPU's does, in place of ``fits``; never in double precision.
    """

    def run_on_cuda(*args: Any, **kwargs: Any) -> Any:
        devices = [value.device for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        kernels = kernels_for(next(device for device in devices if device.type == "cuda"))
        if kernels is None or not (fits is None or fits(*args, **kwargs)):
            return plain(*args, **kwargs)
        return getattr(kernels, name)(*args, **kwargs)

    def run_on_cpu(*args: Any, **kwargs: Any) -> Any:
        # Here, since it imports Numba.
        from falcon_gnn.quantization import cpu_ops

        is_double = any(value.dtype == torch.float64 for value in args if isinstance(value, Tensor))
        knows = fits_cpu or fits
        if is_double or not (knows is None or knows(*args, **kwargs)):
            return plain(*args, **kwargs)
        return cpu_ops.run(name, *args, **kwargs)

    plain = operator._init_fn
    operator.register_kernel("cuda")(run_on_cuda)
    operator.register_kernel("cpu")(run_on_cpu)


def are_plain_float32(*args: Any) -> bool:
    """Whether all floating tensors among the arguments of an operator are contiguous and float32, but for codes."""
    tensors = [value for value in args if isinstance(value, Tensor)]
    for values in args:
        if isinstance(values, (list, tuple)):
            tensors += [value for value in values if value.dtype != torch.bfloat16]
    return all(value.dtype == torch.float32 and value.is_contiguous() for value in tensors if value.is_floating_point())
