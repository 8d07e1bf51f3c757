"""The driver's end of an engine: its actor, and Ray's errors turned into named ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from grpo.rollout.errors import EngineDied, EngineFailed, EngineStalled, RolloutError
from verifiers.errors import UserError

# How often one that waits for an engine to start sees whether it has a place to start in.
PLACE_EVERY_S = 5.0
# How often one that waits for an answer sees whether it should go on waiting.
LOOK_EVERY_S = 2.0
# How long an engine that hangs may take to say where.
STACK_WAIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHandle:
    """One engine of a pool.

    Attributes:
        index: Its place in the pool.
        actor: Ray's handle of its `EngineActor`.
    """

    index: int
    actor: Any

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"rollout engine {self.index}"

    def get(
        self,
        reference: Any,
        *,
        timeout_s: float,
        doing: str,
        on_wait: Callable[[], None] = lambda: None,
    ) -> Any:
        """Wait for an answer of the actor, but not for ever.

        Args:
            reference: What the call returned.
            timeout_s: Longest wait.
            doing: What the engine is busy with, for the message.
            on_wait: Called every few seconds meanwhile; may raise.

        Raises:
            EngineDied: Its process is gone.
            EngineFailed: It raised.
            EngineStalled: It did not answer in time.
            UserError: It was asked for something that is not there.
        """
        give_up = time.monotonic() + timeout_s
        while (left := give_up - time.monotonic()) > LOOK_EVERY_S:
            if ray.wait([reference], timeout=LOOK_EVERY_S)[0]:
                break
            on_wait()
        try:
            return ray.get(reference, timeout=max(0.0, left))
        except GetTimeoutError as error:
            raise EngineStalled(
                f"{self.name} did not finish within {timeout_s:.0f} s while {doing}."
            ) from error
        except RayTaskError as error:
            raise self._translate(error, doing) from error
        except RayError as error:
            # Its process died, or the answer was lost with the node.
            raise EngineDied(f"{self.name} died while {doing}. {error}") from error

    def await_ready(self, *, timeout_s: float, has_place: Callable[[], bool]) -> None:
        """Wait until a new engine is up.

        Args:
            timeout_s: Longest wait, not counting the time without a place.
            has_place: Whether there is a node for it to start on.

        Raises:
            RolloutError: It died, failed or did not start in time.
            UserError: It was asked for something that is not there.
        """
        ready = self.actor.wait_ready.remote()
        since = time.monotonic()
        while time.monotonic() < since + timeout_s:
            done, _ = ray.wait([ready], timeout=PLACE_EVERY_S)
            if done:
                self.get(ready, timeout_s=timeout_s, doing="starting")
                return
            if not has_place():
                since = time.monotonic()
        raise EngineStalled(f"{self.name} did not finish within {timeout_s:.0f} s while starting.")

    def close(self, reference: Any, *, timeout_s: float) -> None:
        """Wait until the actor has closed, as it was asked to, and end its process in any case."""
        try:
            self.get(reference, timeout_s=timeout_s, doing="closing")
        except RolloutError:
            # Dead, hung or still starting: there is nothing to wait for, and what made it so was
            # noted before.
            pass
        finally:
            ray.kill(self.actor)

    def describe_threads(self) -> str:
        """Where the threads of the actor stand."""
        try:
            return ray.get(self.actor.describe_threads.remote(), timeout=STACK_WAIT_S)
        except RayError:
            return f"the process did not say within {STACK_WAIT_S:.0f} s"

    def _translate(self, error: RayTaskError, doing: str) -> Exception:
        cause = error.cause
        if isinstance(cause, UserError):
            return type(cause)(str(cause))
        if isinstance(cause, RolloutError):
            return type(cause)(f"{self.name}, while {doing}: {cause}")
        return EngineFailed(f"{self.name} raised {type(cause).__name__} while {doing}: {cause}")
