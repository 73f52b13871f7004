"""Compiled loops over plain arrays. They validate nothing; each has a slow twin in ``tests/oracles.py``.

The only room that imports numba. It stands below ``graph`` so that the adjacency can be built by it.
"""

import sys


def num_compiled() -> int:
    """Return how many kernels this process compiled because the disk held no compiled form of them."""
    from numba.core.dispatcher import Dispatcher

    modules = [module for name, module in list(sys.modules.items()) if name.startswith(f"{__name__}.")]
    kernels = {id(value): value for module in modules for value in vars(module).values()}
    return sum(sum(kernel.stats.cache_misses.values()) for kernel in kernels.values() if isinstance(kernel, Dispatcher))
