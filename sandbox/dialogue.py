"""Speaking with one program that runs in a container."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sandbox.errors import WorkerLost
from sandbox.stream import FrameStream


class WorkerDialogue:
    """One conversation over a container's stream.

    Args:
        stream: The container's.
        stamp: What every frame of this job carries.
        timeout_s: How long one answer may take before the container is given up.
    """

    def __init__(self, stream: FrameStream, stamp: Mapping[str, Any], timeout_s: float) -> None:
        self._stream = stream
        self._stamp = stamp
        self._timeout_s = timeout_s
        self._end: Any | None = None

    def say(self, message: str) -> None:
        """See `sandbox.result.Dialogue`."""
        if self._end is None:
            frame = {"seq": self._stamp["seq"], "message": message}
            self._stream.send(frame, timeout_s=self._timeout_s)

    def hear(self) -> tuple[str, str] | None:
        """See `sandbox.result.Dialogue`.

        Raises:
            WorkerLost: The container is gone or does not answer as it must.
        """
        if self._end is not None:
            return None
        frame = self._receive()
        if "runs" in frame:
            self._end = frame
            return None
        tag, text = frame["said"]
        return str(tag), str(text)

    def close(self) -> Any:
        """End the program if it still runs; returns the frame with what was seen of it."""
        if self._end is None:
            self._stream.send({"seq": self._stamp["seq"], "end": True}, timeout_s=self._timeout_s)
        deadline = time.monotonic() + self._timeout_s
        while self._end is None:
            if time.monotonic() > deadline:
                raise WorkerLost("late", "the container does not end a program")
            self.hear()
        return self._end

    def _receive(self) -> Mapping[str, Any]:
        frame = self._stream.receive(timeout_s=self._timeout_s)
        if any(frame.get(key) != self._stamp[key] for key in self._stamp):
            raise WorkerLost("protocol", "the answer is to another job")
        return frame
