"""Activation compression: the b-bit codec, bit masks, layers that keep their activations compressed, and hooks."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from falcon_gnn.quantization.bitmask import pack_bits, unpack_bits
    from falcon_gnn.quantization.codec import QuantizedTensor, dequantize, quantize
    from falcon_gnn.quantization.hooks import compressed_activations
    from falcon_gnn.quantization.layers import compressed_batch_norm, compressed_linear, relu_dropout
    from falcon_gnn.quantization.mlp import MLP, CompressedBlock
    from falcon_gnn.quantization.temporaries import declares_temporaries, temporary_bytes

_HOME = {
    "QuantizedTensor": "codec",
    "quantize": "codec",
    "dequantize": "codec",
    "pack_bits": "bitmask",
    "unpack_bits": "bitmask",
    "relu_dropout": "layers",
    "compressed_linear": "layers",
    "compressed_batch_norm": "layers",
    "CompressedBlock": "mlp",
    "MLP": "mlp",
    "compressed_activations": "hooks",
    "declares_temporaries": "temporaries",
    "temporary_bytes": "temporaries",
}

__all__ = [
    "MLP",
    "CompressedBlock",
    "QuantizedTensor",
    "compressed_activations",
    "compressed_batch_norm",
    "compressed_linear",
    "declares_temporaries",
    "dequantize",
    "pack_bits",
    "quantize",
    "relu_dropout",
    "temporary_bytes",
    "unpack_bits",
]


def __getattr__(name: str) -> object:
    """Import a public name on its first use, so that importing the package does not import torch."""
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
