"""Functions of other trainers as verifiers, and verifiers as functions of other trainers."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from verifiers.adapters import (
    as_rubric_function,
    as_trl_reward,
    as_verl_batch_scores,
    as_verl_compute_score,
)
from verifiers.adapters.foreign import read_completion
from verifiers.errors import BadReference, UserError
from verifiers.problem import Problem, Submission
from verifiers.registry import build_verifier
from verifiers.verdict import Reason, Status

TRL_REWARDS = """
def accuracy_reward(completions, solution, **kwargs):
    texts = [c[0]["content"] if isinstance(c, list) else c for c in completions]
    return [None if s == "?" else float(t == s) for t, s in zip(texts, solution, strict=True)]

def from_the_rest(prompts, completions, **kwargs):
    assert kwargs["log_extra"]("seen", [1]) is None
    return [kwargs["level"][0] * float(completions[0] == kwargs["ground_truth"][0])]

async def patient(prompts, completions, level, answer, trainer_state=None):
    assert trainer_state is None
    return [float(level[0])]

def two_for_one(completions, **kwargs): return [1.0, 1.0]
def of_tokens(completions, completion_ids): return [1.0]
"""

VERL_SCORES = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert extra_info["level"] == 3
    return {"score": 1.0 if solution_str == ground_truth else -1.0, "acc": 0}

def plain(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    assert data_source == "gsm8k" and extra_info == {"index": 7}
    return solution_str == ground_truth

async def later(data_source, solution_str, ground_truth): return 0.5
"""

RUBRICS = """
def exact(completion, answer, state):
    state["seen"] = True
    return 1.0 if completion[-1]["content"] == answer else 0.0

async def informed(prompt, completion, info, task, **kwargs):
    return info["bonus"] if task == "sums" else 0.0

def parses(parser, completion): return 1.0
"""

Prompt = str | tuple[dict[str, str], ...]
CHAT = ({"role": "user", "content": "1+1?"},)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "rewards.py").write_text(TRL_REWARDS)
    (folder / "scores.py").write_text(VERL_SCORES)
    (folder / "rubrics.py").write_text(RUBRICS)
    return folder


@pytest.fixture
def closing():
    opened = []

    def keep(function):
        opened.append(function)
        return function

    yield keep
    for function in opened:
        function.close()


def judge(spec, completion, *, gold="2", prompt: Prompt = "1+1?", columns=None):
    verifier = build_verifier(spec, {})
    problem = Problem(
        id="p", prompt=prompt, verifier=spec, reference=gold, source="rows:1", columns=columns or {}
    )
    try:
        verifier.prepare(problem)
        return verifier.verify(Submission(problem=problem, completion=completion))
    finally:
        verifier.close()


@pytest.mark.parametrize("prompt", ["1+1?", CHAT])
def test_a_trl_reward_function_judges_texts_and_chats(folder, prompt):
    spec = f"trl:{folder}/rewards.py:accuracy_reward"
    assert judge(spec, "2", prompt=prompt).status is Status.CORRECT
    assert judge(spec, "3", prompt=prompt).status is Status.INCORRECT


def test_none_of_a_trl_reward_function_is_not_a_zero(folder):
    verdict = judge(f"trl:{folder}/rewards.py:accuracy_reward", "2", gold="?")
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.ABSTAINED)


def test_a_trl_reward_function_finds_columns_among_its_keywords(folder):
    spec = f"trl:{folder}/rewards.py:from_the_rest"
    assert judge(spec, "2", columns={"level": 0.5}).score == 0.5
    other_gold = judge(spec, "9", columns={"level": 0.5, "ground_truth": "9"})
    assert other_gold.score == 0.5


def test_an_asynchronous_trl_reward_function_and_a_missing_column(folder):
    spec = f"trl:{folder}/rewards.py:patient"
    assert judge(spec, "2", columns={"level": 1}).status is Status.CORRECT
    with pytest.raises(BadReference, match="'level'"):
        judge(spec, "2")


def test_a_wrong_number_of_rewards_is_an_error(folder):
    verdict = judge(f"trl:{folder}/rewards.py:two_for_one", "2")
    assert verdict.status is Status.ERROR
    assert "2 rewards for one completion" in (verdict.detail or "")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("trl:{folder}/rewards.py:of_tokens", "'completion_ids'.*token ids"),
        ("rubric:{folder}/rubrics.py:parses", "'parser'"),
        ("trl:{folder}/rewards.py:nothing", "no function 'nothing'"),
    ],
)
def test_what_only_the_other_trainer_has_is_refused_at_the_start(folder, spec, message):
    with pytest.raises(UserError, match=message):
        build_verifier(spec.format(folder=folder), {})


def test_verl_scores(folder):
    spec = f"verl:{folder}/scores.py:compute_score"
    assert judge(spec, "2", columns={"level": 3}).score == 1.0
    wrong = judge(spec, "3", columns={"level": 3})
    assert (wrong.status, wrong.score) == (Status.INCORRECT, -1.0)
    columns = {"data_source": "gsm8k", "extra_info": {"index": 7}}
    assert judge(f"verl:{folder}/scores.py:plain", "2", columns=columns).status is Status.CORRECT
    assert judge(f"verl:{folder}/scores.py:later", "2").score == 0.5


