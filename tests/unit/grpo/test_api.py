"""Training and evaluation as functions: what they are given, and how they refuse it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grpo import evaluate, train
from grpo.config import load_config
from verifiers.callables import load_function, name_function
from verifiers.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
QUICKSTART = ROOT / "configs/quickstart.yaml"
SCRIPT = """
from grpo import train

def check(completion, answer):
    return float(answer in completion)

{call}
"""
CALL = """train(
    {{
        "model": "embedded:quickstart",
        "data": [{{"path": {rows!r}, "verifier": check}}],
        "output_dir": "runs",
        "max_prompt_length": 32,
        "max_completion_length": 24,
    }}
)"""


def at_the_outermost_level(completion, answer):
    return float(answer in completion)


class Judge:
    def check(self, completion):
        return 0.0


def test_a_function_is_found_by_its_name():
    spec = name_function(at_the_outermost_level)
    assert load_function(spec) is at_the_outermost_level


@pytest.mark.parametrize("function", [lambda completion: 0.0, Judge().check])
def test_a_function_that_no_process_could_look_up_is_refused(function):
    with pytest.raises(UserError, match=r"cannot be a verifier.*outermost level"):
        name_function(function)


def test_what_is_given_is_checked_as_a_file_is(monkeypatch):
    with pytest.raises(UserError, match="no training set"):
        train({"model": "embedded:quickstart", "data": []})
    with pytest.raises(UserError, match="unknown option lerning_rate; did you mean learning_rate"):
        train(QUICKSTART, {"lerning_rate": 1e-4})
    with pytest.raises(UserError, match="no held-out sets"):
        evaluate(QUICKSTART, {"evaluation.data": []})
    with pytest.raises(UserError, match="does not exist"):
        evaluate("no/such.yaml")


def test_values_arrive_as_they_were_given(monkeypatch):
    seen = {}

    def remember(config, console, **arguments):
        seen.update(arguments, config=config)
        return True, {"complete": True}

    monkeypatch.setattr("grpo.session.run_training", remember)
    options = {
        "learning_rate": 1e-6,
        "data.0.verifier": at_the_outermost_level,
        "output_dir": Path("somewhere"),
        "dynamic_sampling": "off",
        "max_grad_norm": 2,
    }
    assert train(QUICKSTART, options, resume="") == {"complete": True}
    config = seen["config"]
    assert config.learning_rate == 1e-6
    assert config.data[0].verifier == name_function(at_the_outermost_level)
    assert config.output_dir == "somewhere"
    assert config.dynamic_sampling == "off"
    assert (seen["resume"], seen["fork"]) == ("", None)
    given = {"model": "m", "data": [{"path": "rows.jsonl"}]}
    load_config(given)
    assert given == {"model": "m", "data": [{"path": "rows.jsonl"}]}, "it is the caller's"


def test_a_script_without_a_guard_is_told_what_to_write(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "1+1=", "answer": "2"}\n')
    call = CALL.format(rows=str(rows))
    (tmp_path / "mine.py").write_text(SCRIPT.format(call=call))
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert 'put the call under `if __name__ == "__main__":`' in done.stderr
    assert not (tmp_path / "runs").exists()
