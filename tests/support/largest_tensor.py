"""Size of the largest tensor in a computation."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation returns."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for part in out if isinstance(out, tuple | list) else (out,):
            if isinstance(part, torch.Tensor):
                stored = part.untyped_storage().nbytes() // part.element_size()
                self.elements = max(self.elements, stored)
        return out
