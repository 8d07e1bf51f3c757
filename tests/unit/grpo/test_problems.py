import json

import pytest

from grpo.config.schema import ColumnsConfig, DataConfig
from grpo.data.problems import load_problems
from verifiers.errors import UserError


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
