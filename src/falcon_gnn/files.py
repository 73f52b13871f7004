"""Files and folders that appear whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on success it takes the name ``path``, on any failure it is gone.

    A crash or Ctrl-C in between leaves an older file at ``path`` as it was. Missing parent folders are made.

    Args:
        path: The file to write.

    Yields:
        The temporary path to write to; it keeps the suffix of ``path``.
    """
    target = Path(path)
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
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield temporary
        temporary.chmod(0o777 & ~_current_umask())
        if target.is_dir():
            discarded = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
            target.replace(discarded / target.name)
            try:
                temporary.replace(target)
            except BaseException:
                (discarded / target.name).replace(target)
                raise
            finally:
                shutil.rmtree(discarded, ignore_errors=True)
        else:
            temporary.replace(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
