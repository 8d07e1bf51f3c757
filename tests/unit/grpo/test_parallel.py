"""Several ranks on gloo: one gradient whatever the split, under DDP and FSDP2."""

from __future__ import annotations

import multiprocessing
import random
import runpy
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from grpo.algorithms.objective import Objective
from grpo.algorithms.presets import resolve_objective
from grpo.learner.options import LoraOptions
from grpo.learner.policy import load_policy

RANK = Path(__file__).parent / "ranks" / "learner_rank.py"


def run_ranks(world_size: int, jobs: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Run the jobs, one after the other, on so many ranks; for each rank its answers."""
    # Every rank is forked from a server that has imported torch once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["grpo.learner.learner"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pipes, processes = [], []
    for rank in range(world_size):
        ours, theirs = context.Pipe(duplex=False)
        environment = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_RANK": "0",
            "OMP_NUM_THREADS": "1",
        }
        task = {"pipe": theirs, "environment": environment, "jobs": jobs}
        process = context.Process(target=runpy.run_path, args=(str(RANK), {"task": task}))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        return [receive(pipe, rank) for rank, pipe in enumerate(pipes)]
    finally:
        for process in processes:
            process.kill()
            process.join()


def receive(pipe, rank):
    assert pipe.poll(300), f"rank {rank} does not answer"
    answer, trouble = pipe.recv()
    assert not trouble, f"rank {rank}:\n{trouble}"
    return answer


def assert_same(found, expected, tolerance=1e-9):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=tolerance, err_msg=name)


@pytest.fixture
def exact(options):
    """Options under which two gradients may differ by rounding in float64 only."""
    return replace(options, precision="float64", max_grad_norm=0.0, beta=0.1, learning_rate=0.01)


@pytest.mark.timeout(400)
def test_the_gradient_is_one_under_every_split(exact, samples, build):
    """Budgets of one to all sequences, any order, padded or packed, 1, 2, 4 ranks, DDP, FSDP2."""
    shuffled = random.Random(1).sample(samples, len(samples))
    lonely = replace(samples[0], advantage=0.0)
    probes = [
        *((budget, build.batch(samples, 2)) for budget in (15, 40, 1000)),
        (40, build.batch(shuffled, 2)),
        (40, build.batch([lonely], 2)),  # all ranks but one hold no loss token
    ]
    # One real update, so that policy and reference differ.
    job = {"options": exact, "batches": [build.batch(samples, 1)], "probes": probes}
    jobs = [
        {**job, "options": replace(exact, sharding=sharding, packing=packing)}
        for packing in ("off", "on")
        for sharding in ("ddp", "fsdp2")
    ]
    answers = [
        answer
        for world_size in (1, 2, 4)
        for answers in run_ranks(world_size, jobs)
        for answer in answers
    ]
    assert len(answers) == (1 + 2 + 4) * len(jobs)
    whole, small = answers[0]["gradients"][2], answers[0]["gradients"][4]
    assert max(abs(values).max() for values in whole.values()) > 1e-3
    for answer in answers:
        for found in answer["gradients"][:4]:
            assert_same(found, whole)
        assert_same(answer["gradients"][4], small)


@pytest.mark.timeout(400)
def test_several_updates_and_what_the_whole_batch_decides_are_one_on_any_ranks(
    exact, samples, build
):
    """KL to a reference that follows, in the reward of completions and of tokens; mean importance
    weights, adapted weights."""
    several = {"num_iterations": 2, "num_mini_batches": 2, "kl_target": 0.01, "beta": 0.3}
    several |= {"ref_model_sync_steps": 3, "ref_model_mixup_alpha": 0.5}
    normalised = Objective(importance_sampling="token_truncate", importance_normalise=True)
    variants = [
        {**several, "objective": resolve_objective("rloo")},
        {**several, "objective": resolve_objective("reinforce_plus_plus")},
        {"objective": normalised, "entropy_coef": 0.1, "entropy_target": 9.0},
    ]
    jobs = [
        {
            "options": replace(exact, sharding=sharding, **variant),
            "batches": [build.batch(samples, step) for step in (1, 2)],
        }
        for sharding in ("ddp", "fsdp2")
        for variant in variants
    ]
    [singles] = run_ranks(1, jobs[: len(variants)])
    for answers in run_ranks(2, jobs):
        for found, expected in zip(answers, singles + singles, strict=True):
            assert_same(found["weights"], expected["weights"], tolerance=1e-6)
            for one, other in zip(found["metrics"], expected["metrics"], strict=True):
                for name in ("loss", "grad_norm", "entropy", "beta", "entropy_coef", "num_updates"):
                    assert one[name] == pytest.approx(other[name], rel=1e-5, abs=1e-7), name


@pytest.mark.timeout(400)
def test_a_head_start_changes_nothing_on_several_ranks(exact, build):
    samples = build.samples(num_groups=6)
    batches = [build.batch(samples, step) for step in (1, 2)]
    jobs = [
        {
            "options": replace(
                exact, packing="on", sharding=sharding, max_tokens_per_microbatch=20
            ),
            "batches": batches,
            "ahead": ahead,
        }
        for sharding in ("ddp", "fsdp2")
        for ahead in (0, 16)
    ]
    for whole, early, sharded, sharded_early in run_ranks(2, jobs):
        for found, expected in ((early, whole), (sharded_early, sharded)):
            assert_same(found["weights"], expected["weights"], tolerance=0)
            for one, other in zip(found["metrics"], expected["metrics"], strict=True):
                assert one["ahead_fraction"] > 0.3
                assert other["ahead_fraction"] == 0
                assert (one["loss"], one["grad_norm"]) == (other["loss"], other["grad_norm"])


def test_fsdp2_shards_the_weights_and_trains_as_one_rank_does(exact, samples, build):
    job = {"options": exact, "batches": [build.batch(samples, 1)] * 3}
    [[single]] = run_ranks(1, [job])
    sharded = {**job, "options": replace(exact, sharding="fsdp2")}
    ranks = [answers[0] for answers in run_ranks(2, [sharded])]
    for held in ("held", "held_reference"):
        assert sum(rank[held] for rank in ranks) == single[held]
        assert max(rank[held] for rank in ranks) < 0.6 * single[held]
    for rank in ranks:
        assert_same(rank["weights"], single["weights"], tolerance=1e-7)
        for found, expected in zip(rank["metrics"], single["metrics"], strict=True):
            assert found["loss"] == pytest.approx(expected["loss"], abs=1e-6)
            assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-4)


@pytest.mark.parametrize("lora", [None, LoraOptions(r=4)], ids=["full", "lora"])
def test_a_rank_that_is_given_its_shards_loads_no_weights(exact, lora):
    options = replace(exact, lora=lora)
    whole = load_policy(options, trainable=True)
    outline = load_policy(options, trainable=True, empty=True)
    assert {w.device.type for n, w in outline.named_parameters() if "lora_" not in n} == {"meta"}
    for one, other in zip(whole.named_parameters(), outline.named_parameters(), strict=True):
        assert one[0] == other[0]
        for trait in ("shape", "dtype", "requires_grad"):
            assert getattr(one[1], trait) == getattr(other[1], trait), (one[0], trait)
    for one, other in zip(whole.named_buffers(), outline.named_buffers(), strict=True):
        assert one[0] == other[0]
        assert torch.equal(one[1], other[1])


def test_ranks_serve_the_adapters_that_one_rank_does(exact, samples, build):
    options = replace(exact, lora=LoraOptions(r=4, push="adapter"))
    job = {"options": options, "batches": [build.batch(samples, 1)] * 2}
    [[single]] = run_ranks(1, [job])
    assert all(".lora_" in name for name in single["weights"])
    shardings = [{**job, "options": replace(options, sharding=s)} for s in ("ddp", "fsdp2")]
    for answers in run_ranks(2, shardings):
        for answer in answers:
            assert_same(answer["weights"], single["weights"], tolerance=1e-6)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("lora", [None, LoraOptions(r=4)], ids=["full", "lora"])
def test_a_checkpoint_serves_any_number_of_ranks(exact, build, tmp_path, lora):
    """One rank, then two that share the weights, then one again: as if it were one all the time."""
    follows = {} if lora else {"ref_model_sync_steps": 1, "ref_model_mixup_alpha": 0.5}
    options = replace(exact, lora=lora, **follows)
    sharded = replace(options, sharding="fsdp2")
    batches = [build.batch(build.samples(seed=step), step) for step in range(1, 5)]
    first, second = tmp_path / "first", tmp_path / "second"
    straight = {"options": options, "batches": batches}
    [[expected, _]] = run_ranks(
        1, [straight, {"options": options, "batches": batches[:2], "save": first}]
    )
    middle = {"options": sharded, "batches": batches[2:3], "load": first, "save": second}
    for [answer] in run_ranks(2, [middle]):
        assert answer["metrics"][0]["loss"] == pytest.approx(expected["metrics"][2]["loss"])
    files = {path.name for path in (second / "learner").iterdir()}
    assert files >= {"optimizer.pt", "random-0.pt", "random-1.pt"}
    assert ("reference.safetensors" in files) is (lora is None)
    assert (second / "adapter" / "adapter_config.json").is_file() is (lora is not None)
    [[last]] = run_ranks(1, [{"options": options, "batches": batches[3:], "load": second}])
    assert last["metrics"][0]["kl"] == pytest.approx(expected["metrics"][3]["kl"], rel=1e-4)
    assert_same(last["weights"], expected["weights"], tolerance=1e-6)
