"""Torch tensors as arrays, without copying where they can be viewed, and arrays as tensors that may be written to."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import require
from falcon_gnn.graph_checks import as_array
from falcon_gnn.labels import infer_task

_TORCH_KINDS = {
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128",
}  # fmt: skip
_NEAREST = {"f": "float64", "c": "complex128"}


def to_array(value: Any) -> NDArray[Any]:
    """Return a dense tensor, an array or a sequence as an array; CPU tensors are viewed, others copied.

    Args:
        value: A tensor on any device (bfloat16 becomes float32), an array, or a list.
    """
    return as_array(value.as_tensor() if hasattr(value, "as_tensor") else value)


def to_tensor(array: NDArray[Any]) -> Any:
    """Return a copy of an array as a tensor, in this machine's byte order.

    Floats that torch lacks become float64, complex numbers complex128; integers and counts of time int64.
    """
    torch = require("torch", "train")
    # A name says nothing of the byte order, so the dtype of that name is the native one.
    name = array.dtype.name if array.dtype.name in _TORCH_KINDS else _NEAREST.get(array.dtype.kind, "int64")
    return torch.from_numpy(array.astype(name))


def features_to_tensor(x: Any, dense: bool) -> Any:
    """Return features as a floating-point tensor, sparse CSR for a SciPy matrix unless ``dense``."""
    torch = require("torch", "train")
    if isinstance(x, np.ndarray):
        return to_tensor(x if x.dtype.kind in "fc" else x.astype(np.float32))
    if dense:
        return to_tensor(x.toarray().astype(x.dtype if x.dtype.kind in "fc" else np.float32))
    values = to_tensor(x.data if x.data.dtype.kind in "fc" else x.data.astype(np.float32))
    row_starts, columns = (to_tensor(ids.astype(np.int64)) for ids in (x.indptr, x.indices))
    return torch.sparse_csr_tensor(row_starts, columns, values, size=x.shape)


def edge_weights_to_tensor(weight: NDArray[Any], x: Any) -> Any:
    """Return edge weights as a tensor in the precision of the features, since layers multiply the two.

    Args:
        weight: The weights, shape ``(2E,)``.
        x: The features as a tensor of floats; float64 ones leave the weights as they are, and so does None.
    """
    torch = require("torch", "train")
    tensor = to_tensor(weight)
    # Half precision ends at 65,504, which a count of edges may exceed.
    return tensor if x is None else tensor.to(torch.promote_types(x.dtype, torch.float32))


def labels_to_tensor(y: NDArray[Any]) -> Any:
    """Return labels as losses take them: classes int64, multi-label float32, other floats as they are."""
    if y.dtype.kind == "f":
        return to_tensor(y)
    return to_tensor(y.astype(np.int64 if infer_task(y) == "classes" else np.float32))
