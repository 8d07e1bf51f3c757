"""The thread that owns an engine: it steps, and all else happens between two steps."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np

from grpo.rollout.errors import EngineFailed, RolloutError, WeightsRefused
from grpo.rollout.protocol import Completion, Engine
from grpo.rollout.weights import WeightPayload
from verifiers.errors import UserError

T = TypeVar("T")


class EngineLoop:
    """Runs an engine in a thread of its own.

    Commands of other threads are executed between two steps, so that a push of weights needs no
    other pause. The completions of a call wait in its outbox until somebody takes them. A call is
    known by the part of its request ids before the first colon.

    Args:
        build: Makes the engine; runs in the thread.
    """

    def __init__(self, build: Callable[[], Engine]) -> None:
        self._build = build
        self._commands: queue.SimpleQueue[tuple[Callable[[Engine], Any], Future[Any]] | None] = (
            queue.SimpleQueue()
        )
        self._changed = threading.Condition()
        self._outboxes: dict[str, deque[Completion]] = {}
        self._single: dict[str, Future[Completion]] = {}
        self._engine: Engine | None = None
        self._failure: Exception | None = None
        self._closed = False
        self._progress = 0
        self._num_generated = 0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def engine(self) -> Engine:
        """The engine, for what may be called from any thread."""
        assert self._engine is not None, "the engine is not up"
        return self._engine

    @property
    def progress(self) -> int:
        """Changes with every step that produced a token or ended a request."""
        return self._progress

    def call(self, command: Callable[[Engine], T]) -> T:
        """Run a command between two steps and wait for its result.

        Raises:
            EngineFailed: The engine had failed before, or fails before the command's turn.
        """
        future: Future[T] = Future()
        with self._changed:
            self._raise_failure()
            # Under the lock: a thread that is failing empties the queue under it too, so no command
            # is left waiting.
            self._commands.put((command, future))
        return future.result()

    def open_outbox(self, call: str) -> None:
        """Keep the completions of a call from now on."""
        with self._changed:
            self._outboxes.setdefault(call, deque())

    def close_outbox(self, call: str) -> None:
        """Drop the completions of a call, the ones to come included."""
        with self._changed:
            self._outboxes.pop(call, None)

    def put(self, completions: Sequence[Completion]) -> None:
        """Deliver completions."""
        with self._changed:
            for completion in completions:
                if single := self._single.pop(completion.request_id, None):
                    single.set_result(completion)
                else:
                    # A call that was cancelled has no outbox any more.
                    call = completion.request_id.split(":")[0]
                    if (outbox := self._outboxes.get(call)) is not None:
                        outbox.append(completion)
            self._changed.notify_all()

    def take(self, call: str, wait_s: float) -> list[Completion]:
        """Everything in a call's outbox, waiting for a first completion if it is empty.

        Args:
            call: Whose.
            wait_s: Longest wait; the answer may be empty after it.

        Raises:
            EngineFailed: The engine failed.
        """
        deadline = time.monotonic() + wait_s
        with self._changed:
            while not self._outboxes.get(call):
                if self._closed:
                    # Whoever closed it knows: an error here would only alarm.
                    return []
                self._raise_failure()
                left = deadline - time.monotonic()
                if left <= 0:
                    return []
                self._changed.wait(left)
            outbox = self._outboxes[call]
            completions = list(outbox)
            outbox.clear()
            return completions

    def complete(self, request_id: str, add: Callable[[Engine], None]) -> Completion:
        """Run one request that belongs to no call beside everything else, and wait for it.

        Args:
            request_id: Its name.
            add: Gives it to the engine.

        Raises:
            EngineFailed: The engine failed.
        """
        future: Future[Completion] = Future()

        def begin(engine: Engine) -> None:
            add(engine)
            with self._changed:
                self._single[request_id] = future

        self.call(begin)
        return future.result()

    def load_weights(
        self, version: int, payload: WeightPayload, buffer: np.ndarray
    ) -> tuple[str, float]:
        """As `Engine.load_weights`; a push that fails half-way ends the loop.

        Returns:
            The checksum of the bytes that were received, and for how many seconds no step was made.

        Raises:
            WeightsRefused: The engine goes on with the policy it had.
            EngineFailed: The engine is lost.
        """

        def load(engine: Engine) -> tuple[str, float]:
            started = time.monotonic()
            try:
                checksum = engine.load_weights(version, payload, buffer)
                return checksum, time.monotonic() - started
            except WeightsRefused:
                raise
            except Exception as error:
                raise EngineFailed(
                    f"The engine could not load the weights of policy version {version}, and what "
                    "it holds now is neither the old policy nor the new one. "
                    f"{type(error).__name__}: {error}"
                ) from error

        return self.call(load)

    def stop(self) -> None:
        """End the thread after the step in hand, and close the engine."""
        self._commands.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            engine = self._engine = self._build()
        except BaseException as error:  # noqa: BLE001 - raised again in every thread that waits
            self._fail(error)
            return
        try:
            while self._run_commands(engine):
                if engine.num_unfinished:
                    self._step(engine)
            self._closed = True
            self._fail(EngineFailed("The engine was closed."))
        except BaseException as error:  # noqa: BLE001 - raised again in every thread that waits
            self._fail(error)
        finally:
            engine.close()

    def _run_commands(self, engine: Engine) -> bool:
        """Execute what has queued up, waiting for a first command when the engine is idle.

        Returns:
            Whether to go on.
        """
        block = not engine.num_unfinished
        while True:
            try:
                entry = self._commands.get(block=block)
            except queue.Empty:
                return True
            if entry is None:
                return False
            command, future = entry
            block = False
            try:
                future.set_result(command(engine))
            except EngineFailed as error:
                future.set_exception(error)
                raise
            except Exception as error:  # noqa: BLE001 - raised again in the thread that asked
                future.set_exception(error)

    def _step(self, engine: Engine) -> None:
        completions = engine.step()
        num_generated = engine.num_generated
        if completions or num_generated != self._num_generated:
            self._progress += 1
        self._num_generated = num_generated
        if completions:
            self.put(completions)

    def _fail(self, error: BaseException) -> None:
        """Give everybody who waits, and everybody who comes later, the reason."""
        failure = _name_failure(error)
        with self._changed:
            self._failure = failure
            waiting: list[Future[Any]] = list(self._single.values())
            self._single.clear()
            while not self._commands.empty():
                if (entry := self._commands.get()) is not None:
                    waiting.append(entry[1])
            for future in waiting:
                future.set_exception(failure)
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _name_failure(error: BaseException) -> Exception:
    if isinstance(error, RolloutError | UserError):
        return error
    failure = EngineFailed(f"vLLM raised {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
