"""What a device needs beside tensors, and what is left for these: matrix libraries' workspace, free memory."""

import os
import re

import torch

from falcon_gnn.training.config import TrainConfig
from falcon_gnn.training.shapes import trains_on_cuda
from falcon_gnn.training.steps import resolve_device

CUDA_THREADS = 2
"""Threads that multiply on a CUDA device, the program's and that of the backward pass: each has a workspace."""
CPU_WORKSPACE_BYTES = 4 * 2**20
"""Set aside for the matrix library's packing buffers on the CPU, which it keeps from one product to the next. MKL says
4.4 to 7.6 MiB per thread for the products of a step, part of which is ever touched; small products need none."""
_TENSOR_SHARE = 73 / 88
"""What tensors get of the memory that torch reserves on CUDA: 73 MiB of 88 in a step that was counted."""


def workspace_bytes(config: TrainConfig) -> int:
    """Return what is set aside for the matrix library on the device that a configuration trains on."""
    if not trains_on_cuda(config):
        return CPU_WORKSPACE_BYTES
    return CUDA_THREADS * _cuda_workspace_bytes(config)


def _cuda_workspace_bytes(config: TrainConfig) -> int:
    """Return the workspace that torch gives cuBLAS for a thread: as the environment says, or by the card.

    Without a card at hand it is that of the newest, which is the largest.
    """
    asked = re.findall(r":(\d+):(\d+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if config.deterministic and not asked:
        asked = [("4096", "8")]
    if asked:
        return sum(int(kib) * int(count) for kib, count in asked) * 1024
    if torch.cuda.is_available() and torch.cuda.get_device_capability(resolve_device(config.device))[0] < 9:
        return (4096 * 2 + 16 * 8) * 1024
    return 32 * 2**20


def tensor_memory(device: torch.device) -> int:
    """Return what tensors can have of a CUDA device's free memory, without the gaps between the allocator's blocks."""
    return int(torch.cuda.mem_get_info(device)[0] * _TENSOR_SHARE)
