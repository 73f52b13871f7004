"""Build the wheel, install it in fresh environments, and use it there as the first pages say, outside the source tree.

``make test-wheel`` runs it; ``python -m tests.wheel train`` takes one of the environments. Not part of the tests.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
ENVIRONMENTS = ROOT / ".venvs" / "wheel"
CONSTRAINTS = ROOT / "constraints.txt"

FIRST_PAGES = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/index.md"))
EXAMPLES = re.findall(r"```python\n(.*?)```", FIRST_PAGES, re.DOTALL)
COMMANDS = re.findall(r"^\$ falcon-gnn (.*)$", FIRST_PAGES, re.MULTILINE)
CORE_COMMANDS = ["collapse digits --node-budget 0.34 --out reduced", "config train --model sign"]

WHERE = """
import sysconfig, falcon_gnn
assert falcon_gnn.__file__.startswith(sysconfig.get_paths()["purelib"]), falcon_gnn.__file__
print(falcon_gnn.__version__)
"""
RUN_EXAMPLES = """
import doctest, sys
names = {}
for number, block in enumerate(open(sys.argv[1], encoding="utf-8").read().split("\\f")):
    if ">>>" in block:
        example = doctest.DocTestParser().get_doctest(block, {}, "README.md", "README.md", 0)
        assert not doctest.DocTestRunner().run(example).failed
    else:
        exec(compile(block, f"README.md, example {number}", "exec"), names)
"""
TYPED = """
\"\"\"What a user writes: every name has its type, and a wrong one is seen.\"\"\"

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import falcon_gnn as fg

graph = fg.load_graph("digits")
assert_type(graph, fg.Graph)
config = fg.CollapseConfig(node_budget=0.34, centrality="pagerank")
result = fg.collapse(graph, config)
assert_type(result, fg.CollapseResult)
kept: NDArray[np.int64] = result.kept
share: float = result.report.after.num_nodes / result.report.before.num_nodes
training = fg.TrainConfig(fg.ModelConfig("qsign"), num_epochs=2, device="cpu")
outcome = fg.run(graph, fg.RunConfig(training, config), progress=False)
assert_type(outcome, fg.RunOutcome)
if outcome.scores.test is not None:
    print(outcome.scores.test.accuracy + share, len(kept))

fg.CollapseConfig(node_budgt=5)  # type: ignore[call-arg]
fg.load_graph(5)  # type: ignore[arg-type]
"""


def build() -> Path:
    """Return the wheel, built from the source archive that is built first."""
    shutil.rmtree(DIST, ignore_errors=True)
    python = _make_environment("build", "build")
    _call(python, "-m", "build", "--outdir", DIST, ROOT, cwd=ROOT)
    (wheel,) = DIST.glob("*.whl")
    return wheel


def check(wheel: Path, extra: str) -> None:
    """Install the wheel with an extra (``core``: with none) and use it.

    Args:
        wheel: The file.
        extra: Name of the extra, also of the environment.
    """
    is_core = extra == "core"
    python = _make_environment(extra, str(wheel) if is_core else f"{wheel}[{extra}]", "mypy")
    command = python.with_name("falcon-gnn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        version = _call(python, "-c", WHERE, cwd=folder).strip()
        assert version == _call(command, "--version", cwd=folder).strip() == wheel.name.split("-")[1]
        (folder / "examples.txt").write_text("\f".join(EXAMPLES[:1] if is_core else EXAMPLES), encoding="utf-8")
        _call(python, "-c", RUN_EXAMPLES, "examples.txt", cwd=folder)
        for words in CORE_COMMANDS if is_core else [*CORE_COMMANDS, *COMMANDS]:
            _call(command, *words.split(), cwd=folder)
        if not is_core:
            told = _call(command, "bench", "main_result", "--max-runs", "0", "--data", folder, cwd=folder)
            assert "900 are left" in told, told
        (folder / "typed.py").write_text(TYPED, encoding="utf-8")
        _call(python, "-m", "mypy", "--strict", "typed.py", cwd=folder)
    print(f"The wheel holds with {'no extra' if is_core else f'[{extra}]'}: {version}", flush=True)


def _make_environment(name: str, *requirements: str) -> Path:
    """Return the Python of a fresh environment with some packages."""
    folder = ENVIRONMENTS / name
    venv.create(folder, clear=True, with_pip=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    quiet = ("--quiet", "--disable-pip-version-check")
    _call(python, "-m", "pip", "install", *quiet, "-c", CONSTRAINTS, *requirements, cwd=ROOT)
    return python


def _call(program: Path, *words: str | Path, cwd: Path) -> str:
    """Return what a program prints; what it says when it fails is shown."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([program, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        done.check_returncode()
    return done.stdout


def main(extras: Sequence[str]) -> None:
    """Build the wheel and check it with each extra."""
    wheel = build()
    for extra in extras:
        check(wheel, extra)


if __name__ == "__main__":
    main(sys.argv[1:] or ["core", "train", "all"])
