"""What a call needs in memory beside its arguments and what it returns."""

import tracemalloc
from collections.abc import Callable
from typing import Any


def traced_peak(call: Callable[[], Any]) -> int:
    """Return the bytes of NumPy's arrays and Python's objects at the peak of a call, over those before it."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
