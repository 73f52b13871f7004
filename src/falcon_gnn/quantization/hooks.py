"""Compression of whatever any torch or PyG model saves for its backward pass, without a change to the model."""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from falcon_gnn.checks import check_whole
from falcon_gnn.errors import OptionError
from falcon_gnn.quantization.bitmask import apply_mask_, pack_bits, unpack_bits
from falcon_gnn.quantization.chunks import CHUNK_VALUES
from falcon_gnn.quantization.codec import GROUP_SIZE, QuantizedTensor, check_bits, dequantize, quantize

# Steps of the graph that only reshape or cast: what they make of a parameter is still the parameter.
_FORMATTING = {
    f"{name}Backward0"
    for name in ("T", "Transpose", "Permute", "View", "UnsafeView", "Unsqueeze", "Squeeze", "Expand", "ToCopy", "Alias")
}


@contextmanager
def compressed_activations(bits: int = 2, *, min_values: int = 4096, keep: Iterable[Tensor] = ()) -> Iterator[None]:
    """Compress what operations inside the context save for the backward pass, which may run outside it.

    Floating tensors are kept at ``bits`` bits and one more bit that marks exact zeros, so that ReLU and dropout
    decode to the zeros they had; bool masks at one bit. A tensor that several operations save is kept once.
    Parameters, integers and small tensors stay as they are, and a backward pass that finds one of them changed in place
    ends in a RuntimeError, as it does without the context. Gradients are unbiased where a saved tensor enters them
    linearly. That is not so for a loss or a softmax, so wrap the model's forward pass, not the loss. Nor is it for
    inputs of ``torch.utils.checkpoint``, which computes again from their decoded values, but for those in ``keep``.

    Args:
        bits: Bits per kept value, 1, 2, 4 or 8.
        min_values: Smaller tensors are left alone; a whole number of at least 0.
        keep: Tensors that live on anyway, such as the features: keeping a compressed copy of them would save nothing.

    Raises:
        OptionError: If ``bits`` or ``min_values`` is not one of the allowed values, or ``keep`` holds no tensors.

    Example:
        >>> model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
        >>> with compressed_activations(bits=2):
        ...     output = model(torch.ones(100, 64))
        >>> output.sum().backward()
    """
    check_bits(bits)
    check_whole("min_values", min_values, 0)
    packer = _Packer(bits, min_values, _tensors(keep))
    with saved_tensors_hooks(packer.pack, _unpack):
        yield


def _tensors(keep: Any) -> list[Tensor]:
    """Return the tensors to keep as they are, which are all that there may be."""
    found = list(keep) if isinstance(keep, Iterable) else [keep]
    for value in found:
        if not isinstance(value, Tensor):
            msg = f"keep must hold tensors, got {type(value).__name__}. Leave it out to compress all that is saved."
            raise OptionError(msg)
    return found


@dataclass(frozen=True, eq=False)
class _Untouched:
    """A tensor as it is, which nobody may change; detached, since an output that holds itself is never freed."""

    tensor: Tensor
    version: int

    @classmethod
    def keep(cls, tensor: Tensor) -> Self:
        return cls(tensor.detach(), tensor._version)

    def restore(self) -> Tensor:
        # Torch itself compares versions only where there are no hooks.
        if self.tensor._version != self.version:
            msg = (
                f"a tensor of shape {tuple(self.tensor.shape)} that the gradient needs has been modified by an inplace "
                f"operation: it is at version {self.tensor._version}, expected {self.version}. Use the operation that "
                "is not in place."
            )
            raise RuntimeError(msg)
        return self.tensor


@dataclass(frozen=True, eq=False)
class _PackedMask:
    """A bool tensor at one bit per value."""

    packed: Tensor
    shape: torch.Size

    def restore(self) -> Tensor:
        return unpack_bits(self.packed, self.shape)


@dataclass(frozen=True, eq=False)
class _PackedFloats:
    """A floating tensor in chunks: codes of its values, and which of them are not zero."""

    chunks: list[tuple[QuantizedTensor, Tensor]]
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def pack(cls, tensor: Tensor, bits: int) -> Self:
        chunks = [_pack_chunk(chunk, bits) for chunk in torch.split(tensor.detach().reshape(-1), CHUNK_VALUES)]
        return cls(chunks, tensor.shape, tensor.dtype, tensor.device)

    def restore(self) -> Tensor:
        tensor = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for target, (codes, is_nonzero) in zip(torch.split(tensor.view(-1), CHUNK_VALUES), self.chunks, strict=True):
            apply_mask_(dequantize(codes, target), is_nonzero, 1.0)
        return tensor


_Saved = _Untouched | _PackedMask | _PackedFloats


class _Packer:
    """The pack hook of one context."""

    def __init__(self, bits: int, min_values: int, keep: list[Tensor]) -> None:
        self.bits = bits
        self.min_values = min_values
        self.keep = keep
        self.known: dict[int, tuple[weakref.ref[Any], dict[Any, weakref.ref[_PackedFloats]]]] = {}

    def pack(self, tensor: Tensor) -> _Saved:
        if tensor.layout != torch.strided or tensor.numel() < self.min_values or self._is_kept(tensor):
            return _Untouched.keep(tensor)
        if tensor.dtype == torch.bool:
            return _PackedMask(pack_bits(tensor), tensor.shape)
        if not tensor.is_floating_point() or _is_parameter(tensor):
            return _Untouched.keep(tensor)
        return self._pack_once(tensor)

    def _is_kept(self, tensor: Tensor) -> bool:
        storage = tensor.untyped_storage()
        return any(kept.untyped_storage() is storage for kept in self.keep)

    def _pack_once(self, tensor: Tensor) -> _PackedFloats:
        """Return the tensor compressed: the same object for the same view of the same, unchanged storage."""
        storage = tensor.untyped_storage()
        reference, views = self.known.get(id(storage), (None, {}))
        if reference is None or reference() is not storage:
            views = {}
            self.known[id(storage)] = weakref.ref(storage), views
        view = tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor._version
        packed = views[view]() if view in views else None
        if packed is None:
            packed = _PackedFloats.pack(tensor, self.bits)
            views[view] = weakref.ref(packed)
        return packed


def _unpack(saved: _Saved) -> Tensor:
    return saved.restore()


def _pack_chunk(values: Tensor, bits: int) -> tuple[QuantizedTensor, Tensor]:
    """Return codes of the values other than zero, and a bit per value that says which these are.

    Zeros are coded as their group's largest value: then they do not widen the range of a ReLU's positive values, and
    none of these can decode to a zero, which would stop its gradient.
    """
    is_nonzero = values != 0
    filled = values.clone()
    whole = len(values) // GROUP_SIZE * GROUP_SIZE
    for part, mask in ((filled[:whole], is_nonzero[:whole]), (filled[whole:], is_nonzero[whole:])):
        if len(part):
            groups, group_mask = part.view(-1, min(len(part), GROUP_SIZE)), mask.view(-1, min(len(part), GROUP_SIZE))
            groups.copy_(torch.where(group_mask, groups, groups.amax(1, keepdim=True)))
    return quantize(filled, bits), pack_bits(is_nonzero)


def _is_parameter(tensor: Tensor) -> bool:
    """Return whether a saved tensor is a parameter, or one transposed, reshaped or cast."""
    if isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter):
        return True
    node: Any = tensor.grad_fn
    while node is not None and node.name() in _FORMATTING:
        node = node.next_functions[0][0]
    return node is not None and isinstance(getattr(node, "variable", None), nn.Parameter)
