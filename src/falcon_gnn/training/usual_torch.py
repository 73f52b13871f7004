"""What a user may have switched in torch for all that follows, put back to what it is by itself for a while."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def usual_torch() -> Iterator[None]:
    """Make tensors as torch does by itself: float32, on the CPU, with gradients, without autocast.

    A default device costs time in every call, so that nothing is set where nothing was switched.
    """
    with ExitStack() as stack:
        if torch.get_default_dtype() != torch.float32:
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float32)
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(mode=False))
        if not torch.is_grad_enabled():
            stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield
