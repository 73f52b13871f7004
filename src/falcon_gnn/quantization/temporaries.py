"""Bytes that an operator allocates inside itself, declared beside the operator and read by the memory measure.

A registered operator is one opaque call to everything that watches tensors from outside, so its inner buffers would be
missing from any measured peak. Each operator of this package therefore declares them as a function of its arguments.
"""

from collections.abc import Callable

_DECLARED: dict[str, Callable[..., int]] = {}


def declares_temporaries(operator: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that makes a function the declaration of an operator's temporary bytes.

    Args:
        operator: Qualified name of the operator, for example ``"falcon_gnn::quantize"``.

    Returns:
        A decorator for a function which takes the operator's arguments, positional and keyword, and returns the most
        bytes the operator holds at once beyond its inputs and outputs.
    """

    def declare(count_bytes: Callable[..., int]) -> Callable[..., int]:
        _DECLARED[operator] = count_bytes
        return count_bytes

    return declare


def temporary_bytes(operator: str, *args: object, **kwargs: object) -> int:
    """Return the bytes an operator call holds beyond its inputs and outputs; 0 if it declared none.

    Args:
        operator: Qualified name of the operator.
        *args: The positional arguments of the call.
        **kwargs: The keyword arguments of the call.
    """
    count_bytes = _DECLARED.get(operator)
    return 0 if count_bytes is None else count_bytes(*args, **kwargs)
