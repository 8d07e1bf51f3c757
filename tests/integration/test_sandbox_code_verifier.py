"""The `code` verifier as the fleet and the command line use it, on real containers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from grpo.cli import main
from verifiers.code import CodeVerifier
from verifiers.judge import Judge
from verifiers.problem import Problem, Submission
from verifiers.verdict import Status

MIXED = {
    "entry_point": "double",
    "preamble": "import math",
    "tests": [
        {"kind": "function", "args": [3], "expected": 6},
        {"kind": "assert", "code": "assert double(2) == 4 and not double(0)"},
        {"kind": "stdio", "input": "5\n", "output": "10"},
    ],
}
PROGRAM = """```python
def double(x):
    return math.floor(2 * x)
if __name__ == "__main__":
    try:
        print(double(int(input())))
    except EOFError:
        pass
```"""


def submission(completion: str) -> Submission:
    problem = Problem(id="d", prompt="", verifier="code", reference=MIXED, source="test")
    return Submission(problem=problem, completion=completion)


def test_known_answers_get_their_verdicts() -> None:
    with closing(Judge({"code": {"pool_size": 1, "runtime": "runc"}})) as judge:
        assert judge.self_check() == []


def test_kinds_mix_and_threads_share_the_containers() -> None:
    wrong = PROGRAM.replace("print(double", "print(1 + double")
    with closing(CodeVerifier(pool_size=2, scoring="fraction")) as verifier:
        with ThreadPoolExecutor(24) as threads:
            texts = [PROGRAM, wrong] * 12
            verdicts = list(threads.map(lambda text: verifier.verify(submission(text)), texts))
        assert {one.score for one in verdicts[::2]} == {1.0}
        assert {one.score for one in verdicts[1::2]} == {2 / 3}
        stats = verifier.stats()
        assert stats is not None
        assert stats.jobs == 2 * len(verdicts)


def test_a_problem_has_the_memory_that_it_asks_for() -> None:
    holds = "def f(megabytes):\n    return len(bytearray(b'x') * (megabytes << 20)) >> 20"
    tests = [{"kind": "function", "entry_point": "f", "args": [400], "expected": 400}]
    wanted = {
        None: Status.LIMIT,  # has what the sandbox gives to all
        512: Status.CORRECT,
    }
    with closing(CodeVerifier(pool_size=1, memory_mb=128)) as verifier:
        for memory_mb, status in wanted.items():
            limits = {} if memory_mb is None else {"memory_mb": memory_mb}
            problem = Problem(
                id=f"{memory_mb} MB",
                prompt="",
                verifier="code",
                reference={"tests": tests, "limits": limits},
                source="test",
            )
            verifier.prepare(problem)
            completion = f"```python\n{holds}\n```"
            verdict = verifier.verify(Submission(problem=problem, completion=completion))
            assert verdict.status is status, verdict


def test_it_can_be_used_again_after_closing() -> None:
    verifier = CodeVerifier(pool_size=1)
    for _ in range(2):
        assert verifier.verify(submission(PROGRAM)).status is Status.CORRECT
        verifier.close()


def test_check_and_run_from_the_command_line(tmp_path, capfd) -> None:
    assert main(["sandbox", "check", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["healthy"] is True
    program = tmp_path / "square.py"
    program.write_text("print(int(input()) ** 2)")
    assert main(["sandbox", "run", str(program), "--stdin", "12"]) == 0
    assert capfd.readouterr().out == "144\n"
    assert main(["sandbox", "run", str(program), "--stdin", "x", "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["status"] == "RE"
    assert main(["sandbox", "build", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["origin"] == "present"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "/nonexistent.py"], "cannot be read"),
        (["check", "--image", "verigrad-no-such:1"], "docker pull"),
        (["check", "--runtime", "no-such"], "knows no runtime"),
    ],
)
def test_mistakes_are_one_paragraph_and_exit_code_2(arguments, said, capfd) -> None:
    assert main(["sandbox", *arguments]) == 2
    error = capfd.readouterr().err
    assert said in error
    assert "Traceback" not in error
