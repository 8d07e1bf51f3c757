"""Published shapes of code data: what is read from a row, and what is said of a malformed one."""

import base64
import json
import pickle
import re
import zlib
from pathlib import Path

import pytest

from sandbox.limits import Limits
from sandbox.suite_reader import read_suite
from verifiers.code_formats.literals import restore_types
from verifiers.code_formats.packed import PackedTextError, unpack_text
from verifiers.code_formats.read import FORMATS, detect_format, format_names, read_code_row
from verifiers.errors import UserError

SAMPLES = Path(__file__).resolve().parents[2] / "code_samples"
# Where a file of samples is not called like its format.
FORMAT_OF = {
    "humaneval_plus": "humaneval",
    "mbpp_plus": "mbpp",
    "mbpp_sanitized": "mbpp",
    "evalplus_humaneval": "evalplus",
    "evalplus_mbpp": "evalplus",
}
FILES = sorted(f for f in SAMPLES.glob("*.jsonl") if not f.stem.endswith(".solutions"))


def rows(name):
    return [json.loads(line) for line in (SAMPLES / f"{name}.jsonl").read_text().splitlines()]


def read(name, number=0, **changes):
    return read_code_row({**rows(name)[number], **changes}, f"{name}.jsonl:{number + 1}")


def made_from(name, number=0, **changes):
    return read(name, number, **changes)["answer"]["tests"]


def pack(value):
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_samples_are_recognised_and_their_tests_can_be_used(file):
    for number, row in enumerate(rows(file.stem), start=1):
        name = FORMAT_OF.get(file.stem, file.stem)
        assert detect_format(row, "row").name == name
        read = read_code_row(row, f"{file}:{number}", format=_named(file))
        assert read == read_code_row(row, f"{file}:{number}")
        assert read["prompt"]
        assert read_suite(read["answer"], Limits()).tests
        assert ("solution" in read) == (name != "livecodebench")


def test_there_are_samples_of_every_format():
    assert {FORMAT_OF.get(f.stem, f.stem) for f in FILES} == {one.name for one in FORMATS}
    assert {_named(f) for f in FILES} <= set(format_names())


def _named(file):
    return file.stem.removeprefix("evalplus_") + "_plus" * file.stem.startswith("evalplus_")


def test_an_unknown_format_lists_the_known_ones():
    with pytest.raises(UserError, match=r"Did you mean 'humaneval'.*mbpp_plus"):
        read_code_row({}, "rows.jsonl:1", format="human_eval")


def test_unknown_columns_say_by_which_each_format_is_known():
    with pytest.raises(UserError, match=r"rows.jsonl:7 is in no known format.*livecodebench"):
        read_code_row({"a": 1}, "rows.jsonl:7")


def test_columns_with_tests_and_solutions_are_dropped_and_others_kept():
    columns = read("codecontests").keys()
    assert {"prompt", "answer", "id", "solution", "cf_rating", "difficulty"} <= columns
    assert not {"private_tests", "generated_tests", "solutions", "incorrect_solutions"} & columns


def test_a_row_without_tests_is_left_for_the_verifier_to_refuse():
    assert made_from("apps", input_output="") == []


def test_lines_are_joined_and_starter_code_is_shown():
    assert made_from("apps", 1)[0] == {"kind": "stdio", "input": "2\na\nb", "output": "b\na"}
    assert "class Solution:" in read("apps", 3)["prompt"]
    assert "standard input" in read("apps")["prompt"]


def test_one_item_in_a_list_of_its_own_is_right_with_and_without_it():
    first, *_ = made_from("apps", 4)
    assert first["any_of"] == [["a"], "a"]
    assert made_from("apps", 3)[0]["expected"] == [0, 1]


def test_keys_that_json_made_texts_are_numbers_again():
    io = {"fn_name": "f", "inputs": [[{"1": 2, "3": 4}]], "outputs": [{"5": 6}]}
    (test,) = made_from("apps", input_output=io)
    assert (test["args"], test["expected"]) == ([{1: 2, 3: 4}], {5: 6})


@pytest.mark.parametrize(
    ("stated", "seconds"), [("2 seconds", 2), ("1.5 s", 1.5), ("1 second", 1), (None, None)]
)
def test_time_limits_are_read_from_words(stated, seconds):
    assert read("taco", time_limit=stated)["answer"].get("limits", {}).get("cpu_s") == seconds


