"""Systems that lack what Linux has, simulated by taking it away."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from falcon_gnn import resources
from falcon_gnn.errors import BudgetError
from falcon_gnn.resources import available_memory, peak_resident_memory, total_memory

IMPORT_ALL = """
import importlib, multiprocessing.spawn, os, pkgutil, signal, sys
{libraries}
for name in ("resource", "fcntl", "pwd", "grp", "termios", "pymetis"):
    sys.modules[name] = None
for name in ("sysconf", "getuid", "geteuid", "fork", "register_at_fork"):
    delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGQUIT"):
    delattr(signal, name)
import falcon_gnn
extras = set({extras})
for module in pkgutil.walk_packages(falcon_gnn.__path__, "falcon_gnn."):
    if module.name.split(".")[1] not in extras and module.name != "falcon_gnn.__main__":
        importlib.import_module(module.name)
print(falcon_gnn.Graph.from_edges([[0, 1], [1, 2]], 3).num_edges)
"""


EXTRA_ROOMS = ["benchmark", "devices", "interop", "pipeline", "planning", "quantization", "spark", "training"]


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without ``/proc``, ``resource``, ``os.sysconf`` and psutil."""
    monkeypatch.setattr(resources, "Path", lambda path: Path("no such folder") / path.lstrip("/"))
    monkeypatch.setattr(resources, "group_memory", lambda: None)
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setitem(sys.modules, "psutil", None)
    return monkeypatch


def fake_psutil() -> ModuleType:
    module: Any = ModuleType("psutil")
    module.virtual_memory = lambda: SimpleNamespace(total=900, available=700)
    module.Process = lambda: SimpleNamespace(memory_info=lambda: SimpleNamespace(peak_wset=500))
    return module  # type: ignore[no-any-return]


def test_nothing_that_only_linux_has_is_needed_to_import_and_to_build_a_graph() -> None:
    libraries, extras = "numba, scipy.sparse, sklearn.cluster, rich, typer", EXTRA_ROOMS
    if find_spec("torch") is not None:
        libraries, extras = f"{libraries}, torch_geometric, torch.distributed.launcher.api", []
    script = IMPORT_ALL.format(libraries=f"import {libraries}", extras=extras)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_what_is_not_known_of_the_memory_is_none(windows: pytest.MonkeyPatch) -> None:
    assert available_memory() is None
    assert peak_resident_memory() is None


def test_a_share_of_an_unknown_memory_says_what_to_do(windows: pytest.MonkeyPatch) -> None:
    with pytest.raises(BudgetError, match=r"such as '2GiB', or run: pip install psutil"):
        total_memory()


def test_psutil_knows_the_memory(windows: pytest.MonkeyPatch) -> None:
    windows.setitem(sys.modules, "psutil", fake_psutil())
    assert (total_memory(), available_memory(), peak_resident_memory()) == (900, 700, 500)
