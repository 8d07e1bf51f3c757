"""What a user can decide about mathematical answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from verifiers.errors import UserError
from verifiers.extraction import Policy, check_policy

_KINDS = {"bool": (bool,), "float": (int, float), "int": (int,), "str | None": (str, type(None))}

# For each choice about what counts as equal or as an answer, the value that is not the default.
ALTERNATIVES: Mapping[str, Any] = {
    "unique_box": True,
    "box_at_end": True,
    "gold_digits": False,
    "rel_tol": 1e-6,
    "allow_unevaluated": True,
    "percent_bridge": False,
    "unit_bridge": False,
    "unit_conversion": False,
    "degree_bridge": False,
    "base_bridge": False,
    "interval_bridge": False,
    "ratio_bridge": True,
    "vector_bridge": False,
    "assume_positive": True,
    "constant_names": False,
    "ignore_trailing_text": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MathOptions:
    r"""Options of the verifier `math`. Each bridge between kinds of answer can be closed.

    Attributes:
        extraction: Where the prediction is looked for; see `verifiers.extraction.find_answer`.
        unique_box: Different answers in several boxes are no answer, even far apart.
        box_at_end: A box with a letter or a digit after it is no answer, so that neither a box that
            echoes the prompt nor one that is taken back counts.
        allow_truncated: Judge a completion that was cut off at the length limit.
        gold_digits: A decimal reference of two digits or more also accepts a fraction or a longer
            decimal that rounds to it: 12.7 accepts 38/3.
        rel_tol: Relative error at which a decimal prediction is still right; 0 for none.
        allow_unevaluated: Accept `17 \times 23` for 391.
        percent_bridge: `50\%` in the reference accepts 50 and 0.5.
        unit_bridge: A unit that only one side writes is passed over; units on both sides are always
            compared.
        unit_conversion: `5 \text{ m}` accepts `500 \text{ cm}`; otherwise units must be equal.
        degree_bridge: `60^\circ` accepts `\frac{\pi}{3}`, and the other way round.
        base_bridge: `3120_4` accepts 3120, and 5 accepts `101_2`.
        interval_bridge: `(2, 7)` accepts `2 < x < 7`.
        ratio_bridge: `2:3` accepts `\frac{2}{3}`.
        vector_bridge: A column vector accepts a tuple and the other way round.
        assume_positive: Letters stand for positive numbers, so `\sqrt{4/m}` is `2/\sqrt m`.
        constant_names: `+C` accepts another name for the constant of integration.
        ignore_trailing_text: Pass over text after the answer that is no unit, as in `42 \text{
            (not sure)}`.
        cpu_limit_s: CPU seconds for a comparison; beyond it the completion gets `LIMIT`.
        wall_limit_s: Wall seconds for a comparison; beyond it the submission is not verified.
        memory_mb: Address space of a worker process.
        concurrency: Comparisons that need a worker process and run at the same time.
        poison_file: JSONL file to which comparisons that cost a worker process are appended.
    """

    extraction: Policy = "boxed"
    unique_box: bool = False
    box_at_end: bool = False
    allow_truncated: bool = False
    gold_digits: bool = True
    rel_tol: float = 0.0
    allow_unevaluated: bool = False
    percent_bridge: bool = True
    unit_bridge: bool = True
    unit_conversion: bool = True
    degree_bridge: bool = True
    base_bridge: bool = True
    interval_bridge: bool = True
    ratio_bridge: bool = False
    vector_bridge: bool = True
    assume_positive: bool = False
    constant_names: bool = True
    ignore_trailing_text: bool = False
    cpu_limit_s: float = 2.0
    wall_limit_s: float = 10.0
    memory_mb: int = 1024
    concurrency: int = 1
    poison_file: str | None = None

    def __post_init__(self) -> None:
        check_policy(self.extraction)
        for option in fields(self):
            kinds = _KINDS.get(str(option.type))
            value = getattr(self, option.name)
            if kinds and (
                not isinstance(value, kinds) or (isinstance(value, bool) != (bool in kinds))
            ):
                raise UserError(
                    f"option {option.name!r} of the verifier `math` is {value!r}; it takes a "
                    f"{option.type}"
                )
