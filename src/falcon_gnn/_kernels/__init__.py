"""Compiled loops over plain arrays.

They validate nothing. Each has a slow twin, in ``tests/oracles.py`` or, where it carries out an operator, in torch.
The only room that imports numba. It stands below ``graph`` so that the adjacency can be built by it.
"""

import sys
from typing import Any


def num_compiled() -> int:
    """Return how many kernels this process compiled because the disk held no compiled form of them."""
    return sum(sum(stats.cache_misses.values()) for stats in _all_stats())


def is_kept() -> bool:
    """Whether what this process compiles is on the disk for the next one."""
    return all(stats.cache_path is not None for stats in _all_stats())


def _all_stats() -> list[Any]:
    """Return what numba counts of each kernel, and of what kernels call, in the modules that are loaded."""
    from numba.core.dispatcher import Dispatcher

    modules = [module for name, module in list(sys.modules.items()) if name.startswith(f"{__name__}.")]
    values = [getattr(value, "dispatcher", value) for module in modules for value in vars(module).values()]
    dispatchers = {id(value): value for value in values if isinstance(value, Dispatcher)}
    return [dispatcher.stats for dispatcher in dispatchers.values()]
