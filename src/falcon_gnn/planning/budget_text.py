"""A memory budget as people write it."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Literal

from falcon_gnn.errors import BudgetError
from falcon_gnn.resources import available_memory, total_memory

Prefer = Literal["nodes", "speed"]
"""What to keep of a memory budget: all nodes, by steps in pieces, or speed, by fewer nodes."""
_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_BYTES = ("", "b")
_MEMORY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z%]*)\s*", re.IGNORECASE)


def parse_memory(text: str | int, device_bytes: Callable[[], int] | None = None) -> int:
    """Return a memory budget in bytes.

    Args:
        text: A number of bytes, a figure with a unit (``"900MB"`` = 900·10⁶, ``"2GiB"`` = 2·2³⁰), or a share of the
            device's memory (``"80%"``; of this machine's, or of its container's or batch job's limit where that is
            smaller; of what is free on a CUDA device).
        device_bytes: Returns the device's memory in bytes; by default that of this machine.

    Raises:
        BudgetError: If the text is none of these, or is not above 0.

    Example:
        >>> parse_memory("2GiB"), parse_memory("900MB"), parse_memory("1.5 KiB")
        (2147483648, 900000000, 1536)
    """
    if isinstance(text, int) and not isinstance(text, bool):
        value, unit = Decimal(text), ""
    else:
        match = _MEMORY.fullmatch(text) if isinstance(text, str) else None
        value, unit = (Decimal(match[1]), match[2].lower()) if match else (Decimal(0), "?")
    if unit == "%" and 0 < value <= 100:
        return int(value * (device_bytes or total_memory)() / 100)
    is_whole = unit not in _BYTES or value % 1 == 0
    if unit in _UNITS and is_whole and value * _UNITS[unit] >= 1:
        return int(value * _UNITS[unit])
    msg = (
        f"memory must be bytes with a unit, such as '2GiB' (2·2³⁰) or '900MB' (900·10⁶), at least 1 and whole without "
        f"a unit, or a share of the device's above 0 and at most 100 %, such as '80%', got {text!r}."
    )
    raise BudgetError(msg)


def device_memory(device: str) -> int:
    """Return the memory in bytes that a share of a device's is taken of.

    On CUDA it is what tensors can have of what is free once torch is loaded there: other programs and torch's own
    context are left out, and so are the gaps between the allocator's blocks. On the CPU it is what this process may
    use.
    """
    from falcon_gnn.training.steps import resolve_device

    chosen = resolve_device(device)
    if chosen.type != "cuda":
        return total_memory()
    from falcon_gnn.training.workspace import tensor_memory

    return tensor_memory(chosen)


def free_memory(device: str) -> int | None:
    """Return what is free of a device's memory in bytes, or None where the system does not say."""
    from falcon_gnn.training.steps import resolve_device

    chosen = resolve_device(device)
    if chosen.type != "cuda":
        return available_memory()
    import torch

    return int(torch.cuda.mem_get_info(chosen)[0])
