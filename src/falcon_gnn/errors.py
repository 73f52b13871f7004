"""The errors and warnings that falcon_gnn raises on purpose."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


class FalconError(Exception):
    """Any error that falcon_gnn raises on purpose."""


class GraphError(FalconError, ValueError):
    """A graph, or an array or a table that describes one, is not usable as given."""


class OptionError(FalconError, ValueError):
    """An option, a file or a place to write to is not usable as given."""


class BudgetError(FalconError, ValueError):
    """A node budget or memory budget cannot be met."""


class ConvergenceError(FalconError, RuntimeError):
    """An iteration did not reach its tolerance."""


class OutOfMemoryError(FalconError, MemoryError):
    """Memory ran out; the message says how much was needed, how much is free, and what would fit."""


class DownloadError(FalconError, RuntimeError):
    """A file could not be fetched, or is not the one that it should be."""


class MissingDependencyError(FalconError, ImportError):
    """An optional library is needed and not installed."""


class FalconWarning(UserWarning):
    """Something in the input was changed or left out, and the user should know."""


_EXTRAS = {
    "torch": "train", "torch_geometric": "train", "safetensors": "train", "matplotlib": "report", "jinja2": "report",
    "optuna": "tune", "pyspark": "spark", "networkx": "networkx", "tensorboard": "tensorboard",
    "pooch": "download",
}  # fmt: skip


@contextmanager
def naming_extras() -> Iterator[None]:
    """Turn the error of a missing optional library into one that names the extra with it.

    Raises:
        MissingDependencyError: In place of the error of a module of ours that needs the library.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _EXTRAS:
            raise
        msg = f"{library} is needed here and is not installed. Run: pip install 'falcon-gnn[{_EXTRAS[library]}]'"
        raise MissingDependencyError(msg) from error


def require(module: str, extra: str) -> ModuleType:
    """Return an optional module, imported.

    Args:
        module: Dotted name of the module, for example ``"torch"``.
        extra: The extra of falcon-gnn that installs it, for example ``"train"``.

    Raises:
        MissingDependencyError: If the module is not installed; the message names the pip command.
    """
    try:
        return import_module(module)
    except ImportError as error:
        msg = f"{module} is needed here and cannot be imported ({error}). Run: pip install 'falcon-gnn[{extra}]'"
        raise MissingDependencyError(msg) from error
