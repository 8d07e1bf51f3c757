"""Prompts that are longer than the run allows, and how many are encoded."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from grpo.cli import main
from grpo.config.schema import RunConfig
from grpo.data import prompts
from grpo.data.overlap import Overlap
from grpo.inputs import Inputs
from grpo.paths import find_model
from grpo.preparation import describe_left_out, prepare_evaluation
from verifiers.errors import UserError
from verifiers.problem import Problem

MODEL = find_model("embedded:quickstart")


def ask(number, prompt):
    return Problem(
        id=f"p{number}", prompt=prompt, verifier="exact", reference="1", source=f"rows:{number}"
    )


SHORT = [ask(1, "1+2="), ask(2, "2+2=")]
LONG = ask(3, "1+2+3+4+5+6+7+8+9=")


@pytest.fixture
def prepare():
    """Prepare a run on a training and a held-out set."""

    def _prepare(train, held_out, **options):
        inputs = Inputs(
            model=MODEL,
            train_sets={"train": train},
            eval_sets={"held-out": held_out},
            verifier_options={},
            left_out={},
            overlaps={
                "held-out": [Overlap(held_out=p.source, trained="x", kind="same") for p in held_out]
            },
        )
        config = RunConfig.model_validate(
            {
                "model": "embedded:quickstart",
                "max_prompt_length": 8,
                "max_completion_length": 8,
                **options,
            }
        )
        return prepare_evaluation(config, inputs, "cpu")

    return _prepare


@pytest.mark.parametrize("sets", [([*SHORT, LONG], [SHORT[0]]), ([SHORT[0]], [*SHORT, LONG])])
def test_a_long_prompt_is_an_error_that_counts_and_names_them(prepare, sets):
    with pytest.raises(UserError, match=r"1 of 3 prompts.*rows:3 has .*overlong_prompts=drop"):
        prepare(*sets)


def test_it_may_be_left_out_and_is_counted(prepare):
    prepared = prepare(
        [SHORT[0], LONG], [SHORT[1], replace(LONG, id="p4")], overlong_prompts="drop"
    )
    assert prepared.inputs.train_sets == {"train": [SHORT[0]]}
    assert prepared.inputs.eval_sets == {"held-out": [SHORT[1]]}
    assert set(prepared.prompts) == {"p1", "p2"}
    assert [overlap.held_out for overlap in prepared.inputs.overlaps["held-out"]] == ["rows:2"]
    lines = describe_left_out(prepared)
    assert len(lines) == 2
    assert "train: 1 problems whose prompt is longer" in lines[0]


def test_a_set_is_never_left_empty(prepare):
    with pytest.raises(UserError, match=r"1 of 1 prompts of 'train'"):
        prepare([LONG], SHORT, overlong_prompts="drop")


def test_a_dry_run_says_what_is_left_out(tmp_path, capsys):
    rows = [{"prompt": p.prompt, "answer": "1"} for p in (*SHORT, LONG)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["train", "configs/quickstart.yaml", "--dry-run", "max_prompt_length=8"]
    command += [
        f"data={{name: rows, path: {tmp_path}/rows.jsonl, verifier: math}}",
        "evaluation.data=[]",
    ]
    assert main(command) == 2
    assert main([*command, "overlong_prompts=drop"]) == 0
    shown = capsys.readouterr().out
    assert "rows: 1 problems whose prompt is longer than max_prompt_length" in shown
    assert "rows: 2 problems" in shown


@pytest.mark.parametrize("template", [None, "none"])
def test_many_prompts_are_encoded_as_each_alone(template, monkeypatch):
    monkeypatch.setattr(prompts, "_BATCH_SIZE", 2)
    encoder = prompts.PromptEncoder(MODEL, chat_template=template, completion_prefix="1")
    problems = [*SHORT, LONG, ask(4, ""), ask(5, "9-")]
    encoded = encoder.encode_all(problems)
    assert list(encoded) == [problem.id for problem in problems]
    for problem in problems:
        alone = encoder.tokenizer(encoder.render(problem), add_special_tokens=template == "none")[
            "input_ids"
        ]
        assert encoded[problem.id] == tuple(alone)
