"""One wording for every file that cannot be read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from falcon_gnn.errors import FalconError, GraphError, OptionError


@contextmanager
def reading(path: Path, expected: str, fix: str) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into an error of ours that names the file.

    Args:
        path: The file or folder being read.
        expected: What it should be, as it reads after "as".
        fix: A whole sentence: what the user can do.

    Raises:
        GraphError: If the body raises one; the path is put in front.
        OptionError: Likewise, or if the body raises an error of reading or decoding.
    """
    try:
        yield
    except (GraphError, OptionError) as error:
        text = str(error)
        raise type(error)(text if text.startswith(str(path)) else f"{path}: {text}") from error
    except FileNotFoundError as error:
        msg = f"{path} does not exist or lacks a file ({error}). {fix}"
        raise OptionError(msg) from error
    except FalconError:
        raise
    except Exception as error:
        # Broken bytes make the libraries raise whatever they stumble over: a tokenizer's error, a failed assertion.
        reason = str(error).strip().split("\n")[0]
        msg = f"{path} cannot be read as {expected} ({type(error).__name__}: {reason}). {fix}"
        raise OptionError(msg) from error
