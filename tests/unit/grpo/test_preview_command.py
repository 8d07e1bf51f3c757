import json

import pytest

from grpo.cli import main
from grpo.data.prompts import PromptEncoder
from grpo.paths import find_model
from verifiers.errors import UserError
from verifiers.problem import Problem

ROW = {"prompt": "1+2=", "answer": "3"}


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(ROW) + "\n" + json.dumps(ROW | {"prompt": "2+2="}) + "\n")
    return str(file)


def test_text_and_token_ids_are_exact(rows, capsys):
    arguments = ["data", "preview", rows, "--model", "embedded:quickstart", "--rows", "1", "--json"]
    assert main(arguments) == 0
    (line,) = capsys.readouterr().out.splitlines()
    shown = json.loads(line)
    assert shown["text"] == "<|user|>1+2=<|end|><|assistant|>"
    encoder = PromptEncoder(find_model("embedded:quickstart"))
    decoded = encoder.tokenizer.decode(shown["token_ids"], skip_special_tokens=False)
    assert decoded.replace(" ", "") == shown["text"]


def test_a_recipe_is_shown_with_options_of_its_set(rows, capsys):
    options = ["path=" + rows, "prompt_template='{prompt}'", "columns={prompt: prompt}"]
    options += ["answer_after=null"]
    assert main(["data", "preview", "gsm8k", *options]) == 0
    shown = capsys.readouterr().out
    assert "gsm8k" in shown
    assert "judged by math: 3\n1+2=" in shown


def test_the_end_of_a_completion_is_said(capsys):
    assert main(["data", "preview", "configs/quickstart.yaml", "--rows", "1"]) == 0
    assert "completions end at token 1" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--rows", "0"], ["nonsense=1"], ["limit=-1"]])
def test_a_wrong_option_is_named(rows, capsys, arguments):
    assert main(["data", "preview", rows, *arguments]) == 2
    assert "verigrad:" in capsys.readouterr().err


def ask(prompt):
    return Problem(id="a", prompt=prompt, verifier="math", reference="1", source="f:1")


def test_without_a_template_messages_are_joined_and_plain_text_is_taken_as_it_is():
    encoder = PromptEncoder(find_model("embedded:quickstart"), chat_template="none")
    shots = (
        {"role": "user", "content": "1+1="},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2+2="},
    )
    assert encoder.render(ask(shots)) == "1+1=\n\n2\n\n2+2="
    assert encoder.render(ask("2+2=")) == "2+2="


def test_a_template_of_ones_own_options_and_a_prefix(tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text("{{ style }}:{{ messages[0]['content'] }}|")
    encoder = PromptEncoder(
        find_model("embedded:quickstart"),
        chat_template=str(template),
        template_options={"style": "short"},
        completion_prefix="<think>",
    )
    assert encoder.render(ask("1+1=")) == "short:1+1=|<think>"
    with pytest.raises(UserError, match="cannot be read"):
        PromptEncoder(find_model("embedded:quickstart"), chat_template=str(tmp_path / "no.jinja"))


def test_the_token_that_ends_a_turn_ends_completions_too(tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text(
        "{% for m in messages %}{{ '<|user|>' if m['role'] == 'user' else '<|assistant|>' }}"
        "{{ m['content'] }}<|user|>{% endfor %}"
    )
    encoder = PromptEncoder(find_model("embedded:quickstart"), chat_template=str(template))
    turn_end = encoder.tokenizer.convert_tokens_to_ids("<|user|>")
    assert encoder.added_stop_token == turn_end
    assert turn_end in encoder.stop_token_ids


def test_a_template_that_refuses_messages_says_why(tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text(
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{{ messages[-1]['content'] }}"
    )
    encoder = PromptEncoder(find_model("embedded:quickstart"), chat_template=str(template))
    messages = ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})
    with pytest.raises(UserError, match="no system role"):
        encoder.render(ask(messages))


def test_a_model_that_the_hub_does_not_give_is_told_with_what_to_set(monkeypatch):
    def refuse(_model):
        raise OSError("cannot\nconnect")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", refuse)
    with pytest.raises(UserError, match=r"'owner/name'.*cannot connect.*HF_ENDPOINT.*HF_TOKEN"):
        PromptEncoder("owner/name")
    with pytest.raises(UserError, match="has no tokenizer that transformers can load"):
        PromptEncoder(find_model("embedded:quickstart"))
