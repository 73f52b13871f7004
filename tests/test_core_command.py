"""The command and the top of the package where none of the extras is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_EXTRAS = """
import sys
class Missing:
    @staticmethod
    def find_spec(name, *_):
        if name in ("torch", "torch_geometric", "safetensors", "pymetis", "matplotlib", "jinja2", "optuna", "pyspark"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing)
"""
TOP = """
import falcon_gnn as fg
try:
    fg.run
except fg.MissingDependencyError as error:
    print(error)
"""
COMMAND = f"{WITHOUT_EXTRAS}\nfrom falcon_gnn.cli.commands import main\nmain()"


def call(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, check=False)


def test_a_collapse_needs_no_extra(tmp_path: Path) -> None:
    done = call("collapse", "digits", "--node-budget", "0.3", "--centrality", "degree", "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"graph.npz", "mapping.npz", "report.json"}
    assert "pip install 'falcon-gnn[report]'" in done.stdout


@pytest.mark.parametrize("words", [["train", "digits"], ["plan", "digits", "--memory", "1GiB"]])
def test_a_command_that_trains_names_the_extra_in_one_line(tmp_path: Path, words: list[str]) -> None:
    done = call(*words, "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stdout) == (2, "")
    wanted = "falcon-gnn: torch is needed here and is not installed. Run: pip install 'falcon-gnn[train]'\n"
    assert done.stderr == wanted


def test_a_name_of_the_package_that_trains_names_the_extra() -> None:
    shown = subprocess.check_output([sys.executable, "-c", WITHOUT_EXTRAS + TOP], text=True)
    assert shown == "torch is needed here and is not installed. Run: pip install 'falcon-gnn[train]'\n"
