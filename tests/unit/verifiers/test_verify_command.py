"""`verigrad verify`."""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo.commands import verify
from verifiers.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def verigrad():
    parser = argparse.ArgumentParser()
    verify.add_parser(parser.add_subparsers())

    def run(*arguments):
        args = parser.parse_args(["verify", *map(str, arguments)])
        return args.run(args)

    return run


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_right_pair_exits_0_and_a_wrong_one_1(verigrad, capsys):
    assert verigrad("--gold", "42", "--answer", "\\boxed{42}") == 0
    assert verigrad("--gold", "42", "--answer", "\\boxed{41}", "--json") == 1
    right, wrong = capsys.readouterr().out.splitlines()
    assert "correct" in right
    assert json.loads(wrong) == {
        "id": "0",
        "status": "incorrect",
        "reward": 0.0,
        "reason": "different",
        "extracted": "41",
    }


def test_a_file_gets_a_verdict_a_line(verigrad, tmp_path, capsys):
    rows = [
        {"id": "a", "answer": "1", "completion": "\\boxed{1}"},
        {"id": "b", "answer": "1", "completion": "\\boxed{2}"},
        {"id": "c", "answer": "1", "completion": "none"},
        {"id": "d", "answer": "1", "completion": "\\boxed{1}", "truncated": True},
        {"id": "e", "answer": "\\begin{cases}", "completion": "\\boxed{1}"},
    ]
    assert verigrad(write_rows(tmp_path / "rows.jsonl", rows), "--json") == 0
    output = capsys.readouterr()
    found = {r["id"]: r["reason"] for r in map(json.loads, output.out.splitlines())}
    assert found == {
        "a": "equal.text",
        "b": "different",
        "c": "no_box",
        "d": "truncated",
        "e": "unreadable_reference",
    }
    assert "rows.jsonl:5" in output.err


def test_rows_with_one_id_are_a_group(verigrad, tmp_path, capsys):
    checks = tmp_path / "checks.py"
    checks.write_text("def alone(completions): return [len(completions) == 1] * len(completions)\n")
    rows = [{"id": i, "answer": "", "completion": ""} for i in ("a", "b", "a")]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    assert verigrad(path, "--verifier", f"{checks}:alone", "--json") == 0
    verdicts = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert [(v["id"], v["reward"]) for v in verdicts] == [("a", 0.0), ("b", 1.0), ("a", 0.0)]


def test_standard_input_and_other_columns(verigrad, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO('{"gold": "5", "text": "<answer>5</answer>"}\n'))
    arguments = ("-", "--gold-column", "gold", "--completion-column", "text")
    assert verigrad(*arguments, "--option", "extraction=answer_tag", "--json") == 0
    assert json.loads(capsys.readouterr().out)["status"] == "correct"


def test_a_users_function_judges_a_file(verigrad, tmp_path, capsys):
    checks = tmp_path / "checks.py"
    checks.write_text("def longer(completion, floor): return len(completion) > floor\n")
    rows = write_rows(
        tmp_path / "rows.jsonl", [{"answer": None, "completion": "abc", "floor": 2}] * 2
    )
    assert verigrad(rows, "--verifier", f"{checks}:longer") == 0
    assert "2  correct (accepted)" in capsys.readouterr().out


def test_cases_print_the_confusion_by_kind(verigrad, tmp_path, capsys):
    rows = [
        {"gold": "1", "prediction": "\\boxed{1}", "expected": True, "kind": "number"},
        {"gold": "1", "prediction": "\\boxed{2}", "expected": True, "kind": "number"},
        {"gold": "1", "prediction": "\\boxed{2}", "expected": False, "kind": "number"},
        {"gold": "(1,2)", "prediction": "\\boxed{(2,1)}", "expected": False, "kind": "tuple"},
        {"gold": "1", "prediction": "\\boxed{1}", "expected": True, "policy": True},
        {"gold": "6", "prediction": "\\boxed{2+4}", "expected": True, "policy": True},
    ]
    assert verigrad("--cases", write_rows(tmp_path / "cases.jsonl", rows)) == 0
    lines = capsys.readouterr().out.splitlines()
    table = {line[:20].strip(): line[20:].split() for line in lines if line[-1:].isdigit()}
    assert table["number"] == ["1", "1", "0", "1"]
    assert table["tuple"] == ["0", "1", "0", "0"]
    assert table["all"] == ["1", "2", "0", "1"]
    assert any("allow_unevaluated=true" in line for line in lines)
    assert lines[-1].endswith("1 by default, 1 with an option, 0 not reached")


def test_a_label_that_no_option_reaches_fails_the_command(verigrad, tmp_path):
    rows = [{"gold": "1", "prediction": "\\boxed{2}", "expected": True, "policy": True}]
    assert verigrad("--cases", write_rows(tmp_path / "cases.jsonl", rows)) == 1


