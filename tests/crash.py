"""Kill ``collapse``, ``train --resume`` and ``bench`` at random moments: every file stays readable, every run goes on.

``make crash`` does it 50 times for each; ``python -m tests.crash NUMBER`` as often as told. Not part of the tests.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from falcon_gnn.benchmark.records import read_records
from falcon_gnn.datasets.archive import read_arrays, write_npz
from falcon_gnn.datasets.load import load_graph
from falcon_gnn.training.checkpoint import read_checkpoint

# Checkpoints are written once a minute; here after every epoch, so that a kill meets one.
_COMMAND = """
from falcon_gnn.training.trainer import train
train.__kwdefaults__["checkpoint_seconds"] = 0
from falcon_gnn.cli.commands import main
main()
"""
_BENCH = """
title = "Crash"
kind = "train"
seeds = 6
models = ["sign"]

[table]
metrics = ["accuracy"]

[training]
num_epochs = 20

[model]
hidden_channels = 8
num_layers = 2

[methods.none]
reduction = "none"

[datasets.tiny]
synthetic = { num_nodes = 300, num_edges = 900, num_features = 4, num_classes = 3 }
"""


def check_files(folder: Path) -> None:
    """Read every file under its final name; half-written ones have names that begin with a dot."""
    for path in folder.rglob("*"):
        if path.is_dir() or path.name.startswith("."):
            continue
        if path.suffix == ".npz":
            load_graph(path) if path.name == "graph.npz" else read_arrays(path)
        elif path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".jsonl":
            read_records(path)
        elif path.name.startswith("checkpoint"):
            read_checkpoint(path)
        elif path.suffix == ".safetensors":
            from safetensors.torch import load_file

            load_file(path)
        elif path.suffix == ".html":
            assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")


def run_killed(arguments: list[str], seconds: float | None) -> bool:
    """Start the command and kill it after some seconds; return whether it ended before, as it should."""
    command = [sys.executable, "-W", "ignore", "-c", _COMMAND, *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            _, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return False
    assert process.returncode == 0, errors.decode()
    return True


def crash(
    arguments: Callable[[Path], list[str]], outcome: Callable[[Path], Any], number: int, folder: Path
) -> tuple[int, int]:
    """Kill a command so often, at random moments; it starts anew where it ended, and its outcome is that of one run.

    Returns:
        How often it was killed, and how often it came to its end in between.
    """
    whole = folder / "whole"
    start = time.monotonic()
    assert run_killed(arguments(whole), None)
    seconds = time.monotonic() - start
    expected, broken = outcome(whole), folder / "broken"
    draw, num_killed, num_ended = random.Random(0), 0, 0
    while num_killed < number or not num_ended:
        wait = draw.uniform(0.3 * seconds, 1.1 * seconds) if num_killed < number else None
        has_ended = run_killed(arguments(broken), wait)
        num_killed += not has_ended
        if broken.exists():
            check_files(broken)
        if has_ended:
            assert outcome(broken) == expected, "the resumed run differs from the unbroken one"
            num_ended += 1
            shutil.rmtree(broken)
    return num_killed, num_ended


def _record(path: Path) -> Any:
    record = json.loads((path / "record.json").read_text(encoding="utf-8"))
    return record["scores"], record["training"]["best_epoch"], (path / "weights.safetensors").read_bytes()


def _collapsed(path: Path) -> Any:
    return {name: array.tobytes() for name, array in read_arrays(path / "mapping.npz").items()}


def _benched(path: Path) -> Any:
    runs = read_records(path / "records.jsonl").runs
    return {name: line["record"]["scores"] for name, line in runs.items()}


def main(number: int = 50) -> None:
    """Do all three and say how it went."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, config = folder / "digits.npz", folder / "crash.toml"
        write_npz(load_graph("digits"), source)
        config.write_text(_BENCH, encoding="utf-8")

        def train(out: Path) -> list[str]:
            options = [
                "--model",
                "sign",
                "--hidden-channels",
                "32",
                "--num-epochs",
                "40",
                "--device",
                "cpu",
                "--out",
                str(out),
            ]
            resume = ["--resume"] if (out / "checkpoint.safetensors").exists() else []
            return ["train", str(source), *options, *resume]

        def collapse(out: Path) -> list[str]:
            return ["collapse", str(source), "--node-budget", "0.3", "--out", str(out)]

        def bench(out: Path) -> list[str]:
            out.mkdir(exist_ok=True)
            return ["bench", str(config), "--records", str(out / "records.jsonl")]

        for title, arguments, outcome in (
            ("collapse", collapse, _collapsed),
            ("train --resume", train, _record),
            ("bench", bench, _benched),
        ):
            (folder / title.split()[0]).mkdir()
            killed, ended = crash(arguments, outcome, number, folder / title.split()[0])
            ends = f"ended {ended} times as the unbroken run, all files readable"
            print(f"{title}: killed {killed} times, {ends}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
