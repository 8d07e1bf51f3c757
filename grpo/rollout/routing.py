"""Which engine gets which group: the one with the fewest tokens to generate."""

from __future__ import annotations

import threading


class Router:
    """Keeps count of what each engine has to do.

    A group goes to one engine as a whole, because its members share the prompt's KV cache. An
    engine is given more than it can run at a time, so that it never waits for the next group, but
    not everything: what is still here when an engine falls behind can go to another one.

    Args:
        num_engines: How many there are.
        max_sequences: Completions that an engine may have been given and not ended.
    """

    def __init__(self, num_engines: int, max_sequences: int) -> None:
        self._max_sequences = max_sequences
        self._sequences = [0] * num_engines
        self._tokens = [0] * num_engines
        # Several calls of `generate` may be consumed by several threads.
        self._lock = threading.Lock()

    def place(self, num_sequences: int, tokens_each: int) -> int | None:
        """Choose an engine for a group, and count the group in.

        Args:
            num_sequences: The group's size.
            tokens_each: The most tokens that one member can take, its prompt included.

        Returns:
            The engine's place in the list; None when every engine has enough to do. An engine with
            nothing to do takes a group of any size.
        """
        with self._lock:
            engines = range(len(self._sequences))
            open_ones = [
                i
                for i in engines
                if not self._sequences[i]
                or self._sequences[i] + num_sequences <= self._max_sequences
            ]
            if not open_ones:
                return None
            chosen = min(open_ones, key=lambda i: self._tokens[i])
            self._sequences[chosen] += num_sequences
            self._tokens[chosen] += num_sequences * tokens_each
            return chosen

    def release(self, engine: int, num_sequences: int, tokens_each: int) -> None:
        """Count out members that ended, with the numbers they were counted in with."""
        with self._lock:
            self._sequences[engine] -= num_sequences
            self._tokens[engine] -= num_sequences * tokens_each
            assert self._sequences[engine] >= 0, (engine, self._sequences)
