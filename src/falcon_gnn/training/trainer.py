"""Training on one graph, reduced or not, with evaluation on another: the door of this room."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.training.checkpoint import read_checkpoint, write_checkpoint
from falcon_gnn.training.config import TrainConfig
from falcon_gnn.training.crew import Crew
from falcon_gnn.training.hops import require_features
from falcon_gnn.training.progress import EpochRecord, InterruptGuard, ProgressBar, Reporter, TensorBoardLog
from falcon_gnn.training.sources import HopSource
from falcon_gnn.training.state import TrainingState, TrainResult
from falcon_gnn.training.steps import own_settings


def train(
    graph: Graph,
    config: TrainConfig,
    *,
    eval_graph: Graph | None = None,
    hop_source: HopSource | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    resume: bool = False,
    progress: bool = True,
    log_dir: str | Path | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    crew: Crew | None = None,
) -> TrainResult:
    """Train a model on ``graph`` and keep its best epoch by the validation score on ``eval_graph``.

    The global random generators of torch are left as they were, and what was switched in it for all that follows, such
    as a default type, has no say here. Trainings in threads of one process wait for each other.

    Args:
        graph: What is trained on: its train mask, or all nodes without one, as far as they have labels.
        config: The model and how to train it.
        eval_graph: The original graph, whose validation and test nodes are scored over all its edges; by default
            ``graph``.
        hop_source: For the SIGN models and a GCN trained on rows: what returns a graph on which the hop features of
            the training nodes are computed, and what each node of ``graph`` reads there: the id of a node, shape
            ``(n,)``, or weights of all nodes, SciPy CSR of shape ``(n, N)``. By default ``graph`` itself.
        checkpoint: A file that takes the whole state every ``checkpoint_seconds``, at the end and on Ctrl-C, which
            first finishes the epoch and then raises KeyboardInterrupt.
        checkpoint_seconds: Least time between two checkpoints.
        resume: Go on from ``checkpoint``; in one process on the CPU bit for bit as if never interrupted. ``num_epochs``
            may differ.
        progress: Whether to show a progress bar where standard error is a terminal.
        log_dir: A folder for TensorBoard curves.
        on_epoch: Called after every epoch, in every process of a crew.
        crew: The processes that train together; by default this one alone.

    Raises:
        GraphError: If features, labels or masks are missing or do not fit.
        OptionError: If an option does not fit the graph or the crew, or the checkpoint is of another training.
        ConvergenceError: If the loss becomes NaN or infinite, or no validation score is finite.
        KeyboardInterrupt: After Ctrl-C.
    """
    if resume and checkpoint is None:
        msg = "resume needs the checkpoint to go on from, got checkpoint=None. Pass its path."
        raise OptionError(msg)
    require_features(graph)
    crew = Crew() if crew is None else crew
    config, file = crew.fit(config), None if checkpoint is None else Path(checkpoint)
    with own_settings(config, crew.device(config.device)):
        training = TrainingState(graph, graph if eval_graph is None else eval_graph, config, crew, hop_source)
        if resume and file is not None:
            training.restore(read_checkpoint(file))
        with ExitStack() as stack:
            reporters = _open_reporters(training, log_dir, progress=progress)
            for reporter in reporters:
                stack.callback(reporter.close)
            is_shared = crew.num_devices > 1
            guard = stack.enter_context(InterruptGuard(file is not None or is_shared, grace=1.0 if is_shared else 0.0))
            _run(
                training,
                guard,
                [*(reporter.report for reporter in reporters), *_told(on_epoch)],
                _Saving(file, checkpoint_seconds),
            )
        return training.result()


@dataclass
class _Saving:
    """Where and how often the state is written."""

    path: Path | None
    seconds: float

    def __post_init__(self) -> None:
        self._written = time.monotonic()

    def save(self, training: TrainingState, *, is_last: bool) -> None:
        """Write the state if it is due, by the crew's writer."""
        is_due = is_last or time.monotonic() - self._written >= self.seconds
        if self.path is not None and is_due and training.crew.is_writer:
            write_checkpoint(self.path, training.checkpoint())
            self._written = time.monotonic()


def _run(
    training: TrainingState,
    guard: InterruptGuard,
    listeners: list[Callable[[EpochRecord, float | None], None]],
    saving: _Saving,
) -> None:
    """Train epoch after epoch until the end, patience or Ctrl-C, as all processes of the crew agree."""
    crew = training.crew
    is_finished = crew.agree(training.is_finished)
    while not is_finished:
        record = training.advance()
        try:
            for listener in listeners:
                listener(record, training.best_score)
        except KeyboardInterrupt:
            guard.requested = True
        is_finished = crew.agree(training.is_finished)
        is_stopped = crew.agree(guard.requested or crew.is_asked_to_stop)
        saving.save(training, is_last=is_stopped or is_finished)
        if is_stopped and not is_finished:
            where = "" if saving.path is None else f"; {saving.path} holds its state, go on with resume"
            msg = f"training was interrupted after epoch {record.epoch}{where}"
            raise KeyboardInterrupt(msg)


def _open_reporters(training: TrainingState, log_dir: str | Path | None, *, progress: bool) -> list[Reporter]:
    if not training.crew.is_writer:
        return []
    bar = (training.config.num_epochs, len(training.epochs), training.spec.task)
    bars: list[Reporter] = [ProgressBar(*bar)] if progress else []
    return bars if log_dir is None else [*bars, TensorBoardLog(log_dir)]


def _told(
    on_epoch: Callable[[EpochRecord], None] | None,
) -> list[Callable[[EpochRecord, float | None], None]]:
    return [] if on_epoch is None else [lambda record, _: on_epoch(record)]
