"""Follows one prompt from the recipe to the published weights, and asserts every value on its way.

The README's ten links lead through the same code. What the parts compute is computed again here
from first principles: with regular expressions, the statistics module and plain transformers.
"""

from __future__ import annotations

import json
import re
import statistics

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo.assemble import assemble_batch
from grpo.cluster import start_ray, stop_ray
from grpo.config.schema import RunConfig
from grpo.inputs import load_inputs
from grpo.preparation import prepare
from grpo.seeding import derive_seed
from grpo.timing import Timeline
from grpo.values import SamplingOptions
from grpo.wiring.engines import make_sampling
from grpo.wiring.machinery import Machinery
from grpo.wiring.recovery import make_publisher
from grpo.wiring.stages import make_batch_policy, make_collector, make_sampler
from verifiers.incident import ignore_incident

GROUP = 8
GREEDY_TOKENS = 24


@pytest.fixture
def config(tmp_path):
    row = {"id": "a", "prompt": [{"role": "user", "content": "37+48="}], "answer": "85"}
    (tmp_path / "one.jsonl").write_text(json.dumps(row) + "\n")
    return RunConfig.model_validate(
        {
            "model": "embedded:quickstart",
            "data": {"path": str(tmp_path / "one.jsonl"), "name": "one", "verifier": "math"},
            "prompts_per_step": 1,
            "num_generations": GROUP,
            "max_prompt_length": 32,
            "max_completion_length": GREEDY_TOKENS,
            "learning_rate": 1e-3,
            "beta": 0.04,
            "verification": {"num_workers": 1},
        }
    )


@pytest.fixture
def prepared(config):
    return prepare(config, load_inputs(config), "cpu")


@pytest.fixture
def machinery(config, prepared):
    start_ray(config.ray)
    parts = Machinery(
        config, prepared, with_learner=True, note=ignore_incident, timeline=Timeline()
    )
    try:
        parts.start(lambda _: None)
        yield parts
    finally:
        parts.close()
        stop_ray()


def logprobs_of(model, prompt_ids, completion_ids):
    ids = torch.tensor([[*prompt_ids, *completion_ids]])
    logits = model(ids).logits[0, len(prompt_ids) - 1 : -1]
    return logits.log_softmax(-1).gather(1, ids[0, len(prompt_ids) :, None]).squeeze(1)


def seeded_group_with_a_spread(collector, sampler, sampling):
    """The first step whose completions are neither all right nor all wrong."""
    for step in range(1, 20):
        (group,) = collector.collect(
            sampler.draw(step), sampling, group_size=GROUP, seed_parts=(0, step)
        )
        if 0 < sum(group.rewards) < GROUP:
            return step, group
    return pytest.fail("no step has both right and wrong answers")


