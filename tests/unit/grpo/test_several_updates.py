"""Several updates on a batch, KL in the reward, adaptive weights: against the loss written out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from grpo.algorithms.objective import Objective
from grpo.algorithms.presets import resolve_objective
from grpo.learner.batching import split_by_groups
from grpo.learner.invariants import InvariantBroken
from grpo.learner.learner import Learner
from grpo.learner.passes import Passes

EPSILON, TEMPERATURE = 0.2, 0.7


class Naive:
    """The same model, trained by the formulas as they stand in the papers."""

    def __init__(self, options, learning_rate: float) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
        self.model.eval()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=learning_rate, weight_decay=0.0
        )

    def logprobs(self, sample) -> torch.Tensor:
        ids = torch.tensor([[*sample.prompt_ids, *sample.completion_ids]])
        logits = self.model(ids).logits[0] / TEMPERATURE
        chosen = torch.tensor(sample.completion_ids)[:, None]
        log_p = torch.log_softmax(logits, -1)[len(sample.prompt_ids) - 1 : -1]
        return log_p.gather(1, chosen).squeeze(1)

    def frozen(self, samples) -> list[torch.Tensor]:
        with torch.no_grad():
            return [self.logprobs(sample) for sample in samples]

    def step(self, loss: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def clipped(new, old, advantage):
    ratio = (new - old).exp()
    return torch.maximum(-ratio * advantage, -ratio.clamp(1 - EPSILON, 1 + EPSILON) * advantage)


def token_mean(losses: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(losses).mean()


def assert_same_weights(learner: Learner, naive: Naive) -> None:
    state = naive.model.state_dict()
    for name, tensor in learner.named_weights():
        # AdamW divides by the root of the squared gradient: noise in a tiny one grows.
        torch.testing.assert_close(tensor, state[name], rtol=0, atol=2e-5)


@pytest.fixture
def bare(options):
    """Options without clipping of the gradient, at a rate that moves the ratios beyond the clip."""
    return replace(
        options,
        temperature=TEMPERATURE,
        max_grad_norm=0.0,
        learning_rate=3e-3,
        adam_betas=(0.9, 0.999),
        objective=Objective(),
    )


def test_every_iteration_clips_against_the_policy_before_the_first(bare, samples, build):
    learner = Learner(replace(bare, num_iterations=3))
    report = learner.update(build.batch(samples))
    naive = Naive(bare, 3e-3)
    old = naive.frozen(samples)
    losses = []
    for _ in range(3):
        parts = [
            clipped(naive.logprobs(s), o, s.advantage) for s, o in zip(samples, old, strict=True)
        ]
        losses.append(token_mean(parts))
        naive.step(losses[-1])
    assert_same_weights(learner, naive)
    assert report.metrics["num_updates"] == 3
    assert report.metrics["loss"] == pytest.approx(torch.stack(losses).sum().item() / 3, abs=1e-5)
    assert report.metrics["clip_ratio/region_mean"] > 0
    assert report.metrics["ratio/max"] > 1 + EPSILON
    assert learner.updates_done == 3


def test_each_mini_batch_has_its_own_groups_and_its_own_normaliser(bare, samples, build):
    objective = Objective(policy_loss="reinforce")
    together = Learner(replace(bare, objective=objective, num_mini_batches=3))
    metrics = together.update(build.batch(samples)).metrics
    apart = Learner(replace(bare, objective=objective))
    for group in split_by_groups(samples, 3):
        apart.update(build.batch(group))
    for (_, one), (_, other) in zip(together.named_weights(), apart.named_weights(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    assert metrics["num_updates"] == 3
    assert metrics["num_loss_tokens"] == sum(s.num_loss_tokens for s in samples)


def test_groups_are_never_split_and_silent_ones_make_no_update(samples):
    masked = [replace(s, masked=s.problem_id == "p1") for s in samples]
    assert [{s.problem_id for s in part} for part in split_by_groups(masked, 9)] == [{"p0"}, {"p2"}]
    assert [len(part) for part in split_by_groups(samples, 2)] == [4, 8]
    assert split_by_groups([], 2) == []


def test_a_policy_that_is_not_itself_at_the_first_pass_stops_the_run(
    bare, samples, build, monkeypatch
):
    score = Passes.score

    def disturbed(self, *args, **kwargs):
        found = score(self, *args, **kwargs)
        assert found.start_logprobs is not None
        return replace(found, start_logprobs=found.start_logprobs + 0.01)

    monkeypatch.setattr(Passes, "score", disturbed)
    with pytest.raises(InvariantBroken, match=r"ratio_one_at_first_pass.*of problem 'p"):
        Learner(replace(bare, num_iterations=2)).update(build.batch(samples))


def test_later_updates_may_leave_ratio_one(bare, samples, build):
    learner = Learner(replace(bare, num_iterations=2, num_mini_batches=2, beta=0.1))
    for step in (1, 2):
        metrics = learner.update(build.batch(samples, step)).metrics
        assert metrics["num_updates"] == 4
    assert metrics["kl"] > 0


def test_kl_is_taken_off_the_reward_of_whole_completions(bare, samples, build):
    """RLOO as its paper has it: R - beta sum(log policy - log reference), the others' mean off."""
    beta, objective = 0.3, resolve_objective("rloo", {"loss_reduction": "token_mean"})
    learner = Learner(replace(bare, objective=objective, beta=beta))
    naive = Naive(bare, 3e-3)
    reference = naive.frozen(samples)
    for step in (1, 2):
        report = learner.update(build.batch(samples, step))
        old = naive.frozen(samples)
        kls = [(o - r).sum().item() for o, r in zip(old, reference, strict=True)]
        paid = [s.reward - beta * k for s, k in zip(samples, kls, strict=True)]
        parts = []
        for index, sample in enumerate(samples):
            others = [
                paid[i]
                for i, other in enumerate(samples)
                if i != index and other.problem_id == sample.problem_id
            ]
            advantage = paid[index] - sum(others) / len(others)
            parts.append(clipped(naive.logprobs(sample), old[index], advantage))
        naive.step(token_mean(parts))
        count = sum(s.num_loss_tokens for s in samples)
        assert report.metrics["kl"] == pytest.approx(sum(kls) / count, abs=1e-5)
        assert report.metrics["loss"] == report.metrics["policy_loss"]
    assert_same_weights(learner, naive)


