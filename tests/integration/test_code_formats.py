"""Samples of every published format of code data, judged in real containers as training would."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from grpo.cli import main
from grpo.config.data import DataConfig
from grpo.data.problems import load_problems
from sandbox.engine import Engine
from sandbox.owner import LABEL, Owner
from verifiers.code import CodeVerifier
from verifiers.problem import Problem, Submission
from verifiers.verdict import Status

SAMPLES = Path(__file__).resolve().parents[1] / "code_samples"
# What comes after a right program and makes it a wrong one, whatever it is asked to do.
SPOILER = """
print("more than was asked for")
def _spoil(one):
    return lambda *arguments, **keywords: [one(*arguments, **keywords), "more"]
for _name, _value in list(globals().items()):
    if isinstance(_value, type) and _name == "Solution":
        for _method, _body in list(vars(_value).items()):
            if not _method.startswith("_"):
                setattr(_value, _method, _spoil(_body))
    elif callable(_value) and getattr(_value, "__module__", None) == __name__:
        globals()[_name] = _spoil(_value) if _name != "_spoil" else _value
"""


@pytest.fixture(scope="module")
def verifier() -> Iterator[CodeVerifier]:
    with closing(CodeVerifier(pool_size=2, extract="text")) as one:
        one.start()
        yield one


def programs() -> Iterator[tuple[Problem, str]]:
    """Each sample with a program that solves it."""
    for file in sorted(SAMPLES.glob("*.jsonl")):
        if not file.stem.endswith(".solutions") and file.stem != "livecodebench":
            data = DataConfig(path=str(file), name=file.stem, verifier="code")
            for problem in load_problems(data):
                yield problem, problem.columns["solution"]


def test_every_reference_solution_is_right_and_a_spoilt_one_is_wrong(verifier) -> None:
    known = list(programs())
    assert len(known) == 5 * 15
    for problem, _ in known:
        verifier.prepare(problem)
    texts = [(problem, text) for problem, right in known for text in (right, right + SPOILER)]
    with ThreadPoolExecutor(4) as threads:
        verdicts = list(
            threads.map(
                lambda one: verifier.verify(Submission(problem=one[0], completion=one[1])), texts
            )
        )
    rejected = {known[i // 2][0].id: one for i, one in enumerate(verdicts) if i % 2 == 0}
    assert {i: v for i, v in rejected.items() if v.status is not Status.CORRECT} == {}
    accepted = {known[i // 2][0].id: one for i, one in enumerate(verdicts) if i % 2 == 1}
    assert {i: v for i, v in accepted.items() if v.status is not Status.INCORRECT} == {}


def judge(capfd, *arguments: object) -> tuple[int, str, str]:
    status = main(["sandbox", "judge", *map(str, arguments), "--pool-size", "1"])
    return status, *capfd.readouterr()


def test_solutions_of_a_file_are_judged_one_object_a_line(tmp_path, capfd) -> None:
    data, solutions = SAMPLES / "livecodebench.jsonl", SAMPLES / "livecodebench.solutions.jsonl"
    status, out, _ = judge(
        capfd, "livecodebench", "--data", data, "--solutions", solutions, "--json"
    )
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [line["id"] for line in lines] == [f"sample_{i}" for i in range(5)]
    for line in lines:
        assert list(line) == ["id", "verdict", "tests_passed", "tests_total", "cpu_s", "wall_s"]
        assert (line["verdict"], line["tests_passed"], line["tests_total"]) == ("AC", 3, 3)
        assert 0 < line["cpu_s"] < 10
        assert 0 < line["wall_s"] < 60
    some = tmp_path / "some.jsonl"
    rows = [
        {"task_id": "sample_0", "solution": "a, b = input().split()\nprint(max(a, b))"},
        {"id": "sample_0", "completion": "I do not know."},
        {"id": "sample_3", "completion": "```python\nclass Solution:\n```"},
    ]
    some.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, out, _ = judge(capfd, "auto", "--data", data, "--solutions", some, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 1
    assert [line["verdict"] for line in lines] == ["WA", "NO_ANSWER", "CE"]
    assert [(line["tests_passed"], line["tests_total"]) for line in lines] == [
        (0, 3), (0, 3), (0, 3),
    ]  # fmt: skip


def test_an_interrupt_ends_it_and_leaves_no_container(tmp_path) -> None:
    solutions = tmp_path / "endless.jsonl"
    solutions.write_text('{"id": "0", "solution": "while True: pass"}\n' * 20)
    command = [
        "sandbox",
        "judge",
        "apps",
        "--data",
        SAMPLES / "apps.jsonl",
        "--solutions",
        solutions,
    ]
    short = ["--stop-early", "--cpu-s", "0.5"]
    process = subprocess.Popen(
        [sys.executable, "-m", "grpo", *map(str, command), "--json", "--pool-size", "1", *short],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())  # the second program is running
    assert (first["verdict"], first["tests_passed"]) == ("TLE", 0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    with closing(Engine()) as engine:
        owners = [Owner.from_labels(one.labels) for one in engine.list_labelled(LABEL)]
    assert process.pid not in {one.pid for one in owners if one is not None}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["human_eval", "--data", "x", "--solutions", "reference"], "Did you mean 'humaneval'?"),
        (["apps", "--data", "none.jsonl", "--solutions", "reference"], "does not exist"),
        (["apps", "--data", SAMPLES / "mbpp.jsonl", "--solutions", "reference"], "'question'"),
        (["apps", "--data", SAMPLES / "apps.jsonl", "--solutions", "none.jsonl"], "no file"),
        (
            ["auto", "--data", SAMPLES / "livecodebench.jsonl", "--solutions", "reference"],
            "No row has a reference solution",
        ),
        (
            [
                "apps", "--data", SAMPLES / "apps.jsonl",
                "--solutions", SAMPLES / "livecodebench.solutions.jsonl",
            ],
            "there is no problem 'sample_0'",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_one_paragraph_and_exit_code_2(arguments, said, capfd) -> None:
    status, _, err = judge(capfd, *arguments)
    assert status == 2
    assert said in err
    assert "Traceback" not in err


def test_reference_solutions_are_judged_and_summed_up(tmp_path, capfd) -> None:
    rows = (SAMPLES / "apps.jsonl").read_text().splitlines()
    data = tmp_path / "apps.jsonl"
    none = json.dumps({"question": "?", "input_output": "", "solutions": '["x"]'})
    unsolved = json.dumps({**json.loads(rows[0]), "problem_id": 9, "solutions": ""})
    data.write_text("\n".join([rows[0], rows[3], none, unsolved]))
    status, out, err = judge(capfd, "apps", "--data", data, "--solutions", "reference")
    assert status == 1
    assert f"left out: {data}:3" in err
    assert "1 problems have no reference solution" in err
    assert "2 solutions: 2 AC" in out
