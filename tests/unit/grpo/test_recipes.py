"""Every recipe follows its schema, and reads, renders and verifies rows as they are published."""

from __future__ import annotations

import functools
import re

import pytest

from grpo.config.data import DataConfig
from grpo.config.recipes import Recipe, load_recipe, merge_recipe, recipe_names
from grpo.config.schema import RunConfig
from grpo.data.problems import load_problems
from grpo.data.prompts import PromptEncoder
from grpo.data.rows import read_rows
from grpo.paths import find_model, project_roots
from verifiers.errors import UserError
from verifiers.golds import check_gold
from verifiers.judge import Judge
from verifiers.problem import Submission
from verifiers.verdict import Status

FIXTURES = project_roots()[0] / "datasets" / "fixtures"
# Right answers of rows whose verifier has no reference to repeat.
RIGHT = {
    "countdown": ["3 * 8 * 1", "4 * 6 * 1", "44 + 19 + 35", "63 + 96 - 95", "95 + 11 - (56 + 40)"],
    "reasoning_gym": [f"<answer>{sum_}</answer>" for sum_ in (7, 1692, 90, 100, 15)],
    "ifeval": [
        "A lake lies still between the hills.",
        "Flour and water rise in a hot oven.",
        "a cup of tea in the morning warms both hands and heart.",
        "* The Rhine\n* The Nile",
        "Now, then, that is all.",
    ],
}


def fixture_of(name):
    return DataConfig.model_validate({"recipe": name, "path": str(FIXTURES / f"{name}.jsonl")})


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_follows_its_schema(name):
    recipe = load_recipe(name)
    assert set(Recipe.model_fields) >= set(recipe.model_dump())
    data = DataConfig.model_validate({"recipe": name})
    assert (data.label, data.verifier) == (name, recipe.data["verifier"])
    assert data.split in recipe.splits.values()
    assert recipe.homepage.startswith("https://")
    for split in (*recipe.sizes, *recipe.digests):
        assert split in recipe.splits.values()
    if "/" in data.path:
        assert re.fullmatch("[0-9a-f]{40}", data.revision or "")
    for fixed in ("limit", "weight", "name"):
        assert fixed not in recipe.data


@functools.cache
def encoder():
    return PromptEncoder(find_model("embedded:quickstart"))


@pytest.mark.parametrize("name", recipe_names())
def test_five_published_rows_load_and_render(name):
    problems = load_problems(fixture_of(name))
    assert len(problems) == 5
    assert len({problem.id for problem in problems}) == 5
    rows = [row for _, row in read_rows(fixture_of(name))]
    for problem, row in zip(problems, rows, strict=True):
        assert "{" + fixture_of(name).columns.prompt + "}" not in str(problem.prompt)
        assert str(row.get(fixture_of(name).columns.prompt, "")) in problem.prompt
        assert encoder().encode(problem)


def completions_of(name, options):
    wrap = "<answer>{}</answer>" if options.get("extraction") == "answer_tag" else "{}"
    return [wrap.format(text) for text in RIGHT[name]]


# Those of code are judged in the sandbox: tests/integration/test_code_recipes.py.
WITHOUT_SANDBOX = [n for n in recipe_names() if load_recipe(n).data["verifier"] != "code"]


@pytest.mark.parametrize("name", WITHOUT_SANDBOX)
def test_five_published_rows_verify(name):
    data = fixture_of(name)
    problems = load_problems(data)
    if data.verifier == "reasoning_gym":
        pytest.importorskip("reasoning_gym")
    judge = Judge({str(data.verifier): data.verifier_options})
    try:
        for problem in problems:
            judge.prepare(problem)
        checks = [check_gold(problem, judge, data.verifier_options) for problem in problems]
        assert [check for check in checks if check.fault] == []
        if name not in RIGHT and all(check.tried for check in checks):
            return
        right = completions_of(name, data.verifier_options)
        for index, problem in enumerate(problems):
            wrong = right[index - 1]
            for completion, expected in ((right[index], True), (wrong, False)):
                verdict = judge.verify(Submission(problem=problem, completion=completion))
                assert verdict.verified
                assert (verdict.status is Status.CORRECT) == expected, (verdict, completion)
    finally:
        judge.close()


def test_a_set_may_be_named_alone_and_gets_the_split_of_its_place():
    config = RunConfig.model_validate(
        {
            "model": "m",
            "data": ["gsm8k", {"recipe": "math", "weight": 2}],
            "evaluation": {"data": "gsm8k"},
        }
    )
    assert [data.label for data in config.data] == ["gsm8k_train", "math_train"]
    assert [data.split for data in config.data] == ["train", "train"]
    (held_out,) = config.evaluation.data
    assert (held_out.label, held_out.split) == ("gsm8k", "test")


def test_what_is_said_beside_a_recipe_wins_and_the_resolved_set_reads_back_the_same():
    data = DataConfig.model_validate(
        {"recipe": "gsm8k", "path": "mine.jsonl", "prompt_template": "{question}", "name": "g"}
    )
    assert (data.path, data.prompt_template, data.label) == ("mine.jsonl", "{question}", "g")
    assert data.answer_after == "####"
    assert DataConfig.model_validate(data.model_dump(mode="json")) == data


def test_an_unknown_recipe_gives_the_nearest_names():
    with pytest.raises(UserError, match=r"no recipe 'gms8k'. Did you mean gsm8k"):
        merge_recipe({"recipe": "gms8k"})


@pytest.mark.parametrize(
    ("recipe", "file", "rows"),
    [
        ("gsm8k", "gsm8k/test.jsonl", 1319),
        ("math500", "math500/test.jsonl", 500),
    ],
)
def test_public_data_loads_by_recipe_with_every_gold_readable(data_dir, recipe, file, rows):
    data = DataConfig.model_validate({"recipe": recipe, "path": str(data_dir / file)})
    problems = load_problems(data)
    assert len(problems) == rows == load_recipe(recipe).sizes["test"]
    judge = Judge({"math": {}})
    try:
        faults = [c for p in problems if (c := check_gold(p, judge, {})).fault is not None]
    finally:
        judge.close()
    assert not faults
