"""What a set of problems is, in one number: the same questions and references, or others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from verifiers.problem import Problem


def compute_digest(problems: Sequence[Problem]) -> str:
    """A hash of prompts, verifiers and references, in their order.

    Neither places nor ids count, so a local copy has the digest of its source.

    Example:
        >>> compute_digest([])
        'blake2b:cae66941d9efbd404e4d88758ea67670'
    """
    digest = hashlib.blake2b(digest_size=16)
    for problem in problems:
        row = [problem.prompt, problem.verifier, problem.reference]
        digest.update(json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n")
    return f"blake2b:{digest.hexdigest()}"
