"""Tensors on their way to the device, so that neither side waits for the other."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")

_logger = logging.getLogger(__name__)


def send(tensor: Tensor, device: torch.device | str | None, dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor on a device, in a type; itself where nothing changes.

    To CUDA it goes through page-locked memory, from which a copy runs beside the kernels and nobody waits for it. Where
    no memory can be locked it is copied as it is.

    Args:
        tensor: On any device.
        device: Where it is wanted; None leaves it where it is.
        dtype: In which type; None leaves it as it is.
    """
    is_sent = device is not None and torch.device(device).type == "cuda" and tensor.device.type == "cpu"
    if is_sent and not tensor.is_pinned():
        tensor = locked(tensor)
    return tensor.to(device, dtype, non_blocking=True)


def locked(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor in page-locked memory, or the tensor itself where no memory can be locked."""
    try:
        return tensor.pin_memory()
    except RuntimeError as error:
        _note_unlocked(str(error).splitlines()[0])
        return tensor


def locked_batch(batch: Any) -> Any:
    """Return a batch, a frozen dataclass, with its tensors in page-locked memory as far as they are in the host's."""
    if isinstance(batch, Tensor):
        return locked(batch) if batch.device.type == "cpu" and not batch.is_pinned() else batch
    if not is_dataclass(batch) or isinstance(batch, type):
        return batch
    return replace(batch, **{field.name: locked_batch(getattr(batch, field.name)) for field in fields(batch)})


@dataclass(frozen=True)
class DeviceRows:
    """Some rows of a matrix that lies on a device, gathered there when they are asked for.

    Attributes:
        matrix: Shape ``(N, d)``.
        ids: Which rows, in host memory, shape ``(n,)``.
    """

    matrix: Tensor
    ids: Tensor

    def gather(self) -> Tensor:
        """Return the rows, shape ``(n, d)``."""
        return self.matrix.index_select(0, send(self.ids, self.matrix.device))


def locked_empty(num_rows: int, num_columns: int) -> Tensor:
    """Return a float32 matrix of undefined content in page-locked memory, or in any where none can be locked."""
    try:
        return torch.empty(num_rows, num_columns, pin_memory=True)
    except RuntimeError as error:
        _note_unlocked(str(error).splitlines()[0])
        return torch.empty(num_rows, num_columns)


@cache
def _note_unlocked(reason: str) -> None:
    _logger.warning("no memory can be locked for copies to the device, which are slower without: %s", reason)


def read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the same items, each made while the one before is used: by a thread, in host memory."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="falcon-gnn-batches") as worker:
        waiting = worker.submit(next, items, end)
        while (item := waiting.result()) is not end:
            waiting = worker.submit(next, items, end)
            yield item  # type: ignore[misc]
