"""The verifier of length: a band of words, characters or tokens, with slopes at its ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from tokenizers import Tokenizer

from verifiers.errors import UserError
from verifiers.example import Example
from verifiers.extraction import find_final_reply
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import Ruling
from verifiers.verdict import Reason, Status, Verdict

Unit = Literal["words", "characters", "tokens"]
Scope = Literal["completion", "reply"]


class LengthVerifier(Verifier):
    """Judges how long a completion is: 1 inside a band, down to 0 at `slope` beyond its ends.

    The score never leaves 0 to 1, however long the text is. It reads no reference, and is made to
    be a part of `composite`.

    Args:
        minimum: Shortest length in the band.
        maximum: Longest length in the band; None for no upper end.
        unit: `words` (between white space), `characters`, or `tokens`.
        slope: Units outside of the band over which the score falls to 0; by default it is 0 at
            once.
        scope: `completion`: all of it. `reply`: what follows the last reasoning block.
        tokenizer: For `tokens`: a `tokenizer.json`, or the folder of the model that has one.
        allow_truncated: Judge a completion that was cut off at the length limit.

    Raises:
        UserError: There is no band, or a value that an option cannot have.
    """

    name = "length"
    version = 1

    def __init__(
        self,
        *,
        minimum: int = 0,
        maximum: int | None = None,
        unit: Unit = "words",
        slope: int = 0,
        scope: Scope = "completion",
        tokenizer: str | None = None,
        allow_truncated: bool = False,
    ) -> None:
        _check_band(minimum, maximum, slope)
        _check_choice("unit", unit, get_args(Unit))
        _check_choice("scope", scope, get_args(Scope))
        self._band = (minimum, maximum)
        self._slope = slope
        self._scope: Scope = scope
        self._count = _choose_counter(unit, tokenizer)
        self._sample = {"characters": "a", "words": " a"}.get(unit)
        self._allow_truncated = allow_truncated

    def prepare(self, problem: Problem) -> None:
        """Nothing to check: the band does not depend on the row."""

    def verify(self, submission: Submission) -> Verdict:
        """Measure one completion."""
        started = time.perf_counter()
        if submission.truncated and not self._allow_truncated:
            return Ruling.no_answer(Reason.TRUNCATED).sign(self.label, started)
        text: str | Reason = submission.completion
        if self._scope == "reply":
            text = find_final_reply(text)
        if isinstance(text, Reason):
            return Ruling.no_answer(text).sign(self.label, started)
        length = self._count(text)
        score = compute_band_score(length, *self._band, self._slope)
        ruling = Ruling(
            status=Status.CORRECT if score == 1.0 else Status.INCORRECT,
            reason=Reason.ACCEPTED if score == 1.0 else Reason.REJECTED,
            score=score,
            components={"length": float(length)},
        )
        return ruling.sign(self.label, started)

    def examples(self) -> Sequence[Example]:
        """A text in the band and one outside of it; none for tokens, which no text is sure of."""
        minimum, maximum = self._band
        if self._sample is None:
            return []
        outside = 0 if maximum is None else maximum + self._slope + 1
        samples = [
            (self._sample * minimum, Status.CORRECT),
            (self._sample * outside, Status.INCORRECT),
        ]
        return [Example.of(self.name, None, text, status) for text, status in samples]


def compute_band_score(length: int, minimum: int, maximum: int | None, slope: int) -> float:
    """1 from `minimum` to `maximum`, falling to 0 over `slope` units beyond them, never below 0.

    Example:
        >>> [compute_band_score(length, 10, 20, 4) for length in (10, 21, 24, 1000)]
        [1.0, 0.75, 0.0, 0.0]
    """
    beyond = max(minimum - length, 0 if maximum is None else length - maximum, 0)
    if not beyond:
        return 1.0
    return max(0.0, 1.0 - beyond / slope) if slope else 0.0


def _count_words(text: str) -> int:
    return len(text.split())


def _choose_counter(unit: Unit, tokenizer: str | None) -> Callable[[str], int]:
    if (unit == "tokens") != (tokenizer is not None):
        raise UserError(
            "the verifier `length` counts tokens with unit='tokens' and, as 'tokenizer', the "
            "path of a tokenizer.json or of the model's folder; give both or neither"
        )
    counters: Mapping[str, Callable[[str], int]] = {"words": _count_words, "characters": len}
    if tokenizer is None:
        return counters[unit]
    path = Path(tokenizer).expanduser()
    path = path / "tokenizer.json" if path.is_dir() else path
    if not path.is_file():
        raise UserError(f"option 'tokenizer' of the verifier `length`: there is no file {path}")
    encoder = Tokenizer.from_file(str(path))

    def count(text: str) -> int:
        # A lone surrogate, which no tokenizer takes, counts as the character that replaces it.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return len(encoder.encode(clean, add_special_tokens=False).ids)

    return count


def _check_band(minimum: int, maximum: int | None, slope: int) -> None:
    if minimum < 0 or slope < 0 or (maximum is not None and maximum < minimum):
        raise UserError(
            f"the verifier `length` has minimum={minimum}, maximum={maximum}, slope={slope}; "
            "none may be negative, and the maximum not below the minimum"
        )
    if not minimum and maximum is None:
        raise UserError("the verifier `length` needs 'minimum', 'maximum' or both")


def _check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UserError(
            f"option {option!r} of the verifier `length` is {value!r}; choose from "
            f"{', '.join(choices)}"
        )
