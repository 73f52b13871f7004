"""The split that a node table tells: a column of the words train, val and test, or masks under other names."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from falcon_gnn.datasets.layout import has_masks, has_splits
from falcon_gnn.errors import FalconWarning
from falcon_gnn.masks import find_masks, is_id_list_name, part_of

_SPLIT_NAMES = ("split", "set", "subset", "partition")
_NO_PART = ("", "none", "unused", "nan", "null")
_NUM_SHOWN = 3


def add_split(arrays: dict[str, Any]) -> None:
    """Turn a column of the words train, val and test into masks, where there are none.

    Nodes with other words beside these are in no mask, with a warning.
    """
    if has_masks(arrays):
        return
    for name in (name for name in _SPLIT_NAMES if name in arrays and arrays[name].dtype.kind in "UT"):
        parts = {text: part_of(text) for text in set(arrays[name].tolist())}
        if not _is_split(name, parts):
            continue
        words = arrays.pop(name)
        for text, mask in parts.items():
            if mask is not None:
                arrays[mask] = arrays.get(mask, np.zeros(len(words), np.bool_)) | (words == text)
        return


def add_masks(arrays: dict[str, Any], num_rows: int) -> None:
    """Turn masks of other names, such as ``valid_mask``, into those of a graph, where these are missing.

    A column of whole numbers is never taken for a list of node ids: it has a value for each node.
    """
    if has_splits(arrays):
        return
    had_masks = has_masks(arrays)
    flags = [name for name, values in arrays.items() if values.dtype.kind == "b"]
    masks, used = find_masks(arrays, num_rows, flags)
    for name in used:
        del arrays[name]
    arrays |= masks
    ids = sorted(name for name, values in arrays.items() if is_id_list_name(name) and values.dtype.kind in "iu")
    if ids and not masks and not had_masks:
        msg = (
            f"{', '.join(ids)} kept as node attributes, not as lists of node ids: a node table has a split as "
            "train_mask, val_mask and test_mask (true or false), or as a column split of the words train, val and test."
        )
        warnings.warn(msg, FalconWarning, stacklevel=2)


def _is_split(name: str, parts: Mapping[str, str | None]) -> bool:
    """Tell a split from a column of other words; say so where some of its words are those of a split.

    Args:
        name: The column.
        parts: Its words, and the mask that each stands for.
    """
    known = set(parts.values()) - {None}
    unknown = sorted(text for text, part in parts.items() if part is None and text.strip().lower() not in _NO_PART)
    if not known or not unknown:
        return bool(known)
    is_split = "train_mask" in known and len(known) > 1
    more = f" and {len(unknown) - _NUM_SHOWN} more" if len(unknown) > _NUM_SHOWN else ""
    shown = ", ".join(map(repr, unknown[:_NUM_SHOWN])) + more
    if is_split:
        msg = (
            f"column {name} was taken as the split, and its nodes with {shown} are in no mask. Call them train, val or "
            "test if they belong to one."
        )
    else:
        words = ", ".join(sorted(repr(text) for text, part in parts.items() if part is not None))
        msg = (
            f"column {name} was kept as a node attribute and is no split: beside {shown} it holds {words} alone, and a "
            "split has both training nodes and validation or test nodes. If it is one, leave its other words empty."
        )
    warnings.warn(msg, FalconWarning, stacklevel=2)
    return is_split
