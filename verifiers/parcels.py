"""How work goes to an actor: large problems once, and the completions each time."""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import ray

from verifiers.problem import Problem, Submission

NUM_KEPT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProblem:
    """A problem in Ray's object store.

    Attributes:
        digest: Of its bytes.
        content: Its bytes.
    """

    digest: bytes
    content: ray.ObjectRef[bytes]

    @classmethod
    def store(cls, problem: Problem) -> StoredProblem:
        """Put a problem, which may hold megabytes of tests, into the store."""
        content = pickle.dumps(problem)
        return cls(digest=hashlib.blake2b(content).digest(), content=ray.put(content))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """Completions of one problem on their way to an actor.

    Attributes:
        problem: The problem, or where it is.
        completions: Each with whether it was cut off.
    """

    problem: Problem | StoredProblem
    completions: tuple[tuple[str, bool], ...]

    @classmethod
    def pack(cls, submissions: Sequence[Submission], stored: StoredProblem | None) -> Parcel:
        """Submissions to one problem, which is in the store or goes with them."""
        return cls(
            problem=stored or submissions[0].problem,
            completions=tuple((one.completion, one.truncated) for one in submissions),
        )


class ProblemShelf:
    """The problems that an actor has fetched, the newest of them, each read once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, Problem] = OrderedDict()

    def unpack(self, parcel: Parcel) -> tuple[Submission, ...]:
        """The submissions; those to one problem have the same object as their problem."""
        problem = parcel.problem
        if isinstance(problem, StoredProblem):
            problem = self._find(problem)
        return tuple(
            Submission(problem=problem, completion=completion, truncated=truncated)
            for completion, truncated in parcel.completions
        )

    def _find(self, stored: StoredProblem) -> Problem:
        with self._lock:
            known = self._kept.get(stored.digest)
            if known is not None:
                self._kept.move_to_end(stored.digest)
                return known
        problem: Problem = pickle.loads(ray.get(stored.content))  # noqa: S301 - the driver's bytes
        with self._lock:
            problem = self._kept.setdefault(stored.digest, problem)
            while len(self._kept) > NUM_KEPT:
                self._kept.popitem(last=False)
        return problem
