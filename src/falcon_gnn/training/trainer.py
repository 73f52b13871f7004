"""Training on one graph, reduced or not, with evaluation on another: the door of this room."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.training.checkpoint import read_checkpoint, write_checkpoint
from falcon_gnn.training.configs import TrainConfig
from falcon_gnn.training.progress import EpochRecord, InterruptGuard, ProgressBar, Reporter, TensorBoardLog
from falcon_gnn.training.sources import HopSource
from falcon_gnn.training.state import TrainingState, TrainResult
from falcon_gnn.training.steps import own_randomness, resolve_device

_SECONDS_BETWEEN_CHECKPOINTS = 60.0


def train(
    graph: Graph,
    config: TrainConfig,
    *,
    eval_graph: Graph | None = None,
    hop_source: HopSource | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    log_dir: str | Path | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
) -> TrainResult:
    """Train a model on ``graph`` and keep its best epoch by the validation score on ``eval_graph``.

    The global random generators of torch are left as they were.

    Args:
        graph: What is trained on: its train mask, or all nodes without one, as far as they have labels.
        config: The model and how to train it.
        eval_graph: The original graph, whose validation and test nodes are scored over all its edges; by default
            ``graph``.
        hop_source: For the SIGN models only: a graph on which the hop features of the training nodes are computed, and
            what each node of ``graph`` reads there: the id of a node, shape ``(n,)``, or weights of all nodes, SciPy
            CSR of shape ``(n, N)``. By default ``graph`` itself.
        checkpoint: A file that takes the whole state once a minute, at the end and on Ctrl-C, which first finishes the
            epoch and then raises KeyboardInterrupt.
        resume: Go on from ``checkpoint``; on the CPU bit for bit as if never interrupted. ``num_epochs`` may differ.
        progress: Whether to show a progress bar where standard error is a terminal.
        log_dir: A folder for TensorBoard curves.
        on_epoch: Called after every epoch.

    Raises:
        OptionError: If features, labels or masks are missing or do not fit, or the checkpoint is of another training.
        ConvergenceError: If the loss becomes NaN or infinite.
        KeyboardInterrupt: After Ctrl-C.
    """
    if resume and checkpoint is None:
        msg = "resume needs the checkpoint to go on from, got checkpoint=None. Pass its path."
        raise OptionError(msg)
    device = resolve_device(config.device)
    with own_randomness(config.seed, device, deterministic=config.deterministic):
        training = TrainingState(graph, graph if eval_graph is None else eval_graph, config, device, hop_source)
        if resume and checkpoint is not None:
            training.restore(read_checkpoint(checkpoint))
        with ExitStack() as stack:
            reporters: list[Reporter] = [ProgressBar(config.num_epochs, len(training.epochs))] if progress else []
            if log_dir is not None:
                reporters.append(TensorBoardLog(log_dir))
            for reporter in reporters:
                stack.callback(reporter.close)
            guard = stack.enter_context(InterruptGuard(active=checkpoint is not None))
            _run(training, guard, reporters, on_epoch, None if checkpoint is None else Path(checkpoint))
        return training.result()


def _run(
    training: TrainingState,
    guard: InterruptGuard,
    reporters: list[Reporter],
    on_epoch: Callable[[EpochRecord], None] | None,
    checkpoint: Path | None,
) -> None:
    """Train epoch after epoch until the end, patience or Ctrl-C."""
    written = time.monotonic()
    while not training.is_finished:
        record = training.advance()
        try:
            for reporter in reporters:
                reporter.report(record, training.best_score)
            if on_epoch is not None:
                on_epoch(record)
        except KeyboardInterrupt:
            guard.requested = True
        is_due = guard.requested or training.is_finished or time.monotonic() - written > _SECONDS_BETWEEN_CHECKPOINTS
        if checkpoint is not None and is_due:
            write_checkpoint(checkpoint, training.checkpoint())
            written = time.monotonic()
        if guard.requested:
            where = "" if checkpoint is None else f"; {checkpoint} holds its state, go on with resume"
            msg = f"training was interrupted after epoch {record.epoch}{where}"
            raise KeyboardInterrupt(msg)
