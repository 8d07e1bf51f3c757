"""Completions that a good reference finds right, and others that it must not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from verifiers.countdown import CountdownVerifier
from verifiers.countdown_solver import MAX_NUMBERS, find_expression
from verifiers.extraction import Policy
from verifiers.json_text import read_json
from verifiers.maths.verifier import find_reference_text
from verifiers.problem import Problem
from verifiers.replies import write_reply

_NUMBER = re.compile(r"\d{1,400}")  # longer ones are changed in a part
_ANOTHER_ANSWER = "7919"
# Of every type that JSON has, so that a schema which takes all of them asks for nothing.
_ANY_JSON = ("null", "true", "-7919.5", '"7919"', "[]", "{}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Completions to be judged against one reference.

    Attributes:
        right: Each of them must be right.
        wrong: Not all of them may be right: one can be by chance (5^0 and 11^0), or within a
            tolerance.
        unsolvable: Why there is no right answer, where that is known.
    """

    right: Sequence[str] = ()
    wrong: Sequence[str] = ()
    unsolvable: str | None = None


def make_trial(problem: Problem, options: Mapping[str, Any], solution: Any) -> Trial | None:
    """Completions to try a readable reference out with.

    Args:
        problem: The row.
        options: Of its verifier.
        solution: An answer known to be right, from a column of the row; None where there is none.
            References that are answers themselves need none.

    Returns:
        None where nothing is known that must be right.
    """
    make = _TRIALS.get(problem.verifier)
    return None if make is None else make(problem, options, solution)


def read_answers(problem: Problem) -> list[str]:
    """The answers that a row's reference stands for, where it is one."""
    if problem.verifier == "math":
        return [find_reference_text(problem)]
    reference = problem.reference
    return [str(item) for item in (reference if isinstance(reference, list) else [reference])]


def make_twins(answers: Sequence[str]) -> list[str]:
    r"""Answers that look like the first one and are wrong.

    A number n becomes 2n + 1, far outside any tolerance.

    Example:
        >>> make_twins([r"\frac{3}{4}"])
        ['\\frac{7}{4}', '\\frac{3}{9}']
    """
    gold = answers[0]
    if re.fullmatch(r"\(?[A-Z]\)?", gold):
        twins = [gold.replace("A", "B") if "A" in gold else re.sub("[A-Z]", "A", gold)]
    else:
        numbers = list(_NUMBER.finditer(gold))
        ends = [numbers[0], numbers[-1]] if numbers else []
        twins = [f"{gold[: n.start()]}{2 * int(n.group()) + 1}{gold[n.end() :]}" for n in ends]
    twins = [twin for twin in dict.fromkeys(twins) if twin not in answers]
    return twins or [_ANOTHER_ANSWER]


def _try_answers(problem: Problem, options: Mapping[str, Any], _: Any) -> Trial:
    answers = read_answers(problem)
    return _state(options, "boxed", answers, make_twins(answers))


def _try_pattern(_: Problem, options: Mapping[str, Any], solution: Any) -> Trial | None:
    if not isinstance(solution, str):
        return None
    # A text beside the right one, and one that nobody would ask for.
    wrong = [f"{solution} {_ANOTHER_ANSWER} \u2603", "\u2603"]
    return _state(options, "boxed", [solution], wrong)


def _try_schema(problem: Problem, options: Mapping[str, Any], solution: Any) -> Trial:
    schema = options.get("schema") or problem.reference
    schema = read_json(schema) if isinstance(schema, str) else schema
    known = [schema["const"]] if "const" in schema else schema.get("examples", [])
    right = [json.dumps(value) for value in known]
    if solution is not None:
        right.append(solution if isinstance(solution, str) else json.dumps(solution))
    return _state(options, "whole", right, _ANY_JSON)


def _try_puzzle(problem: Problem, options: Mapping[str, Any], solution: Any) -> Trial | None:
    verifier = CountdownVerifier(**options)
    if solution is None:
        puzzle = verifier.read_puzzle(problem)
        if len(puzzle.numbers) > MAX_NUMBERS:
            return None
        use_all = bool(options.get("use_all"))
        solution = find_expression(puzzle.numbers, puzzle.target, use_all=use_all)
        if solution is None:
            return Trial(unsolvable=f"{puzzle.target} cannot be made of {list(puzzle.numbers)}")
    twice = f"({solution}) + ({solution})"  # uses every number once too often
    return _state(options, "boxed", [str(solution)], [twice])


def _try_program(_: Problem, options: Mapping[str, Any], solution: Any) -> Trial | None:
    if not isinstance(solution, str):
        return None
    form = "%s\n" if options.get("extract") == "text" else "```python\n%s\n```\n"
    return Trial(right=[form % solution], wrong=[form % "pass"])


def _state(
    options: Mapping[str, Any], default: Policy, right: Sequence[str], wrong: Sequence[str]
) -> Trial:
    """Answers in completions, as the option `extraction` says."""
    extraction = options.get("extraction", default)
    assert extraction in get_args(Policy), extraction  # checked where the verifier was built
    return Trial(
        right=[write_reply(answer, extraction) for answer in right],
        wrong=[write_reply(answer, extraction) for answer in wrong],
    )


_TRIALS: Mapping[str, Callable[[Problem, Mapping[str, Any], Any], Trial | None]] = {
    "choice": _try_answers,
    "exact": _try_answers,
    "math": _try_answers,
    "numeric": _try_answers,
    "regex": _try_pattern,
    "json_schema": _try_schema,
    "countdown": _try_puzzle,
    "code": _try_program,
}
