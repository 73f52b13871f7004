"""Compiles every Triton kernel for given cards without one, and prints what the machine code needs, as JSON.

Run: python -m tests.quantization.compile_kernels 80 90
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FLOATS = {"x_ptr", "out_ptr", "gradient_ptr", "activation_ptr"}
TYPES = {
    "mask_ptr": "*u8", "codes_ptr": "*u8", "bool_ptr": "*u8", "zero_ptr": "*bf16", "scale_ptr": "*bf16",
    "indptr_ptr": "*i32", "indices_ptr": "*i32",
    "mask_seed_ptr": "*i64", "code_seed_ptr": "*i64", "seed_ptr": "*i64", "ids_ptr": "*i64",
    "factor": "fp32", "seen": "fp32",
    "num_values": "i32", "num_groups": "i32", "groups_per_seed": "i32", "width": "i32", "numerator": "i32",
    "num_rows": "i32", "num_parts": "i32", "stride": "i32",
}  # fmt: skip
IN_BFLOAT16 = {"activate", "relu and dropout", "mask gradient", "moments"}
COLUMNS = {"COLUMNS": 128, "SUM_ROWS": 128}


def cases() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return kernels with their flags, by name."""
    from falcon_gnn.quantization import triton_kernels as kernels

    off = {
        "BITS": 0, "STOCHASTIC": False, "HAS_NORM": False, "HAS_MASK": False, "HAS_DROPOUT": False, "IS_ALIGNED": True,
        "KEEPS": False, "GROUPS": 4,
    }  # fmt: skip
    on = off | {"BITS": 2, "STOCHASTIC": True, "HAS_NORM": True, "HAS_MASK": True, "HAS_DROPOUT": True}
    tiles = COLUMNS | {"ROWS": 8}
    found = {
        "activate": (kernels.activate_kernel, on),
        "activate, any width": (kernels.activate_kernel, on | {"IS_ALIGNED": False}),
        "activate, no norm": (kernels.activate_kernel, on | {"HAS_NORM": False}),
        "activate, exact": (kernels.activate_kernel, on | {"BITS": 0, "STOCHASTIC": False, "KEEPS": True}),
        "relu and dropout": (kernels.activate_kernel, off | {"HAS_MASK": True, "HAS_DROPOUT": True}),
        "dropout bits": (kernels.dropout_bits_kernel, {"GROUPS": 4}),
        "pack bits": (kernels.pack_bits_kernel, {"GROUPS": 4}),
        "unpack bits": (kernels.unpack_bits_kernel, {"GROUPS": 4}),
        "apply mask": (kernels.multiply_mask_kernel, {"GROUPS": 4}),
        "mask gradient": (
            kernels.mask_gradient_kernel, tiles | {"BITS": 2, "HAS_NORM": True, "HAS_ACTIVATION": True},
        ),
        "mask gradient, exact": (
            kernels.mask_gradient_kernel, tiles | {"BITS": 0, "HAS_NORM": True, "HAS_ACTIVATION": False},
        ),
        "hidden gradient": (kernels.hidden_gradient_kernel, tiles | {"BITS": 2}),
        "gather rows": (kernels.gather_rows_kernel, {"COLUMNS": 128}),
        "scatter rows": (kernels.scatter_rows_kernel, {"COLUMNS": 128}),
        "multiply sparse": (kernels.multiply_sparse_kernel, {"COLUMNS": 128}),
        "moments": (kernels.moments_kernel, tiles),
        "merge moments": (kernels.merge_moments_kernel, COLUMNS),
    }  # fmt: skip
    for bits in (1, 2, 4, 8):
        found[f"quantize, {bits} bits"] = (kernels.activate_kernel, off | {"BITS": bits, "STOCHASTIC": True})
        found[f"dequantize, {bits} bits"] = (kernels.decode_kernel, {"BITS": bits, "GROUPS": 4})
    return found


def compile_kernel(kernel: Any, flags: dict[str, Any], card: int, dtype: str) -> dict[str, Any]:
    """Return what the machine code of a kernel needs, and the fused multiply-adds of the code that it is made of."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {
        name: "constexpr" if name in flags else f"*{dtype}" if name in FLOATS else TYPES.get(name, "*fp32")
        for name in kernel.arg_names
    }
    aligned = [i for i, name in enumerate(kernel.arg_names) if name.endswith("_ptr") or name in ("width", "stride")]
    source = ASTSource(kernel, signature, flags, {(i,): [["tt.divisibility", 16]] for i in aligned})
    options = {"num_warps": 4, "enable_fp_fusion": False}
    code = triton.compile(source, target=GPUTarget("cuda", card, 32), options=options).asm
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(code["cubin"])
        usage = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", usage)
    assert found is not None, usage
    # What is spilled goes to the stack, or to local memory.
    return {
        "registers": int(found[1]), "spilled": int(found[2]) + int(found[4]),
        "fused": len(re.findall(r"\bfma\.", code["ptx"])),
        "approximate": len(re.findall(r"\b(?:div\.full|div\.approx|rcp\.approx|ex2|lg2)", code["ptx"])),
    }  # fmt: skip


def main() -> None:
    """Print one line for each kernel and card; bfloat16 and all bits on the last card only."""
    cards = [int(card) for card in sys.argv[1:]]
    for name, (kernel, flags) in cases().items():
        for card in cards:
            is_last = card == cards[-1]
            if not is_last and name.startswith(("quantize", "dequantize")) and "2 bits" not in name:
                continue
            for dtype in ("fp32", "bf16") if is_last and name in IN_BFLOAT16 else ("fp32",):
                needs = compile_kernel(kernel, flags, card, dtype)
                facts = {"kernel": name, "function": kernel.__name__, "card": card, "dtype": dtype}
                print(json.dumps(facts | needs), flush=True)


if __name__ == "__main__":
    main()
