"""What the quickstart ships: two problem sets and the policy that learns from them."""

from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sandbox.limits import Limits
from sandbox.suite import FunctionTest
from sandbox.suite_reader import read_suite

ROOT = Path(__file__).resolve().parents[3]
POLICY = ROOT / "grpo" / "bundled" / "quickstart_policy"
SETS = ("quickstart_maths", "quickstart_code")
FILES = [f"{name}/{split}.jsonl" for name in SETS for split in ("train", "heldout")]
MAX_COMPLETION_LENGTH = 24


def read(file: str) -> list[dict[str, Any]]:
    lines = (ROOT / "datasets" / file).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def question(row: dict[str, Any]) -> str:
    (message,) = row["prompt"]
    assert message["role"] == "user"
    return message["content"]


def passes(source: str, row: dict[str, Any]) -> bool:
    """Run text that is in the repository, never a policy's, on a row's hidden tests."""
    scope: dict[str, Any] = {}
    try:
        exec(source.removeprefix("```python\n").removesuffix("\n```"), scope)
        function = scope[row["tests"]["entry_point"]]
        return all(function(*t["args"]) == t["expected"] for t in row["tests"]["tests"])
    except (SyntaxError, TypeError, AttributeError):
        return False


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("quickstart_tasks")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(POLICY)


@pytest.fixture(scope="module")
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32).eval()


def test_the_script_reproduces_the_committed_problems_byte_for_byte(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "make_quickstart_problems.py"
    subprocess.run([sys.executable, script, "--out", tmp_path], check=True, capture_output=True)
    for file in FILES:
        assert (tmp_path / file).read_bytes() == (ROOT / "datasets" / file).read_bytes(), file


def test_another_seed_gives_other_problems(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "make_quickstart_problems.py"
    command = [sys.executable, script, "--out", tmp_path, "--seed", "1"]
    subprocess.run(command, check=True, capture_output=True)
    for file in FILES:
        assert (tmp_path / file).read_bytes() != (ROOT / "datasets" / file).read_bytes(), file


def test_the_policy_is_made_of_nothing_but_seed_and_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = importlib.import_module("make_quickstart_policy")
    for run, seed in (("a", 0), ("b", 0), ("c", 1)):
        model, tokenizer, _ = script.make_policy(
            ROOT / "datasets", seed=seed, num_steps=2, batch_size=4, peak_lr=1e-3
        )
        script.write_policy(tmp_path / run, model, tokenizer, {"seed": seed})
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in "abc"]
    assert weights[0] == weights[1] != weights[2]
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"):
        assert (tmp_path / "a" / file).read_bytes() == (POLICY / file).read_bytes(), file


@pytest.mark.parametrize("name", SETS)
def test_no_held_out_problem_is_trained_on(name: str) -> None:
    train, heldout = read(f"{name}/train.jsonl"), read(f"{name}/heldout.jsonl")
    rows = [*train, *heldout]
    assert len(heldout) >= 150
    assert len(train) >= 600
    assert len({row["id"] for row in rows}) == len(rows)
    assert len({question(row) for row in rows}) == len(rows)


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_every_sum_is_right(split: str) -> None:
    for row in read(f"quickstart_maths/{split}.jsonl"):
        a, b = question(row).removesuffix("=").split("+")
        assert row["verifier"] == "math"
        assert int(row["answer"]) == int(a) + int(b)
        assert 10 <= int(a) <= 99
        assert 10 <= int(b) <= 99


@pytest.mark.parametrize("split", ["train", "heldout"])
@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # forgotten brackets: `2*3[::-1]`
def test_hidden_tests_pass_the_solution_and_fail_every_careless_version(
    split: str, tasks: ModuleType
) -> None:
    functions = {f.prompt: f for family in tasks.FAMILIES for f in family.functions()}
    rows = read(f"quickstart_code/{split}.jsonl")
    brackets_matter = 0
    for row in rows:
        function = functions[question(row)]
        no_brackets = function.expression(brackets=False)
        no_second_step = function.expression(second_step=False)
        suite = read_suite(row["tests"], Limits())
        calls = [tuple(test["args"]) for test in row["tests"]["tests"]]
        assert row["verifier"] == "code"
        assert len(suite.tests) == len(calls)
        assert all(isinstance(test, FunctionTest) for test in suite.tests)
        assert len(set(calls)) == len(calls) >= 4
        assert passes(row["solution"], row), row["id"]
        assert not passes(function.source(returns=False), row), row["id"]
        assert not passes(function.source(expression=no_second_step), row), row["id"]
        brackets_matter += not passes(function.source(expression=no_brackets), row)
    assert brackets_matter > 0.15 * len(rows)


def test_missing_brackets_are_caught_wherever_they_change_the_function(tasks: ModuleType) -> None:
    functions = {f.prompt: f for family in tasks.FAMILIES for f in family.functions()}
    row = next(r for r in read("quickstart_code/train.jsonl") if ")*" in r["solution"])
    function = functions[question(row)]
    assert not passes(function.source(expression=function.expression(brackets=False)), row)


def test_careless_demonstrations_mix_the_right_way_with_every_habit(tasks: ModuleType) -> None:
    addition = tasks.Addition(a=37, b=48)
    rng = random.Random(0)
    seen = Counter(addition.careless(rng) for _ in range(400))
    assert set(seen) == {
        "7+8=15,3+4+1=8,\\boxed{85}",
        "7+8=15,3+4+1=8,85",
        "7+8=15,3+4=7,\\boxed{75}",
        "7+8=15,3+4=7,75",
    }
    assert min(seen.values()) > 20


def test_the_policy_is_small_tied_and_float32(model: Any) -> None:
    assert (POLICY / "model.safetensors").stat().st_size <= 3_000_000
    assert model.config.model_type == "qwen2"
    assert model.config.tie_word_embeddings
    assert model.config.dtype == torch.float32
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_end_and_padding_agree_everywhere(model: Any, tokenizer: Any) -> None:
    end = tokenizer.convert_tokens_to_ids("<|end|>")
    assert end == tokenizer.eos_token_id == model.config.eos_token_id
    assert end == model.generation_config.eos_token_id
    assert tokenizer.pad_token_id == model.config.pad_token_id != end
    assert len(tokenizer) == model.config.vocab_size


def test_the_chat_template_marks_the_roles(tokenizer: Any) -> None:
    talk = [
        {"role": "user", "content": "37+48="},
        {"role": "assistant", "content": "\\boxed{85}"},
        {"role": "user", "content": "f(x): square, then negate"},
    ]
    text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|user|>37+48=<|end|><|assistant|>\\boxed{85}<|end|>"
        "<|user|>f(x): square, then negate<|end|><|assistant|>"
    )
    with pytest.raises(Exception, match="only the roles user and assistant"):
        tokenizer.apply_chat_template([{"role": "tool", "content": "1"}], tokenize=False)