def test_rubric_functions(folder):
    assert judge(f"rubric:{folder}/rubrics.py:exact", "2", prompt=CHAT).status is Status.CORRECT
    columns = {"info": {"bonus": 0.75}, "task": "sums"}
    assert judge(f"rubric:{folder}/rubrics.py:informed", "2", columns=columns).score == 0.75


def test_as_trl_reward(closing):
    reward = closing(as_trl_reward("math", {"extraction": "boxed"}))
    assert inspect.isfunction(reward)
    assert reward.__name__ == "math"
    logged = {}
    rewards = reward(
        prompts=["a", list(CHAT), "c", "d"],
        completions=[
            "\\boxed{2}",
            [{"role": "assistant", "content": "\\boxed{3}"}],
            "none",
            "\\boxed{1}",
        ],
        solution=["2", "2", "2", "\\begin{cases}"],
        completion_ids=[[1], [2], [3], [4]],
        trainer_state=None,
        log_extra=logged.__setitem__,
        log_metric=logged.__setitem__,
    )
    assert rewards == [1.0, 0.0, 0.0, None]
    assert logged["verdict"] == ["correct", "incorrect", "no_answer", "bad_gold"]
    assert logged["reason"][2] == "no_box"
    assert logged["unverified_share"] == 0.25


def test_as_trl_reward_names_the_columns_there_are(closing):
    reward = closing(as_trl_reward("math", gold_column="gold", name="right"))
    assert reward.__name__ == "right"
    with pytest.raises(UserError, match=r"'gold'.*answer, level"):
        reward(prompts=["a"], completions=["b"], answer=["1"], level=[1])


def test_a_users_function_travels_to_trl_with_its_columns(closing, tmp_path):
    checks = tmp_path / "checks.py"
    checks.write_text("def near(completion, answer, slack): return abs(answer - 5) <= slack\n")
    reward = closing(as_trl_reward(f"{checks}:near", gold_column="answer"))
    assert reward.__name__ == "near"
    assert reward(prompts=["", ""], completions=["", ""], answer=[6, 6], slack=[2, 0]) == [1.0, 0.0]


def test_as_verl_compute_score_has_the_same_keys_on_every_row(closing):
    compute_score = closing(as_verl_compute_score("math"))
    right = compute_score("math", "\\boxed{2}", "2", {"index": 1})
    wrong = compute_score("math", "no box", "2")
    broken = compute_score(
        data_source="math", solution_str="\\boxed{2}", ground_truth="\\begin{cases}", extra_info={}
    )
    assert right == {
        "score": 1.0, "acc": 1.0, "valid": 1, "pred": "2", "verdict": "correct",
        "reason": "equal.text",
    }  # fmt: skip
    assert right.keys() == wrong.keys() == broken.keys()
    assert (wrong["score"], wrong["valid"], wrong["reason"]) == (0.0, 1, "no_box")
    assert (broken["score"], broken["valid"], broken["verdict"]) == (0.0, 0, "bad_gold")


def test_as_verl_batch_scores(closing):
    scores = closing(as_verl_batch_scores("math"))(
        data_sources=["a", "a"],
        solution_strs=["\\boxed{2}", "\\boxed{3}"],
        ground_truths=["2", "2"],
        extra_infos=[None, {}],
    )
    assert [score["score"] for score in scores] == [1.0, 0.0]


@pytest.fixture
def share(tmp_path):
    """A function that judges a group: the share of its completions that say the same."""
    path = tmp_path / "groups.py"
    path.write_text(
        "def share(completions, answer):\n"
        "    return [completions.count(text) / len(completions) for text in completions]\n"
    )
    return f"{path}:share"


def test_completions_of_one_prompt_are_a_group_in_trl(closing, share):
    reward = closing(as_trl_reward(share))
    rewards = reward(
        prompts=["p", "p", "q", "q"], completions=["a", "a", "a", "b"], solution=["1"] * 4
    )
    assert rewards == [1.0, 1.0, 0.5, 0.5]


def test_completions_of_one_index_are_a_group_in_verl(closing, share):
    scores = closing(as_verl_batch_scores(share))(
        data_sources=["s"] * 4,
        solution_strs=["a", "a", "b", "a"],
        ground_truths=["1"] * 4,
        extra_infos=[{"index": 0}, {"index": 1}, {"index": 1}, None],
    )
    assert [score["score"] for score in scores] == [1.0, 0.5, 0.5, 1.0]


def test_as_rubric_function_says_in_the_state_what_was_found(closing):
    reward = closing(as_rubric_function("math"))
    assert inspect.iscoroutinefunction(reward)
    state, broken = {}, {}
    completion = [{"role": "assistant", "content": "\\boxed{2}"}]
    assert asyncio.run(reward(list(CHAT), completion, "2", state, parser=object())) == 1.0
    assert state["verigrad"] == {
        "status": "correct", "reason": "equal.text", "extracted": "2", "verified": True,
    }  # fmt: skip
    assert asyncio.run(reward("p", "\\boxed{2}", "\\begin{cases}", broken)) == 0.0
    assert broken["verigrad"]["verified"] is False


def test_the_last_assistant_turn_is_the_completion():
    turns = [
        {"role": "assistant", "content": "first"},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "image"}]},
    ]
    assert read_completion(turns) == "a"
    assert read_completion(turns[:2]) == "first"
    assert read_completion([{"role": "assistant", "content": None}]) == ""
    assert read_completion([]) == ""
    with pytest.raises(UserError, match="int"):
        read_completion(5)
