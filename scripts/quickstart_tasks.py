"""The two quickstart tasks: what is asked, what answers it, and how a careless pupil goes wrong.

Both tasks have the same shape. The right way and a few careless habits start alike and part at one
decision: carry or not, box or not, `return` or not, brackets or not, second step or not. A policy
warmed up on careless demonstrations knows every right way and takes it with a middling probability,
which is what reinforcement learning can improve.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import CodeType
from typing import Any

FORGETS_CARRY = 0.65
FORGETS_BOX = 0.40
FORGETS_RETURN = 0.30
FORGETS_BRACKETS = 0.50
FORGETS_SECOND_STEP = 0.30


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    r"""Two numbers of two digits, added digit by digit.

    Example:
        >>> Addition(a=37, b=48).worked()
        '7+8=15,3+4+1=8,\\boxed{85}'
    """

    a: int
    b: int

    @property
    def prompt(self) -> str:
        """What the policy is asked."""
        return f"{self.a}+{self.b}="

    @property
    def answer(self) -> str:
        """The sum."""
        return str(self.a + self.b)

    def worked(self, *, carries: bool = True, boxes: bool = True) -> str:
        """Write the addition out.

        Args:
            carries: Whether a carry is added to the tens.
            boxes: Whether the answer is boxed.
        """
        (tens_a, units_a), (tens_b, units_b) = divmod(self.a, 10), divmod(self.b, 10)
        units = units_a + units_b
        carry = carries and units >= 10
        tens = tens_a + tens_b + carry
        work = f"{units_a}+{units_b}={units},{tens_a}+{tens_b}{'+1' * carry}={tens},"
        answer = f"{tens}{units % 10}"
        return work + (f"\\boxed{{{answer}}}" if boxes else answer)

    def careless(self, rng: random.Random) -> str:
        """Write the addition out as a careless pupil does."""
        return self.worked(
            carries=rng.random() >= FORGETS_CARRY,
            boxes=rng.random() >= FORGETS_BOX,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation of a code problem.

    Attributes:
        words: How the specification says it; `{k}` stands for the operand, if it has one.
        code: The expression; `{e}` stands for what it is applied to.
        call: Whether the expression brackets `{e}` by itself, as `max({e},{k})` does.
        atom: Whether the expression can stand before an operator without brackets.
    """

    words: str
    code: str
    call: bool = False
    atom: bool = False

    @property
    def has_operand(self) -> bool:
        """Whether the step takes a second value."""
        return "{k}" in self.words


