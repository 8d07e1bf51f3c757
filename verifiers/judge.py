"""Every verifier of a run behind one call, with the one broad catch around them."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.registry import build_verifier
from verifiers.verdict import Reason, Status, Verdict


class Judge:
    """Holds verifiers by name and sends each submission to the one that its problem names.

    Args:
        specs: Options of each verifier, by its name (see `verifiers.registry.build_verifier`).
    """

    def __init__(self, specs: Mapping[str, Mapping[str, Any]]) -> None:
        self._verifiers: dict[str, Verifier] = {}
        try:
            for name, options in specs.items():
                self._verifiers[name] = build_verifier(name, options)
        except BaseException:
            self.close()
            raise

    def prepare(self, problem: Problem) -> None:
        """Check that a problem can be judged.

        Raises:
            BadReference: It cannot.
        """
        self._verifiers[problem.verifier].prepare(problem)

    def verify(self, submission: Submission) -> Verdict:
        """The verdict of the problem's verifier; `ERROR` with the traceback when that raises."""
        started = time.perf_counter()
        name = submission.problem.verifier
        try:
            return self._verifiers[name].verify(submission)
        except Exception:  # noqa: BLE001 - whatever went wrong, the completion is not what was judged
            return _raised(name, started)

    async def averify(self, submission: Submission) -> Verdict:
        """As `verify`, while the event loop goes on."""
        return await asyncio.to_thread(self.verify, submission)

    def wants_group(self, verifier: str) -> bool:
        """Whether a verifier judges all completions of a problem together."""
        found = self._verifiers.get(verifier)
        return found is not None and found.scope == "group"

    def verify_group(self, submissions: Sequence[Submission]) -> list[Verdict]:
        """Verdicts on completions of one problem, on all of them where its verifier wants that."""
        if not submissions:
            return []
        name = submissions[0].problem.verifier
        if not self.wants_group(name):
            return [self.verify(submission) for submission in submissions]
        started = time.perf_counter()
        try:
            verdicts = self._verifiers[name].verify_batch(submissions)
            _check_count(verdicts, submissions)
            return verdicts
        except Exception:  # noqa: BLE001 - as in `verify`
            return [_raised(name, started)] * len(submissions)

    def verify_batch(self, submissions: Sequence[Submission]) -> list[Verdict]:
        """Verdicts in the order of the submissions; those of one problem are one group."""
        verdicts: dict[int, Verdict] = {}
        for places in group_places(submissions):
            group = self.verify_group([submissions[place] for place in places])
            verdicts.update(zip(places, group, strict=True))
        return [verdicts[place] for place in range(len(submissions))]

    def find_obstacle(self, verifier: str) -> str | None:
        """Why no program can be run here that the verifier would run; None where it can."""
        for example in self._verifiers[verifier].examples():
            verdict = self.verify(example.submission)
            if verdict.reason is Reason.SANDBOX_UNAVAILABLE:
                return verdict.detail
        return None

    def self_check(self, verifier: str | None = None) -> list[str]:
        """Judge the known answers of one verifier, or of all; a sentence for each wrong verdict."""
        faults = []
        for name in [verifier] if verifier is not None else self._verifiers:
            for example in self._verifiers[name].examples():
                verdict = self.verify(example.submission)
                if verdict.status != example.status:
                    faults.append(
                        f"{name} judged {example.submission.completion!r} against "
                        f"{example.submission.problem.reference!r} as {verdict.status} "
                        f"({verdict.reason}; "
                        f"{verdict.detail}), which is {example.status}"
                    )
        return faults

    def close(self) -> None:
        """Close every verifier."""
        for verifier in self._verifiers.values():
            verifier.close()


def group_places(submissions: Sequence[Submission]) -> list[list[int]]:
    """Places of the submissions to each problem, problems in the order of their first one."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, submission in enumerate(submissions):
        problem = submission.problem
        groups.setdefault((problem.verifier, problem.id), []).append(place)
    return list(groups.values())


def _check_count(verdicts: Sequence[Verdict], submissions: Sequence[Submission]) -> None:
    if len(verdicts) != len(submissions):
        raise ValueError(f"{len(verdicts)} verdicts on {len(submissions)} completions")


def _raised(verifier: str, started: float) -> Verdict:
    """The verdict while an exception is handled."""
    return Verdict(
        status=Status.ERROR,
        score=None,
        reason=Reason.VERIFIER_RAISED,
        verifier=verifier,
        seconds=time.perf_counter() - started,
        detail=traceback.format_exc(),
    )
