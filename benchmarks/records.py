"""Keep what a benchmark measured: one line of JSON per row, with the machine and the versions."""

import json
import os
from collections.abc import Iterable, Mapping
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
