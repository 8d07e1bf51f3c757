"""One rank: gradients, invariants, skipped steps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from grpo.algorithms.presets import PRESETS, resolve_objective
from grpo.learner.invariants import InvariantBroken
from grpo.learner.learner import Learner
from grpo.learner.reference import PolicyCopy
from verifiers.errors import UserError


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in learner.named_weights()}


def test_update_equals_plain_autograd_on_padded_logits(options, samples, build):
    """The whole path against the loss written out naively with the model's own logits."""
    options = replace(options, temperature=0.7, max_grad_norm=0.0, weight_decay=0.1)
    learner = Learner(options)
    report = learner.update(build.batch(samples))

    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    decay = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    count = sum(len(s.completion_ids) for s in samples)
    total = torch.zeros(())
    for s in samples:
        ids = torch.tensor([[*s.prompt_ids, *s.completion_ids]])
        log_p = torch.log_softmax(model(ids).logits[0] / 0.7, -1)[len(s.prompt_ids) - 1 : -1]
        chosen = log_p.gather(1, torch.tensor(s.completion_ids)[:, None])
        total = total - s.advantage * (chosen - chosen.detach()).exp().sum() / count
    total.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), math.inf)
    optimizer.step()

    assert report.skipped is None
    assert report.metrics["loss"] == pytest.approx(total.item(), abs=1e-6)
    assert report.metrics["grad_norm"] == pytest.approx(norm.item(), rel=1e-5)
    for name, tensor in learner.named_weights():
        # AdamW divides by the root of the squared gradient: noise in a tiny one grows.
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("loss_type", PRESETS)
def test_any_token_budget_gives_the_same_gradient_norm(options, samples, build, loss_type):
    objective = resolve_objective(loss_type)
    norms = []
    for budget in (15, 40, 1000):
        learner = Learner(
            replace(options, objective=objective, beta=0.1, max_tokens_per_microbatch=budget)
        )
        # A second update, so that the policy is no longer its reference.
        learner.update(build.batch(samples))
        norms.append(learner.update(build.batch(samples)).metrics["grad_norm"])
    assert norms[0] > 0
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-4)


def test_first_step_has_ratio_one_and_no_divergence(options, samples, build):
    learner = Learner(replace(options, beta=0.04))
    first = learner.update(build.batch(samples)).metrics
    assert first["kl"] == 0.0
    assert first["ratio/mean"] == first["ratio/max"] == 1.0
    assert first["clip_ratio/region_mean"] == 0.0
    assert first["loss"] == first["policy_loss"]
    second = learner.update(build.batch(samples, step=2)).metrics
    assert second["kl"] > 0.0
    assert second["loss"] == pytest.approx(second["policy_loss"] + 0.04 * second["kl"], abs=1e-7)


def test_at_rate_zero_everything_is_computed_and_nothing_moves(options, samples, build):
    learner = Learner(replace(options, learning_rate=0.0, weight_decay=0.1, warmup_steps=2))
    before = {name: tensor.clone() for name, tensor in learner.named_weights()}
    reports = [learner.update(build.batch(samples, step)).metrics for step in (1, 2, 3)]
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.named_weights())
    assert reports[0]["grad_norm"] > 0
    assert [r["grad_norm"] for r in reports] == [reports[0]["grad_norm"]] * 3


def test_no_reference_is_built_without_beta(options, samples, build):
    learner = Learner(options)
    assert learner.reference is None
    assert "kl" not in learner.update(build.batch(samples)).metrics


def test_true_sampler_logprobs_pass_and_are_measured(options, samples, build):
    learner = Learner(replace(options, check_sampler_logprobs=True, temperature=0.8))
    report = learner.update(build.batch(build.with_true_logprobs(learner, samples)))
    assert report.metrics["sampling/sampling_logp_difference/max"] < 1e-5


def test_wrong_sampler_logprob_stops_the_run_and_names_the_sample(options, samples, build):
    learner = Learner(replace(options, check_sampler_logprobs=True))
    samples = build.with_true_logprobs(learner, samples)
    wrong = (*samples[6].sampler_logprobs[:-1], samples[6].sampler_logprobs[-1] - 0.01)
    samples[6] = replace(samples[6], sampler_logprobs=wrong)
    before = weights(learner)
    with pytest.raises(InvariantBroken, match=r"sampler_logprobs.*completion 2 of problem 'p1'"):
        learner.update(build.batch(samples))
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.named_weights())


