"""Where compiled kernels are kept from one process to the next, in places that only their user can write to.

Numba looks for a place when a module of kernels is imported: the folder in ``NUMBA_CACHE_DIR``, ``__pycache__`` beside
the code, the user's cache folder. Where none can be written (a container without a home, a package of another user)
it ends with an error. Here a folder of the user's own under the temporary folder follows, and then none at all.
"""

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache

_PLACES: list[Any] = CompileResultCacheImpl._locator_classes
# Its name began with an underscore in earlier versions of Numba.
_UserWideLocator: Any = next(kind for kind in _PLACES if kind.__name__.endswith("UserWideCacheLocator"))


def private_folder() -> Path:
    """Return the user's own folder under the temporary folder, made if it is missing.

    What lies there is unpickled, which can run any code: nobody else may own it or write to it.

    Raises:
        OSError: If there is no temporary folder, or the folder is not the user's alone.
    """
    has_owners = hasattr(os, "geteuid")
    # Without owners (Windows) the temporary folder is the user's own already.
    folder = Path(tempfile.gettempdir()) / (f"falcon-gnn-{os.geteuid()}" if has_owners else "falcon-gnn")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    is_ours = not has_owners or (found.st_uid == os.geteuid() and not found.st_mode & 0o077)
    if not stat.S_ISDIR(found.st_mode) or not is_ours:
        raise PermissionError(errno.EPERM, "not a folder that its user alone can write to", str(folder))
    return folder


class _HomeLocator(_UserWideLocator):  # type: ignore[misc]
    """The user's cache folder; none where there is no home, for which Numba would make a folder named ``~``."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        is_known = Path(cls(py_func, py_file).get_cache_path()).is_absolute()
        return super().from_function(py_func, py_file) if is_known else None


class _TemporaryLocator(_UserWideLocator):  # type: ignore[misc]
    """The user's own folder under the temporary folder; looked at again before every reading and writing."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._cache_path = str(private_folder() / self.get_suitable_cache_subpath(py_file))

    def ensure_cache_path(self) -> None:
        private_folder()
        super().ensure_cache_path()

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        with suppress(OSError):
            return super().from_function(py_func, py_file)
        return None


class _KernelCacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes: ClassVar[list[Any]] = [
        *(_HomeLocator if kind is _UserWideLocator else kind for kind in _PLACES),
        _TemporaryLocator,
    ]


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function, which a full disk or a broken file makes useless but not harmful."""

    _impl_class = _KernelCacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function from the disk, or None where it is not there or cannot be read."""
        try:
            if isinstance(self._impl.locator, _TemporaryLocator):
                self._impl.locator.ensure_cache_path()
            return super().load_overload(sig, target_context)
        except OSError:
            return None
        except Exception:
            # Half a file can raise anything. Without its index, the next process finds what this one writes.
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the compiled function to the disk, if that can be done."""
        with suppress(OSError):
            super().save_overload(sig, data)


def open_cache(function: Callable[..., Any]) -> Any:
    """Return the cache of a function, or one that keeps nothing where there is no place for it."""
    try:
        return KernelCache(function)
    except RuntimeError:
        return NullCache()
