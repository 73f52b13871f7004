"""The records of a benchmark: a file of JSON lines that only grows and that a crash cannot spoil."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from falcon_gnn.errors import OptionError
from falcon_gnn.files import saying_where

Line = Mapping[str, Any]

_MAX_NAMED = 6
_PLAN_KEYS = ("title", "kind", "paper", "figure", "drawn_methods", "overrides")
_CELL_KEYS = ("dataset", "model", "method", "centrality", "budget", "paper", "ids")
_DATASET_KEYS = ("metrics", "note")


@dataclass
class Records:
    """What one or several record files hold.

    Attributes:
        plans: Which runs belong to which table, as :func:`falcon_gnn.benchmark.runs.describe_plan` writes it, oldest
            first.
        runs: The line of each finished run, by its id.
        errors: The last error of each run that never finished, by its id.
        missing_data: Why a data set could not be loaded, by its name.
        foreign: Number of lines that no benchmark wrote, by the path of their file.
    """

    plans: list[Line] = field(default_factory=list)
    runs: dict[str, Line] = field(default_factory=dict)
    errors: dict[str, Line] = field(default_factory=dict)
    missing_data: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, int] = field(default_factory=dict)


def read_records(*paths: str | Path, must_exist: bool = False) -> Records:
    """Return what record files hold.

    A last line that was being written when the machine stopped is left out.

    Args:
        paths: The files.
        must_exist: Whether a file that is not there is refused; else it is an empty one.

    Raises:
        OptionError: If a file is not there or cannot be read, another line is not JSON, or a plan is incomplete; names
            the file and the line.
    """
    records = Records()
    for path in paths:
        if must_exist and not Path(path).exists():
            msg = f"record file {path} does not exist. Name one that falcon-gnn bench wrote."
            raise OptionError(msg)
        for number, line in _lines(Path(path)):
            if not _sort_in(records, line, f"line {number} of {path}"):
                records.foreign[str(path)] = records.foreign.get(str(path), 0) + 1
    records.errors = {run_id: line for run_id, line in records.errors.items() if run_id not in records.runs}
    return records


class RecordWriter:
    """Appends lines to a record file; each is on the disk when :meth:`append` returns.

    Args:
        path: The file; made with its folder if it is not there. A torn last line is cut off.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(self.path)

    def append(self, line: Line) -> None:
        """Write one line, whole.

        Raises:
            OptionError: If the disk is full.
        """
        data = json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        with saying_where(self.path), self.path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def name_failures(errors: Mapping[str, str]) -> list[str]:
    """Return a sentence per distinct error with the runs that it ended.

    Args:
        errors: The error of each run, by its name.

    Example:
        >>> name_failures({"a, seed 0": "too big", "a, seed 1": "too big", "b": "unknown"})
        ['Failed (2 runs: a, seed 0; a, seed 1): too big', 'Failed (b): unknown']
    """
    runs: dict[str, list[str]] = {}
    for name, error in errors.items():
        runs.setdefault(error, []).append(name)
    return [f"Failed ({list_names(names, 'runs')}): {error}" for error, names in runs.items()]


def list_names(names: Sequence[str], what: str) -> str:
    """Return the first names of a list, and how many of what there are.

    Example:
        >>> list_names(["a", "b"], "runs")
        '2 runs: a; b'
    """
    if len(names) == 1:
        return names[0]
    shown = names if len(names) <= _MAX_NAMED else [*names[:_MAX_NAMED], "..."]
    return f"{len(names)} {what}: {'; '.join(shown)}"


def _sort_in(records: Records, line: Any, place: str) -> bool:
    """Put a line where it belongs, and return whether a benchmark wrote it.

    Raises:
        OptionError: If it is a plan that lacks something; names the place.
    """
    if not isinstance(line, dict):
        return False
    if _holds(line, plan=str, cells=list, datasets=dict):
        _check_plan(line, place)
        records.plans.append(line)
    elif _holds(line, missing_data=str, error=str):
        records.missing_data[line["missing_data"]] = line["error"]
    elif _holds(line, id=str, error=str):
        records.errors[line["id"]] = line
    elif _holds(line, id=str, record=dict):
        records.runs[line["id"]] = line
    else:
        return False
    return True


def _check_plan(plan: Line, place: str) -> None:
    parts: list[tuple[Any, tuple[str, ...]]] = [(plan, _PLAN_KEYS)]
    parts += [(cell, _CELL_KEYS) for cell in plan["cells"]]
    parts += [(dataset, _DATASET_KEYS) for dataset in plan["datasets"].values()]
    missing = [key for part, keys in parts for key in keys if not isinstance(part, dict) or key not in part]
    if missing:
        shown = ", ".join(dict.fromkeys(missing))
        msg = f"{place} is the plan of a benchmark without {shown}. Remove the line; falcon-gnn bench writes it again."
        raise OptionError(msg)


def _holds(line: Line, **kinds: type) -> bool:
    return all(isinstance(line.get(key), kind) for key, kind in kinds.items())


def _lines(path: Path) -> list[tuple[int, Line]]:
    """Return the lines of a file with their numbers, counted from 1."""
    if not path.exists():
        return []
    try:
        parts = path.read_bytes().split(b"\n")
    except OSError as error:
        msg = f"record file {path} cannot be read ({error.strerror}). Name a file that falcon-gnn bench wrote."
        raise OptionError(msg) from error
    lines = []
    for number, part in enumerate(parts, start=1):
        if not part.strip():
            continue
        try:
            line = json.loads(part)
        except ValueError as error:
            if number == len(parts):
                continue
            msg = f"line {number} of {path} is no JSON: {error}. Remove the line; its run will be done again."
            raise OptionError(msg) from error
        lines.append((number, line))
    return lines


def _cut_torn_line(path: Path) -> None:
    """End the file with a newline: after its last line if that is whole, else before it."""
    if not path.exists():
        return
    content = path.read_bytes()
    if not content or content.endswith(b"\n"):
        return
    start = content.rfind(b"\n") + 1
    try:
        json.loads(content[start:])
    except ValueError:
        with path.open("r+b") as file:
            file.truncate(start)
        return
    with path.open("ab") as file:
        file.write(b"\n")
