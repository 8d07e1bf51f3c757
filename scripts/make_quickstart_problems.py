#!/usr/bin/env python3
"""Write the quickstart's problem sets, `datasets/quickstart_{maths,code}/{train,heldout}.jsonl`.

The same arguments give the same files, byte for byte: without any, those of the repository.
"""

from __future__ import annotations

import argparse
import json
import random
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from quickstart_tasks import FAMILIES, Addition, Family, Function, evaluate

ROOT = Path(__file__).resolve().parent.parent
NUM_TESTS = 5
NUM_CANDIDATES = 60
NUM_FUNCTIONS = {("x",): 480, ("x", "y"): 320, ("s",): 250, ("s", "n"): 150}
WORDS = (
    "Maple",
    "river",
    "Otter",
    "sTone",
    "planet",
    "Q7wx",
    "lemonTea",
    "Zebra3",
    "comet",
    "harbOr",
)

Row = dict[str, Any]


def chat(text: str) -> list[dict[str, str]]:
    """One user message."""
    return [{"role": "user", "content": text}]


def maths_rows(
    rng: random.Random, *, num_train: int, num_heldout: int
) -> tuple[list[Row], list[Row]]:
    """Draw distinct additions, for training and to hold out."""
    pairs = rng.sample(
        [(a, b) for a in range(10, 100) for b in range(10, 100)], num_train + num_heldout
    )
    rows: list[Row] = []
    for a, b in pairs:
        problem = Addition(a=a, b=b)
        rows.append(
            {
                "id": f"add-{a}-{b}",
                "prompt": chat(problem.prompt),
                "verifier": "math",
                "answer": problem.answer,
            }
        )
    return rows[:num_train], rows[num_train:]


def code_rows(rng: random.Random, *, num_heldout: int) -> tuple[list[Row], list[Row]]:
    """Draw distinct functions of every family, for training and to hold out."""
    rows = [
        {
            "id": f"f-{number:04d}",
            "prompt": chat(function.prompt),
            "verifier": "code",
            "tests": {"kind": "function", "entry_point": "f", "tests": tests},
            "solution": function.source(),
        }
        for number, (function, tests) in enumerate(draw_functions(rng))
    ]
    rng.shuffle(rows)
    return rows[num_heldout:], rows[:num_heldout]


def draw_functions(rng: random.Random) -> Iterable[tuple[Function, list[Row]]]:
    """The wanted number of testable functions of every family, with their tests."""
    for family in FAMILIES:
        wanted = NUM_FUNCTIONS[family.parameters]
        testable = ((f, tests) for f in spread(family, rng) if (tests := hidden_tests(f, rng)))
        drawn = [pair for pair, _ in zip(testable, range(wanted), strict=False)]
        assert len(drawn) == wanted, (family.parameters, len(drawn))
        yield from drawn


def spread(family: Family, rng: random.Random) -> Iterable[Function]:
    """The family's functions in an order that takes every pair of steps equally often."""
    by_steps: defaultdict[tuple[str, str], list[Function]] = defaultdict(list)
    for function in family.functions():
        by_steps[function.first.words, function.second.words].append(function)
    for functions in by_steps.values():
        rng.shuffle(functions)
    rounds = zip_longest(*by_steps.values())
    return (function for function in chain.from_iterable(rounds) if function is not None)


def hidden_tests(function: Function, rng: random.Random) -> list[Row] | None:
    """Choose calls that every careless version of the function fails.

    Returns:
        The calls with what they return, or None for a function that makes no good problem: it is
        nearly constant, or can be computed as well with one step left out.
    """
    candidates = [arguments(function.parameters, rng) for _ in range(NUM_CANDIDATES)]
    expected = evaluate(function.expression(), candidates)
    if len(set(expected)) < 3:
        return None
    without_second = function.expression(second_step=False)
    without_first = function.second.code.format(e=function.parameters[0], k=function.second_operand)
    without_brackets = function.expression(brackets=False)
    chosen: list[int] = []
    for wrong in (without_second, without_first, without_brackets):
        values = evaluate(wrong, candidates)
        telling = [i for i, value in enumerate(values) if value != expected[i]]
        if telling:
            chosen.append(telling[0])
        elif wrong != without_brackets:
            return None
    calls = distinct([*chosen, *range(NUM_CANDIDATES)], candidates)[:NUM_TESTS]
    return [{"args": list(candidates[i].values()), "expected": expected[i]} for i in calls]


def arguments(parameters: Sequence[str], rng: random.Random) -> Mapping[str, Any]:
    """Draw one call's arguments; an operand is never 0, so that every step is defined."""
    draw = {
        "x": lambda: rng.randint(-20, 40),
        "y": lambda: rng.randint(1, 12),
        "s": lambda: rng.choice(WORDS),
        "n": lambda: rng.randint(1, 5),
    }
    return {name: draw[name]() for name in parameters}


def distinct(indices: Iterable[int], calls: Sequence[Mapping[str, Any]]) -> list[int]:
    """The indices of different calls, in the order given."""
    first: dict[tuple[Any, ...], int] = {}
    for i in indices:
        first.setdefault(tuple(calls[i].values()), i)
    return list(first.values())


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(
        json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n" for row in rows
    )
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Make and write both problem sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "datasets", help="folder that gets both sets"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # The compiler warns of `2*3[::-1]`, which forgotten brackets can give: a wrong answer here.
    warnings.simplefilter("ignore", SyntaxWarning)
    sets = {
        "quickstart_maths": maths_rows(
            random.Random(options.seed), num_train=4000, num_heldout=200
        ),
        "quickstart_code": code_rows(random.Random(options.seed), num_heldout=200),
    }
    for name, (train, heldout) in sets.items():
        write_rows(options.out / name / "train.jsonl", train)
        write_rows(options.out / name / "heldout.jsonl", heldout)
        print(f"{name}: {len(train)} train, {len(heldout)} held out")


if __name__ == "__main__":
    main()
