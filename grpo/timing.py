"""Where the wall time of a step, and of the start, went."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

LOOP = "loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that a worker did.

    Attributes:
        track: Who.
        name: What.
        begin: In seconds of `time.perf_counter`.
        end: As `begin`.
        facts: More about it.
    """

    track: str
    name: str
    begin: float
    end: float
    facts: Mapping[str, int | float | str] = field(default_factory=dict[str, int | float | str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A quantity at a moment, such as the length of a queue."""

    track: str
    at: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """What happened between two calls of `Timeline.take`.

    Attributes:
        begin: In seconds of `time.perf_counter`.
        end: As `begin`.
        spans: In the order in which they ended; the loop's own do not overlap.
        samples: In the order in which they were taken.
    """

    begin: float
    end: float
    spans: tuple[Span, ...]
    samples: tuple[Sample, ...]

    @property
    def seconds(self) -> Mapping[str, float]:
        """The loop's wall seconds by phase, with the whole as `step`."""
        sums: dict[str, float] = {}
        for span in self.spans:
            if span.track == LOOP:
                sums[span.name] = sums.get(span.name, 0.0) + span.end - span.begin
        return {**sums, "step": self.end - self.begin}

    def total(self, name: str) -> float:
        """Seconds of what has a name, on any track."""
        return sum(span.end - span.begin for span in self.spans if span.name == name)

    def largest(self, track: str) -> float:
        """The largest sample of a quantity; 0 where there is none."""
        return max((sample.value for sample in self.samples if sample.track == track), default=0.0)


_Opened = tuple[str, str, float, dict[str, int | float | str]]


class Timeline:
    """Records what the loop and the workers did; any thread may add to it.

    The loop's phases do not nest, so that they add up to its wall time.

    Args:
        on_phase: Told the name of each phase as it begins.

    Example:
        >>> timeline = Timeline()
        >>> with timeline.phase("update"):
        ...     pass
        >>> sorted(timeline.take().seconds)
        ['step', 'update']
    """

    def __init__(self, on_phase: Callable[[str], None] = lambda _: None) -> None:
        self._on_phase = on_phase
        self._lock = threading.Lock()
        self._begin = time.perf_counter()
        self._spans: list[Span] = []
        self._open: dict[int, _Opened] = {}
        self._num_opened = 0
        self._samples: list[Sample] = []

    @contextmanager
    def phase(self, name: str, *, track: str = LOOP) -> Iterator[None]:
        """Record the time inside under `name`, as the loop's unless another's track is named."""
        if track == LOOP:
            self._on_phase(name)
        opened = self.begin(track, name)
        try:
            yield
        finally:
            self.end(opened)

    def begin(self, track: str, name: str, **facts: float | str) -> int:
        """Record that something begins; what is not over when a step is, counts for both.

        Returns:
            What `end` knows it by.
        """
        with self._lock:
            self._num_opened += 1
            self._open[self._num_opened] = (track, name, time.perf_counter(), facts)
            return self._num_opened

    def end(self, opened: int) -> None:
        """Record that something is over."""
        with self._lock:
            self._spans.append(self._cut(self._open.pop(opened)))

    def add(self, span: Span) -> None:
        """Record something that is over."""
        with self._lock:
            self._spans.append(span)

    def sample(self, track: str, value: float) -> None:
        """Record a quantity as it is now."""
        with self._lock:
            self._samples.append(Sample(track=track, at=time.perf_counter(), value=value))

    def take(self) -> StepTimes:
        """Everything since the last call; starts anew."""
        with self._lock:
            going_on = [self._cut(entry) for entry in self._open.values()]
            now = time.perf_counter()
            taken = StepTimes(
                begin=self._begin,
                end=now,
                spans=(*self._spans, *going_on),
                samples=tuple(self._samples),
            )
            self._begin = now
            self._spans, self._samples = [], []
            return taken

    def _cut(self, entry: _Opened) -> Span:
        """The part of something that lies in the present step."""
        track, name, begin, facts = entry
        return Span(
            track=track,
            name=name,
            begin=max(begin, self._begin),
            end=time.perf_counter(),
            facts=facts,
        )


class Laps:
    """Splits the way to the first step into named parts.

    Args:
        begun: `time.perf_counter()` at the start of the first one.
    """

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self._last = begun
        self.seconds: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """End a part."""
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now
