"""Names that a package re-exports and imports on first use, so that importing it costs nothing."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, sources: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the module functions ``__getattr__`` and ``__dir__`` of a package that re-exports lazily.

    Args:
        package: Full name of the package.
        sources: Module that defines each exported name.
    """

    def load(name: str) -> Any:
        if name not in sources:
            msg = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(msg)
        return getattr(import_module(sources[name]), name)

    def names() -> list[str]:
        return sorted(sources)

    return load, names
