import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.logprobs import (
    append_logprobs_for_next_position,
    create_prompt_logprobs,
    create_sample_logprobs,
)

from grpo.rollout.vllm_translation import make_sampling_params, read_output
from grpo.values import SamplingOptions

PROMPT, TOKENS = [5, 6, 7], [9, 8, 9, 1]


def keep(logprobs, token_ids):
    for place, token in enumerate(token_ids):
        append_logprobs_for_next_position(
            logprobs, [token], [-0.1 * (place + 1)], itertools.repeat(None), 1, 0
        )
    return logprobs


def make_output(logprobs, prompt_logprobs=None):
    completion = SimpleNamespace(
        token_ids=TOKENS,
        logprobs=logprobs,
        finish_reason="stop",
        weight_versions=[
            SimpleNamespace(start=0, end=1, version="3"),
            SimpleNamespace(start=1, end=4, version="4"),
        ],
    )
    output: Any = SimpleNamespace(
        request_id="r",
        prompt_token_ids=PROMPT,
        prompt_logprobs=prompt_logprobs,
        outputs=[completion],
    )
    return output


@pytest.fixture
def flat():
    params = make_sampling_params(
        SamplingOptions(max_completion_length=4, stop_token_ids=(1,)), seed=0
    )
    assert params.logprobs == 0, "of the token that was drawn and of no other"
    return params.flat_logprobs


def test_each_token_has_its_own_log_probability(flat):
    prompt = keep(create_prompt_logprobs(flat), PROMPT[1:])
    found = read_output(make_output(keep(create_sample_logprobs(flat), TOKENS), prompt))
    assert list(found.token_ids) == TOKENS
    assert list(found.logprobs) == pytest.approx([-0.1, -0.2, -0.3, -0.4])
    assert list(found.prompt_logprobs) == pytest.approx([-0.1, -0.2])
    assert list(found.policy_versions) == [3, 4, 4, 4]


def test_log_probabilities_of_other_tokens_are_noticed(flat):
    with pytest.raises(AssertionError, match="of other tokens"):
        read_output(make_output(keep(create_sample_logprobs(flat), [9, 8, 8, 1])))