def test_a_false_accept_fails_the_command(verigrad, tmp_path):
    rows = [{"gold": "1", "prediction": "\\boxed{1}", "expected": False}]
    assert verigrad("--cases", write_rows(tmp_path / "cases.jsonl", rows)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give one of"),
        (("--gold", "1"), "go together"),
        (("--gold", "1", "--answer", "1", "--verifier", "mth"), "did you mean math"),
        (("--gold", "1", "--answer", "1", "--option", "extraction"), "KEY=VALUE"),
        (("nowhere.jsonl",), "no file 'nowhere.jsonl'"),
    ],
)
def test_mistakes_say_what_to_do(verigrad, arguments, message):
    with pytest.raises(UserError, match=message):
        verigrad(*arguments)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"rows\.jsonl:1: not a JSON object"),
        ("[1]", r"rows\.jsonl:1: a JSON object is expected"),
        ('{"answer": "1"}', r"rows\.jsonl:1: there is no column 'completion'"),
        ('{"answer": "1", "completion": 5}', r"rows\.jsonl:1: column 'completion' is not text"),
    ],
)
def test_a_bad_row_is_named(verigrad, tmp_path, line, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(UserError, match=message):
        verigrad(path)


def test_conformance_prints_a_line_for_each_rule(verigrad, tmp_path, capsys):
    checks = tmp_path / "checks.py"
    checks.write_text(
        "def same(completion, answer): return completion == answer\n"
        "def takes_all(completion, slack): return True\n"
    )
    spec = f"{checks}:same"
    assert verigrad("--conformance", spec, "--gold", "a", "--answer", "a", "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 7
    assert all(line["passed"] for line in lines)
    rows = write_rows(
        tmp_path / "rows.jsonl",
        [{"answer": "a", "slack": 1, "completion": "b", "expected": False}],
    )
    assert verigrad(rows, "--conformance", f"{checks}:takes_all") == 1
    output = capsys.readouterr().out
    assert "FAILED   knows right from wrong  ('b' is wrong for 'a', not correct" in output


def test_audit_samples_what_is_not_correct(verigrad, tmp_path, capsys):
    rows = [
        {"id": i, "answer": str(i % 2), "completion": f"thoughts {i} \\boxed{{1}}"}
        for i in range(40)
    ]
    file = write_rows(tmp_path / "rows.jsonl", rows)

    def sample(*arguments):
        assert verigrad(file, "--audit", "5", "--json", *arguments) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    first = sample()
    assert len(first) == 5
    assert first == sample()
    assert first != sample("--seed", "1")
    for record in first:
        assert int(record["id"]) % 2 == 0
        assert (record["gold"], record["extracted"], record["reason"]) == ("0", "1", "different")
        assert record["completion_tail"] == f"thoughts {record['id']} \\boxed{{1}}"
        assert record["source"] == f"{file}:{int(record['id']) + 1}"


def test_audit_for_a_person(verigrad, tmp_path, capsys):
    rows = [{"answer": "1", "completion": "x" * 2000 + "\nso \\boxed{2}"}]
    assert verigrad(write_rows(tmp_path / "rows.jsonl", rows), "--audit", "3") == 0
    output = capsys.readouterr().out
    assert "1 of 1 verdicts that are not correct" in output
    assert "    so \\boxed{2}" in output
    assert "1  incorrect (different)" in output
    assert len(output) < 1200


@pytest.mark.parametrize("arguments", [("--audit", "0", "rows.jsonl"), ("--audit", "2")])
def test_audit_needs_a_file_and_a_number(verigrad, arguments):
    pair = () if "rows.jsonl" in arguments else ("--gold", "1", "--answer", "1")
    with pytest.raises(UserError, match="at least 1, and goes with a file"):
        verigrad(*arguments, *pair)


def test_a_program_gets_its_verdict_over_a_pipe_before_it_asks_again(tmp_path):
    """The recipe of the documentation for an environment that cannot import this package."""
    page = (ROOT / "docs" / "verifiers.md").read_text()
    (recipe,) = [code for code in BLOCK.findall(page) if "rubric_over_pipe" in code]
    ours = str(Path(sys.executable).with_name("verigrad"))
    names: dict[str, Any] = {}
    exec(recipe.replace("/venvs/verigrad/bin/verigrad", ours), names)
    with names["VERIGRAD"] as process:
        state: dict[str, Any] = {}
        right = [{"role": "assistant", "content": "\\boxed{0.5}"}]
        assert names["correct"](right, "\\frac12", state) == 1.0
        assert state["verigrad"]["reason"] == "equal.exact"
        assert names["correct"]("\\boxed{0.6}", "\\frac12", state) == 0.0
        process.stdin.close()
        assert process.wait(60) == 0
