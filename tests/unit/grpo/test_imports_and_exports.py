"""Completions of other programs in, and lm-evaluation-harness's files out."""

from __future__ import annotations

import json

import pytest

from grpo.cli import main
from grpo.evaluation.folder import write_result
from grpo.evaluation.imports import Completion, StoredPool, read_completions
from grpo.evaluation.scores import EvaluationResult, ProblemScore, SetScore, estimate_all
from grpo.values import RolloutRequest, SamplingOptions
from verifiers.errors import UserError
from verifiers.problem import Problem

PROBLEMS = [
    Problem(id=f"he/HumanEval/{i}", prompt="?", verifier="code", reference="1", source=f"f:{i}")
    for i in range(2)
]
SHAPES = {
    "ours": [
        {"problem_id": "he/HumanEval/0", "completion": "a"},
        {"problem_id": "he/HumanEval/0", "completion": "b"},
        {"problem_id": "he/HumanEval/1", "completion": "c"},
    ],
    "evalplus": [
        {"task_id": "HumanEval/0", "completion": ["a", "b"]},
        {"task_id": "HumanEval/1", "completion": "c"},
    ],
    "lm-eval": [
        {"doc_id": 1, "doc": {}, "target": "x", "resps": [["c"]], "filtered_resps": ["c"]},
        {"doc_id": 0, "doc": {}, "target": "x", "resps": [["a", "b"]], "filtered_resps": ["a"]},
    ],
    "lighteval": [
        {"doc": {"query": "?"}, "model_response": {"text": ["a", "b"]}, "metric": {}},
        {"doc": {"query": "?"}, "model_response": {"text": ["c"]}, "metric": {}},
    ],
    "older lighteval": [
        {"example": "?", "predictions": ["a", "b"], "gold": ["x"]},
        {"example": "?", "predictions": ["c"], "gold": ["x"]},
    ],
}


def texts(found):
    return {name: [completion.text for completion in own] for name, own in found.items()}


def write(tmp_path, rows):
    file = tmp_path / "completions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize("shape", SHAPES)
def test_sample_files_are_read_in_their_own_shape(tmp_path, shape):
    found, passed_over = read_completions(write(tmp_path, SHAPES[shape]), PROBLEMS)
    assert texts(found) == {"he/HumanEval/0": ["a", "b"], "he/HumanEval/1": ["c"]}
    assert not passed_over


def test_whole_programs_of_evalplus_become_code_blocks(tmp_path):
    rows = [{"task_id": "HumanEval/1", "solution": "def f(): pass"}, {"task_id": "X/9", "text": ""}]
    found, passed_over = read_completions(write(tmp_path, rows), PROBLEMS)
    assert texts(found)["he/HumanEval/1"] == ["```python\ndef f(): pass\n```"]
    assert passed_over == {"of no problem": 1}


@pytest.mark.parametrize(
    ("row", "fragment"),
    [({"id": "he/HumanEval/0", "score": 1}, "no completion"), ({"id": "z", "text": "a"}, "'z'")],
)
def test_files_that_do_not_fit_are_refused(tmp_path, row, fragment):
    with pytest.raises(UserError, match=fragment):
        read_completions(write(tmp_path, [row]), PROBLEMS)


def test_a_missing_completion_is_an_abort_with_a_reason():
    pool = StoredPool({"p": [Completion("a"), Completion("b", truncated=True)]})
    request = RolloutRequest(problem_id="p", prompt_ids=(), seeds=(1, 2, 3))
    sampling = SamplingOptions(max_completion_length=1, stop_token_ids=())
    first, second, third = pool.generate([request], sampling)
    assert (first.text, first.finish_reason) == ("a", "stop")
    assert (second.text, second.truncated) == ("b", True)
    assert third.finish_reason == "abort"
    assert "no such completion" in pool.explain(third)[1]


def test_our_own_samples_say_which_were_cut_off(tmp_path):
    rows = [
        {"problem_id": "he/HumanEval/0", "text": "a", "finish_reason": reason}
        for reason in ("stop", "length")
    ]
    found, _ = read_completions(write(tmp_path, rows), PROBLEMS)
    assert found["he/HumanEval/0"] == [Completion("a"), Completion("a", truncated=True)]


def test_an_export_has_the_form_of_lm_eval(tmp_path, capsys):
    problems = tuple(
        ProblemScore(
            problem_id=f"s/{i}",
            num_samples=2,
            num_correct=count,
            num_unverified=0,
            num_truncated=0,
            num_no_answer=0,
        )
        for i, count in enumerate([2, 1])
    )
    score = SetScore(
        name="s",
        num_problems=2,
        num_samples=2,
        pass_at_k=estimate_all("pass@", problems, [1, 2], 0),
        num_left_out=0,
        unverified_fraction=0.0,
        truncated_fraction=0.0,
        no_answer_fraction=0.0,
        mean_completion_length=1.0,
        graders=("math@1",),
        problems=problems,
    )
    result = EvaluationResult(
        step=0,
        policy_version=0,
        model="m",
        temperature=0.0,
        top_p=1.0,
        max_completion_length=4,
        seed=0,
        seconds=1.0,
        sets=(score,),
    )
    write_result(tmp_path, result)
    rows = [
        {
            "problem_id": f"s/{i}",
            "member": member,
            "status": status,
            "text": "t",
            "extracted": "e",
            "prompt": "q",
            "reference": "r",
        }
        for i in (1, 0)
        for member, status in ((1, "correct"), (0, "correct" if i == 0 else "incorrect"))
    ]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    target = tmp_path / "out"
    assert main(["export", str(tmp_path), "--output", str(target)]) == 0
    results = json.loads((target / "results.json").read_text())
    metrics = results["results"]["s"]
    assert metrics["exact_match,none"] == metrics["pass@1,none"] == 0.75
    assert metrics["exact_match_stderr,none"] == pytest.approx(0.25)
    assert results["n-samples"]["s"]["effective"] == 2
    samples = [json.loads(line) for line in (target / "samples_s.jsonl").read_text().splitlines()]
    assert [(row["doc_id"], row["exact_match"]) for row in samples] == [(0, 1.0), (1, 0.5)]
    exported = target / "samples_s.jsonl"
    asked = [
        Problem(id=f"s/{i}", prompt="q", verifier="math", reference="r", source="f")
        for i in range(2)
    ]
    assert texts(read_completions(exported, asked)[0]) == {"s/0": ["t", "t"], "s/1": ["t", "t"]}