@pytest.mark.parametrize("file", FILES)
def test_questions_and_answers_survive_the_tokenizer(file: str, tokenizer: Any) -> None:
    for row in read(file):
        for text in (question(row), row.get("solution", row.get("answer"))):
            ids = tokenizer.encode(text)
            assert tokenizer.unk_token_id not in ids
            assert tokenizer.decode(ids) == text


def test_every_right_answer_fits_the_completion_length(tokenizer: Any, tasks: ModuleType) -> None:
    additions = (tasks.Addition(a=a, b=b).worked() for a in range(10, 100) for b in range(10, 100))
    codes = (f.source() for family in tasks.FAMILIES for f in family.functions())
    longest = max(len(tokenizer.encode(text)) for text in (*additions, *codes))
    assert longest + 1 <= MAX_COMPLETION_LENGTH  # and the end token


@torch.no_grad()
def answer(model: Any, tokenizer: Any, rows: list[dict[str, Any]]) -> list[str]:
    prompts = [
        tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
        for row in rows
    ]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        output = model.generate(**inputs, max_new_tokens=MAX_COMPLETION_LENGTH)
    return tokenizer.batch_decode(
        output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
    )


def test_the_policy_is_right_often_enough_to_learn_and_wrong_often_enough_to_have_to(
    model: Any, tokenizer: Any
) -> None:
    maths = read("quickstart_maths/heldout.jsonl")
    code = read("quickstart_code/heldout.jsonl")
    boxed = [
        text.endswith(f"\\boxed{{{row['answer']}}}")
        for row, text in zip(maths, answer(model, tokenizer, maths), strict=True)
    ]
    as_solved = [
        text == row["solution"]
        for row, text in zip(code, answer(model, tokenizer, code), strict=True)
    ]
    assert 0.25 < sum(boxed) / len(boxed) < 0.55
    assert 0.15 < sum(as_solved) / len(as_solved) < 0.60
