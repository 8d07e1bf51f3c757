"""Watching one program: its output, its limits, its end."""

from __future__ import annotations

import json
import math
import os
import select
import socket
import struct
import time
from typing import Any, NamedTuple

from sandbox.container import candidate, processes
from sandbox.container.isolation import Isolation
from sandbox.container.meter import Meter
from sandbox.container.talk import CHANNEL_IN, ChannelClosed, Talk

TICK_S = 0.05
END_WAIT_S = 10.0
NOTABLY_LATE_S = 0.25
# How many times its wall limit a program gets on top where the machine keeps it waiting.
MAX_STRETCH = 3
MAX_TURNS = 10
# The limit is on the program's own; those that fork and kill on its behalf come on top.
PROCESSES_SLACK = 2

_REPORT_HEADER = struct.Struct(">cI")


class Limits(NamedTuple):
    """What one program, or one call of a function, may use; see `sandbox.limits`."""

    cpu_s: float
    wall_s: float
    stdout_bytes: int
    stderr_bytes: int
    report_bytes: int
    processes: int


class Facts:
    """What was seen of one program. No verdict: the judge draws that.

    Attributes:
        ended: `exit`, or what it was killed for: `cpu`, `wall`, `output`, `report`, `processes`,
            `forged` (it spoke out of turn), `closed` (the judge had heard enough).
        started: Whether it compiled.
        ready: Whether the module's body ran to its end (function tests).
        not_compiled: The compiler's complaint.
        no_memory: Whether the program's body ended with a MemoryError.
        answers: One `[tag, payload]` for each call that came back.
        late_s: By how much this process itself was woken too late, where that was notable.
        waiting_s: How long a thread of a program that ran out of wall time had waited for a CPU.
        stalled_cpu_s: The CPU time that such a program had used meanwhile.
        oom_kills: Processes that the kernel killed for memory.
        leftover: Processes alive after the program's own end.
        dirty: Whether some of them could not be removed.
    """

    # No dataclass: that module would be a tenth of what a container holds at rest.
    def __init__(self) -> None:
        self.ended = "exit"
        self.started = False
        self.ready = False
        self.not_compiled: str | None = None
        self.no_memory = False
        self.answers: list[list[str]] = []
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.code = 0
        self.cpu_s = 0.0
        self.wall_s = 0.0
        self.memory_kb = 0
        self.late_s = 0.0
        self.waiting_s = 0.0
        self.stalled_cpu_s = 0.0
        self.oom_kills = 0
        self.leftover = 0
        self.dirty = False


