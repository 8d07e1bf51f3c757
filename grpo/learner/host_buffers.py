"""Memory of the host that copies of a learner's state go to, used again by every checkpoint."""

from __future__ import annotations

import torch
from torch import Tensor


class HostBuffers:
    """Tensors of the host by name.

    A page of memory that is written to for the first time costs five times what the copy does, so
    buffers are kept. Those that a GPU copies to are pinned.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def reserve(self, name: str, shape: torch.Size, dtype: torch.dtype, *, pinned: bool) -> Tensor:
        """A buffer of this form, in memory that has been written to."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != shape or buffer.dtype != dtype:
            buffer = torch.zeros(shape, dtype=dtype, pin_memory=pinned)
            buffer.fill_(0)  # zeros() alone may only promise the pages
            self._buffers[name] = buffer
        return buffer

    def copy(self, name: str, tensor: Tensor) -> Tensor:
        """Copy a tensor into the buffer of a name; the last copy under that name is lost."""
        buffer = self.reserve(name, tensor.shape, tensor.dtype, pinned=tensor.is_cuda)
        return buffer.copy_(tensor)
