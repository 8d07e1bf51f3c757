"""What a comparison of two answers came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verifiers.verdict import Reason


@dataclass(frozen=True, slots=True)
class Finding:
    """What a comparison came to.

    Attributes:
        same: None when the quick tests cannot decide.
        reason: Why; of no meaning when `same` is None.
    """

    same: bool | None
    reason: Reason

    @classmethod
    def of(cls, same: bool | None, reason: Reason = Reason.EQUAL_EXACT) -> Finding:
        """A finding whose reason is `DIFFERENT` when the answers differ."""
        return cls(same, reason if same else Reason.DIFFERENT)


MISMATCH = Finding(False, Reason.TYPE_MISMATCH)


def join_findings(findings: Sequence[Finding]) -> Finding:
    """True when all are; the first that is false decides."""
    for finding in findings:
        if finding.same is False:
            return finding
    if any(finding.same is None for finding in findings):
        return Finding.of(None)
    weakest = (Reason.EQUAL_SYMBOLIC, Reason.EQUAL_TOLERANCE)
    reasons = [f.reason for f in findings if f.reason in weakest]
    return Finding.of(True, reasons[0] if reasons else Reason.EQUAL_EXACT)
