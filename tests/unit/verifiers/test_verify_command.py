"""`verigrad verify`."""

from __future__ import annotations

import argparse
import io
import json

import pytest

from grpo.commands import verify
from verifiers.errors import UserError


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
        {"gold": "1", "prediction": "\\boxed{1}", "expected": False, "policy": True},
    ]
    assert verigrad("--cases", write_rows(tmp_path / "cases.jsonl", rows)) == 0
    lines = capsys.readouterr().out.splitlines()
    table = {line[:20].strip(): line[20:].split() for line in lines if line[-1:].isdigit()}
    assert table["number"] == ["1", "1", "0", "1"]
    assert table["tuple"] == ["0", "1", "0", "0"]
    assert table["all"] == ["1", "2", "0", "1"]
    assert table["depends on an option"] == ["0", "0", "1", "0"]


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
