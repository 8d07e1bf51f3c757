"""`verigrad verify --audit`: a sample of the wrong answers of a file, for a person to read."""

from __future__ import annotations

import json

from grpo.seeding import make_random
from verifiers.problem import Submission
from verifiers.verdict import Status, Verdict

TAIL_CHARS = 600


class Audit:
    """Keeps a uniform sample of what was not judged right, while verdicts go by.

    Args:
        size: Rows to keep.
        seed: The same seed and rows give the same sample.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._random = make_random(seed, "audit")
        self._num_wrong = 0
        self._kept: list[tuple[int, Submission, Verdict]] = []

    def add(self, submission: Submission, verdict: Verdict) -> None:
        """Consider one verdict; right ones are passed over."""
        if verdict.status is Status.CORRECT:
            return
        entry = (self._num_wrong, submission, verdict)
        self._num_wrong += 1
        if len(self._kept) < self._size:
            self._kept.append(entry)
            return
        place = self._random.randrange(self._num_wrong)
        if place < self._size:
            self._kept[place] = entry

    def print(self, *, as_json: bool) -> None:
        """Print the sample in the order of the rows."""
        for _, submission, verdict in sorted(self._kept, key=lambda entry: entry[0]):
            record = _describe(submission, verdict)
            if as_json:
                print(json.dumps(record, ensure_ascii=False, default=str))
            else:
                _print_record(record)
        if not as_json:
            print(f"{len(self._kept)} of {self._num_wrong} verdicts that are not correct")


def _describe(submission: Submission, verdict: Verdict) -> dict[str, object]:
    return {
        "id": submission.problem.id,
        "source": submission.problem.source,
        "status": verdict.status,
        "reason": verdict.reason,
        "gold": submission.problem.reference,
        "extracted": verdict.extracted,
        "detail": verdict.detail,
        "completion_tail": submission.completion[-TAIL_CHARS:],
    }


def _print_record(record: dict[str, object]) -> None:
    print(f"--- {record['source']}  {record['status']} ({record['reason']})")
    print(f"gold       {record['gold']}")
    print(f"extracted  {record['extracted']}")
    if record["detail"]:
        print(f"detail     {str(record['detail']).strip().splitlines()[-1]}")
    print("completion ends with:")
    for line in str(record["completion_tail"]).splitlines():
        print(f"    {line}")
    print()
