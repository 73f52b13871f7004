"""How far a long piece of work is, told to whoever listens, from wherever it is done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from time import perf_counter

Hear = Callable[[float], None]
_SILENT_SECONDS = 3.0
"""Nothing is said before; a shorter stage is over by the time it has been read."""
_TELLING_SECONDS = 1.0
_HEARS: ContextVar[Hear | None] = ContextVar("hears", default=None)


@contextmanager
def hearing(hear: Hear) -> Iterator[None]:
    """Let ``hear`` be told the share in ``[0, 1]`` that is done of the work inside, as often as it likes to tell."""
    token = _HEARS.set(hear)
    try:
        yield
    finally:
        _HEARS.reset(token)


def tell_share(share: float) -> None:
    """Say which share of the present work is done; what lies outside ``[0, 1]`` counts as the nearer end."""
    hear = _HEARS.get()
    if hear is not None:
        hear(min(max(share, 0.0), 1.0))


@contextmanager
def part_of_work(first: float, last: float) -> Iterator[None]:
    """Let the work inside be the part from one share to another of the work around it."""
    hear = _HEARS.get()
    if hear is None:
        yield
        return
    tell = hear
    with hearing(lambda share: tell(first + share * (last - first))):
        yield
    tell(last)


@contextmanager
def telling_time_left(name: str, tell: Callable[[str], None], seconds_before: float = 0.0) -> Iterator[None]:
    """Tell of the work inside, if it lasts, once a second at most: its name, the share done and the time left.

    The time left supposes that the rest goes on as fast as all that is done.

    Args:
        name: What the work is called.
        tell: Told, for example, ``"contraction, 40%, 0:00:12 left"``.
        seconds_before: What earlier parts of the same work took.
    """
    start = told = perf_counter()

    def hear(share: float) -> None:
        nonlocal told
        now = perf_counter()
        seconds = seconds_before + now - start
        if seconds >= _SILENT_SECONDS and now - told >= _TELLING_SECONDS and 0 < share < 1:
            told = now
            tell(f"{name}, {share:.0%}, {timedelta(seconds=round(seconds * (1 - share) / share))} left")

    with hearing(hear):
        yield
