"""Published shapes of code data: what is read from a row, and what is said of a malformed one."""

import pytest

from verifiers.code_formats.read import read_code_row
from verifiers.errors import UserError


def test_a_row_is_recognised_by_its_columns():
    row = {"question": "Echo.", "input_output": '{"inputs": ["1\\n"], "outputs": ["1\\n"]}'}
    read = read_code_row(row, "rows.jsonl:1")
    assert read["answer"] == {"tests": [{"kind": "stdio", "input": "1\n", "output": "1\n"}]}
    assert "standard input" in read["prompt"]
    assert "input_output" not in read


def test_an_unknown_format_lists_the_known_ones():
    with pytest.raises(UserError, match=r"Did you mean 'humaneval'.*mbpp_plus"):
        read_code_row({}, "rows.jsonl:1", format="human_eval")


def test_unknown_columns_say_what_is_known():
    with pytest.raises(UserError, match=r"rows.jsonl:7 is in no known format.*livecodebench"):
        read_code_row({"a": 1}, "rows.jsonl:7")
