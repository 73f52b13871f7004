"""Memory limits of containers and batch jobs, read from a made root of control-group files."""

from pathlib import Path

import pytest

from falcon_gnn import resources
from falcon_gnn.control_groups import GroupMemory, group_memory
from falcon_gnn.errors import BudgetError
from falcon_gnn.planning.budget_text import parse_memory
from falcon_gnn.resources import available_memory, require_memory, total_memory

V1_MOUNT = "35 31 0:32 {top} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V2_MOUNT = "30 23 0:26 {top} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
NO_LIMIT_V1 = 9223372036854771712


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def make_process(root: Path, groups: str, mounts: str) -> None:
    write(root / "proc/self/cgroup", groups)
    write(root / "proc/self/mountinfo", f"22 1 8:1 / / rw,relatime - ext4 /dev/root rw\n{mounts}")


def make_v1(root: Path, path: str, limit: int, used: int = 0, files: int = 0) -> None:
    folder = root / "sys/fs/cgroup/memory" / path
    write(folder / "memory.limit_in_bytes", str(limit))
    write(folder / "memory.usage_in_bytes", str(used))
    write(folder / "memory.stat", f"inactive_file 7\ntotal_active_file {files // 2}\ntotal_inactive_file {files // 2}")


def make_v2(root: Path, path: str, limit: int | str, used: int = 0, files: int = 0) -> None:
    folder = root / "sys/fs/cgroup" / path
    write(folder / "memory.max", str(limit))
    write(folder / "memory.current", str(used))
    write(folder / "memory.stat", f"anon 1\nactive_file {files // 2}\ninactive_file {files // 2}")


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control group of 700 MiB, 100 of which are used, on a machine of 24 GiB."""
    monkeypatch.setattr(resources, "group_memory", lambda: GroupMemory(700 << 20, 600 << 20))
    monkeypatch.setattr(resources, "_machine_memory", lambda: 24 << 30)
    monkeypatch.setattr(resources, "_machine_available", lambda: 20 << 30)


def test_version_1_is_read(tmp_path: Path) -> None:
    make_process(tmp_path, "5:memory:/job\n4:cpu:/other\n0::/", V1_MOUNT.format(top="/"))
    make_v1(tmp_path, "job", 1000, used=600)
    make_v1(tmp_path, "", NO_LIMIT_V1, used=5000)
    assert group_memory(tmp_path) == GroupMemory(1000, 400)


def test_version_2_is_read(tmp_path: Path) -> None:
    make_process(tmp_path, "0::/job", V2_MOUNT.format(top="/"))
    make_v2(tmp_path, "job", 1000, used=600)
    assert group_memory(tmp_path) == GroupMemory(1000, 400)


def test_pages_of_files_count_as_left(tmp_path: Path) -> None:
    make_process(tmp_path, "0::/two\n5:memory:/one", f"{V2_MOUNT.format(top='/')}\n{V1_MOUNT.format(top='/')}")
    make_v1(tmp_path, "one", 1000, used=600, files=200)
    make_v2(tmp_path, "two", "max", used=100)
    assert group_memory(tmp_path) == GroupMemory(1000, 600)
    make_v2(tmp_path, "two", 900, used=800, files=300)
    assert group_memory(tmp_path) == GroupMemory(900, 400)


def test_a_group_can_use_no_more_than_the_groups_it_lies_in(tmp_path: Path) -> None:
    make_process(tmp_path, "0::/user/job/step", V2_MOUNT.format(top="/"))
    make_v2(tmp_path, "user/job/step", "max", used=100)
    make_v2(tmp_path, "user/job", 3000, used=2900)
    make_v2(tmp_path, "user", 2000, used=100)
    assert group_memory(tmp_path) == GroupMemory(2000, 100)


@pytest.mark.parametrize("path", ["/docker/abc", "/docker/abc/inner", "/../../elsewhere"])
def test_inside_a_container_the_path_may_be_one_of_the_host(tmp_path: Path, path: str) -> None:
    make_process(tmp_path, f"5:memory:{path}", V1_MOUNT.format(top="/docker/abc"))
    make_v1(tmp_path, "", 1000, used=300)
    assert group_memory(tmp_path) == GroupMemory(1000, 700)


def test_inside_a_container_a_group_of_its_own_counts(tmp_path: Path) -> None:
    make_process(tmp_path, "5:memory:/docker/abc/inner", V1_MOUNT.format(top="/docker/abc"))
    make_v1(tmp_path, "", 1000, used=300)
    make_v1(tmp_path, "inner", 500, used=100)
    assert group_memory(tmp_path) == GroupMemory(500, 400)


def test_a_controller_that_counts_other_things_is_not_read(tmp_path: Path) -> None:
    mount = "32 31 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,cpu"
    make_process(tmp_path, "5:memory:/job", mount)
    make_v1(tmp_path, "job", 1000)
    assert group_memory(tmp_path) is None


def test_the_number_that_stands_for_no_limit_is_none(tmp_path: Path) -> None:
    make_process(tmp_path, "5:memory:/job", V1_MOUNT.format(top="/"))
    make_v1(tmp_path, "job", NO_LIMIT_V1, used=600)
    assert group_memory(tmp_path) is None


def test_a_process_that_is_moved_to_another_group_is_followed(tmp_path: Path) -> None:
    for name, limit in (("one", 1000), ("two", 2000)):
        make_v2(tmp_path, name, limit)
        make_process(tmp_path, f"0::/{name}", V2_MOUNT.format(top="/"))
        assert group_memory(tmp_path) == GroupMemory(limit, limit)


@pytest.mark.parametrize("limit", ["max", ""])
def test_no_limit_is_none(tmp_path: Path, limit: str) -> None:
    make_process(tmp_path, "0::/job", V2_MOUNT.format(top="/"))
    make_v2(tmp_path, "job", limit)
    assert group_memory(tmp_path) is None


def test_a_system_without_control_groups_has_none(tmp_path: Path) -> None:
    assert group_memory(tmp_path) is None


@pytest.mark.usefixtures("limited")
def test_a_share_of_the_memory_is_one_of_the_limit() -> None:
    assert total_memory() == 700 << 20
    assert parse_memory("80%") == 560 << 20


@pytest.mark.usefixtures("limited")
def test_what_is_left_of_the_limit_is_what_is_available() -> None:
    assert available_memory() == 600 << 20
    require_memory(600 << 20, "work")
    with pytest.raises(BudgetError, match=r"600\.0 MiB are available \(the limit of this container or job is 700\.0 M"):
        require_memory((600 << 20) + 1, "work")


def test_a_machine_smaller_than_the_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "group_memory", lambda: GroupMemory(NO_LIMIT_V1, NO_LIMIT_V1 - 5))
    monkeypatch.setattr(resources, "_machine_memory", lambda: 4 << 30)
    monkeypatch.setattr(resources, "_machine_available", lambda: 3 << 30)
    assert (total_memory(), available_memory()) == (4 << 30, 3 << 30)
    with pytest.raises(BudgetError, match=r"3\.0 GiB are available\. Use"):
        require_memory(4 << 30, "work")