def test_a_temperature_that_is_not_the_samplers_stops_the_run(options, samples, build):
    learner = Learner(replace(options, check_sampler_logprobs=True, temperature=1.0))
    drawn = build.with_true_logprobs(Learner(replace(options, temperature=0.8)), samples)
    with pytest.raises(InvariantBroken, match="sampler_logprobs"):
        learner.update(build.batch(drawn))


def test_a_breach_may_be_noted_instead_and_the_update_made(options, samples, build):
    learner = Learner(replace(options, check_sampler_logprobs=True, on_breach="warn"))
    before = weights(learner)
    report = learner.update(build.batch(samples[:-1]))
    assert report.skipped is None
    assert any(not torch.equal(before[name], tensor) for name, tensor in learner.named_weights())
    assert "'group_mean' is broken" in report.breaches[0]
    assert "'sampler_logprobs' is broken" in report.breaches[1]
    assert len(report.breaches) == 3
    true = build.with_true_logprobs(learner, samples)
    assert learner.update(build.batch(true, step=2)).breaches == ()
    with pytest.raises(InvariantBroken, match="normaliser"):
        learner.update(replace(build.batch(samples), num_loss_tokens=1))


def test_the_bound_of_the_sampler_check_can_be_set(options, samples, build):
    loose = replace(options, check_sampler_logprobs=True, max_logprob_difference=100.0)
    assert Learner(loose).update(build.batch(samples)).skipped is None


def test_a_shift_that_no_completion_shows_is_seen_in_the_batch(options, samples, build):
    checked = replace(options, check_sampler_logprobs=True, max_logprob_difference=0.01)
    learner = Learner(replace(checked, on_breach="warn"))
    # Beyond what 50 tokens allow, below what 9 do, and there are no longer completions.
    shift = 0.05
    shifted = [
        replace(s, sampler_logprobs=tuple(value + shift for value in s.sampler_logprobs))
        for s in build.with_true_logprobs(learner, samples)
    ]
    (breach,) = learner.update(build.batch(shifted)).breaches
    assert "sampler_logprobs" in breach
    assert f"{build.batch(shifted).num_loss_tokens} tokens of step 1" in breach
    learner.policy_version = 1
    assert learner.update(build.batch(shifted, step=2)).breaches == ()


def test_samples_of_an_older_policy_are_exempt_from_the_sampler_check(options, samples, build):
    learner = Learner(replace(options, check_sampler_logprobs=True))
    learner.policy_version = 3
    assert learner.update(build.batch(samples)).skipped is None


def test_reference_that_differs_at_the_first_step_stops_the_run(options, samples, build):
    learner = Learner(replace(options, beta=0.1))
    assert isinstance(learner.reference, PolicyCopy)
    with torch.no_grad():
        next(learner.reference.policy.parameters()).mul_(1.5)
    with pytest.raises(InvariantBroken, match="kl_zero_at_first_step"):
        learner.update(build.batch(samples))


def test_ranks_that_learn_from_different_batches_stop_the_run(options, samples, build):
    learner = Learner(options)
    # What a second rank says that has half of the batch.
    learner._gather = lambda values: torch.cat([values, values / 2])
    with pytest.raises(InvariantBroken, match=r"normaliser.*the ranks learned from"):
        learner.update(build.batch(samples))


def test_wrong_normaliser_stops_the_run(options, samples, build):
    batch = build.batch(samples)
    with pytest.raises(InvariantBroken, match="normaliser"):
        Learner(options).update(replace(batch, num_loss_tokens=batch.num_loss_tokens + 1))


def test_group_whose_mean_is_not_zero_stops_the_run(options, samples, build):
    with pytest.raises(InvariantBroken, match=r"group_mean.*'p2'"):
        Learner(options).update(build.batch(samples[:-1]))


def test_missing_sampler_logprobs_stop_the_run(options, samples, build):
    samples[0] = replace(samples[0], sampler_logprobs=())
    with pytest.raises(InvariantBroken, match="mask_lengths"):
        Learner(options).update(build.batch(samples))


