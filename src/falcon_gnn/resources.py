"""What this machine's memory is and was: asked before a large allocation and for the report."""

import os
import resource
import sys
from contextlib import suppress
from math import ceil
from pathlib import Path

from falcon_gnn.errors import BudgetError


def format_bytes(num_bytes: int, *, round_up: bool = False) -> str:
    """Return bytes in the binary unit that fits, to one decimal.

    Args:
        num_bytes: The bytes.
        round_up: Whether the figure must not be below them, so that it can be used as a budget.

    Example:
        >>> format_bytes(1536), format_bytes(2**31), format_bytes(2**20 + 1, round_up=True)
        ('1.5 KiB', '2.0 GiB', '1.1 MiB')
    """
    value, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{ceil(10 * value) / 10 if round_up else value:,.1f} {unit}"


def available_memory() -> int | None:
    """Return the bytes of memory that can be had without swapping, or None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None


def require_memory(num_bytes: int, purpose: str) -> None:
    """Stop before an allocation that cannot succeed.

    Args:
        num_bytes: Bytes about to be allocated.
        purpose: What they are for, as it reads after "to" in the message.

    Raises:
        BudgetError: If fewer bytes are available; names both figures.
    """
    available = available_memory()
    if available is not None and num_bytes > available:
        msg = (
            f"{format_bytes(num_bytes)} of memory are needed to {purpose} and {format_bytes(available)} are "
            "available. Use a machine with more memory, or collapse with the Spark engine."
        )
        raise BudgetError(msg)


def peak_resident_memory() -> int:
    """Return the largest resident size this process has had so far, in bytes."""
    # Not getrusage on Linux: a child inherits the size its parent had when it was started.
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def total_memory() -> int:
    """Return this machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
