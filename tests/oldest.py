"""The lower bounds of ``pyproject.toml`` as constraints for pip, which ``python -m tests.oldest`` prints."""

import re
import tomllib
from pathlib import Path

_BOUND = re.compile(r"([\w.-]+)>=([\w.]+)")


def oldest_versions(pyproject: str) -> list[str]:
    """Return the lower bound of each library that is needed without any extra.

    Args:
        pyproject: The text of the file.

    Raises:
        ValueError: If one has no lower bound.
    """
    found = []
    for requirement in tomllib.loads(pyproject)["project"]["dependencies"]:
        bound = _BOUND.match(requirement)
        if bound is None:
            msg = f"{requirement!r} has no lower bound"
            raise ValueError(msg)
        found.append(f"{bound[1]}=={bound[2]}")
    return found


if __name__ == "__main__":
    print(
        "\n".join(oldest_versions((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")))
    )
