"""How long each stage of a reduction takes."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from falcon_gnn.progress import part_of_work, telling_time_left

OnStage = Callable[[str], None]
_LOG = logging.getLogger(__name__)


class StageClock:
    """Wall-clock seconds per stage; tells ``on_stage`` when one begins, and the log how long it took."""

    def __init__(self, on_stage: OnStage | None) -> None:
        self.seconds: dict[str, float] = {}
        self._on_stage = on_stage
        self._latest = ""

    def tell(self, what: str) -> None:
        """Pass on which stage begins, or what goes on inside it; Ctrl-C is heard there."""
        if self._on_stage is not None and what != self._latest:
            self._on_stage(what)
        self._latest = what

    @contextmanager
    def stage(self, name: str, share: tuple[float, float] = (0.0, 1.0)) -> Iterator[None]:
        """Time what happens inside; seconds of one name add up.

        Args:
            name: What the stage is called.
            share: Which part of the stage it is, from and to, where the stage is done in parts.
        """
        self.tell(name)
        start = perf_counter()
        with telling_time_left(name, self.tell, self.seconds.get(name, 0.0)), part_of_work(*share):
            yield
        seconds = perf_counter() - start
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        _LOG.info("%s took %.3f s", name, seconds)
