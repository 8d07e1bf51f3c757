"""Answer pairs for benchmarks: real model solutions in groups, and distinct formulas."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from verifiers.maths.compare import compare
from verifiers.maths.equality import QuickEquality
from verifiers.maths.expressions import Unreadable
from verifiers.maths.kinds import name_kind
from verifiers.maths.options import MathOptions
from verifiers.maths.reader import read_answer

MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
FORMULA_KINDS = ("closed form", "complex", "expression")
REWRITES = (r"\frac{{2\left({0}\right)}}{{2}}", r"{0}+\sqrt{{3}}-\sqrt{{3}}", r"-(-({0}))")
SEED = 0


class Pair(NamedTuple):
    """A reference, a completion, and whether it is right."""

    gold: str
    completion: str
    right: bool


def read_gsm8k_groups(data: Path, problems: range, repeats: int) -> list[list[Pair]]:
    r"""Published model solutions, a group for each problem, the answer put into `\boxed{}`.

    Args:
        data: Folder of public data.
        problems: Which, by their place in the file; a group each.
        repeats: How often each of the four solutions stands in its group.
    """
    groups = []
    with (data / "gsm8k" / "example_model_solutions.jsonl").open(encoding="utf-8") as lines:
        for line in itertools.islice(lines, problems.start, problems.stop):
            row = json.loads(line)
            gold = row["ground_truth"].rpartition("A: ")[2].strip()
            group = []
            for model in MODELS:
                work, _, answer = row[model]["solution"].rpartition("A: ")
                completion = f"{work}The answer is \\boxed{{{answer.strip()}}}."
                group.append(Pair(gold, completion, row[model]["is_correct"]))
            groups.append(group * repeats)
    return groups


def make_formula_pairs(data: Path, count: int) -> list[Pair]:
    """Distinct pairs of formulas: MATH-500's rewritten, and generated ones of the same kinds.

    Args:
        data: Folder of public data.
        count: At most so many of either.
    """
    pairs = dict.fromkeys([*itertools.islice(_rewritten(data), count), *_generated(count)])
    return [Pair(gold, f"\\boxed{{{answer}}}", right) for gold, answer, right in pairs]


def needs_worker(pair: Pair) -> bool:
    """Whether exact arithmetic and quick probes leave the pair undecided."""
    answer = pair.completion.removeprefix("\\boxed{").removesuffix("}")
    try:
        gold, found = read_answer(pair.gold), read_answer(answer)
    except Unreadable:
        return False
    quick = QuickEquality(assume_positive=False)
    return gold != found and compare(gold, found, MathOptions(), quick).same is None


def _rewritten(data: Path) -> Iterator[tuple[str, str, bool]]:
    with (data / "math500" / "test.jsonl").open(encoding="utf-8") as lines:
        golds = [json.loads(line)["answer"] for line in lines]
    for gold in golds:
        if name_kind(gold) in FORMULA_KINDS:
            yield gold, f"{gold}+1", False
            for rewrite in REWRITES:
                yield gold, rewrite.format(gold), True


def _generated(count: int) -> Iterator[tuple[str, str, bool]]:
    draw = random.Random(SEED)
    for number in range(count):
        a, b, c, d = (draw.randint(2, 30) for _ in range(4))
        wrong = number % 4 == 3
        shift = d + int(wrong)
        match number % 6:
            case 0:
                gold = f"({a}x+{b})({c}x+{d})"
                answer = f"{a * c}x^2+{a * d + b * c}x+{b * shift}"
            case 1:
                gold, answer = (
                    f"\\frac{{{a}}}{{\\sqrt{{{d}}}}}",
                    f"\\frac{{{a}\\sqrt{{{d}}}}}{{{shift}}}",
                )
            case 2:
                gold = f"\\frac{{1}}{{\\sqrt{{{b + d}}}-\\sqrt{{{b}}}}}"
                answer = f"\\frac{{\\sqrt{{{b + d}}}+\\sqrt{{{b}}}}}{{{shift}}}"
            case 3:
                gold, answer = f"{a}\\sin(2x)+{d}", f"{2 * a}\\sin(x)\\cos(x)+{shift}"
            case 4:
                gold = f"\\ln({a * d})+{b}\\pi"
                answer = f"\\ln({a})+\\ln({shift})+\\pi\\cdot{b}"
            case _:
                gold = f"\\frac{{x^2-{d * d}}}{{x-{d}}}+{b}"
                answer = f"x+{b + shift}"
        yield gold, answer, not wrong