def test_time_limits_are_multiplied():
    row = rows("codecontests")[1]
    read = read_code_row(row, "row", time_limit_factor=2.0)
    assert read["answer"]["limits"] == {"cpu_s": 3.0}
    assert "limits" not in read_code_row(rows("codecontests")[0], "row")["answer"]


def test_a_published_solution_that_holds_much_has_the_memory_that_it_needs():
    usual = read("mbpp_plus")["answer"]["limits"]
    code = "def combinations_colors(l, n): return []"
    tests = ["assert combinations_colors([], 1) == []"]
    large = read("mbpp_plus", code=code, test_list=tests)["answer"]["limits"]
    assert usual == {"cpu_s": 30.0}
    assert large == {"cpu_s": 30.0, "memory_mb": 2048}


def test_several_outputs_of_one_input_are_all_right():
    tests = made_from("codecontests", 4)
    assert {test["input"]: test["output"] for test in tests} == {
        "abab\n": ["a\n", "b\n"], "hello\n": "l\n", "zz\n": "z\n",
    }  # fmt: skip


def test_the_solution_in_python_3_is_chosen():
    assert "input()" in read("codecontests")["solution"]
    other = {"language": [2, 1], "solution": ["int main() {}", "print 1"]}
    assert "solution" not in read("codecontests", solutions=other)


def test_hidden_tests_are_added_to_the_public_ones():
    for number in (0, 1, 3):  # packed, JSON, packed for a function
        assert len(made_from("livecodebench", number)) == 3
    assert made_from("livecodebench", 3)[0] == {
        "kind": "function", "entry_point": "twoSum", "args": [[2, 7, 11], 9], "expected": [0, 1],
    }  # fmt: skip


def test_nothing_but_data_is_unpickled(tmp_path):
    class Touch:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "touched",))

    with pytest.raises(UserError, match="may not"):
        read("livecodebench", private_test_cases=pack(Touch()))
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    "packed",
    [
        "!!!",
        base64.b64encode(b"no zlib").decode(),
        base64.b64encode(zlib.compress(b"no pickle")).decode(),
        base64.b64encode(zlib.compress(pickle.dumps("x"))[:-2]).decode(),
        base64.b64encode(zlib.compress(b"cbuiltins\neval\n(S'1'\ntR.")).decode(),
        base64.b64encode(zlib.compress(b"Pid\n.")).decode(),
    ],
    ids=["base64", "zlib", "pickle", "cut off", "a name", "from outside"],
)
def test_what_is_no_packed_text_is_refused(packed):
    with pytest.raises(PackedTextError):
        unpack_text(packed)


def test_lists_and_texts_are_unpacked():
    assert unpack_text(pack([{"input": "1", "output": "2"}])) == [{"input": "1", "output": "2"}]


@pytest.mark.parametrize(
    ("values", "calls", "restored"),
    [
        ([[1, 2]], [((3, 4),)], [(1, 2)]),
        ([[[1, "a"]]], [([(2, "b")],)], [[(1, "a")]]),
        ([[[1], [2]]], [([{1, 2}],)], [[{1}, {2}]]),
        (["(1+2j)", "x"], [(1j, "y")], [1 + 2j, "x"]),
        ([[1]], [([2],), ((3,),)], [[1]]),
        ([{"1": [2]}], [({3: (4,)},)], [{1: (2,)}]),
        ([[[1]]], [({2},)], [[[1]]]),
        ([[1, [2]]], [], [[1, [2]]]),
    ],
)
def test_types_are_restored_after_other_calls(values, calls, restored):
    assert restore_types(values, calls) == restored


def test_the_documentation_lists_every_format_in_order_with_its_columns():
    page = (SAMPLES.parents[1] / "docs" / "code_data.md").read_text()
    table = re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)+) \|", page, re.MULTILINE)
    assert [(name, tuple(re.findall(r"\w+", columns))) for name, columns in table] == [
        (one.name, one.columns) for one in FORMATS
    ]
    assert all(f"`{name}`" in page for name in format_names())


