"""`verigrad data check`."""

from __future__ import annotations

import json

import pytest

from grpo.cli import main


@pytest.fixture
def check(tmp_path, capsys):
    """Exit status and printed JSON for rows of a file."""

    def run(rows, *arguments):
        file = tmp_path / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        status = main(["data", "check", str(file), "--json", *arguments])
        (report,) = json.loads(capsys.readouterr().out)["sets"].values()
        return status, report

    return run


def row(answer, prompt=None, **columns):
    return {"prompt": prompt or f"What is {answer}?", "answer": answer, **columns}


def test_good_references_are_counted_by_kind(check):
    status, report = check([row("3"), row("4"), row("\\frac12"), row("(1, 2]"), row("x^2+1")])
    assert status == 0
    assert report["rows"] == report["tried"] == 5
    assert report["kinds"] == {"integer": 2, "rational": 1, "interval": 1, "expression": 1}
    assert report["bad"] == []


def test_an_unreadable_reference_fails_the_command_with_its_row(check):
    status, report = check([row("1"), row("\\begin{cases}")])
    assert status == 1
    (bad,) = report["bad"]
    assert bad["fault"] == "unreadable"
    assert bad["source"].endswith("rows.jsonl:2")
    assert report["bad_share"] == 0.5


def test_a_share_of_bad_references_may_be_allowed(check):
    rows = [row("1"), row("\\begin{cases}")]
    assert check(rows, "--max-bad", "0.5")[0] == 0
    assert check(rows, "--max-bad", "0.49")[0] == 1


def test_a_reference_that_no_answer_can_match(check):
    # The brace in the reference ends the box of the completion that states it.
    status, report = check([row("a}b")], "--verifier", "exact")
    assert status == 1
    assert report["bad"][0]["fault"] == "fails itself"
    assert "different" in report["bad"][0]["detail"]


def test_a_verifier_that_takes_anything_for_right_is_found(check):
    status, report = check([row("3")], "--verifier", "numeric", "--option", "abs_tol=1000")
    assert status == 1
    assert report["bad"][0]["fault"] == "accepts a wrong answer"
    assert "7" in report["bad"][0]["detail"]


def test_a_reference_that_loses_its_meaning_without_a_box(check):
    status, report = check([row("2\\sqrt{3}"), row("17"), row("\\sqrt{51}"), row("1.5")])
    assert status == 0
    assert {(r["reference"], r["reading"]) for r in report["misread_risk"]} == {
        ("2\\sqrt{3}", "other"),
        ("\\sqrt{51}", "unread"),
    }


def test_repeated_prompts_name_both_rows(check):
    status, report = check([row("1", "a b"), row("2", "c"), row("3", "a\n b")])
    assert status == 0
    (repeat,) = report["repeated_prompts"]
    assert repeat["source"].endswith(":3")
    assert repeat["first"].endswith(":1")


def test_columns_and_a_worked_solution(check):
    rows = [{"question": "1+1?", "solution": "1 and 1 is 2\n#### 2"}]
    columns = ("--prompt-column", "question", "--gold-column", "solution")
    status, report = check(rows, *columns, "--answer-after", "####")
    assert (status, report["kinds"]) == (0, {"integer": 1})


def test_references_of_other_verifiers_are_read_and_not_tried(check, tmp_path):
    checks = tmp_path / "checks.py"
    checks.write_text("def check(completion, unit): return True\n")
    spec = f"{checks}:check"
    status, report = check([row("1", unit="m"), row("2")], "--verifier", spec)
    assert (status, report["tried"], report["kinds"]) == (1, 0, {spec: 2})
    (bad,) = report["bad"]
    assert "'unit'" in bad["detail"]


def test_a_configuration_with_a_prompt_on_both_sides(tmp_path, capsys):
    for name, prompts in (("train", ["a", "b"]), ("held", ["b", "c"])):
        rows = [json.dumps(row("1", prompt)) + "\n" for prompt in prompts]
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    config = tmp_path / "run.yaml"
    config.write_text(
        f"model: embedded:quickstart\n"
        f"data: {{path: {tmp_path}/train.jsonl, name: train, verifier: math}}\n"
        f"evaluation: {{data: {{path: {tmp_path}/held.jsonl, name: held, verifier: math}}}}\n"
    )
    assert main(["data", "check", str(config), "verifiers.math.gold_digits=false"]) == 0
    output = capsys.readouterr().out
    assert "train: 2 rows, 2 references tried out" in output
    assert "held-out prompts that are trained on: 1" in output
    assert f"{tmp_path}/held.jsonl:1 is {tmp_path}/train.jsonl:2" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rows.jsonl", "--max-bad", "5"], "from 0 to 1"),
        (["nowhere.jsonl"], "'nowhere.jsonl' does not exist"),
        (["rows.jsonl", "beta=0"], "overrides a configuration"),
        (["run.yaml", "--verifier", "math"], "--verifier is for data files"),
    ],
)
def test_mistakes_say_what_to_do(arguments, message, capsys):
    assert main(["data", "check", *arguments]) == 2
    assert message in capsys.readouterr().err
