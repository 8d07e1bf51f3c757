"""A run that samples ahead of learning: how old its samples are, and how that is corrected for."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
from transformers import AutoModelForCausalLM

from grpo.checkpoints import read_state

pytestmark = pytest.mark.long

STEPS, STALENESS, LARGEST_WEIGHT = 6, 2, 2.0


@pytest.fixture(scope="module")
def run(train, short, tmp_path_factory):
    done = train(
        tmp_path_factory.mktemp("runs"),
        *short,
        f"steps={STEPS}",
        f"max_staleness={STALENESS}",
        "save_steps=1",
        "keep_last=9",
        # So that one version differs from the next.
        "learning_rate=1e-3",
        "warmup_steps=0",
        "evaluation.data=[]",
    )
    assert done.returncode == 0, done.stderr
    return done


def version_before(run, step):
    """The policy version that learns in a step."""
    return run.metrics[step - 2]["policy_version"] if step > 1 else 0


def test_no_token_is_older_than_the_bound_when_it_is_learned_from(run):
    ages = [
        version_before(run, step) - version
        for step in range(1, STEPS + 1)
        for row in run.rollouts(step)
        for version in row["policy_versions"]
    ]
    assert min(ages) >= 0
    assert 0 < max(ages) <= STALENESS, "sampling does run ahead, and by no more than it may"
    for step, metrics in enumerate(run.metrics, 1):
        own = [
            version_before(run, step) - version
            for row in run.rollouts(step)
            for version in row["policy_versions"]
        ]
        assert metrics["staleness/max"] == max(own)
        assert metrics["staleness/mean"] == pytest.approx(sum(own) / len(own))
        assert "dropped/stale" not in metrics


def test_the_importance_weights_are_those_of_the_stored_log_probabilities(run):
    corrected = 0
    for step in range(2, STEPS + 1):
        metrics = run.metrics[step - 1]
        if "sampling/importance_weight_mean" not in metrics:
            continue
        checkpoint = run.folder / f"checkpoints/checkpoint-{step - 1}"
        assert read_state(checkpoint)["policy_version"] == version_before(run, step)
        weights = compute_weights(checkpoint / "policy", learned_rows(run.rollouts(step)))
        assert metrics["sampling/importance_weight_mean"] == pytest.approx(
            float(weights.mean()), abs=1e-3
        )
        corrected += bool((weights - 1).abs().max() > 0.01)
    assert corrected, "in some step old samples weigh otherwise than new ones"


def learned_rows(rows):
    """The rollouts of groups whose rewards differ."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["problem_id"]].append(row)
    return [
        row
        for members in groups.values()
        if len({member["reward"] for member in members}) > 1
        for row in members
    ]


def compute_weights(policy, rows):
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    weights = []
    for row in rows:
        ids = torch.tensor([row["prompt_ids"] + row["completion_ids"]])
        with torch.no_grad():
            logits = model(ids).logits[0, len(row["prompt_ids"]) - 1 : -1]
        chosen = ids[0, len(row["prompt_ids"]) :, None]
        logprobs = logits.log_softmax(-1).gather(1, chosen).squeeze(1)
        weights.append((logprobs - torch.tensor(row["logprobs"])).exp().clamp(max=LARGEST_WEIGHT))
    return torch.cat(weights)


def test_the_learner_works_while_the_engines_sample(run):
    """Sampling of the next steps goes on during an update; the trace has both."""
    waits = [row["waits/engines/worked"] for row in run.metrics]
    assert all(value >= 0 for value in waits)
    assert all("time/wait_for_rollouts" in row for row in run.metrics)
    for row in run.metrics:
        times = {name: value for name, value in row.items() if name.startswith("time/")}
        whole = times.pop("time/step")
        assert whole == pytest.approx(sum(times.values()), rel=0.02)
