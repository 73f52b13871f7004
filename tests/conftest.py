"""Fixtures that several rooms' tests share."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would their child processes.
signal.signal(signal.SIGINT, signal.default_int_handler)

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
