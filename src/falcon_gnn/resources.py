"""What memory this process may use and has used: asked before a large allocation and for the report."""

import mmap
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.control_groups import group_memory
from falcon_gnn.errors import BudgetError

_MORE_MEMORY = "Use a machine with more memory, or collapse with the Spark engine."


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
    """Return the bytes of memory that can be had without swapping, or None where the system does not say.

    The smaller of what the machine has and what is left of the control group's limit (a container, a batch job).
    """
    known = [num_bytes for num_bytes in (_machine_available(), _group("left")) if num_bytes is not None]
    return min(known, default=None)


def require_memory(num_bytes: int, purpose: str, fix: str = _MORE_MEMORY) -> None:
    """Stop before an allocation that cannot succeed.

    Args:
        num_bytes: Bytes about to be allocated.
        purpose: What they are for, as it reads after "to" in the message.
        fix: What to do, a sentence.

    Raises:
        BudgetError: If fewer bytes are available; names both figures.
    """
    available = available_memory()
    if available is not None and num_bytes > available:
        msg = (
            f"{format_bytes(num_bytes)} of memory are needed to {purpose} and {format_bytes(available)} are "
            f"available{_limit_note()}. {fix}"
        )
        raise BudgetError(msg)


def release_pages(array: object) -> None:
    """Let go of what this process holds in memory of an array that is mapped from a file; other arrays are left alone.

    The values are read again where they are asked for, mostly from what the system keeps of the file.

    Args:
        array: Any array; only one that NumPy has mapped, and not for private changes, is looked at.
    """
    while array is not None and not hasattr(array, "mode"):
        array = getattr(array, "base", None)
    mapped = getattr(array, "_mmap", None)
    if isinstance(mapped, mmap.mmap) and getattr(array, "mode", "c") != "c" and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def scratch_array(size: int, dtype: Any) -> NDArray[Any]:
    """Return an array of zeros in a file of the temporary folder, for what memory has no room for.

    The file has no name (on Windows: is deleted with the process), so that nothing is left of it however the process
    ends; its pages go to the disk and come back as memory allows.

    Args:
        size: Number of values.
        dtype: Their type.

    Raises:
        BudgetError: If the folder has not so much space; names both figures and ``TMPDIR``.
    """
    folder = tempfile.gettempdir()
    num_bytes, free = size * np.dtype(dtype).itemsize, shutil.disk_usage(folder).free
    if num_bytes > free:
        msg = (
            f"{format_bytes(num_bytes)} are needed in a file, since memory has no room for them, and {folder} has "
            f"{format_bytes(free)} left. Free some space, or name a folder of another disk in TMPDIR."
        )
        raise BudgetError(msg)
    with tempfile.TemporaryFile(dir=folder) as file:
        # The mapping outlives the file object. A plain array: what is mapped stays known to it as its base.
        return np.asarray(np.memmap(file, dtype, "w+", shape=(size,)))


def peak_resident_memory() -> int | None:
    """Return the largest resident size this process has had so far, in bytes, or None where the system does not say."""
    # Not getrusage on Linux: a child inherits the size its parent had when it was started.
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    with suppress(ImportError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    with suppress(ImportError, AttributeError):
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    return None


def total_memory() -> int:
    """Return the memory that this process may use, in bytes: the machine's, or its control group's limit if smaller.

    Raises:
        BudgetError: If the system does not say; the message tells what to do.
    """
    known = [num_bytes for num_bytes in (_machine_memory(), _group("limit")) if num_bytes is not None]
    if not known:
        msg = (
            "the memory of this machine is not known, so that a share of it cannot be taken. Give the memory in bytes, "
            "such as '2GiB', or run: pip install psutil"
        )
        raise BudgetError(msg)
    return min(known)


def _machine_memory() -> int | None:
    # Windows has no sysconf.
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(ImportError):
        import psutil

        return int(psutil.virtual_memory().total)
    return None


def _machine_available() -> int | None:
    with suppress(OSError, KeyError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return int(dict(line.split(":", 1) for line in lines)["MemAvailable"].split()[0]) * 1024
    with suppress(ImportError):
        import psutil

        return int(psutil.virtual_memory().available)
    return None


def _group(name: Literal["limit", "left"]) -> int | None:
    group = group_memory()
    return None if group is None else int(getattr(group, name))


def _limit_note() -> str:
    """Say which limit is meant where the machine itself has more."""
    limit, machine = _group("limit"), _machine_memory()
    if limit is None or (machine is not None and machine <= limit):
        return ""
    return f" (the limit of this container or job is {format_bytes(limit)})"
