import errno
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from falcon_gnn.errors import OptionError
from falcon_gnn.files import check_writable, replacing, replacing_folder


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


def _write_half(path, error):
    path.write_text("ha")
    raise error


def test_a_file_appears_under_its_name_when_it_is_whole(tmp_path):
    with replacing(tmp_path / "deep" / "graph.npz") as temporary:
        assert temporary.suffix == ".npz"
        temporary.write_text("new")
        assert not (tmp_path / "deep" / "graph.npz").exists()
    assert (tmp_path / "deep" / "graph.npz").read_text() == "new"
    assert _names(tmp_path / "deep") == ["graph.npz"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_the_old_file_whole_and_nothing_else(tmp_path, error):
    target = tmp_path / "graph.npz"
    target.write_text("old")
    with pytest.raises(error), replacing(target) as temporary:
        _write_half(temporary, error)
    assert target.read_text() == "old"
    assert _names(tmp_path) == ["graph.npz"]


_SLOW_WRITER = """
import sys, time
from falcon_gnn.files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("number", "is_cleaned"), [(signal.SIGINT, True), (signal.SIGKILL, False)])
def test_ctrl_c_and_a_crash_leave_the_old_file_whole(tmp_path, number, is_cleaned):
    target = tmp_path / "graph.npz"
    target.write_text("old")
    with subprocess.Popen(
        [sys.executable, "-c", _SLOW_WRITER, str(target)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout.readline() == b"writing\n"
        process.send_signal(number)
    assert process.returncode != 0
    assert target.read_text() == "old"
    assert (_names(tmp_path) == ["graph.npz"]) == is_cleaned


def test_a_file_gets_the_usual_permissions(tmp_path):
    (tmp_path / "usual").touch()
    with replacing(tmp_path / "file") as temporary:
        temporary.touch()
    with replacing_folder(tmp_path / "folder"):
        pass
    (tmp_path / "usual folder").mkdir()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert (tmp_path / "folder").stat().st_mode == (tmp_path / "usual folder").stat().st_mode


def test_a_folder_replaces_the_old_one_when_it_is_whole(tmp_path):
    target = tmp_path / "reduced"
    target.mkdir()
    (target / "old").touch()
    with replacing_folder(target) as temporary:
        (temporary / "new").touch()
        assert _names(target) == ["old"]
    assert _names(target) == ["new"]
    assert _names(tmp_path) == ["reduced"]


def test_a_failure_leaves_the_old_folder_whole_and_nothing_else(tmp_path):
    target = tmp_path / "reduced"
    target.mkdir()
    (target / "old").touch()
    with pytest.raises(KeyboardInterrupt), replacing_folder(target) as temporary:
        _write_half(temporary / "new", KeyboardInterrupt)
    assert _names(target) == ["old"]
    assert _names(tmp_path) == ["reduced"]


def test_a_failure_while_the_folders_change_places_brings_the_old_one_back(tmp_path, monkeypatch):
    target = tmp_path / "reduced"
    target.mkdir()
    (target / "old").touch()
    replace = type(target).replace

    def fail_for_the_new_one(path, new_path):
        if new_path == target and path.name != target.name:
            raise KeyboardInterrupt
        return replace(path, new_path)

    monkeypatch.setattr(type(target), "replace", fail_for_the_new_one)
    with pytest.raises(KeyboardInterrupt), replacing_folder(target) as temporary:
        (temporary / "new").touch()
    assert _names(target) == ["old"]
    assert _names(tmp_path) == ["reduced"]


def test_a_disk_that_fills_up_leaves_the_old_file_whole_and_says_so(tmp_path):
    target = tmp_path / "graph.npz"
    target.write_text("old")
    full = OSError(errno.ENOSPC, "No space left on device")
    message = (
        r"graph.npz cannot be written \(No space left on device\); what was there before is whole. Free some space"
    )
    with pytest.raises(OptionError, match=message), replacing(target) as temporary:
        _write_half(temporary, full)
    assert target.read_text() == "old"
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(OptionError, match="folder cannot be written"), replacing_folder(folder) as temporary:
        _write_half(temporary / "new", full)
    assert _names(tmp_path) == ["folder", "graph.npz"]


def test_an_error_of_a_librarys_own_about_a_full_disk_is_told_as_well(tmp_path):
    with pytest.raises(OptionError, match="Free some space"), replacing(tmp_path / "weights") as temporary:
        _write_half(temporary, RuntimeError("IoError: No space left on device (os error 28)"))


def test_what_can_be_written_leaves_no_trace(tmp_path):
    check_writable(tmp_path / "new" / "folder")
    check_writable(tmp_path / "new" / "table.csv", is_folder=False)
    check_writable(tmp_path)
    assert _names(tmp_path) == []


def test_what_cannot_be_written_is_said_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for path, is_folder, reason in (
        ("file", True, "File exists|Not a directory"),
        ("file/below", True, "Not a directory"),
        ("folder", False, "Is a directory"),
    ):
        with pytest.raises(OptionError, match=rf"--out .*{path} cannot be written \(({reason})\). Choose another"):
            check_writable(tmp_path / path, is_folder=is_folder, option="--out")

    def fail(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", fail)
    with pytest.raises(OptionError, match=r"cannot be written \(Permission denied\)"):
        check_writable(tmp_path / "new")
    assert _names(tmp_path) == ["file", "folder"]


def test_threads_that_write_at_once_agree_on_who_may_read(tmp_path, monkeypatch):
    set_mask = os.umask

    def set_slowly(mask):
        before = set_mask(mask)
        time.sleep(0.002)
        return before

    def write(number):
        with replacing(tmp_path / f"{number}.txt") as path:
            path.write_text("x", encoding="utf-8")
        return (tmp_path / f"{number}.txt").stat().st_mode & 0o777

    before = set_mask(0o027)
    monkeypatch.setattr(os, "umask", set_slowly)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(write, range(20))) == {0o640}
    finally:
        assert set_mask(before) == 0o027
