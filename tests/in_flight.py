"""Completions that are under way while weights are pushed."""

from __future__ import annotations

from dataclasses import replace

import ray

from grpo.values import RolloutRequest, SamplingOptions

NUM_SAMPLES = 16
ENDLESS = SamplingOptions(max_completion_length=400, stop_token_ids=())


def push_in_flight(pool, prompt, push):
    """Rollouts that a push came amid, each some tokens after its begin."""
    request = RolloutRequest(problem_id="p", prompt_ids=prompt, seeds=tuple(range(NUM_SAMPLES)))
    stream = pool.generate([request], ENDLESS)
    _wait_for_tokens(pool, NUM_SAMPLES * 5)
    push()
    return list(stream)


def part_at(rollout, version):
    """A rollout up to the first token of a policy version, and the rest after all of that."""
    new = rollout.policy_versions.index(version)
    head = replace(
        rollout,
        completion_ids=rollout.completion_ids[:new],
        logprobs=rollout.logprobs[:new],
    )
    tail = replace(
        rollout,
        prompt_ids=rollout.prompt_ids + rollout.completion_ids[:new],
        completion_ids=rollout.completion_ids[new:],
        logprobs=rollout.logprobs[new:],
    )
    return head, tail


def _wait_for_tokens(pool, number):
    def count(actor):
        return actor._loop.call(lambda engine: engine.num_generated)

    while ray.get(pool._engines.serving()[0].actor.__ray_call__.remote(count)) < number:
        pass
