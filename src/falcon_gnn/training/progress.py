"""What a person sees while a model trains: a progress bar, a TensorBoard log, and a Ctrl-C that loses nothing."""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from falcon_gnn.display import can_draw
from falcon_gnn.errors import require
from falcon_gnn.evaluation import shown_score
from falcon_gnn.labels import Task


@dataclass(frozen=True)
class EpochRecord:
    """What happened in one epoch.

    Attributes:
        epoch: Counted from 1.
        loss: Mean training loss over the labelled nodes.
        score: Validation score, higher is better; None where it was not computed.
        seconds: Duration of the training steps, around synchronised work, evaluation left out.
    """

    epoch: int
    loss: float
    score: float | None
    seconds: float


class Reporter(Protocol):
    """Something that is told of every epoch."""

    def report(self, record: EpochRecord, best_score: float | None) -> None:
        """Take note of an epoch."""

    def close(self) -> None:
        """Finish."""


class ProgressBar:
    """A line with the epoch, the loss and the scores, on a terminal (standard error) or in a notebook, else silent.

    Args:
        num_epochs: Epochs in all.
        first_epoch: Epochs that an earlier run has done.
        task: What the labels are; a regression is shown by its error.
    """

    def __init__(self, num_epochs: int, first_epoch: int, task: Task = "classes") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (
            "train",
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=console, transient=True, disable=not can_draw(console))
        self.task = self.progress.add_task("train", total=num_epochs, completed=first_epoch, status="")
        self.task_of_labels, self.score_name = task, "error" if task == "regression" else "score"
        self.progress.start()

    def report(self, record: EpochRecord, best_score: float | None) -> None:
        """Move the bar on."""
        status = f"loss {record.loss:.4f}"
        if record.score is not None:
            status += f"  {self.score_name} {shown_score(record.score, self.task_of_labels):.4f}"
        if best_score is not None:
            status += f"  best {shown_score(best_score, self.task_of_labels):.4f}"
        self.progress.update(self.task, completed=record.epoch, status=status)

    def close(self) -> None:
        """Remove the bar."""
        self.progress.stop()


class TensorBoardLog:
    """Loss, score and seconds per epoch as TensorBoard scalars.

    Args:
        folder: Where the event file goes.

    Raises:
        MissingDependencyError: If tensorboard is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        require("tensorboard", "tensorboard")
        self.writer: Any = require("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder))

    def report(self, record: EpochRecord, best_score: float | None) -> None:
        """Add one point to each curve."""
        self.writer.add_scalar("train/loss", record.loss, record.epoch)
        self.writer.add_scalar("train/seconds", record.seconds, record.epoch)
        if record.score is not None:
            self.writer.add_scalar("validation/score", record.score, record.epoch)

    def close(self) -> None:
        """Write what is left."""
        self.writer.close()


class InterruptGuard:
    """Turns the first Ctrl-C into a request, so that the epoch can be finished; the second one interrupts at once.

    Only the main thread can do so; elsewhere, and when not ``active``, Ctrl-C works as ever.

    Args:
        active: Whether there is anything to gain, that is, a checkpoint to write.
        on_request: Called at the first Ctrl-C.
        grace: Seconds in which a second signal is not taken for a second Ctrl-C: a launcher that is interrupted
            together with its processes passes its own on to them.
    """

    def __init__(self, active: bool, on_request: Callable[[], None] | None = None, grace: float = 0.0) -> None:
        self.active = active and threading.current_thread() is threading.main_thread()
        self.requested = False
        self._on_request, self._grace, self._requested_at = on_request, grace, 0.0
        self._previous: Any = None

    def __enter__(self) -> Self:
        """Start to listen."""
        if self.active:
            self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give Ctrl-C back its meaning."""
        if self.active:
            signal.signal(signal.SIGINT, self._previous)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested and time.monotonic() - self._requested_at >= self._grace:
            raise KeyboardInterrupt
        if not self.requested:
            self.requested, self._requested_at = True, time.monotonic()
            if self._on_request is not None:
                self._on_request()
