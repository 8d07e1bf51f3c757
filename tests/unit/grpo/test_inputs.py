import json
from pathlib import Path

import pytest

from grpo.config.schema import RunConfig
from grpo.inputs import load_inputs
from verifiers.errors import UserError


@pytest.fixture
def make_config(tmp_path):
    def _make(golds, **options):
        rows = [{"prompt": "q", "answer": gold} for gold in golds]
        file = tmp_path / "set.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        data = {"path": str(file), "name": "set", "verifier": "math"}
        return RunConfig.model_validate({"model": "embedded:quickstart", "data": data} | options)

    return _make


BAD = "\\frac{1"


def test_one_unreadable_reference_is_an_error_with_its_place(make_config):
    with pytest.raises(UserError) as caught:
        load_inputs(make_config(["1", BAD, "3"]))
    message = str(caught.value)
    for fragment in ("1 of 3 problems of 'set'", "set.jsonl:2", "max_bad_references"):
        assert fragment in message


def test_where_there_is_no_reference_the_columns_are_named(make_config):
    config = make_config(["1"])
    (first,) = config.data
    Path(first.path).write_text('{"prompt": "q", "target": "1", "level": 2}')
    with pytest.raises(UserError, match="its columns are: level, target"):
        load_inputs(config)


def test_a_share_of_them_may_be_left_out_and_is_kept_count_of(make_config):
    inputs = load_inputs(make_config(["1", BAD, "3", "4"], max_bad_references=0.25))
    assert [problem.reference for problem in inputs.train_sets["set"]] == ["1", "3", "4"]
    (complaint,) = inputs.left_out["set"]
    assert "set.jsonl:2" in complaint


def test_more_than_the_share_is_an_error(make_config):
    with pytest.raises(UserError, match="2 of 4 problems"):
        load_inputs(make_config(["1", BAD, BAD, "4"], max_bad_references=0.25))


def test_a_set_is_never_left_empty(make_config):
    with pytest.raises(UserError, match="1 of 1 problems"):
        load_inputs(make_config([BAD], max_bad_references=1.0))


def test_a_missing_verifier_is_no_bad_reference(make_config):
    config = make_config(["1"], max_bad_references=1.0)
    data = config.data[0].model_copy(update={"verifier": "maths"})
    with pytest.raises(UserError, match="maths"):
        load_inputs(config.model_copy(update={"data": (data,)}))


def test_sets_that_want_one_verifier_differently_are_told_apart(make_config):
    config = make_config(["1"])
    (first,) = config.data
    lenient = first.model_copy(
        update={"name": "other", "verifier_options": {"extraction": "lenient"}}
    )
    strict = first.model_copy(update={"verifier_options": {"extraction": "boxed"}})
    with pytest.raises(UserError, match="'other' wants extraction='lenient'"):
        load_inputs(config.model_copy(update={"data": (strict, lenient)}))
    inputs = load_inputs(config.model_copy(update={"data": (first, lenient)}))
    assert inputs.verifier_options == {"math": {"extraction": "lenient"}}


def test_held_out_problems_that_are_trained_on_are_found_before_training(make_config):
    config = make_config(["1"])
    (data,) = config.data
    held_out = config.evaluation.model_copy(
        update={"data": (data.model_copy(update={"name": "held"}),)}
    )
    inputs = load_inputs(config.model_copy(update={"evaluation": held_out}))
    assert [overlap.kind for overlap in inputs.overlaps["held"]] == ["same"]


def test_a_run_without_any_set_is_refused(make_config):
    with pytest.raises(UserError, match="neither data nor evaluation"):
        load_inputs(make_config(["1"]).model_copy(update={"data": ()}))
