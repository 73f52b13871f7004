"""The configurations that come with the package, by name."""

from difflib import get_close_matches
from functools import cache
from pathlib import Path

from falcon_gnn.errors import OptionError

_PACKAGED = Path(__file__).with_name("configs")
_CHECKED_OUT = Path(__file__).resolve().parents[3] / "configs"
_TABLE_OF_DATASETS = "datasets"
"""The file over which others lie; it is no benchmark itself."""


@cache
def shipped_configs() -> dict[str, Path]:
    """Return the files by name: ``main_result`` for ``main_result.toml``.

    They lie in the package; where it is used from its source, in the folder ``configs`` of that.
    """
    folder = _PACKAGED if _PACKAGED.is_dir() else _CHECKED_OUT
    return {path.stem: path for path in sorted(folder.rglob("*.toml")) if path.stem != _TABLE_OF_DATASETS}


def find_config(source: str | Path) -> Path:
    """Return the file of a configuration.

    Args:
        source: A path, or a name of :func:`shipped_configs`; a file in the working folder that is called the same wins.

    Raises:
        OptionError: If a bare name is none of them.
    """
    path = Path(source)
    if path.exists() or path.suffix or len(path.parts) != 1:
        return path
    known = shipped_configs()
    if path.name in known:
        return known[path.name]
    close = get_close_matches(path.name, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    msg = f"config must be a TOML file or one of {', '.join(known)}, got {path.name!r}.{hint}"
    raise OptionError(msg)
