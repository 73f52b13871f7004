"""Ids of nodes as tables hold them: whole numbers, or text that stays what it is."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import GraphError
from falcon_gnn.text import text_array


class IdLookup:
    """Turns the ids of an edge list into node numbers.

    Args:
        ids: ``node_id`` of each node, shape ``(N,)``; None where the ids are the node numbers.
    """

    def __init__(self, ids: NDArray[Any] | None) -> None:
        self._known = None if ids is None else _arrow(ids)

    def find(self, column: Any, name: str) -> NDArray[np.int64]:
        """Return the node numbers of a column, shape ``(num_edges,)``.

        Args:
            column: A pyarrow array of ids.
            name: The column's name, for messages.

        Raises:
            GraphError: If an id is missing, unknown, or of another kind than those of the nodes.
        """
        from pyarrow import compute, types

        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.null_count:
            msg = f"column {name} must not have missing ids, and {column.null_count} are missing. Drop such rows."
            raise GraphError(msg)
        wants_text = self._known is not None and is_text(self._known.type)
        numbers = column if wants_text else _numbers(column)
        if self._known is None:
            if numbers is None:
                msg = (
                    f"column {name} must hold integers, got {_first_text(column)!r} ({column.type}), which is no plain "
                    "whole number. Pass a node table whose node_id lists the ids as they are."
                )
                raise GraphError(msg)
            return _node_numbers(numbers)
        same = _cast(column if numbers is None else numbers, self._known.type)
        found = compute.index_in(same, value_set=self._known) if same is not None and numbers is not None else None
        if found is None or found.null_count:
            place = 0 if found is None else int(np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))[0])
            first = _first_text(column) if found is None else column[place].as_py()
            msg = (
                f"column {name} has the id {first!r}, which the node table's node_id lacks (its ids are "
                f"{'text' if wants_text else 'whole numbers'}). Add such nodes to it, or write the ids alike."
            )
            raise GraphError(msg)
        return _node_numbers(found)


def id_array(column: Any, name: str) -> NDArray[Any]:
    """Return the ids of a node table: int64 or uint64 where all are plain whole numbers, else text.

    A number with a zero in front, such as ``007``, is text, and so are all others then: ``7`` is another node.

    Args:
        column: A pyarrow array, or a chunked one.
        name: The column's name, for messages.

    Raises:
        GraphError: If an id is missing, stands twice, or is neither a whole number nor text.
    """
    from pyarrow import types

    chunk = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    if types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_decode()
    numbers = _numbers(chunk)
    is_missing = chunk.null_count or (numbers is None and is_text(chunk.type) and "" in chunk.to_pylist())
    if is_missing or (numbers is None and not is_text(chunk.type)):
        msg = f"{name} must hold integers or strings, none of them missing, got {chunk.type}. Mend such rows."
        raise GraphError(msg)
    if numbers is None:
        return text_of(chunk)
    array: NDArray[Any] = numbers.to_numpy(zero_copy_only=False)
    return array


def check_distinct(ids: NDArray[Any], name: str) -> None:
    """Stop where two nodes have the same id."""
    values, counts = np.unique(ids, return_counts=True)
    if counts.max(initial=1) > 1:
        value = values[counts.argmax()]
        shown = value.item() if isinstance(value, np.generic) else value
        msg = f"{name} must be distinct, but {shown!r} stands {counts.max()} times. Merge such rows."
        raise GraphError(msg)


def has_padded(column: Any) -> bool:
    """Tell whether a pyarrow array of text holds a number that is written with a zero or a plus in front."""
    return any(_is_padded(chunk).any() for chunk in getattr(column, "chunks", [column]))


def is_text(kind: Any) -> bool:
    """Tell the pyarrow types of text."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def text_of(column: Any) -> NDArray[Any]:
    """Return a pyarrow array of text, or a chunked one, as an array; a missing value is empty."""
    from pyarrow import compute

    return text_array(compute.fill_null(column, "").to_pylist())


def _numbers(column: Any) -> Any:
    """Return a pyarrow array as whole numbers, or None where one is missing or not plainly a whole number."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_integer(kind):
        return column
    if pa.types.is_floating(kind):
        return _cast(column, pa.int64())
    if not is_text(kind) or column.null_count or _is_padded(column).any():
        return None
    numbers = _cast(column, pa.int64())
    return _cast(column, pa.uint64()) if numbers is None else numbers


def _is_padded(column: Any) -> NDArray[np.bool_]:
    """Return which texts begin as no number is written: with a zero before another sign, or a plus."""
    if len(column) == 0:
        return np.zeros(0, np.bool_)
    wide = column.type == "large_string"
    _, offsets, content = column.buffers()
    bounds = np.frombuffer(offsets, np.int64 if wide else np.int32)[column.offset : column.offset + len(column) + 1]
    letters = np.frombuffer(content, np.uint8) if content is not None and content.size else np.zeros(1, np.uint8)
    starts, lengths = bounds[:-1], np.diff(bounds)
    first = letters[np.minimum(starts, len(letters) - 1)]
    second = letters[np.minimum(starts + 1, len(letters) - 1)]
    is_number = (second >= ord("0")) & (second <= ord("9"))
    padded: NDArray[np.bool_] = (lengths > 1) & (
        ((first == ord("0")) & is_number)
        | ((first == ord("+")) & is_number)
        | ((first == ord("0")) & ((second | 32) == ord("x")))
        | ((first == ord("-")) & (second == ord("0")))
    )
    return padded


def _cast(column: Any, kind: Any) -> Any:
    import pyarrow as pa

    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowInvalid:
        return None


def _node_numbers(column: Any) -> NDArray[np.int64]:
    numbers = column.to_numpy(zero_copy_only=False)
    if numbers.dtype == np.uint64 and numbers.size and int(numbers.max()) > np.iinfo(np.int64).max:
        msg = f"edge_index must hold node numbers, got {numbers.max()}. Pass a node table with a node_id column."
        raise GraphError(msg)
    return np.ascontiguousarray(numbers, np.int64)


def _first_text(column: Any) -> Any:
    """Return the first value that is no plain whole number, as the table has it."""
    if is_text(column.type):
        padded = np.flatnonzero(_is_padded(column))
        texts = column.to_pylist()
        return texts[padded[0]] if padded.size else next((t for t in texts if not _is_plain(t)), texts[0])
    return column[0].as_py()


def _is_plain(text: str) -> bool:
    """Tell the text of a whole number of up to 64 bits."""
    return text.removeprefix("-").isdecimal() and -(2**63) <= int(text) < 2**64


def _arrow(ids: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.array(ids.tolist(), pa.string()) if ids.dtype.kind in "UT" else pa.array(ids)
