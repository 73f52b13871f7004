import signal
import threading

import pytest
from rich.console import Console

from falcon_gnn.training import progress
from falcon_gnn.training.progress import EpochRecord, InterruptGuard, ProgressBar


def test_the_bar_shows_the_epoch_loss_and_scores(monkeypatch, capsys):
    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setattr(progress, "can_draw", lambda console: True)
    bar = ProgressBar(num_epochs=10, first_epoch=2)
    bar.report(EpochRecord(3, 0.51234, 0.8, 0.1), best_score=0.9)
    bar.progress.refresh()
    bar.close()
    shown = capsys.readouterr()
    assert "3/10" in shown.err
    assert "loss 0.5123  score 0.8000  best 0.9000" in shown.err
    assert shown.out == ""


def test_the_bar_shows_a_regression_by_its_error(monkeypatch, capsys):
    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setattr(progress, "can_draw", lambda console: True)
    bar = ProgressBar(num_epochs=10, first_epoch=2, task="regression")
    bar.report(EpochRecord(3, 0.51234, -0.8, 0.1), best_score=-0.7)
    bar.progress.refresh()
    bar.close()
    assert "error 0.8000  best 0.7000" in capsys.readouterr().err


def test_the_bar_is_silent_where_nobody_looks(capsys):
    bar = ProgressBar(num_epochs=10, first_epoch=0)
    bar.report(EpochRecord(1, 0.5, None, 0.1), best_score=None)
    bar.close()
    shown = capsys.readouterr()
    assert shown.out == shown.err == ""


def test_an_inactive_guard_lets_ctrl_c_through():
    with pytest.raises(KeyboardInterrupt), InterruptGuard(active=False):
        signal.raise_signal(signal.SIGINT)


def test_a_guard_in_another_thread_leaves_signals_alone():
    guards = []

    def enter():
        with InterruptGuard(active=True) as guard:
            guards.append(guard.active)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert guards == [False]