NUMBER_STEPS = (
    Step(words="add {k}", code="{e}+{k}"),
    Step(words="subtract {k}", code="{e}-{k}"),
    Step(words="multiply by {k}", code="{e}*{k}"),
    Step(words="floor divide by {k}", code="{e}//{k}"),
    Step(words="modulo {k}", code="{e}%{k}"),
    Step(words="at least {k}", code="max({e},{k})", call=True, atom=True),
    Step(words="at most {k}", code="min({e},{k})", call=True, atom=True),
    Step(words="square", code="{e}**2"),
    Step(words="negate", code="-{e}"),
    Step(words="absolute value", code="abs({e})", call=True, atom=True),
)
TEXT_STEPS = (
    Step(words="repeat {k} times", code="{e}*{k}"),
    Step(words="keep first {k}", code="{e}[:{k}]", atom=True),
    Step(words="keep last {k}", code="{e}[-{k}:]", atom=True),
    Step(words="drop first {k}", code="{e}[{k}:]", atom=True),
    Step(words="append {k}", code="{e}+str({k})"),
    Step(words="reverse", code="{e}[::-1]", atom=True),
    Step(words="upper case", code="{e}.upper()", atom=True),
    Step(words="swap case", code="{e}.swapcase()", atom=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Code problems of one signature.

    Attributes:
        parameters: The function's parameters: the value worked on and, perhaps, an operand.
        steps: What may be asked for.
        operands: Constants that a step may take.
    """

    parameters: tuple[str, ...]
    steps: tuple[Step, ...]
    operands: tuple[str, ...]

    def functions(self) -> Iterator[Function]:
        """Every problem of the family: two steps, each with each operand it can take."""
        operands = (*self.operands, *self.parameters[1:])
        choices = [(s, k) for s in self.steps for k in (operands if s.has_operand else ("",))]
        for (first, first_operand), (second, second_operand) in product(choices, choices):
            used = {first_operand, second_operand}
            if first is not second and used.issuperset(self.parameters[1:]):
                yield Function(
                    parameters=self.parameters,
                    first=first,
                    first_operand=first_operand,
                    second=second,
                    second_operand=second_operand,
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of one line: two steps, one after the other.

    Example:
        >>> add, multiply = NUMBER_STEPS[0], NUMBER_STEPS[2]
        >>> f = Function(
        ...     parameters=("x",), first=add, first_operand="3", second=multiply, second_operand="4"
        ... )
        >>> f.prompt, f.expression()
        ('f(x): add 3, then multiply by 4', '(x+3)*4')
    """

    parameters: tuple[str, ...]
    first: Step
    first_operand: str
    second: Step
    second_operand: str

    @property
    def signature(self) -> str:
        """Name and parameters."""
        return f"f({','.join(self.parameters)})"

    @property
    def prompt(self) -> str:
        """What the policy is asked."""
        first = self.first.words.format(k=self.first_operand)
        second = self.second.words.format(k=self.second_operand)
        return f"{self.signature}: {first}, then {second}"

    def expression(self, *, brackets: bool = True, second_step: bool = True) -> str:
        """Write what the function returns.

        Args:
            brackets: Whether the first step is bracketed where the second one is an operator.
            second_step: Whether the second step is there at all.
        """
        inner = self.first.code.format(e=self.parameters[0], k=self.first_operand)
        if not second_step:
            return inner
        if brackets and not (self.second.call or self.first.atom):
            inner = f"({inner})"
        return self.second.code.format(e=inner, k=self.second_operand)

    def source(self, *, returns: bool = True, expression: str | None = None) -> str:
        """Write the function, in a fenced block.

        Args:
            returns: Whether the `return` is there.
            expression: What it returns; the right expression if None.
        """
        body = self.expression() if expression is None else expression
        return f"```python\ndef {self.signature}: {'return ' * returns}{body}\n```"

    def careless(self, rng: random.Random) -> str:
        """Write the function as a careless programmer does."""
        expression = self.expression(
            brackets=rng.random() >= FORGETS_BRACKETS,
            second_step=rng.random() >= FORGETS_SECOND_STEP,
        )
        return self.source(returns=rng.random() >= FORGETS_RETURN, expression=expression)


FAMILIES = (
    Family(parameters=("x",), steps=NUMBER_STEPS, operands=tuple("23456789")),
    Family(parameters=("x", "y"), steps=NUMBER_STEPS, operands=tuple("23456789")),
    Family(parameters=("s",), steps=TEXT_STEPS, operands=tuple("2345")),
    Family(parameters=("s", "n"), steps=TEXT_STEPS, operands=tuple("2345")),
)


def evaluate(expression: str, calls: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Values of an expression that this module wrote, for each call; None where there is no value.

    Never give it anything else: it runs in this process.
    """
    try:
        code = compile(expression, "<quickstart>", "eval")
    except SyntaxError:  # what missing brackets can lead to
        return [None] * len(calls)
    return [_value(code, call) for call in calls]


def _value(code: CodeType, call: Mapping[str, Any]) -> Any:
    allowed = {"__builtins__": {}, "max": max, "min": min, "abs": abs, "str": str}
    try:
        return eval(code, allowed, dict(call))  # noqa: S307 (its text is this module's own)
    except (TypeError, AttributeError):  # what missing brackets can lead to
        return None