LCB_CASE = [{"input": "1\n[2", "output": "3", "testtype": "functional"}]
MALFORMED = [
    ("humaneval", {"test": None}, "test"),
    ("humaneval", {"entry_point": 3}, "entry_point"),
    ("humaneval_plus", {"prompt": ["x"]}, "prompt"),
    ("evalplus_humaneval", {"base_input": [1]}, "base_input[0]"),
    ("evalplus_humaneval", {"plus_input": "[1"}, "plus_input"),
    ("evalplus_humaneval", {"canonical_solution": None}, "canonical_solution"),
    ("evalplus_humaneval", {"atol": "x"}, "atol"),
    ("evalplus_mbpp", {"assertion": "assert ("}, "assertion"),
    ("mbpp", {"test_list": "x"}, "test_list"),
    ("mbpp", {"test_list": ["assert ("]}, "test_list[0]"),
    ("mbpp", {"test_list": [1]}, "test_list[0]"),
    ("mbpp", {"text": None}, "prompt"),
    ("mbpp", {"code": "def f(:"}, "code"),
    ("mbpp_plus", {"test_imports": [1]}, "test_imports[0]"),
    ("apps", {"input_output": "{"}, "input_output"),
    ("apps", {"input_output": "1"}, "input_output"),
    ("apps", {"input_output": {"inputs": ["1"]}}, "input_output.outputs"),
    ("apps", {"input_output": {"inputs": ["1"], "outputs": []}}, "input_output.outputs"),
    ("apps", {"input_output": {"inputs": [{}], "outputs": [""]}}, "input_output.inputs[0]"),
    (
        "apps",
        {"input_output": {"fn_name": "f", "inputs": [1], "outputs": [1]}},
        "input_output.inputs[0]",
    ),
    ("apps", {"question": None}, "question"),
    ("apps", {"solutions": "[1"}, "solutions"),
    ("taco", {"time_limit": "soon"}, "time_limit"),
    ("taco", {"time_limit": "0 seconds"}, "time_limit"),
    ("codecontests", {"public_tests": {"input": ["1"], "output": []}}, "public_tests.output"),
    ("codecontests", {"private_tests": {"input": [1], "output": ["1"]}}, "private_tests.input[0]"),
    ("codecontests", {"generated_tests": []}, "generated_tests"),
    ("codecontests", {"input_file": "in.txt"}, "input_file"),
    ("codecontests", {"time_limit": "fast"}, "time_limit"),
    ("codecontests", {"solutions": {"language": [3]}}, "solutions.solution"),
    ("livecodebench", {"public_test_cases": "["}, "public_test_cases"),
    ("livecodebench", {"public_test_cases": [{"input": "1"}]}, "public_test_cases[0].output"),
    ("livecodebench", {"private_test_cases": "AAAA"}, "private_test_cases"),
    ("livecodebench", {"metadata": "{"}, "metadata"),
    ("livecodebench", {"public_test_cases": LCB_CASE}, "public_test_cases[0].fn_name"),
    (
        "livecodebench",
        {"public_test_cases": LCB_CASE, "metadata": {"func_name": "f"}},
        "public_test_cases[0].input",
    ),
    ("verl", {"reward_model": {}}, "reward_model.ground_truth"),
    ("verl", {"reward_model": {"ground_truth": "no"}}, "reward_model.ground_truth"),
    ("verl", {"reward_model": {"ground_truth": [3]}}, "reward_model.ground_truth[0]"),
    ("verl", {"prompt": None}, "prompt"),
    ("deepcoder", {"tests": [{"input": "1", "output": "1", "type": "x"}]}, "tests[0].type"),
    ("deepcoder", {"problem": 1}, "problem"),
    ("primeintellect", {"verification_info": "x"}, "verification_info"),
    ("primeintellect", {"verification_info": {"language": "rust"}}, "verification_info.language"),
    ("primeintellect", {"verification_info": {}}, "verification_info.test_cases"),
    ("commonoj", {"test": [{"input": {}, "output": {}}]}, "test[0].input.stdin"),
    ("commonoj", {"test": [{"input": {"stdin": "1"}}]}, "test[0].output"),
    ("kodcode", {"test": "def test_f(: pass"}, "test"),
    ("kodcode", {"test": "def test_f(): assert f(1)"}, "test"),
]


@pytest.mark.parametrize(
    ("name", "changes", "field"), MALFORMED, ids=[f"{one[0]}: {one[2]}" for one in MALFORMED]
)
def test_a_malformed_row_is_named_with_its_field(name, changes, field):
    with pytest.raises(UserError) as caught:
        read(name, **changes)
    message = str(caught.value)
    assert message.startswith(f"{name}.jsonl:1: field '{field}' ")
    assert f"`format: {FORMAT_OF.get(name, name)}`" in message
    assert "\n" not in message