class Watch:
    """One program from its fork to the removal of its last process.

    Args:
        zygote: Tells of the program's end.
        outputs: Reading ends of its stdout, stderr and report pipe; closed here.
        limits: Its limits.
        isolation: Knows its processes.
        meter: Counts their CPU time.
        talk: The conversation with it, where there is one: its time limits then hold for each turn
            of its own, and all turns together may take no more than `MAX_TURNS` turns' CPU time.
    """

    def __init__(
        self,
        zygote: socket.socket,
        outputs: tuple[int, int, int],
        limits: Limits,
        isolation: Isolation,
        meter: Meter,
        *,
        talk: Talk | None = None,
    ) -> None:
        self._talk = talk
        self._zygote = zygote
        self._stdout, self._stderr, self._report = outputs
        self._limits = limits
        self._isolation = isolation
        self._meter = meter
        self._facts = Facts()
        self._raw_report = bytearray()
        self._report_seen = 0
        self._mark_wall = self._mark_cpu = self._cpu = self._cpu_before = 0.0

    def run(self) -> Facts:
        """Watch until the program has ended or was ended, and nothing of it is left.

        Raises:
            ChannelClosed: The judge went away meanwhile.
        """
        facts = self._facts
        kills_before = self._meter.out_of_memory_kills()
        self._cpu_before = self._meter.cpu_seconds(())
        start = self._mark_wall = time.monotonic()
        ended = self._wait_for_end()
        facts.wall_s = time.monotonic() - start
        self._remove_processes(exited=ended is not None)
        ended = ended or self._await_zygote()
        for descriptor in (self._stdout, self._stderr, self._report):
            while self._read(descriptor):
                pass
            os.close(descriptor)
        facts.code, facts.memory_kb = ended["code"], ended["memory_kb"]
        facts.cpu_s = max(ended["cpu_s"], self._cpu)
        facts.oom_kills = self._meter.out_of_memory_kills() - kills_before
        return facts

    def _wait_for_end(self) -> dict[str, Any] | None:
        """Pump output until the program ends; None when it has to be killed."""
        poll = select.poll()
        zygote = self._zygote.fileno()
        for descriptor in (CHANNEL_IN, zygote, self._stdout, self._stderr, self._report):
            poll.register(descriptor, select.POLLIN)
        next_check = time.monotonic() + TICK_S
        while True:
            events = poll.poll(max(0.0, next_check - time.monotonic()) * 1000)
            now = time.monotonic()
            # Also where there is something to read: the program may be awake first after a stall.
            if now - next_check > NOTABLY_LATE_S:
                self._facts.late_s += now - next_check
            for descriptor, _ in events:
                if descriptor == zygote:
                    return self._await_zygote()
                self._attend(descriptor, poll)
            if self._facts.ended == "exit" and now >= next_check:
                self._check_time(now)
                next_check = time.monotonic() + TICK_S
            if self._facts.ended != "exit":
                return None

    def _attend(self, descriptor: int, poll: select.poll) -> None:
        if descriptor == CHANNEL_IN:
            self._hear(poll)
        elif self._talk is not None and descriptor == self._talk.pipe:
            self._speak(poll)
        elif not self._read(descriptor):
            poll.unregister(descriptor)

    def _hear(self, poll: select.poll) -> None:
        if self._talk is None:
            raise ChannelClosed
        if not self._talk.take():
            self._end("closed")
            return
        self._mark_wall, self._mark_cpu = time.monotonic(), self._cpu
        poll.register(self._talk.pipe, select.POLLOUT)
        self._speak(poll)

    def _speak(self, poll: select.poll) -> None:
        assert self._talk is not None
        self._talk.flush()
        if self._talk.flushed:
            poll.unregister(self._talk.pipe)

    def _check_time(self, now: float) -> None:
        facts = self._facts
        own = self._isolation.members()
        self._cpu = max(self._cpu, self._meter.cpu_seconds(own) - self._cpu_before)
        if len(own) > PROCESSES_SLACK * self._limits.processes:
            facts.ended = "processes"  # only where the kernel does not keep to the limit
        elif self._cpu - self._mark_cpu > self._limits.cpu_s or self._cpu > self._most_cpu_s():
            facts.ended = "cpu"
        elif self._talk is not None and self._talk.waiting:
            return
        elif now - self._mark_wall > self._limits.wall_s:
            # Time that the machine took is given back, so that a busy machine changes no verdict.
            facts.waiting_s = processes.waiting_seconds(own)
            taken = min(facts.waiting_s + facts.late_s, MAX_STRETCH * self._limits.wall_s)
            if now - self._mark_wall > self._limits.wall_s + taken:
                facts.ended = "wall"
                facts.stalled_cpu_s = self._cpu - self._mark_cpu

    def _most_cpu_s(self) -> float:
        return math.inf if self._talk is None else MAX_TURNS * self._limits.cpu_s

    def _read(self, descriptor: int) -> bool:
        """Take what a pipe holds; False at its end, or when it is empty (they do not block)."""
        try:
            chunk = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        facts, limits = self._facts, self._limits
        if descriptor == self._stdout:
            facts.stdout += chunk[: limits.stdout_bytes + 1 - len(facts.stdout)]
            if len(facts.stdout) > limits.stdout_bytes:
                self._end("output")
        elif descriptor == self._stderr:
            facts.stderr += chunk[: limits.stderr_bytes - len(facts.stderr)]
        else:
            self._report_seen += len(chunk)
            if self._report_seen > limits.report_bytes:
                self._end("report")
            else:
                self._raw_report += chunk
                self._parse_report()
        return bool(chunk)

    def _end(self, cause: str) -> None:
        if self._facts.ended == "exit":
            self._facts.ended = cause

    def _parse_report(self) -> None:
        facts, raw = self._facts, self._raw_report
        while len(raw) >= _REPORT_HEADER.size:
            tag, length = _REPORT_HEADER.unpack_from(raw)
            if len(raw) < _REPORT_HEADER.size + length:
                break
            text = bytes(raw[_REPORT_HEADER.size : _REPORT_HEADER.size + length]).decode(
                "utf-8", "replace"
            )
            del raw[: _REPORT_HEADER.size + length]
            # Time is counted anew for each call.
            self._mark_wall, self._mark_cpu = time.monotonic(), self._cpu
            match tag:
                case candidate.STARTED:
                    facts.started = True
                case candidate.NOT_COMPILED:
                    facts.not_compiled = text
                case candidate.READY:
                    facts.ready = True
                    self._pass_on(tag, text)
                case candidate.NO_MEMORY if not facts.ready:
                    facts.no_memory = True
                case _ if self._talk is not None:
                    self._pass_on(tag, text)
                case candidate.VALUE | candidate.RAISED | candidate.NO_MEMORY:
                    facts.answers.append([tag.decode("ascii"), text])
                case _:
                    self._end("report")

    def _pass_on(self, tag: bytes, text: str) -> None:
        if self._talk is None:
            return
        if self._talk.waiting:
            self._end("forged")
            return
        self._report_seen = 0
        self._talk.tell(tag.decode("ascii", "replace"), text)

    def _remove_processes(self, *, exited: bool) -> None:
        """End everything the program has left, itself included; count what outlived it."""
        facts = self._facts
        left = self._isolation.members()
        if exited:
            facts.leftover = len(processes.living(left))
        deadline = time.monotonic() + END_WAIT_S
        while left and time.monotonic() < deadline:
            self._isolation.end(left)
            if not exited and not processes.living(left):
                return  # the program itself is a zombie until the zygote has told of it
            time.sleep(0.001)
            left = self._isolation.members()
        facts.dirty = bool(left)

    def _await_zygote(self) -> dict[str, Any]:
        self._zygote.settimeout(END_WAIT_S)
        message = self._zygote.recv(4096)
        if not message:
            raise RuntimeError("the zygote has died")
        return json.loads(message)
