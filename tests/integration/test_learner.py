"""The learner as Ray actors: one rank and two, weights out, checkpoints, death."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import ray
import torch
from safetensors.torch import load_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from grpo.checkpoints import write_checkpoint
from grpo.learner.errors import LearnerDied
from grpo.learner.group import LearnerGroup, RankResources
from grpo.learner.invariants import InvariantBroken
from grpo.learner.options import LearnerOptions
from grpo.rollout.weights import unpack_tensors
from grpo.seeding import seed_everything
from grpo.values import Batch, TrainSample
from verifiers.errors import UserError

SMALL = RankResources(num_cpus=0.5, num_threads=1)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=200_000_000,
        log_to_driver=False,
        _metrics_export_port=-1,
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def options(tmp_path_factory) -> LearnerOptions:
    folder = tmp_path_factory.mktemp("policy")
    config = Qwen2Config(
        vocab_size=23,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng():
        seed_everything(7)
        Qwen2ForCausalLM(config).save_pretrained(folder)
    return LearnerOptions(
        model=str(folder),
        max_completion_length=8,
        max_tokens_per_microbatch=40,
        learning_rate=1e-3,
        beta=0.05,
        total_steps=10,
        use_cpu=True,
        check_sampler_logprobs=False,
    )


def make_batch(step: int, num_groups: int = 3) -> Batch:
    generator = torch.Generator().manual_seed(step)

    def draw(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(0, 23, (count,), generator=generator).tolist())

    samples = [
        TrainSample(
            problem_id=f"p{group}",
            member=member,
            prompt_ids=(1 + group, 2),
            completion_ids=draw(1 + (3 * group + 2 * member + step) % 8),
            sampler_logprobs=(),
            advantage=1.0 if member % 2 else -1.0,
            policy_version=0,
        )
        for group in range(num_groups)
        for member in range(4)
    ]
    samples = [replace(s, sampler_logprobs=(-3.0,) * len(s.completion_ids)) for s in samples]
    total = sum(s.num_loss_tokens for s in samples)
    return Batch(step=step, samples=tuple(samples), num_loss_tokens=total)


def run(group: LearnerGroup, steps) -> list[dict[str, float]]:
    reports = [group.update(make_batch(step), timeout_s=60) for step in steps]
    assert [report.skipped for report in reports] == [None] * len(reports)
    return [
        {k: v for k, v in report.metrics.items() if k not in ("seconds", "num_microbatches")}
        for report in reports
    ]


def fetch(group: LearnerGroup, version: int) -> dict[str, torch.Tensor]:
    payload = group.publish(version)
    buffer = np.array(ray.get(payload.handle))
    return {name: tensor.clone() for name, tensor in unpack_tensors(buffer, payload.plan)}


@pytest.fixture(scope="module")
def groups(options):
    """One rank, and a pair; started at the same time, because a start takes seconds."""
    single = LearnerGroup(options, resources=SMALL)
    pair = LearnerGroup(options, world_size=2, resources=SMALL)
    try:
        for group in (single, pair):
            group.start()
        for group in (single, pair):
            group.wait_ready(timeout_s=300)
        yield single, pair
    finally:
        single.close()
        pair.close()


@pytest.fixture(scope="module")
def single(groups) -> LearnerGroup:
    return groups[0]


@pytest.fixture(scope="module")
def pair(groups) -> LearnerGroup:
    return groups[1]


def test_two_ranks_train_as_one_does_and_resume_exactly(single, pair, tmp_path):
    """Same metrics and weights from one rank and from two, also after a checkpoint."""
    for one, two in zip(run(single, (1, 2)), run(pair, (1, 2)), strict=True):
        assert two == pytest.approx(one, rel=1e-4, abs=1e-6)
    weights, others = fetch(single, 2), fetch(pair, 2)
    for name, tensor in weights.items():
        torch.testing.assert_close(others[name], tensor, rtol=0, atol=2e-6, msg=name)

    with write_checkpoint(tmp_path, step=2, state={}) as folder:
        pair.begin_save(folder)
        pair.finish_save()
    straight = run(pair, (3, 4))
    wanted = fetch(pair, 4)
    names = {path.name for path in (tmp_path / "checkpoint-2" / "learner").iterdir()}
    assert names == {"optimizer.pt", "random-0.pt", "random-1.pt"}
    saved = load_file(tmp_path / "checkpoint-2" / "policy" / "model.safetensors")
    assert all(torch.equal(saved[name], tensor) for name, tensor in others.items())

    assert pair.load(tmp_path / "checkpoint-2") == 2
    assert run(pair, (3, 4)) == straight
    got = fetch(pair, 4)
    assert all(torch.equal(got[name], tensor) for name, tensor in wanted.items())

    # The checkpoint of two ranks serves one.
    single.load(tmp_path / "checkpoint-2")
    for one, two in zip(run(single, (3, 4)), straight, strict=True):
        assert two == pytest.approx(one, rel=1e-4, abs=1e-6)


def test_rank_without_samples_does_not_hang_the_others(pair):
    sample = replace(make_batch(1).samples[0], advantage=0.0)
    lonely = Batch(step=1, samples=(sample,), num_loss_tokens=sample.num_loss_tokens)
    assert pair.update(lonely, timeout_s=60).metrics["num_loss_tokens"] == sample.num_loss_tokens


def test_facts_of_the_start(single, options):
    (facts,) = single.wait_ready(timeout_s=1)
    assert facts == {
        "device": "cpu",
        "num_threads": 1,
        "world_size": 1,
        "reference": options.model,
        "takes_head_start": False,
    }


def test_scores_are_the_published_policys(single, tmp_path):
    with write_checkpoint(tmp_path, step=1, state={}) as folder:
        single.begin_save(folder)
        single.finish_save()
    scores = single.score([((1, 2), (3, 4, 5)), ((1,), (2,))])
    model = Qwen2ForCausalLM.from_pretrained(tmp_path / "checkpoint-1" / "policy").eval()
    with torch.no_grad():
        log_p = model(torch.tensor([[1, 2, 3, 4, 5]])).logits[0].log_softmax(-1)
    expected = [log_p[1, 3].item(), log_p[2, 4].item(), log_p[3, 5].item()]
    assert scores[0] == pytest.approx(expected, abs=1e-5)
    assert [len(row) for row in scores] == [3, 1]


def test_refusals_come_by_name_and_leave_the_rank_as_it_was(single):
    batch = make_batch(1)
    with pytest.raises(InvariantBroken, match="normaliser"):
        single.update(replace(batch, num_loss_tokens=1))
    long = replace(batch.samples[0], prompt_ids=(1,) * 60, advantage=0.0)
    too_long = Batch(step=1, samples=(long,), num_loss_tokens=long.num_loss_tokens)
    with pytest.raises(UserError, match="max_tokens_per_microbatch=40 is smaller"):
        single.update(too_long)
    assert single.update(batch).skipped is None


def test_missing_model_is_told_at_the_start(options):
    group = LearnerGroup(replace(options, model="/nowhere/model"), resources=SMALL)
    group.start()
    with pytest.raises(UserError, match="/nowhere/model"):
        group.wait_ready(timeout_s=300)
    group.close()


def test_death_of_a_rank_has_a_name(pair):
    """Last, because the pair is of no use afterwards."""
    pid = ray.get(pair._actors[1].__ray_call__.remote(lambda _: os.getpid()))
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(LearnerDied, match="learner rank 1 died while updating in step 9"):
        pair.update(make_batch(9), timeout_s=60)
    pair.close()
    pair.close()
