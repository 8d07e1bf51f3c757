"""Frames on a byte stream: a length, then JSON."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

HEADER = struct.Struct(">I")
MAX_FRAME_BYTES = 256 * 1024 * 1024


def pack(message: Any) -> bytes:
    """The frame that carries a JSON value."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return HEADER.pack(len(body)) + body


def read_frame(descriptor: int) -> Any | None:
    """The next frame's value; None at a clean end of the stream.

    Raises:
        ValueError: The stream ended inside a frame, or the frame is too large.
    """
    header = _read_exactly(descriptor, HEADER.size)
    if header is None:
        return None
    (length,) = HEADER.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"frame of {length} bytes")
    body = _read_exactly(descriptor, length)
    if body is None:
        raise ValueError("the stream ended between a header and its body")
    return json.loads(body)


def write_frame(descriptor: int, message: Any) -> None:
    """Write one frame."""
    view = memoryview(pack(message))
    while view:
        view = view[os.write(descriptor, view) :]


def _read_exactly(descriptor: int, length: int) -> bytes | None:
    chunks: list[bytes] = []
    missing = length
    while missing:
        chunk = os.read(descriptor, min(missing, 1 << 20))
        if not chunk:
            if chunks:
                raise ValueError("the stream ended inside a frame")
            return None
        chunks.append(chunk)
        missing -= len(chunk)
    return b"".join(chunks)