def update_by_hand(model, batch, config):
    """One GRPO update with plain transformers and torch: loss, gradient norm, AdamW."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
    )
    loss = torch.zeros(())
    for sample in batch.samples:
        logprobs = logprobs_of(model, sample.prompt_ids, sample.completion_ids)
        ratio = torch.exp(logprobs - logprobs.detach())
        loss = loss - (ratio * sample.advantage).sum()  # nothing is clipped at ratio 1
        # The reference is the policy itself: the KL term and its gradient are 0.
    loss = loss / sum(len(sample.completion_ids) for sample in batch.samples)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
    optimizer.step()
    return loss.item(), norm.item()


def test_one_prompt_from_recipe_to_published_weights(config, prepared, machinery):
    # 1-3. Row, problem, prompt ids.
    (problem,) = prepared.inputs.train_sets["one"]
    assert (problem.id, problem.verifier, problem.reference) == ("one/a", "math", "85")
    assert problem.source.endswith("one.jsonl:1")
    tokenizer = AutoTokenizer.from_pretrained(prepared.inputs.model)
    prompt_ids = prepared.prompts[problem.id]
    expected_text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "37+48="}], add_generation_prompt=True, tokenize=False
    )
    assert tokenizer.decode(prompt_ids) == expected_text

    # 4. Rollouts: what was asked for, drawn from the policy.
    model = AutoModelForCausalLM.from_pretrained(prepared.inputs.model, dtype=torch.float32)
    collector = make_collector(config, prepared, machinery, Timeline(), lambda: None, shaped=True)
    sampling = make_sampling(config, prepared)
    step, group = seeded_group_with_a_spread(collector, make_sampler(config, prepared), sampling)
    for index, member in enumerate(group.members):
        rollout = member.rollout
        assert rollout.member == index
        assert rollout.seed == derive_seed(0, step, "one/a", index)
        assert rollout.prompt_ids == prompt_ids
        assert set(rollout.policy_versions) == {0}
        assert rollout.text == tokenizer.decode(rollout.completion_ids, skip_special_tokens=True)
        stopped = rollout.completion_ids[-1] in sampling.stop_token_ids
        assert rollout.finish_reason == ("stop" if stopped else "length")
        with torch.no_grad():
            ours = logprobs_of(model, prompt_ids, rollout.completion_ids)
        assert (ours - torch.tensor(rollout.logprobs)).abs().max() < 1e-4

    # 5-7. Verdicts and rewards: right exactly where the last box holds 85.
    for member in group.members:
        boxes = re.findall(r"\\boxed\{(\d+)\}", member.rollout.text)
        right = bool(boxes) and boxes[-1] == "85" and not member.rollout.truncated
        assert member.reward == float(right)
        assert (member.verdict.status == "correct") == right

    # 8. Advantages and batch.
    batch, dropped = assemble_batch([group], step=step, policy=make_batch_policy(config))
    assert dropped == {}
    mean, deviation = statistics.fmean(group.rewards), statistics.stdev(group.rewards)
    for sample, reward in zip(batch.samples, group.rewards, strict=True):
        assert sample.advantage == pytest.approx((reward - mean) / (deviation + 1e-4))
    assert batch.num_loss_tokens == sum(len(m.rollout.completion_ids) for m in group.members)

    # 9. Loss, gradient, step.
    assert machinery.learner is not None
    report = machinery.learner.update(batch)
    loss, norm = update_by_hand(model, batch, config)
    assert report.skipped is None
    assert report.metrics["loss"] == pytest.approx(loss, abs=1e-5)
    assert report.metrics["grad_norm"] == pytest.approx(norm, rel=1e-3)
    assert report.metrics["kl"] == pytest.approx(0.0, abs=1e-7)
    assert report.metrics["ratio/mean"] == pytest.approx(1.0)

    # 10. Published weights: the engine's greedy tokens and log-probabilities are the new policy's.
    probe = (*prompt_ids, *group.members[0].rollout.completion_ids)
    before = machinery.pool.score(probe, len(prompt_ids))[0]
    push = make_publisher(config, prepared, machinery).publish(1, probe)
    assert push["push/probe_logprob_difference"] < 1e-4
    with torch.no_grad():
        ours = logprobs_of(model, prompt_ids, probe[len(prompt_ids) :])
    after = torch.tensor(machinery.pool.score(probe, len(prompt_ids))[0])
    assert (after - ours).abs().mean() < 1e-4
    assert (after - torch.tensor(before)).abs().max() > 1e-3, "the update changed nothing"

    greedy = SamplingOptions(
        temperature=0.0,
        max_completion_length=GREEDY_TOKENS,
        stop_token_ids=sampling.stop_token_ids,
    )
    (group,) = collector.collect([problem], greedy, group_size=1, seed_parts=(0, "greedy"))
    rollout = group.members[0].rollout
    assert set(rollout.policy_versions) == {1}
    expected = model.generate(  # pyright: ignore[reportAttributeAccessIssue]
        torch.tensor([prompt_ids]), max_new_tokens=GREEDY_TOKENS, do_sample=False
    )[0, len(prompt_ids) :].tolist()
    assert list(rollout.completion_ids) == expected
