"""Splits under other names: masks spelled differently, lists of node ids, and OGB's dictionaries of them."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from falcon_gnn.errors import FalconWarning, GraphError

PARTS: Mapping[str, tuple[str, ...]] = {
    "train_mask": ("train", "training"),
    "val_mask": ("val", "valid", "validation", "dev"),
    "test_mask": ("test", "testing"),
}
"""The masks of a graph, and what other tools call the part that each marks."""

_ID_NAMES = ("{}_idx", "{}_index", "{}_indices", "{}_ids", "{}_id", "{}_nodes", "idx_{}", "index_{}")
_DICTIONARIES = ("split_idx", "split", "splits", "split_dict", "idx_split")


def part_of(text: str) -> str | None:
    """Return the mask that a name such as ``"valid"`` or ``"Train"`` stands for, or None."""
    return next((mask for mask, parts in PARTS.items() if text.strip().lower() in parts), None)


def is_split_name(name: str) -> bool:
    """Tell the names that :func:`find_masks` looks at."""
    return is_id_list_name(name) or name in _DICTIONARIES


def is_id_list_name(name: str) -> bool:
    """Tell the names of lists of node ids, such as ``train_idx``."""
    return name in {pattern.format(part) for parts in PARTS.values() for part in parts for pattern in _ID_NAMES}


def find_masks(
    values: Mapping[str, Any], num_nodes: int, names: Iterable[str] | None = None
) -> tuple[dict[str, NDArray[np.bool_]], list[str]]:
    """Return the masks that other names than ``train_mask`` ... tell, and the names that told them.

    Read are masks such as ``valid_mask``; node ids such as ``train_idx``, ``idx_train`` or ``train_indices``; and a
    dictionary of node ids, as OGB's ``get_idx_split()`` gives it, under ``split_idx`` and the like. Beside a
    ``train_mask`` ... only masks are, of the parts that are missing.

    Args:
        values: Arrays, sequences or dictionaries by name; only what has such a name is looked at.
        num_nodes: N.
        names: Names to look at; by default all.

    Raises:
        GraphError: If an id lies outside ``[0, num_nodes)``, or what bears such a name is neither a mask nor ids.
    """
    known = set(values if names is None else names)
    own = [mask for mask in PARTS if values.get(mask) is not None]
    patterns = ("{}_mask",) if own else ("{}_mask", *_ID_NAMES)
    masks: dict[str, NDArray[np.bool_]] = {}
    used: list[str] = []
    for mask, parts in PARTS.items():
        spellings = [pattern.format(part) for part in parts for pattern in patterns if mask not in own]
        for name in (spelling for spelling in spellings if spelling in known and spelling != mask):
            found = _mask(name, values[name], num_nodes)
            if found is not None and mask not in masks and not _meets(name, found, own, values):
                masks[mask] = found
                used.append(name)
    for name in _DICTIONARIES if not masks and not own else ():
        given = values[name] if name in known else None
        if isinstance(given, Mapping) and all(part_of(str(part)) for part in given):
            for part, ids in given.items():
                found = _mask(f"{name}[{part!r}]", ids, num_nodes)
                if found is not None:
                    masks[str(part_of(str(part)))] = found
            used.append(name)
    return {name: mask for name, mask in masks.items() if mask.any()}, used


def mask_of_ids(name: str, ids: ArrayLike, num_nodes: int) -> NDArray[np.bool_]:
    """Return node ids as a mask of shape ``(num_nodes,)``.

    Raises:
        GraphError: If they are no whole numbers in ``[0, num_nodes)``; the message calls them ``name``.
    """
    given = np.asarray(ids).reshape(-1)
    mask = np.zeros(num_nodes, np.bool_)
    if given.size and (given.dtype.kind not in "iu" or int(given.min()) < 0 or int(given.max()) >= num_nodes):
        got = f"{given.min()} to {given.max()}" if given.dtype.kind in "iuf" else str(given.dtype)
        msg = f"{name} must hold node ids in [0, {num_nodes}), got {got}. Pass masks of shape ({num_nodes},) instead."
        raise GraphError(msg)
    mask[given.astype(np.int64)] = True
    return mask


def _meets(name: str, found: NDArray[np.bool_], own: Iterable[str], values: Mapping[str, Any]) -> bool:
    """Tell a mask that shares nodes with one of the graph's, which says something else than the split, aloud."""
    for mask in own:
        if bool((found & (np.asarray(values[mask]).reshape(-1) != 0)).any()):
            msg = f"{name} was kept as a node attribute and is no part of the split: it shares nodes with {mask}."
            warnings.warn(msg, FalconWarning, stacklevel=3)
            return True
    return False


def _mask(name: str, value: Any, num_nodes: int) -> NDArray[np.bool_] | None:
    """Return what bears the name of a part as a mask, or None where it is several splits or no numbers at all."""
    array = np.asarray(value)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "biu":
        return None
    if array.dtype.kind == "b" or name.endswith("_mask"):
        if len(array) == num_nodes and (array.dtype.kind == "b" or (array.size and array.max() <= 1)):
            return array.astype(np.bool_)
        msg = f"{name} must be bool of shape ({num_nodes},), got {array.dtype} of shape {array.shape}."
        raise GraphError(msg)
    return mask_of_ids(name, array, num_nodes)
