"""The table of presets is made of finished runs, and names what is wrong with its arguments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from grpo.evaluation.scores import EvaluationResult, score_set
from grpo.values import Rollout, ScoredGroup, ScoredRollout
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict

ROOT = Path(__file__).resolve().parents[3]
RIGHT = Verdict(status=Status.CORRECT, score=1.0, reason=Reason.EQUAL_TEXT, verifier="t@1")
WRONG = Verdict(status=Status.INCORRECT, score=0.0, reason=Reason.DIFFERENT, verifier="t@1")


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "benchmarks/presets.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def make_group(problem_id: str, num_right: int) -> ScoredGroup:
    problem = Problem(id=problem_id, prompt="?", verifier="t", reference="1", source="f:1")
    return ScoredGroup(
        problem=problem,
        members=tuple(
            ScoredRollout(
                rollout=Rollout(
                    problem_id=problem_id,
                    member=member,
                    prompt_ids=(1,),
                    completion_ids=(2,),
                    logprobs=(-0.1,),
                    text="",
                    finish_reason="stop",
                    policy_versions=(0,),
                    seed=0,
                ),
                verdict=RIGHT if member < num_right else WRONG,
                reward=float(member < num_right),
            )
            for member in range(4)
        ),
    )


def write_run(folder: Path, after: int) -> None:
    evaluations = folder / "evaluations"
    evaluations.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({"complete": True}))
    for step, num_right in ((0, 1), (40, after)):
        groups = [make_group(f"p{i}", num_right) for i in range(3)]
        result = EvaluationResult(
            step=step,
            policy_version=step,
            model="m",
            temperature=1.0,
            top_p=1.0,
            max_completion_length=8,
            seed=0,
            seconds=1.0,
            sets=(score_set("maths", groups, num_samples=4, ks=(1,), seed=0),),
        )
        (evaluations / f"step-{step:06}.json").write_text(result.model_dump_json())


def test_finished_runs_become_rows_with_intervals_and_a_mean(tmp_path):
    write_run(tmp_path / "dapo-0", after=4)
    write_run(tmp_path / "dapo-1", after=2)
    done = run_script("--presets", "dapo", "--seeds", "0", "1", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "| `loss_type` | seed | maths before | maths after 40 steps |",
        "| --- | --- | --- | --- |",
        "| `dapo` | 0 | 0.250 [0.000, 0.906] | 1.000 [0.292, 1.000] |",
        "| `dapo` | 1 | 0.250 [0.000, 0.906] | 0.500 [0.008, 0.992] |",
        "| `dapo` | mean of 2 | 0.250 | 0.750 |",
    ]


def test_the_page_says_how_it_was_made(tmp_path):
    write_run(tmp_path / "gspo-0", after=3)
    page = tmp_path / "page.md"
    arguments = ["--presets", "gspo", "--seeds", "0", "--output", str(tmp_path)]
    done = run_script(*arguments, "--page", str(page))
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert text.endswith(f"```\n\n{done.stdout}")
    assert f"benchmarks/presets.py {' '.join(arguments)} --page {page}\n" in text
    assert "40 steps" in text
    assert "The lowest at the end: maths 0.750 (`gspo`, seed 0)." in text


def test_what_is_no_override_is_named(tmp_path):
    done = run_script("--output", str(tmp_path), "steps")
    assert done.returncode == 2
    assert "'steps' is not of the form key=value" in done.stderr
