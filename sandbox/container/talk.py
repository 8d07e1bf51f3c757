"""The messages between the judge and one running program, passed on as they come."""

from __future__ import annotations

import os
from typing import Any

from sandbox.container import wire

CHANNEL_IN = 0
CHANNEL_OUT = 1


class ChannelClosed(Exception):
    """The judge has gone, or has spoken out of turn: this container has no purpose any more."""


class Talk:
    """One conversation: the program speaks, once, and is spoken to, in turns.

    Args:
        pipe: Writing end of the program's message pipe; closed with `close`.
        stamp: Goes with every message to the judge.
    """

    def __init__(self, pipe: int, stamp: dict[str, Any]) -> None:
        self.pipe = pipe
        self._stamp = stamp
        self._outgoing = bytearray()
        self.waiting = False
        """Whether it is the judge's turn, and no time of the program's runs."""

    def tell(self, tag: str, text: str) -> None:
        """Pass on what the program has said."""
        self.waiting = True
        wire.write_frame(CHANNEL_OUT, {**self._stamp, "said": [tag, text]})

    def take(self) -> bool:
        """Pass on what the judge says; False: that the conversation is over.

        Raises:
            ChannelClosed: The judge has gone.
        """
        message = wire.read_frame(CHANNEL_IN)
        if message is None or message["seq"] != self._stamp["seq"]:
            raise ChannelClosed
        if message.get("end"):
            return False
        body = message["message"].encode("ascii")
        self._outgoing += wire.HEADER.pack(len(body)) + body
        self.waiting = False
        self.flush()
        return True

    @property
    def flushed(self) -> bool:
        """Whether nothing waits to be written."""
        return not self._outgoing

    def flush(self) -> None:
        """Write as much as the pipe takes: a program that does not read must not hold this up."""
        while self._outgoing:
            try:
                written = os.write(self.pipe, self._outgoing[: 1 << 16])
            except BlockingIOError:
                return
            except BrokenPipeError:  # it has closed its end, and will not answer
                self._outgoing.clear()
                return
            del self._outgoing[:written]

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.pipe)
