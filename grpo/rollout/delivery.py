"""The weights that a pool's engines should have, and how each of them gets them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from grpo.rollout.errors import RolloutError, WeightPushFailed, WeightsRefused
from grpo.rollout.handles import EngineHandle
from grpo.rollout.weights import WeightPayload
from grpo.values import WeightPush
from verifiers.incident import Incident, NoteIncident

_DOING = "taking new weights"


class WeightDelivery:
    """Keeps the newest weights for engines that come up later.

    Args:
        policy_version: Version of the policy that engines start with.
        timeout_s: Longest time for a push.
        note: Told of pushes that are repeated.
    """

    def __init__(self, *, policy_version: int, timeout_s: float, note: NoteIncident) -> None:
        self._start_version = policy_version
        self._timeout_s = timeout_s
        self._note = note
        # Held while weights move, so that an engine that comes up meanwhile gets the newer ones.
        self._moving = threading.Lock()
        self._weights: tuple[int, WeightPayload | None] = (policy_version, None)

    @property
    def policy_version(self) -> int:
        """Version of the policy that every serving engine serves."""
        return self._weights[0]

    @property
    def untrained(self) -> bool:
        """Whether it is the one that engines start with."""
        return self.policy_version == self._start_version

    @property
    def kept(self) -> bool:
        """Whether there is something to give to an engine that comes up now."""
        return self._weights[1] is not None

    @contextmanager
    def still(self) -> Iterator[None]:
        """No weights are exchanged meanwhile."""
        with self._moving:
            yield

    @contextmanager
    def exchange(self, version: int, payload: WeightPayload) -> Iterator[None]:
        """Have other weights from now on, unless an engine turns out not to take them.

        They are delivered within.
        """
        with self._moving:
            before, self._weights = self._weights, (version, payload)
            try:
                yield
            except WeightPushFailed:
                self._weights = before
                raise

    def forget(self) -> None:
        """Let go of the bytes; an engine that comes up waits for the next ones."""
        with self._moving:
            self._weights = (self._weights[0], None)

    def deliver(
        self, handles: Sequence[EngineHandle], on_wait: Callable[[], None]
    ) -> Iterator[tuple[EngineHandle, WeightPush | RolloutError]]:
        """Send the weights to some engines at the same time.

        Args:
            handles: The engines.
            on_wait: Called while they do not answer; may raise.

        Yields:
            Each engine with its answer, or with how it failed.

        Raises:
            WeightPushFailed: One refused them twice, or has others than were sent.
        """
        version, payload = self._weights
        references = [handle.actor.load_weights.remote(version, payload) for handle in handles]
        for handle, reference in zip(handles, references, strict=True):
            try:
                answer: WeightPush | RolloutError = self._await(handle, reference, on_wait)
            except WeightPushFailed:
                raise
            except RolloutError as error:
                answer = error
            yield handle, answer

    def _await(
        self, handle: EngineHandle, reference: Any, on_wait: Callable[[], None]
    ) -> WeightPush:
        version, payload = self._weights
        assert payload is not None, "there is something to push"
        try:
            push = self._get(handle, reference, on_wait)
        except WeightsRefused as error:
            self._note(
                Incident(stage="rollout", worker=handle.name, cause=str(error), action="sent again")
            )
            reference = handle.actor.load_weights.remote(version, payload)
            push = self._get(handle, reference, on_wait)
        if (push.policy_version, push.checksum) != (version, payload.checksum):
            raise WeightPushFailed(
                f"{handle.name} answered a push of policy version {version}, checksum "
                f"{payload.checksum}, with version {push.policy_version}, checksum "
                f"{push.checksum}."
            )
        return push

    def _get(self, handle: EngineHandle, reference: Any, on_wait: Callable[[], None]) -> WeightPush:
        return handle.get(reference, timeout_s=self._timeout_s, doing=_DOING, on_wait=on_wait)
