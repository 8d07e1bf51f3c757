"""Recipes of code problems: published rows, judged in the sandbox by their own solutions."""

from __future__ import annotations

import pytest

from grpo.config.data import DataConfig
from grpo.config.recipes import load_recipe, recipe_names
from grpo.data.problems import load_problems
from grpo.paths import project_roots
from verifiers.code import CodeVerifier
from verifiers.errors import BadReference
from verifiers.problem import Submission
from verifiers.verdict import Status

FIXTURES = project_roots()[0] / "datasets" / "fixtures"
CODE_RECIPES = [n for n in recipe_names() if load_recipe(n).data["verifier"] == "code"]


@pytest.fixture(scope="module")
def verifier():
    code = CodeVerifier(pool_size=2, memory_mb=512)
    yield code
    code.close()


def load(recipe, path):
    return load_problems(DataConfig.model_validate({"recipe": recipe, "path": str(path)}))


def judge(verifier, problem, program):
    completion = f"Here it is.\n```python\n{program}\n```\n"
    return verifier.verify(Submission(problem=problem, completion=completion))


@pytest.mark.parametrize("recipe", CODE_RECIPES)
def test_five_published_rows_verify(verifier, recipe):
    problems = load(recipe, FIXTURES / f"{recipe}.jsonl")
    # Rows of LiveCodeBench bring no solutions; its fixture asks what that of APPS asks.
    solved = problems if recipe != "livecodebench" else load("apps", FIXTURES / "apps.jsonl")
    solutions = [problem.columns["solution"] for problem in solved]
    for index, problem in enumerate(problems):
        verifier.prepare(problem)
        right = judge(verifier, problem, solutions[index])
        assert right.status is Status.CORRECT, right
        wrong = judge(verifier, problem, solutions[index - 1])
        assert wrong.status is Status.INCORRECT, wrong


@pytest.mark.parametrize(
    ("recipe", "file", "rows"),
    [
        ("humaneval", "humaneval/HumanEval.jsonl.gz", 164),
        ("mbpp_plus", "mbppplus/MbppPlus-OriginFmt.jsonl.gz", 378),
    ],
)
def test_public_data_loads_by_recipe_and_solutions_pass(verifier, data_dir, recipe, file, rows):
    problems = load(recipe, data_dir / file)
    assert len(problems) == rows == load_recipe(recipe).sizes["test"]
    unreadable = 0
    for problem in problems[:: rows // 25]:
        try:
            verifier.prepare(problem)
        except BadReference:
            unreadable += 1
            continue
        verdict = judge(verifier, problem, problem.columns["solution"])
        assert verdict.status is Status.CORRECT, (problem.id, verdict)
    assert unreadable <= 2
