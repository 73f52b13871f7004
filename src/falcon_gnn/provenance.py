"""What a figure depends on besides the code: the machine and the versions of the libraries."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from falcon_gnn.version import __version__

_VERSIONED = ("numpy", "scipy", "numba", "scikit-learn", "torch", "torch_geometric")


def describe_machine(device: str = "cpu") -> dict[str, Any]:
    """Return processor, cores, memory and, where torch is loaded, the device; no names of hosts or users.

    Args:
        device: What was computed on, as torch names it; ``auto`` is CUDA where there is one.
    """
    machine: dict[str, Any] = {"cpu": _cpu_model(), "cores": os.cpu_count(), "system": platform.system()}
    if hasattr(os, "sysconf"):
        machine["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    torch = sys.modules.get("torch")
    if torch is not None:
        is_cuda = device.startswith("cuda") or device == "auto"
        index = None if device in ("auto", "cuda") else device
        machine["device"] = torch.cuda.get_device_name(index) if is_cuda and torch.cuda.is_available() else "cpu"
    return machine


def describe_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that matter for a figure."""
    # Not of the metadata, which an editable installation leaves as they were on the day it was made.
    versions = {"python": platform.python_version(), "falcon-gnn": __version__}
    for package in _VERSIONED:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