def test_kl_is_spread_over_the_tokens_that_earned_it(bare, samples, build):
    """REINFORCE++: returns of R at the last token less beta KL at each, whitened over tokens."""
    beta, objective = 0.3, resolve_objective("reinforce_plus_plus")
    learner = Learner(replace(bare, objective=objective, beta=beta))
    naive = Naive(bare, 3e-3)
    reference = naive.frozen(samples)
    for step in (1, 2):
        learner.update(build.batch(samples, step))
        old = naive.frozen(samples)
        returns = []
        for sample, o, r in zip(samples, old, reference, strict=True):
            rewards = -beta * (o - r)
            rewards[-1] += sample.reward
            returns.append(rewards.flip(0).cumsum(0).flip(0))
        flat = torch.cat(returns)
        white = [(x - flat.mean()) / (flat.var() + 1e-8).sqrt() for x in returns]
        naive.step(
            token_mean(
                [
                    clipped(naive.logprobs(s), o, a)
                    for s, o, a in zip(samples, old, white, strict=True)
                ]
            )
        )
    assert_same_weights(learner, naive)


@pytest.mark.parametrize("placement", ["loss", "reward"])
def test_beta_follows_its_target_and_goes_on_from_a_checkpoint(
    bare, samples, build, tmp_path, placement
):
    options = replace(
        bare,
        objective=Objective(
            kl_placement=placement, kl_estimator="k1" if placement == "reward" else "k3_ratio"
        ),
        beta=0.1,
        kl_target=1e-6,
        kl_horizon=100.0,
    )
    learner = Learner(options)
    betas = [learner.update(build.batch(samples, step)).metrics["beta"] for step in (1, 2, 3)]
    assert betas[0] == 0.1
    assert betas[1] == pytest.approx(0.1 * (1 - 0.2 * len(samples) / 100)), "no KL yet"
    # Completions that the policy did not draw can make the mean of k1 negative.
    assert betas[2] != betas[1] if placement == "reward" else betas[2] > betas[1]
    learner.state.begin_save(tmp_path)
    learner.state.finish_save()
    resumed = Learner(options)
    resumed.state.load(tmp_path)
    assert resumed.coefficients.beta == learner.coefficients.beta != betas[2]
    changed = Learner(replace(options, kl_target=None, beta=0.5))
    changed.state.load(tmp_path)
    assert changed.coefficients.beta == 0.5, "a fixed weight is the configuration's"


