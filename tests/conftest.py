"""Fixtures that several rooms' tests share."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# Triton reads this when it is first imported: kernels then run on the CPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would their child processes.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The first example of a test may have to compile what it calls.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

_ROOT = Path(__file__).resolve().parents[1]


def dataset_folder() -> Path | None:
    """Return the folder of real graphs: ``FALCON_DATA``, else ``../shared/datasets``, or None where neither exists."""
    candidates = [Path(os.environ["FALCON_DATA"])] if "FALCON_DATA" in os.environ else []
    candidates.append(_ROOT.parent / "shared" / "datasets")
    return next((folder for folder in candidates if folder.is_dir()), None)


@pytest.fixture
def shared_dataset() -> Callable[[str], Path]:
    """Return a function from a data set's name to its ``.npz``; skips the test where the file is not at hand."""

    def locate(name: str) -> Path:
        folder = dataset_folder()
        if folder is None or not (folder / f"{name}.npz").is_file():
            pytest.skip(f"{name}.npz is neither in FALCON_DATA nor in ../shared/datasets")
        return folder / f"{name}.npz"

    return locate


_CORE = (
    "kernels", "datasets", "reduction", "test_adjacency.py", "test_control_groups.py", "test_core_command.py",
    "test_evaluation.py", "test_files.py", "test_graph.py", "test_imports.py", "test_labels.py", "test_logging.py",
    "test_oldest.py", "test_option_file.py", "test_platforms.py", "test_processes.py", "test_propagation.py",
    "test_release.py", "test_resources.py", "test_threads.py",
)  # fmt: skip
_EXTRA_ROOMS = {
    "benchmark", "devices", "interop", "pipeline", "planning", "quantization", "reporting", "spark", "training",
}  # fmt: skip


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m core`` look into the files of the core only: the others import what the core does without."""
    inside = collection_path.relative_to(_ROOT / "tests").parts
    is_searched = config.getoption("markexpr") == "core" and bool(inside)
    return True if is_searched and inside[0] not in _CORE else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the core, and the examples in its modules."""
    for item in items:
        room, *inside = item.path.relative_to(_ROOT).parts
        if (room == "tests" and inside[0] in _CORE) or (room == "src" and inside[1] not in _EXTRA_ROOMS):
            item.add_marker("core")
