"""Files and folders that appear whole or not at all, and a look beforehand whether they can."""

import errno
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import FalconError, OptionError
from falcon_gnn.threads import shared_lock

_PROBE_BYTES = 1 << 16
_ASKING = shared_lock()
ArrayBlocks = tuple[tuple[int, ...], np.dtype[Any], Iterator[NDArray[Any]]]
"""Shape and type of an array, and its blocks of rows, which are made as they are asked for."""


def check_writable(path: str | Path, *, is_folder: bool = True, option: str = "out") -> None:
    """Stop before the work where its outcome could not be written.

    A few bytes are written to the place and removed again; nothing is left behind.

    Args:
        path: The folder, or the file, that will be written; missing folders above it are looked at as well.
        is_folder: Whether it is a folder.
        option: What the user calls it, for the message.

    Raises:
        OptionError: If it cannot be written: a read-only place, a file where a folder should be, no space.
    """
    if not isinstance(path, str | os.PathLike) or path == "" or Path(path).parts[:1] == ("~",):
        shown = repr(os.fspath(path) if isinstance(path, os.PathLike) else path)
        msg = f"{option} must be a path, got {shown}. Write it out: '.' is this folder, and ~ is known to shells only."
        raise OptionError(msg)
    target = Path(path)
    folder = target if is_folder else target.parent
    made: list[Path] = []
    try:
        if not is_folder and target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        for parent in reversed(missing):
            parent.mkdir()
            made.append(parent)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        what = f"{option} {target}"
        raise _cannot_write(what, error) from error
    finally:
        for parent in reversed(made):
            with suppress(OSError):
                parent.rmdir()


def _cannot_write(what: str, error: BaseException, left: str = "") -> OptionError:
    reason = getattr(error, "strerror", None) or str(error)
    fix = "Free some space, or choose" if _is_full(error) else "Choose"
    return OptionError(f"{what} cannot be written ({reason}){left}. {fix} another place.")


def _is_full(error: BaseException) -> bool:
    is_said = any(phrase in str(error) for phrase in ("No space left", "disk is full"))
    return is_said or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


def _with_earlier(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it was raised on top of: a library may fail again while it handles a full disk."""
    while error is not None:
        yield error
        error = error.__context__


@contextmanager
def saying_where(target: Path) -> Iterator[None]:
    """Turn what the disk says into an error of ours that names the file."""
    try:
        yield
    except FalconError:
        raise
    except Exception as error:
        # Libraries with writers of their own have errors of their own; NumPy counts what a full disk took.
        of_disk = isinstance(error, OSError) and (error.errno is not None or "requested and" in str(error))
        told = error if of_disk else next(filter(_is_full, _with_earlier(error)), None)
        if told is None:
            raise
        raise _cannot_write(str(target), told, "; what was there before is whole") from error


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on success it takes the name ``path``, on any failure it is gone.

    A crash or Ctrl-C in between leaves an older file at ``path`` as it was. Missing parent folders are made.

    Args:
        path: The file to write.

    Yields:
        The temporary path to write to; it keeps the suffix of ``path``.

    Raises:
        OptionError: If the place cannot be written to, or the disk is full.
    """
    target = Path(path)
    with saying_where(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.stem}.", suffix=target.suffix, dir=target.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(0o666 & ~_current_umask())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """Yield a new temporary folder beside ``path``; on success it takes that name, replacing an older folder.

    Args:
        path: The folder to write.

    Yields:
        The temporary folder to fill.

    Raises:
        OptionError: If the place cannot be written to, or the disk is full.
    """
    target = Path(path)
    with saying_where(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            yield temporary
            temporary.chmod(0o777 & ~_current_umask())
            _replace_folder(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _replace_folder(temporary: Path, target: Path) -> None:
    if not target.is_dir():
        temporary.replace(target)
        return
    discarded = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    target.replace(discarded / target.name)
    try:
        temporary.replace(target)
    except BaseException:
        (discarded / target.name).replace(target)
        raise
    finally:
        shutil.rmtree(discarded, ignore_errors=True)


def _current_umask() -> int:
    # It can only be read by setting it: of two threads, one would read what the other has set.
    with _ASKING:
        mask = os.umask(0)
        os.umask(mask)
    return mask


def write_archive(
    path: Path, arrays: Mapping[str, NDArray[Any]], in_blocks: Mapping[str, ArrayBlocks] | None = None
) -> None:
    """Write arrays to a compressed ``.npz`` file, at the fastest level: a sixth of numpy.savez_compressed's time.

    Args:
        path: The file.
        arrays: Arrays by name, any name.
        in_blocks: Further arrays, which are never whole in memory.
    """
    with zipfile.ZipFile(path, "w", compression=zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, blocks in (in_blocks or {}).items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                write_blocks(stream, blocks)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)


def write_blocks(stream: IO[bytes], blocks: ArrayBlocks) -> None:
    """Write an array that comes in blocks of rows as one ``.npy`` file."""
    shape, dtype, parts = blocks
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    for part in parts:
        stream.write(np.ascontiguousarray(part).data)
