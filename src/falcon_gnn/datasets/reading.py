"""One wording for every file that cannot be read."""

import json
import pickle
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from falcon_gnn.errors import GraphError

_UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    EOFError,
    SyntaxError,
    json.JSONDecodeError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
)


@contextmanager
def reading(path: Path, expected: str, fix: str) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into a GraphError that names the file.

    Args:
        path: The file or folder being read.
        expected: What it should be, as it reads after "as".
        fix: A whole sentence: what the user can do.

    Raises:
        GraphError: If the body raises one (the path is put in front), or an error of reading or decoding.
    """
    try:
        yield
    except GraphError as error:
        text = str(error)
        raise GraphError(text if text.startswith(str(path)) else f"{path}: {text}") from error
    except FileNotFoundError as error:
        msg = f"{path} does not exist or lacks a file ({error}). {fix}"
        raise GraphError(msg) from error
    except _UNREADABLE as error:
        reason = str(error).strip().split("\n")[0]
        msg = f"{path} cannot be read as {expected} ({type(error).__name__}: {reason}). {fix}"
        raise GraphError(msg) from error
