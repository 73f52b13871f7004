"""The normalised adjacency Ã of a graph as tensors, and its product with node vectors as a registered operator."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from falcon_gnn.errors import OptionError
from falcon_gnn.quantization.kernel_choice import kernels_for
from falcon_gnn.quantization.temporaries import declares_temporaries
from falcon_gnn.training.transfer import send

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_INT32_LIMIT = 2**31


@dataclass(frozen=True)
class SparseMatrix:
    """A sparse matrix of R rows and C columns in CSR form, as three plain tensors.

    Plain tensors, since torch's own sparse ones are unknown to fake tensors and to the memory measure.

    Attributes:
        indptr: Row starts, int32 (int64 from 2**31 entries on), shape ``(R + 1,)``.
        indices: Columns, the same type, shape ``(num_entries,)``.
        values: Entries, shape ``(num_entries,)``.
        num_columns: C.
        transposed: The transpose, which the backward pass multiplies with; None if the matrix is symmetric or its
            product is never differentiated.
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor
    num_columns: int
    transposed: "SparseMatrix | None" = None

    @classmethod
    def from_scipy(cls, matrix: "csr_array", *, with_transpose: bool = False) -> "SparseMatrix":
        """Return the matrix of a SciPy CSR array.

        Args:
            matrix: Shape ``(R, C)``.
            with_transpose: Whether the transpose is made as well, which training needs unless the matrix is symmetric.
        """
        ids = np.int32 if matrix.nnz < _INT32_LIMIT else np.int64
        return cls(
            shared_tensor(matrix.indptr.astype(ids, copy=False)),
            shared_tensor(matrix.indices.astype(ids, copy=False)),
            shared_tensor(matrix.data),
            matrix.shape[1],
            cls.from_scipy(matrix.T.tocsr()) if with_transpose else None,
        )

    @property
    def num_rows(self) -> int:
        """R."""
        return self.indptr.shape[0] - 1

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "SparseMatrix":
        """Return the matrix on a device, its values in a type; itself where nothing changes."""
        return SparseMatrix(
            send(self.indptr, device),
            send(self.indices, device),
            send(self.values, device, dtype),
            self.num_columns,
            None if self.transposed is None else self.transposed.to(device, dtype),
        )

    def __matmul__(self, x: Tensor) -> Tensor:
        """Return the product with dense ``x`` of shape ``(C, d)``: shape ``(R, d)``, differentiable in ``x``."""
        back = self if self.transposed is None else self.transposed
        product: Tensor = spmm(self.indptr, self.indices, self.values, x, back.indptr, back.indices, back.values)
        return product


def shared_tensor(array: NDArray[Any]) -> Tensor:
    """Return a tensor over the memory of an array, which may be read-only: nothing here writes to such a tensor."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


@torch.library.custom_op("falcon_gnn::spmm", mutates_args=())
def spmm(
    indptr: Tensor,
    indices: Tensor,
    values: Tensor,
    x: Tensor,
    back_indptr: Tensor,
    back_indices: Tensor,
    back_values: Tensor,
) -> Tensor:
    """Return the product of a CSR matrix and dense columns; no vector per edge is ever made.

    Args:
        indptr: Row starts, shape ``(R + 1,)``.
        indices: Columns, shape ``(num_entries,)``.
        values: Entries, shape ``(num_entries,)``; taken in the type of ``x``.
        x: Dense columns, shape ``(C, d)``.
        back_indptr: Row starts of the transpose, used by the backward pass; of the matrix itself if it is symmetric.
        back_indices: Its columns.
        back_values: Its entries.

    Returns:
        Shape ``(R, d)``, type of ``x``.
    """
    x = x.contiguous()
    if x.device.type == "cuda" and torch.are_deterministic_algorithms_enabled():
        return _deterministic_product(indptr, indices, values, x)
    size = (indptr.shape[0] - 1, x.shape[0])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        matrix = torch.sparse_csr_tensor(indptr, indices, values.to(x.dtype), size, check_invariants=False)
    if x.device.type == "cpu" and not _has_mkl_product(x.dtype):
        product: Tensor = torch.sparse.mm(matrix, x, "sum")
        return product
    # With beta = 0 an uninitialised result is never read, and is not zeroed first as by `matrix @ x`.
    out = x.new_empty(size[0], x.shape[1])
    return torch.addmm(out, matrix, x, beta=0, out=out)


def _deterministic_product(indptr: Tensor, indices: Tensor, values: Tensor, x: Tensor) -> Tensor:
    """Return the product with the entries of a row added in their order, which cuSPARSE does not promise.

    Raises:
        OptionError: If no kernel of ours runs here.
    """
    kernels = kernels_for(x.device)
    if kernels is None:
        msg = "deterministic=True needs Triton for products with a sparse matrix on CUDA. Run: pip install triton"
        raise OptionError(msg)
    product: Tensor = kernels.multiply_sparse(indptr, indices, values, x)
    return product


def _has_mkl_product(dtype: torch.dtype) -> bool:
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return has_mkl and dtype in (torch.float32, torch.float64)


@spmm.register_fake
def _spmm_fake(
    indptr: Tensor,
    indices: Tensor,
    values: Tensor,
    x: Tensor,
    back_indptr: Tensor,
    back_indices: Tensor,
    back_values: Tensor,
) -> Tensor:
    return x.new_empty(indptr.shape[0] - 1, x.shape[1])


def _keep_matrices(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3], *inputs[4:])


def _spmm_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    indptr, indices, values, back_indptr, back_indices, back_values = ctx.saved_tensors
    grad_x = spmm(back_indptr, back_indices, back_values, grad, indptr, indices, values)
    return None, None, None, grad_x, None, None, None


spmm.register_autograd(_spmm_backward, setup_context=_keep_matrices)


@declares_temporaries("falcon_gnn::spmm")
def _spmm_temporaries(indptr: Tensor, indices: Tensor, values: Tensor, x: Tensor, *back: Tensor) -> int:
    """Count the copies made when the entries have another type than ``x``, or ``x`` is not contiguous."""
    converted = 0 if values.dtype == x.dtype else values.numel() * x.element_size()
    return converted + (0 if x.is_contiguous() else x.numel() * x.element_size())


def take_rows(matrix: "csr_array", rows: NDArray[np.int64]) -> tuple["csr_array", NDArray[np.int64]]:
    """Return some rows of a matrix over only the columns they touch.

    Args:
        matrix: Shape ``(R, C)``.
        rows: Distinct rows, shape ``(r,)``.

    Returns:
        The slice, shape ``(r, c)``, and the c columns it touches, ascending.
    """
    from scipy.sparse import csr_array

    sliced = matrix[rows]
    is_touched = np.zeros(matrix.shape[1], np.bool_)
    is_touched[sliced.indices] = True
    columns = np.flatnonzero(is_touched)
    place = np.empty(matrix.shape[1], sliced.indices.dtype)
    place[columns] = np.arange(len(columns))
    compact = csr_array((sliced.data, place[sliced.indices], sliced.indptr), (len(rows), len(columns)))
    return compact, columns
