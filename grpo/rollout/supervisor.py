"""Keeps the engines of a pool alive: one that dies is started anew and given today's weights."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import ray

from grpo.restarts import RestartBudget
from grpo.rollout.delivery import WeightDelivery
from grpo.rollout.errors import EngineStalled, RolloutError
from grpo.rollout.handles import EngineHandle
from grpo.rollout.protocol import EngineFacts
from grpo.rollout.slot import Slot, State
from grpo.rollout.weights import WeightPayload
from grpo.values import WeightPush
from verifiers.errors import UserError
from verifiers.incident import Incident, NoteIncident
from verifiers.vitals import Vitals

# How long an engine that did not answer when it was last asked may take to close.
DOUBTED_CLOSE_S = 2.0
LOOK_EVERY_S = 0.2


class Supervisor:
    """The engines of a pool. Safe to use from several threads.

    Args:
        num_engines: How many.
        spawn: Makes the actor of an engine, without waiting for it.
        has_place: Whether there is a node for an engine.
        policy_version: Version of the policy that engines start with.
        start_timeout_s: Longest time until an engine is up.
        push_timeout_s: Longest time for a push of weights.
        max_restarts: Restarts of one engine within an hour; beyond it the pool goes on without it.
        note: Told what was lost.
    """

    def __init__(
        self,
        *,
        num_engines: int,
        spawn: Callable[[int], Any],
        has_place: Callable[[int], bool],
        policy_version: int,
        start_timeout_s: float,
        push_timeout_s: float,
        max_restarts: int,
        note: NoteIncident,
    ) -> None:
        self._num_engines = num_engines
        self._spawn = spawn
        self._has_place = has_place
        self._start_timeout_s = start_timeout_s
        self._max_restarts = max_restarts
        self._note = note
        self._slots: list[Slot] = []
        self._facts: tuple[EngineFacts, ...] = ()
        self._changed = threading.Condition()
        self._delivery = WeightDelivery(
            policy_version=policy_version, timeout_s=push_timeout_s, note=note
        )
        self._closed = False
        self._may_start = True

    @property
    def policy_version(self) -> int:
        """Version of the policy that every serving engine serves."""
        return self._delivery.policy_version

    @property
    def started(self) -> bool:
        """Whether there are engines."""
        return bool(self._slots)

    def start(self) -> None:
        """Start the engines without waiting for them."""
        self._slots = [
            Slot(
                handle=EngineHandle(index=index, actor=self._spawn(index)),
                budget=RestartBudget(self._max_restarts),
            )
            for index in range(self._num_engines)
        ]

    def wait_ready(self) -> tuple[EngineFacts, ...]:
        """Wait until every engine is up for the first time; later calls return at once.

        A first start that fails is not repeated: what is wrong then stays wrong.

        Raises:
            RolloutError: An engine died, failed or did not start in time.
            UserError: The model or the device is not what the engine needs.
        """
        assert self._slots, "start() comes first"
        if not self._facts:
            handles = [slot.handle for slot in self._slots]
            references = [handle.actor.wait_ready.remote() for handle in handles]
            self._facts = tuple(
                handle.get(reference, timeout_s=self._start_timeout_s, doing="starting")
                for handle, reference in zip(handles, references, strict=True)
            )
            for slot in self._slots:
                slot.state = "serving"
        return self._facts

    def serving(self, *states: State) -> dict[int, EngineHandle]:
        """The engines that can be asked, by their places.

        Args:
            states: Further ones that count.
        """
        with self._changed:
            return {
                place: slot.handle
                for place, slot in enumerate(self._slots)
                if slot.state in {"serving", *states}
            }

    def hold_starts(self) -> None:
        """Have no engine start until `let_start`, and wait for those that do now.

        One without a node to start on is not waited for.
        """
        give_up = time.monotonic() + self._start_timeout_s
        with self._changed:
            self._may_start = False
        while time.monotonic() < give_up:
            with self._changed:
                starting = [s.handle.index for s in self._slots if s.starts]
                if starting:
                    self._changed.wait(LOOK_EVERY_S)
            if not any(self._has_place(index) for index in starting):
                return

    def let_start(self) -> None:
        """Have engines start again that are to replace others."""
        with self._changed:
            self._may_start = True
            self._changed.notify_all()

    def wait_for_one(self, on_wait: Callable[[], None] = lambda: None) -> None:
        """Wait until an engine serves.

        Args:
            on_wait: Called several times a second meanwhile; may raise.

        Raises:
            RolloutError: All of them were given up, or none came up in time.
        """
        give_up = time.monotonic() + self._start_timeout_s
        while not self._settled() and time.monotonic() < give_up:
            on_wait()
        with self._changed:
            if any(s.state == "serving" for s in self._slots):
                return
            cause = next((s.error for s in reversed(self._slots) if s.error), None)
        raise RolloutError(
            f"No rollout engine is left: each was restarted {self._max_restarts} times within an "
            f"hour (rollout.max_restarts), or did not come back. The last trouble: {cause}"
        ) from cause

    def _settled(self) -> bool:
        """Whether an engine serves or none ever will; waits a moment for that."""
        with self._changed:
            return self._changed.wait_for(
                lambda: (
                    any(s.state == "serving" for s in self._slots)
                    or all(s.state == "retired" for s in self._slots)
                ),
                timeout=LOOK_EVERY_S,
            )

    def doubt(self, place: int, *, doubted: bool = True) -> None:
        """Take note that an engine has not answered: closing it does not wait for it either."""
        with self._changed:
            if not self._closed:
                self._slots[place].doubted = doubted

    def remember(self, place: int, vitals: Vitals) -> None:
        """Keep an engine's last signs of life."""
        with self._changed:
            if not self._closed:
                self._slots[place].vitals = vitals
                self._slots[place].doubted = False

    def replace(
        self,
        handle: EngineHandle,
        error: Exception,
        *,
        problem_ids: Collection[str] = (),
        num_redone: int = 0,
    ) -> None:
        """Put a new engine into the place of one that failed; returns before it is up.

        Whoever notices a failure calls this; the second to notice the same one changes nothing.

        Args:
            handle: The engine.
            error: What it did.
            problem_ids: Whose completions were in hand.
            num_redone: How many completions are sampled again.
        """
        with self._changed:
            if self._closed or self._slots[handle.index].handle is not handle:
                return
            slot = self._slots[handle.index]
            if slot.failed is handle:
                return
            slot.failed = handle
            slot.state = "starting"
            slot.error = error
        stack = handle.describe_threads() if isinstance(error, EngineStalled) else None
        # One that is merely out of reach must not come back beside its successor.
        ray.kill(handle.actor)
        again = slot.budget.take()
        last = f" Last known: {slot.vitals}." if slot.vitals else ""
        self._note(
            Incident(
                stage="rollout",
                worker=handle.name,
                cause=f"{error}{last}",
                action="restarted" if again else "given up, the pool goes on without it",
                problem_ids=tuple(problem_ids),
                num_redone=num_redone,
                stack=stack,
            )
        )
        with self._changed:
            if self._closed:
                return
            slot.vitals = slot.push = None
            slot.doubted = False
            if not again:
                slot.state = "retired"
                self._changed.notify_all()
                return
            slot.reviver = threading.Thread(
                target=self._revive, args=(slot, handle.index), name=f"revive-{handle.index}"
            )
            slot.reviver.start()

    def publish(
        self, version: int, payload: WeightPayload, on_wait: Callable[[], None]
    ) -> list[WeightPush]:
        """Make every engine serve new weights; those that come up later get them then.

        Args:
            version: Of the policy.
            payload: Its weights.
            on_wait: Called while engines do not answer; may raise.

        Returns:
            The answers of the engines that serve them now, at least one.

        Raises:
            WeightPushFailed: An engine refused them twice, or has others than were sent.
            RolloutError: No engine is left.
        """
        with self._delivery.exchange(version, payload):
            self._push([s for s in self._slots if s.state in {"serving", "up"}], on_wait)
        self.wait_for_one(on_wait)
        with self._changed:
            return [s.push for s in self._slots if s.state == "serving" and s.push is not None]

    def forget_weights(self) -> None:
        """Let go of the last push's bytes, before the learner packs the next.

        An engine that comes up until then waits for that one.
        """
        self._delivery.forget()

    def close(self, timeout_s: float) -> None:
        """Stop the engines and their processes. Calling it twice is harmless.

        Args:
            timeout_s: How long each engine may take to finish its step and clean up.
        """
        with self._changed:
            slots, self._slots, self._closed = self._slots, [], True
            self._changed.notify_all()
        references = [slot.handle.actor.close.remote() for slot in slots]
        for slot, reference in zip(slots, references, strict=True):
            # An engine that is not up has nothing to clean, and only a kill interrupts it.
            patience_s = timeout_s if slot.state in {"serving", "up"} else 0.0
            if slot.doubted:
                patience_s = min(patience_s, DOUBTED_CLOSE_S)
            slot.handle.close(reference, timeout_s=patience_s)
        for slot in slots:
            if slot.reviver is not None:
                slot.reviver.join()

    def _revive(self, slot: Slot, index: int) -> None:
        """Start a new engine and give it the pool's weights."""
        with self._changed:
            self._changed.wait_for(lambda: self._may_start or self._closed)
            if self._closed:
                return
            handle = slot.handle = EngineHandle(index=index, actor=self._spawn(index))
        try:
            # One whose node is lost waits for another, and the pool goes on without it.
            handle.await_ready(
                timeout_s=self._start_timeout_s,
                has_place=lambda: self._has_place(handle.index),
            )
            with self._delivery.still():
                if self._delivery.kept:
                    self._push([slot], lambda: None)
                else:
                    state = "serving" if self._delivery.untrained else "up"
                    self._set_state(slot, handle, state)
        except (RolloutError, UserError) as error:
            self.replace(handle, error)

    def _push(self, slots: Sequence[Slot], on_wait: Callable[[], None]) -> None:
        """Send the pool's weights to some engines; those that fail are replaced."""
        handles = [slot.handle for slot in slots]
        for handle in handles:
            self.doubt(handle.index)  # until it answers
        answers = self._delivery.deliver(handles, on_wait)
        for slot, (handle, answer) in zip(slots, answers, strict=True):
            self.doubt(handle.index, doubted=False)
            if isinstance(answer, RolloutError):
                self.replace(handle, answer)
                continue
            slot.push = answer
            self._set_state(slot, handle, "serving")

    def _set_state(self, slot: Slot, handle: EngineHandle, state: State) -> None:
        with self._changed:
            if slot.handle is handle and not self._closed:
                slot.state = state
                self._changed.notify_all()