def test_the_bonus_raises_entropy_only_below_its_target(bare, samples, build):
    def entropies(**changes):
        learner = Learner(replace(bare, **changes))
        return [
            learner.update(build.batch(samples, step)).metrics["entropy"] for step in range(1, 5)
        ]

    plain = entropies()
    assert entropies(entropy_coef=0.5)[-1] > plain[-1] + 1e-3
    assert entropies(entropy_coef=0.5, entropy_target=plain[-1] / 2) == plain
    followed = Learner(
        replace(bare, entropy_target=10.0, entropy_coef_delta=0.3, entropy_coef_max=0.5)
    )
    coefficients = [
        followed.update(build.batch(samples, step)).metrics["entropy_coef"] for step in (1, 2, 3)
    ]
    assert coefficients == [0.0, 0.3, 0.5]


def test_importance_weights_are_those_of_the_stored_logprobs(bare, samples, build):
    objective = Objective(importance_sampling="token_mask", importance_min=0.5, importance_max=2.0)
    naive = Naive(bare, 3e-3)
    start = naive.frozen(samples)
    # A sampler that is off by a third at every second token, and by far at the first.
    stored = [
        replace(s, sampler_logprobs=tuple((o + shift(len(o))).tolist()))
        for s, o in zip(samples, start, strict=True)
    ]
    report = Learner(replace(bare, objective=objective)).update(build.batch(stored))
    weights = torch.cat([(-shift(len(o))).exp() for o in start])
    weights = torch.where((weights < 0.5) | (weights > 2), 0.0, weights)
    advantages = torch.cat(
        [torch.full((len(o),), s.advantage) for s, o in zip(samples, start, strict=True)]
    )
    assert report.metrics["loss"] == pytest.approx((-weights * advantages).mean().item(), abs=1e-5)
    assert report.metrics["sampling/kept_fraction"] == pytest.approx((weights > 0).float().mean())
    assert report.metrics["sampling/importance_weight_mean"] == pytest.approx(weights.mean())
    size = weights.sum() ** 2 / (len(weights) * weights.square().sum())
    assert report.metrics["sampling/effective_sample_size"] == pytest.approx(size)


def shift(length: int) -> torch.Tensor:
    values = torch.tensor([0.0, 0.3]).repeat(length)[:length]
    values[0] = 2.0
    return values


def test_normalised_weights_have_mean_one_whatever_the_micro_batches(bare, samples, build):
    objective = Objective(importance_sampling="token_truncate", importance_normalise=True)
    found = []
    for budget in (15, 1000):
        options = replace(bare, objective=objective, max_tokens_per_microbatch=budget)
        found.append(Learner(options).update(build.batch(samples)).metrics)
    assert found[0]["sampling/importance_weight_mean"] == pytest.approx(1.0)
    assert found[0]["grad_norm"] == pytest.approx(found[1]["grad_norm"], rel=1e-4)


def test_ratios_to_the_sampler_need_no_pass_of_their_own(bare, samples, build):
    objective = Objective(old_logprobs="sampler")
    learner = Learner(replace(bare, objective=objective))
    metrics = learner.update(build.batch(samples)).metrics
    expected = torch.cat(Naive(bare, 0.0).frozen(samples)) + 3.0
    assert metrics["ratio/mean"] == pytest.approx(expected.exp().mean().item(), rel=1e-4)


def test_a_non_finite_update_ends_the_work_on_its_batch(bare, samples, build):
    learner = Learner(replace(bare, num_iterations=3))
    bad = [replace(s, advantage=1e38 * s.advantage) for s in samples]
    report = learner.update(build.batch(bad))
    assert report.skipped is not None
    assert report.metrics["num_updates"] == learner.updates_done == 0
