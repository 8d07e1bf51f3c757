import json

import pytest

from grpo.config.data import ColumnsConfig, DataConfig
from grpo.data.problems import load_problems
from verifiers.errors import UserError
from verifiers.golds import check_gold
from verifiers.judge import Judge


@pytest.fixture
def load(tmp_path):
    def _load(*rows, **options):
        file = tmp_path / "set.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        values = {"path": str(file), "name": "set", "verifier": "math"} | options
        return load_problems(DataConfig.model_validate(values))

    return _load


def test_columns_are_mapped_and_the_rest_is_kept(load):
    (problem,) = load(
        {"question": "1+1?", "solution": "2", "level": 3},
        columns=ColumnsConfig(prompt="question", answer="solution"),
    )
    assert (problem.prompt, problem.reference, problem.columns) == ("1+1?", "2", {"level": 3})
    assert problem.id == "set/0"


def test_a_row_may_name_its_own_verifier(load):
    first, second = load({"prompt": "a", "verifier": "code"}, {"prompt": "b"})
    assert (first.verifier, second.verifier) == ("code", "math")


def test_a_template_is_filled_by_plain_replacement(load):
    (problem,) = load(
        {"q": "{0.__class__}", "answer": "x"},
        prompt_template="Q: {q}\n\\boxed{} or \\boxed{answer}",
        system_prompt="S",
    )
    assert problem.prompt == (
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Q: {0.__class__}\n\\boxed{} or \\boxed{answer}"},
    )


def test_chat_messages_are_kept(load):
    messages = [{"role": "user", "content": "hi"}]
    (problem,) = load({"prompt": messages, "answer": "x"})
    assert problem.prompt == tuple(messages)


def test_the_answer_after_a_mark_is_taken(load):
    (problem,) = load({"prompt": "a", "answer": "3+4 = 7\n#### 7"}, answer_after="####")
    assert problem.reference == "7"


@pytest.mark.parametrize(
    ("row", "options", "fragments"),
    [
        ({"answer": "2"}, {}, ["set.jsonl:1", "'prompt'", "answer"]),
        ({"prompt": "  "}, {}, ["empty prompt"]),
        ({"prompt": "a"}, {"verifier": None}, ["names no verifier"]),
        ({"prompt": [{"role": "user"}]}, {}, ["chat messages"]),
        ({"prompt": [{"role": "assistant", "content": "x"}]}, {}, ["assistant's turn"]),
        ({"prompt": 7}, {}, ["int"]),
        (
            {"prompt": "a", "answer": "no mark"},
            {"answer_after": "####"},
            ["nothing follows '####'"],
        ),
        ({"prompt": "a"}, {"prompt_template": "{missing}"}, ["'missing'", "prompt_template"]),
        ({"answer": "2"}, {"prompt_template": "Q {answer}"}, ["give its answer away"]),
        ({"prompt": "a"}, {"columns": ColumnsConfig(answer="gold")}, ["'gold'", "columns.answer"]),
    ],
)
def test_a_malformed_row_names_place_and_column(load, row, options, fragments):
    with pytest.raises(UserError) as caught:
        load(row, **options)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_ids_must_differ(load):
    with pytest.raises(UserError, match="ids must differ"):
        load({"id": "x", "prompt": "a"}, {"id": "x", "prompt": "b"})


CHAT = [{"role": "user", "content": "1+1?"}]
FOREIGN = {
    "verl": {
        "data_source": "own/sums",
        "prompt": CHAT,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {"index": 0, "split": "train"},
    },
    "skyrl": {"prompt": CHAT, "reward_spec": {"method": "rule", "ground_truth": "2"}},
    "trl": {"prompt": CHAT, "solution": "2"},
    "open-r1": {"problem": "1+1?", "solution": "It is $\\boxed{2}$."},
    "openrlhf": {"input": "1+1?", "label": "2"},
    "slime": {"prompt": CHAT, "label": "2"},
    "prime-rl environment": {"question": "1+1?", "answer": "2", "task": "sums", "info": {}},
    "prime-rl": {
        "problem_id": "p1",
        "task_type": "verifiable_math",
        "prompt": "1+1?",
        "verification_info": '{"ground_truth": "2"}',
    },
    "open-instruct": {
        "messages": [*CHAT, {"role": "assistant", "content": "2"}],
        "ground_truth": "2",
        "dataset": ["gsm8k"],
    },
}


@pytest.mark.parametrize("trainer", FOREIGN)
def test_rows_of_other_trainers_load_as_they_are(load, trainer):
    (problem,) = load(FOREIGN[trainer], verifier=None)
    assert problem.prompt in ("1+1?", tuple(CHAT))
    assert problem.verifier == "math"
    judge = Judge({"math": {}})
    try:
        assert check_gold(problem, judge, {}).fault is None
    finally:
        judge.close()


def test_a_named_format_says_what_it_lacks(load):
    with pytest.raises(UserError, match=r"format 'openrlhf': input with label .*answer, prompt"):
        load({"prompt": "a", "answer": "2"}, format="openrlhf")


def test_plain_rows_are_left_alone(load):
    (problem,) = load({"prompt": "a", "solution": "x", "answer": "2"})
    assert (problem.reference, problem.columns) == ("2", {"solution": "x"})
    with pytest.raises(UserError, match="'prompt'"):
        load({"input": "a", "label": "2"}, format="plain")


def test_several_parts_of_a_mathematical_reference_are_one_answer(load):
    (problem,) = load({"prompt": "a", "answer": ["$1$", "$-1$"]})
    assert problem.reference == "1, -1"


def test_worked_examples_come_first_and_from_elsewhere(load, tmp_path):
    shots = tmp_path / "shots.jsonl"
    shots.write_text('{"q": "1+1?", "a": "One and one.\\n#### 2"}\n{"q": "2+2?", "a": "#### 4"}\n')
    options = {
        "columns": ColumnsConfig(prompt="q", answer="a"),
        "answer_after": "####",
        "prompt_template": "Q: {q}",
        "system_prompt": "S",
        "few_shot": {"num": 1, "path": str(shots)},
    }
    (problem,) = load({"q": "3+3?", "a": "#### 6"}, **options)
    assert [(m["role"], m["content"]) for m in problem.prompt] == [
        ("system", "S"),
        ("user", "Q: 1+1?"),
        ("assistant", "One and one.\n#### 2"),
        ("user", "Q: 3+3?"),
    ]
    with pytest.raises(UserError, match="asks for 3 examples"):
        load({"q": "a", "a": "#### 1"}, **options | {"few_shot": {"num": 3, "path": str(shots)}})
    with pytest.raises(UserError, match="from the questions themselves"):
        load({"q": "a", "a": "#### 1"}, **options | {"few_shot": {"num": 1}})


def test_an_empty_answer_and_a_second_system_message_are_refused(load):
    with pytest.raises(UserError, match="empty answer"):
        load({"prompt": "a", "answer": " "})
    with pytest.raises(UserError, match="system message of its own"):
        load(
            {"prompt": [{"role": "system", "content": "x"}, *CHAT], "answer": "2"},
            system_prompt="S",
        )


def test_the_answer_column_may_be_part_of_the_question_where_that_is_said(load):
    (problem,) = load(
        {"nums": [1, 2], "target": 3},
        columns=ColumnsConfig(answer="target"),
        prompt_template="Make {target} of {nums}.",
        answer_in_prompt=True,
    )
    assert (problem.prompt, problem.reference) == ("Make 3 of [1, 2].", 3)
