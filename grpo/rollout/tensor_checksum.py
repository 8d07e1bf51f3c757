"""A checksum of named tensors that is computed where they are, so that none leaves its device."""

from __future__ import annotations

import torch
import xxhash

_CHUNK = 1 << 22
_MASK = (1 << 64) - 1
# Odd, so that no bit of a value is lost; large, so that neighbours that trade places show.
_STRIDE = 0x9E3779B1


class TensorChecksum:
    """Adds tensors up, in any order, each under its name.

    Every element counts with its place, so values that were lost, changed or moved show. It guards
    against mistakes, not against an adversary.

    Example:
        >>> one, other = TensorChecksum(), TensorChecksum()
        >>> for name in ("a", "b"):
        ...     one.add(name, torch.ones(3))
        >>> for name in ("b", "a"):
        ...     other.add(name, torch.ones(3))
        >>> one.value() == other.value()
        True
    """

    def __init__(self) -> None:
        self._sum = 0

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Count a tensor in."""
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        flat = tensor.detach().contiguous().view(-1).view(bits[tensor.element_size()])
        key = xxhash.xxh3_64_intdigest(name.encode()) | 1
        total = 0
        for first in range(0, flat.numel(), _CHUNK):
            part = flat[first : first + _CHUNK].to(torch.int64)
            places = torch.arange(first + 1, first + 1 + part.numel(), device=part.device)
            # The sums wrap around, which loses nothing: all of this is modulo 2^64.
            total += int((part * (places * _STRIDE + 1)).sum())
        self._sum = (self._sum + key * (total + flat.numel())) & _MASK

    def value(self) -> str:
        """The checksum so far, as hexadecimal digits."""
        return f"{self._sum:016x}"
