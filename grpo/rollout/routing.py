"""Which engine gets which group: the one with the fewest tokens to generate."""

from __future__ import annotations

import threading
from collections.abc import Collection


class Load:
    """How many tokens each engine still has to generate, counted over every call.

    Args:
        num_engines: How many there are.
    """

    def __init__(self, num_engines: int) -> None:
        self._tokens = [0] * num_engines
        # Several calls of `generate` may be consumed by several threads.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._tokens)

    def choose(self, engines: Collection[int], tokens: int) -> int:
        """Give tokens to the least loaded of some engines, and return which that is."""
        with self._lock:
            chosen = min(engines, key=lambda i: self._tokens[i])
            self._tokens[chosen] += tokens
            return chosen

    def release(self, engine: int, tokens: int) -> None:
        """Take back what an engine was given."""
        with self._lock:
            self._tokens[engine] -= tokens
            assert self._tokens[engine] >= 0, (engine, self._tokens)


class Router:
    """Places the groups of one call.

    A group goes to one engine as a whole, because its members share the prompt's KV cache. An
    engine is given more than it can run at a time, so that it never waits for the next group, but
    not everything: what is still here when an engine falls behind can go to another one. The limit
    holds for each call by itself, or a call that nobody consumes would keep the others from
    starting.

    Args:
        load: The pool's.
        max_sequences: Completions of this call that an engine may have been given and not ended.
    """

    def __init__(self, load: Load, max_sequences: int) -> None:
        self._load = load
        self._max_sequences = max_sequences
        self._sequences = [0] * len(load)

    def place(
        self, num_sequences: int, tokens_each: int, *, among: Collection[int] | None = None
    ) -> int | None:
        """Choose an engine for a group, and count the group in.

        Args:
            num_sequences: The group's size.
            tokens_each: The most tokens that one member can take, its prompt included.
            among: Places of the engines that can be asked; None is all of them.

        Returns:
            The engine's place in the list; None when every engine has enough to do. An engine with
            nothing to do takes a group of any size.
        """
        with_room = [
            i
            for i in (range(len(self._load)) if among is None else among)
            if not self._sequences[i] or self._sequences[i] + num_sequences <= self._max_sequences
        ]
        if not with_room:
            return None
        chosen = self._load.choose(with_room, num_sequences * tokens_each)
        self._sequences[chosen] += num_sequences
        return chosen

    def release(self, engine: int, num_sequences: int, tokens_each: int) -> None:
        """Count out members that ended, with the numbers they were counted in with."""
        self._sequences[engine] -= num_sequences
        self._load.release(engine, num_sequences * tokens_each)
