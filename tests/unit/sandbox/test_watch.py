"""Watching a program on a machine that stands still, played by a clock."""

import json
import os
import select
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.container import watch
from sandbox.container.watch import Limits, Watch

LIMITS = Limits(
    cpu_s=1.0, wall_s=1.0, stdout_bytes=100, stderr_bytes=100, report_bytes=100, processes=4
)


class Nobody:
    """No process is left of the program, and it took no CPU time."""

    def members(self):
        return set()

    def cpu_seconds(self, _ids):
        return 0.0

    def out_of_memory_kills(self):
        return 0


@pytest.mark.parametrize("woken_first", ["the program", "the supervisor"])
def test_a_machine_that_stood_still_makes_no_program_slow(monkeypatch, woken_first):
    now = [0.0]
    zygote, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pipes = [os.pipe() for _ in range(3)]
    channel = os.pipe()
    for reader, _ in pipes:
        os.set_blocking(reader, False)

    def stand_still():
        now[0] += 3.0
        os.write(pipes[0][1], b"42")
        return [(pipes[0][0], select.POLLIN)] if woken_first == "the program" else []

    def end():
        its_end.send(json.dumps({"code": 0, "cpu_s": 0.0, "memory_kb": 1}).encode())
        return [(zygote.fileno(), select.POLLIN)]

    happens = iter([stand_still, end])
    poll = SimpleNamespace(register=lambda *_: None, poll=lambda _timeout: next(happens)())
    monkeypatch.setattr(watch, "CHANNEL_IN", channel[0])
    monkeypatch.setattr(watch.select, "poll", lambda: poll)
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: now[0]))
    readers = (pipes[0][0], pipes[1][0], pipes[2][0])
    nobody: Any = Nobody()
    facts = Watch(zygote, readers, LIMITS, nobody, nobody).run()
    assert (facts.ended, bytes(facts.stdout)) == ("exit", b"42")
    assert facts.late_s == pytest.approx(3.0, abs=2 * watch.TICK_S)
    for one in (*(writer for _, writer in pipes), *channel):
        os.close(one)
    zygote.close()
    its_end.close()