def test_overflow_skips_the_step_and_the_next_one_works(options, samples, build):
    learner = Learner(options)
    before = weights(learner)
    bad = [replace(s, advantage=1e38 * s.advantage) for s in samples]
    report = learner.update(build.batch(bad))
    assert report.skipped is not None
    assert "non-finite" in report.skipped
    assert report.non_finite == report.skipped
    assert learner.updates_done == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.named_weights())
    assert learner.update(build.batch(samples)).skipped is None


def test_masked_completions_teach_nothing(options, samples, build):
    masked = [replace(s, masked=s.member >= 2) for s in samples]
    dropped = [s for s in samples if s.member < 2]
    one, other = Learner(options), Learner(options)
    first = one.update(build.batch(masked)).metrics
    second = other.update(build.batch(dropped)).metrics
    assert {k: v for k, v in first.items() if k != "seconds"} == {
        k: v for k, v in second.items() if k != "seconds"
    }
    everything = [replace(s, masked=True) for s in samples]
    assert one.update(build.batch(everything)).skipped == "no loss tokens"


def test_warm_up_and_schedule_reach_the_optimizer(options, samples, build):
    learner = Learner(
        replace(options, warmup_steps=1, lr_scheduler="linear", total_steps=3, learning_rate=0.01)
    )
    rates = [
        learner.update(build.batch(samples, step)).metrics["learning_rate"] for step in (1, 2, 3)
    ]
    assert rates == pytest.approx([0.005, 0.01, 0.005])


def test_gradient_checkpointing_changes_nothing_but_memory(options, samples, build):
    plain, frugal = Learner(options), Learner(replace(options, gradient_checkpointing=True))
    for learner in (plain, frugal):
        learner.update(build.batch(samples))
    for (name, one), (_, other) in zip(plain.named_weights(), frugal.named_weights(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-7, msg=name)


def test_bfloat16_keeps_float32_master_weights(options, samples, build):
    learner = Learner(replace(options, precision="bfloat16", beta=0.1))
    report = learner.update(build.batch(samples))
    assert report.skipped is None
    assert {p.dtype for p in learner.policy.parameters()} == {torch.float32}
    assert {tensor.dtype for _, tensor in learner.named_weights()} == {torch.bfloat16}
    assert report.metrics["ratio/max"] == 1.0


def test_weights_are_served_in_the_engines_type(options):
    learner = Learner(replace(options, engine_dtype="bfloat16"))
    assert learner.score([1, 2], [3]) == Learner(options).score([1, 2], [3])
    laid_out = [(name, tensor.dtype) for name, tensor in learner.lay_out_weights()]
    assert laid_out == [(name, tensor.dtype) for name, tensor in learner.named_weights()]
    assert {dtype for _, dtype in laid_out} == {torch.bfloat16}


def test_weights_have_hugging_face_names_and_tied_ones_appear_once(options):
    names = [name for name, _ in Learner(options).named_weights()]
    assert names[0] == "model.embed_tokens.weight"
    assert "lm_head.weight" not in names
    assert len(names) == len(set(names))


def test_probes_are_scored_at_temperature_1_whatever_training_uses(options):
    cold, warm = (Learner(replace(options, temperature=t)) for t in (0.5, 1.0))
    assert cold.score([1, 2], [3]) == warm.score([1, 2], [3])


@pytest.mark.parametrize("loss_type", PRESETS)
def test_training_raises_the_rewarded_completions_over_the_others(
    options, samples, build, loss_type
):
    learner = Learner(
        replace(
            options, learning_rate=3e-3, objective=resolve_objective(loss_type), num_iterations=2
        )
    )

    def gap() -> float:
        return sum(
            s.advantage * sum(learner.score(s.prompt_ids, s.completion_ids)) for s in samples
        )

    before = gap()
    for step in range(1, 4):
        learner.update(build.batch(samples, step))
    assert gap() > before + 1


def test_model_that_scales_its_logits_is_refused(options, monkeypatch):
    learner = Learner(options)
    original = type(learner.policy.model).forward

    def scaled(self, *args, **kwargs):
        output = original(self, *args, **kwargs)
        output.logits = output.logits * 2
        return output

    monkeypatch.setattr(type(learner.policy.model), "forward", scaled)
    with pytest.raises(UserError, match="does more to its logits"):
        learner.policy.check_output_layer()
