import pytest

from grpo.config.data import DataConfig
from grpo.config.schema import RunConfig
from grpo.config.sections import LearnerConfig
from grpo.memory_plan import check_memory, count_parameters, plan_memory
from grpo.paths import find_model
from verifiers.errors import UserError

MODEL = find_model("embedded:quickstart")


def make_plan(**options):
    config = RunConfig(model="m", data=(DataConfig(path="a.jsonl"),), **options)
    return {share.part: share.num_bytes for share in plan_memory(config, MODEL, "float32")}


def test_parameters_are_counted_from_the_files(tmp_path):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(MODEL)
    from pathlib import Path

    assert count_parameters(Path(MODEL)) == model.num_parameters()
    assert count_parameters(tmp_path) is None


def test_a_reference_costs_one_more_copy():
    parameters = 628_992
    without, with_reference = make_plan()["learner states"], make_plan(beta=0.1)["learner states"]
    assert with_reference - without == pytest.approx(4 * parameters)


def test_an_adapter_is_nothing_in_transit():
    assert make_plan(lora_r=8)["weights in transit"] > 0
    assert make_plan(lora_r=8, lora_push="adapter")["weights in transit"] == 0


def test_engines_have_room_for_new_weights_beside_those_they_serve():
    adapters = make_plan(lora_r=8, lora_push="adapter")["engines"]
    assert make_plan()["engines"] - adapters == pytest.approx(4 * 628_992)


@pytest.mark.parametrize(
    "smaller",
    [
        {"max_tokens_per_microbatch": 2048},
        {"learner": LearnerConfig(gradient_checkpointing=True)},
    ],
)
def test_the_knobs_of_the_activations_turn(smaller):
    assert make_plan(**smaller)["learner activations"] < make_plan()["learner activations"]


def test_a_run_that_does_not_fit_is_refused_with_the_knob():
    config = RunConfig(model="m", data=(DataConfig(path="a.jsonl"),))
    shares = plan_memory(config, MODEL, "float32")
    check_memory(shares, available=1e12)
    with pytest.raises(UserError, match=r"largest part, .* made smaller by"):
        check_memory(shares, available=1e9)
