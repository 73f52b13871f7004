"""The code of the How-to pages is run while the site is built, and what it prints stands below it."""

import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r"(?:<!-- needs: (?P<needs>[\w, ]+) -->\n)?^```(?P<kind>python|console)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_MARK = "\f falcon-gnn example {} \f"
_RUN = """
import subprocess as _subprocess

def _run(command):
    done = _subprocess.run(command, shell=True, capture_output=True, text=True)
    print(done.stdout, end="", flush=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
"""
_SECONDS = 600
_MOST_LINES = 60


class Block(NamedTuple):
    """A piece of a page that is run.

    Attributes:
        kind: ``"python"``, or ``"console"``: lines that begin with ``$`` are commands.
        code: The text between the fences.
        needs: Modules without which it is shown and not run.
        end: Where it ends in the page.
    """

    kind: str
    code: str
    needs: tuple[str, ...]
    end: int

    @property
    def can_run(self) -> bool:
        """Whether what it needs is installed."""
        return all(find_spec(name) is not None for name in self.needs)


def find_blocks(text: str) -> list[Block]:
    """Return the blocks of a page, in order."""
    return [
        Block(found["kind"], found["code"], tuple((found["needs"] or "").replace(",", " ").split()), found.end())
        for found in _BLOCK.finditer(text)
    ]


def write_script(blocks: list[Block]) -> str:
    """Return one Python program of the blocks that can run, which marks where the output of each begins."""
    lines = [_RUN]
    for number, block in enumerate(blocks):
        if not block.can_run:
            continue
        lines.append(f"print({_MARK.format(number)!r}, flush=True)")
        if block.kind == "python":
            lines.append(block.code)
            continue
        for command in re.findall(r"^\$ (.*)$", block.code, re.MULTILINE):
            lines.append(f"_run({command!r})")
    return "\n".join(lines)


def run_page(name: str, text: str) -> str:
    """Return a page with the output of each block below it.

    Raises:
        RuntimeError: If a block fails; the message holds what Python said.
    """
    blocks = find_blocks(text)
    outputs = _outputs(name, blocks)
    parts, start = [], 0
    for number, block in enumerate(blocks):
        parts.append(text[start : block.end])
        start = block.end
        lines = outputs.get(number, "").rstrip().splitlines()
        if lines:
            shown = lines if len(lines) <= _MOST_LINES else [*lines[:_MOST_LINES], "..."]
            parts.append("\n\n``` { .text .output }\n" + "\n".join(line.rstrip() for line in shown) + "\n```")
    return "".join([*parts, text[start:]])


def _outputs(name: str, blocks: list[Block]) -> dict[int, str]:
    """Return what each block printed."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "page.py"
        script.write_text(write_script(blocks), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-W", "ignore", script.name], cwd=folder, env=example_environment(), capture_output=True,
            text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        msg = f"An example of {name} fails:\n{done.stderr}"
        raise RuntimeError(msg)
    found = re.split(_MARK.format(r"(\d+)") + "\n", done.stdout)
    return {int(number): output for number, output in zip(found[1::2], found[2::2], strict=True)}


def example_environment() -> dict[str, str]:
    """Return the variables that examples run with: this Python's commands first, plain text of 100 columns."""
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    source = f"{_ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)
    told = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PYTHONPATH": source, "PATH": commands}
    threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    return {**os.environ, **told, **threads}
