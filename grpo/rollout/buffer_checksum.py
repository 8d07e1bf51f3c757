"""A checksum of bytes in the host's memory that is computed while they are still coming in."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import xxhash

# Small enough to be in the cache still when it is hashed, large enough for a thread to be worth it.
BLOCK_BYTES = 4 << 20
NUM_THREADS = 2


class BufferChecksum:
    """Hashes a buffer in blocks, each as soon as it is there, beside whoever fills the buffer.

    It is xxh3 (64 bits) of the blocks' own xxh3, so that blocks can be hashed at the same time. It
    guards against lost, stale and reordered bytes, not against an adversary.

    Args:
        buffer: uint8 array.

    Example:
        >>> buffer = np.zeros(100, dtype=np.uint8)
        >>> checksum = BufferChecksum(buffer)
        >>> buffer[:60] = 1
        >>> checksum.advance(60)
        >>> checksum.value() == compute_checksum(buffer)
        True
    """

    def __init__(self, buffer: np.ndarray) -> None:
        self._buffer = buffer
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="checksum")
        self._digests: list[Future[bytes]] = []

    def advance(self, num_bytes: int) -> None:
        """Say that so many bytes from the start are what they will be."""
        while (end := (len(self._digests) + 1) * BLOCK_BYTES) <= num_bytes:
            self._submit(end)

    def value(self) -> str:
        """The checksum of the whole buffer, all of which is there, as hexadecimal digits."""
        self.advance(self._buffer.nbytes)
        if len(self._digests) * BLOCK_BYTES < self._buffer.nbytes:
            self._submit(self._buffer.nbytes)
        digests = b"".join(digest.result() for digest in self._digests)
        self._threads.shutdown()
        return xxhash.xxh3_64_hexdigest(digests)

    def _submit(self, end: int) -> None:
        block = self._buffer[len(self._digests) * BLOCK_BYTES : end]
        self._digests.append(self._threads.submit(xxhash.xxh3_64_digest, block.data))


def compute_checksum(buffer: np.ndarray) -> str:
    """Hash a buffer that is there already; see `BufferChecksum`."""
    return BufferChecksum(buffer).value()
