"""Compiled kernels where there is no home and nothing beside the code can be written; real processes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import falcon_gnn
from falcon_gnn._kernels import disk_cache
from falcon_gnn._kernels.disk_cache import private_folder

WHOLE = """
import numpy as np
from falcon_gnn._kernels import is_kept, num_compiled
from falcon_gnn._kernels.components import label_components
labels, _ = label_components(np.array([0, 1, 2, 2]), np.array([1, 0]))
assert labels.tolist() == [0, 0, 1]
print(num_compiled() > 0, is_kept())
"""
MODULE = """
from falcon_gnn._kernels.compiling import kernel

@kernel()
def double(number):
    return 2 * number
"""
SCRIPT = """
from small import double
assert double(4) == 8
stats = double.dispatcher.stats
print(sum(stats.cache_misses.values()) > 0, stats.cache_path is not None)
"""
FULL_DISK = """
from numba.core.caching import IndexDataCacheFile
def save(*_): raise OSError(28, "No space left on device")
IndexDataCacheFile.save = save
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package that no cache can be put beside, not even by root: a file stands where its folder goes."""
    root = tmp_path_factory.mktemp("package")
    copy = root / "falcon_gnn"
    shutil.copytree(Path(falcon_gnn.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "small.py").write_text(MODULE, encoding="utf-8")
    (root / "__pycache__").touch()
    (copy / "_kernels" / "__pycache__").touch()
    return root


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this process."""
    monkeypatch.setattr(disk_cache.tempfile, "tempdir", str(tmp_path))
    return tmp_path


def run(package: Path, temporary: Path, script: str = SCRIPT, **variables: str) -> str:
    """Return what a process without a home prints; it must not print an error."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG"))}
    places = {"PYTHONPATH": str(package), "HOME": os.devnull, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {**kept, **places, **variables}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, cwd=temporary
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_without_a_home_kernels_are_kept_in_a_folder_of_the_user_alone(package: Path, tmp_path: Path) -> None:
    assert run(package, tmp_path, WHOLE) == "True True"
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert run(package, tmp_path, WHOLE) == "False True"


def test_a_folder_that_others_can_write_to_is_not_used(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / f"falcon-gnn-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    assert run(package, tmp_path) == "True False"
    assert list(folder.iterdir()) == []


def test_a_full_disk_costs_the_cache_only(package: Path, tmp_path: Path) -> None:
    assert run(package, tmp_path, FULL_DISK + SCRIPT) == "True True"
    assert not list(tmp_path.rglob("*.nb*"))


def test_a_broken_file_is_compiled_anew(package: Path, tmp_path: Path) -> None:
    place = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    run(package, tmp_path, **place)
    for suffix in ("nbc", "nbi"):
        (path,) = (tmp_path / "cache").rglob(f"*.{suffix}")
        path.write_bytes(path.read_bytes()[:40])
        assert run(package, tmp_path, **place) == "True True"
    assert run(package, tmp_path, **place) == "False True"


def test_a_link_is_no_folder_of_ones_own(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (temporary / f"falcon-gnn-{os.geteuid()}").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(PermissionError):
        private_folder()


def test_a_folder_of_somebody_else_is_refused(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.geteuid() + 1
    (temporary / f"falcon-gnn-{other}").mkdir(mode=0o700)
    monkeypatch.setattr(disk_cache.os, "geteuid", lambda: other)
    with pytest.raises(PermissionError):
        private_folder()


def test_a_folder_that_is_replaced_later_is_neither_read_nor_written(temporary: Path) -> None:
    locator = disk_cache._TemporaryLocator.from_function(run, __file__)
    private_folder().chmod(0o777)
    with pytest.raises(PermissionError):
        locator.ensure_cache_path()


def test_where_the_home_is_unknown_no_folder_of_that_name_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "~/.cache")
    assert disk_cache._HomeLocator.from_function(run, __file__) is None
    assert list(tmp_path.iterdir()) == []
