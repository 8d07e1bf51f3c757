"""The stream to one supervisor: frames out and in, and its error output on the side."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Any

from sandbox.container.wire import HEADER, MAX_FRAME_BYTES, pack
from sandbox.errors import WorkerLost

# The engine puts this before every piece: which stream it comes from, and its length.
_PIECE = struct.Struct(">BxxxI")
_STDOUT = 1
_COMPLAINT_BYTES = 4096


class FrameStream:
    """Frames over a socket; used by one thread at a time.

    Args:
        connection: The socket.
        multiplexed: Whether it is the engine's, which carries the error output too.
    """

    def __init__(self, connection: socket.socket, *, multiplexed: bool) -> None:
        self._socket = connection
        self._multiplexed = multiplexed
        self._raw = bytearray()
        self._frames = bytearray()
        self._complaint = bytearray()

    @property
    def complaint(self) -> str:
        """The end of the supervisor's error output: its traceback, if it died of one."""
        return self._complaint.decode("utf-8", "replace")

    @property
    def quiet(self) -> bool:
        """Whether nothing has come since the last frame: between jobs that can only be an end."""
        if self._socket.fileno() < 0:
            return False  # closed
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def send(self, message: Any, *, timeout_s: float) -> None:
        """Send one frame.

        Raises:
            WorkerLost: The container has gone, or takes nothing in.
        """
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(pack(message))
        except TimeoutError as error:
            raise WorkerLost("late", "the container took no input in time") from error
        except OSError as error:
            raise WorkerLost("died", f"the container's stream broke: {error}") from error

    def receive(self, *, timeout_s: float) -> Any:
        """The next frame.

        Raises:
            WorkerLost: The stream ended, no frame came in time, or it is not a frame.
        """
        deadline = time.monotonic() + timeout_s
        while (length := self._frame_length()) is None:
            self._fill(deadline)
        body = bytes(self._frames[HEADER.size : HEADER.size + length])
        del self._frames[: HEADER.size + length]
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise WorkerLost("protocol", f"not a frame: {error}") from error

    def close(self) -> None:
        """Close the stream; the container's supervisor ends with it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side was faster
        finally:
            self._socket.close()

    def _frame_length(self) -> int | None:
        """Length of the frame that has come whole; None while more is to come."""
        if len(self._frames) < HEADER.size:
            return None
        (length,) = HEADER.unpack_from(self._frames)
        if length > MAX_FRAME_BYTES:
            raise WorkerLost("protocol", f"a frame of {length} bytes")
        return length if len(self._frames) >= HEADER.size + length else None

    def _fill(self, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise WorkerLost("late", "the container did not answer in time")
        try:
            self._socket.settimeout(remaining)
            chunk = self._socket.recv(1 << 18)
        except TimeoutError as error:
            raise WorkerLost("late", "the container did not answer in time") from error
        except OSError as error:
            raise WorkerLost("died", f"the container's stream broke: {error}") from error
        if not chunk:
            raise WorkerLost("died", f"the container ended. {self.complaint}".strip())
        if not self._multiplexed:
            self._frames += chunk
            return
        self._raw += chunk
        self._split_pieces()

    def _split_pieces(self) -> None:
        start = 0
        while len(self._raw) - start >= _PIECE.size:
            kind, length = _PIECE.unpack_from(self._raw, start)
            end = start + _PIECE.size + length
            if len(self._raw) < end:
                break
            piece = self._raw[start + _PIECE.size : end]
            if kind == _STDOUT:
                self._frames += piece
            else:
                self._complaint = (self._complaint + piece)[-_COMPLAINT_BYTES:]
            start = end
        del self._raw[:start]
