"""Any split of a batch covers it once, keeps the budget, and gives the same gradient."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen2Config, Qwen2ForCausalLM

from grpo.algorithms.losses import LOSSES
from grpo.algorithms.objective import Objective
from grpo.algorithms.presets import PRESETS
from grpo.algorithms.reductions import REDUCTIONS, count_normaliser
from grpo.learner.batching import plan_microbatches, weigh_samples
from grpo.learner.layout import build_tensors
from grpo.learner.microbatch import TokenScores, compute_microbatch_loss
from grpo.learner.policy import Policy
from grpo.learner.statistics import Statistics
from grpo.seeding import seed_everything
from grpo.values import TrainSample

CPU = torch.device("cpu")
LENGTHS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12)), min_size=1, max_size=20)


def make_samples(lengths, seed: int = 0) -> list[TrainSample]:
    draw = random.Random(seed)
    return [
        TrainSample(
            problem_id=f"p{index // 2}",
            member=index % 2,
            prompt_ids=tuple(draw.randrange(23) for _ in range(prompt)),
            completion_ids=tuple(draw.randrange(23) for _ in range(completion)),
            sampler_logprobs=(-1.0,) * completion,
            advantage=draw.gauss(0, 1),
            policy_version=0,
        )
        for index, (prompt, completion) in enumerate(lengths)
    ]


@given(
    lengths=LENGTHS,
    budget=st.integers(21, 200),
    world_size=st.integers(1, 5),
    packed=st.booleans(),
)
def test_plan_covers_the_batch_once_within_the_budget(lengths, budget, world_size, packed):
    samples = make_samples(lengths)
    weighted = weigh_samples(samples, reduction="token_mean", max_completion_length=12)
    shares = plan_microbatches(weighted, max_tokens=budget, world_size=world_size, packed=packed)
    assert len({len(share) for share in shares}) == 1
    microbatches = [micro for share in shares for micro in share]
    learned = [m.sample for micro in microbatches for m in micro if not m.sample.masked]
    assert sorted(map(id, learned)) == sorted(map(id, samples))
    for micro in microbatches:
        lengths = [m.sample.num_tokens for m in micro]
        assert (sum(lengths) if packed else len(lengths) * max(lengths)) <= budget
    total = sum(m.token_weight * m.sample.num_loss_tokens for micro in microbatches for m in micro)
    assert total == sum(sample.num_loss_tokens for sample in samples)


@pytest.fixture(scope="module")
def policy() -> Policy:
    config = Qwen2Config(
        vocab_size=23,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng():
        seed_everything(5)
        return Policy(Qwen2ForCausalLM(config).double().eval(), temperature=0.9)


def compute_gradient(
    policy, samples, objective, *, budget: int, world_size: int, packed: bool
) -> torch.Tensor:
    """The gradient as ranks and micro-batches add it up."""
    weighted = weigh_samples(samples, reduction=objective.loss_reduction, max_completion_length=12)
    shares = plan_microbatches(weighted, max_tokens=budget, world_size=world_size, packed=packed)
    policy.zero_grad()
    for micro in (micro for share in shares for micro in share):
        tensors = build_tensors(micro, CPU, packed=packed)
        logprobs, entropies = policy(
            tensors.input_ids, tensors.positions, tensors.targets, tensors.position_ids
        )
        # Old and reference policies that depend on the token alone, so that every split sees the
        # same.
        old = logprobs.detach() + 0.3 * torch.sin(tensors.targets.double())
        scores = TokenScores(
            logprobs=logprobs,
            entropies=entropies,
            start_logprobs=old,
            reference_logprobs=old - 0.2 * torch.cos(tensors.targets.double()),
            own=torch.ones_like(tensors.targets, dtype=torch.bool),
        )
        loss = compute_microbatch_loss(
            scores,
            tensors,
            objective=objective,
            beta=0.1,
            entropy_coef=0.01,
            statistics=Statistics(),
        )
        loss.backward()
    normaliser = count_normaliser(
        [s.num_loss_tokens for s in samples],
        groups=[s.group_key for s in samples],
        reduction=objective.loss_reduction,
    )
    gradients = [p.grad.flatten() / normaliser for p in policy.parameters() if p.grad is not None]
    return torch.cat(gradients)


OBJECTIVES = {
    f"{loss}-{reduction}": Objective(policy_loss=loss, loss_reduction=reduction, epsilon_high=1.5)
    for loss in LOSSES
    for reduction in REDUCTIONS
} | {
    "dapo-tis": replace(PRESETS["dapo"], importance_sampling="token_truncate"),
    "dapo-icepop": replace(PRESETS["dapo"], importance_sampling="token_mask", importance_min=0.5),
    "grpo-sequence_tis": replace(PRESETS["grpo"], importance_sampling="sequence_truncate"),
    "grpo-sequence_mis": replace(PRESETS["grpo"], importance_sampling="sequence_mask"),
    "dapo-geometric": replace(
        PRESETS["dapo"], rejection_sampling="sequence_geometric", rejection_max=1.0
    ),
    "dapo-k3": replace(PRESETS["dapo"], rejection_sampling="sequence_k3", rejection_max=0.5),
    "dapo-opsm": replace(PRESETS["dapo"], off_policy_mask_threshold=0.1),
    "dapo-sampler": replace(PRESETS["dapo"], old_logprobs="sampler"),
    "grpo-k2": replace(PRESETS["grpo"], kl_estimator="k2"),
    "grpo-k3": replace(PRESETS["grpo"], kl_estimator="k3"),
}


@pytest.mark.parametrize("name", OBJECTIVES)
@settings(max_examples=3)
@given(
    lengths=LENGTHS,
    budget=st.integers(21, 300),
    world_size=st.sampled_from([1, 2, 4]),
    packed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_split_has_the_same_gradient(policy, name, lengths, budget, world_size, packed, seed):
    objective = OBJECTIVES[name]
    samples = make_samples(lengths, seed)
    samples[-1] = replace(samples[-1], masked=len(samples) > 1)
    whole = compute_gradient(policy, samples, objective, budget=10_000, world_size=1, packed=False)
    random.Random(seed).shuffle(samples)
    split = compute_gradient(
        policy, samples, objective, budget=budget, world_size=world_size, packed=packed
    )
    torch.testing.assert_close(split, whole, rtol=0, atol=1e-9)
