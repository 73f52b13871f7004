"""Keep and print what a benchmark measured: a line of JSON per row, with the machine and the versions; a table."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from falcon_gnn.provenance import describe_machine, describe_versions


def append_records(path: Path | None, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows to a file of records; without a path nothing is kept.

    Args:
        path: A ``.jsonl`` file; it and its folders are made where they are missing.
        rows: What was measured, of types that JSON knows.
    """
    if path is None:
        return
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    facts = {"machine": describe_machine(), "versions": describe_versions(), "load_average": load}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({**facts, **row}) + "\n" for row in rows)


def to_markdown(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows that have the same keys as a table in Markdown, empty where a value is None."""
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join("" if row[c] is None else str(row[c]) for c in columns) + " |" for row in rows]
    return "\n".join(lines)
