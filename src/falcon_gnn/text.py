"""Text as arrays that cost what they hold."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SMALL = 1 << 16


def text_array(texts: Sequence[str]) -> NDArray[Any]:
    """Return text as an array, shape ``(N,)``.

    Texts of like length become NumPy's fixed-width strings. Where these would cost four times what the texts hold, the
    result has NumPy's string type of variable width.

    Args:
        texts: N of them.
    """
    lengths = [len(text) for text in texts]
    # Fixed width loses null characters at the end.
    is_plain = not any(text.endswith("\0") for text in texts)
    if is_plain and max(lengths, default=0) * len(texts) <= 4 * sum(lengths) + 16 * len(texts) + _SMALL:
        return np.array(texts, np.str_)
    array = np.empty(len(texts), np.dtypes.StringDType())
    for start in range(0, len(texts), _SMALL):
        array[start : start + _SMALL] = np.array(texts[start : start + _SMALL], np.dtypes.StringDType())
    return array
