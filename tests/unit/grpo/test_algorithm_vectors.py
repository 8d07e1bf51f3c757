"""Every vector of published formulas, in one table: our functions give each number to 1e-10.

Where a peer's own form differs from ours, the vector's check builds it from the same parts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from grpo.algorithms.advantages import Scaling, compute_advantages
from grpo.algorithms.controllers import EntropyBonus, adapt_beta
from grpo.algorithms.critic import compute_value_loss
from grpo.algorithms.kl import estimate_kl
from grpo.algorithms.losses import LOSSES, PolicyTokens, compute_policy_loss
from grpo.algorithms.mismatch import (
    compute_importance_weights,
    compute_kept,
    keep_near_or_good,
    normalise_weights,
    sequence_geometric,
    sequence_product,
)
from grpo.algorithms.outcomes import Outcome, has_signal
from grpo.algorithms.overlong import compute_overlong_punishment
from grpo.algorithms.oversampling import compute_silent_probability, expect_prompts
from grpo.algorithms.preferences import (
    compute_kto_loss,
    hinge_loss,
    ipo_loss,
    sigmoid_loss,
)
from grpo.algorithms.presets import resolve_objective
from grpo.algorithms.sequences import sequence_mean, sequence_sum
from grpo.algorithms.token_advantages import compute_gae, spread_rewards, whiten
from grpo.evaluation.estimators import compute_maj_at_k, compute_pass_at_k, compute_pass_hat_k
from grpo.evaluation.intervals import (
    bootstrap_mean,
    clopper_pearson,
    compute_clustered_se,
    wilson,
)
from grpo.learner.logprobs import compute_logprobs
from tests.token_weights import compute_shares

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "algorithm_vectors.json").read_text(encoding="utf-8")
)
REDUCTIONS = {
    "seq-mean-token-mean": "sequence_mean",
    "token-mean": "token_mean",
    "seq-mean-token-sum-norm": "constant",
    "seq-mean-token-sum": "sequence_sum",
}
INFINITY = math.inf
CHECKS: dict[str, Callable[[dict[str, Any]], Any]] = {}


def check(*names: str) -> Callable[[Callable[[dict[str, Any]], Any]], Callable[..., Any]]:
    """Enter a function as the check of the vectors of these names."""

    def enter(function: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
        CHECKS.update(dict.fromkeys(names, function))
        return function

    return enter


def test_no_vector_is_without_a_check():
    assert len(VECTORS) == 55
    assert set(CHECKS) == set(VECTORS)


@pytest.mark.parametrize("name", VECTORS)
def test_vector(name):
    vector = VECTORS[name]
    agree(CHECKS[name](vector["inputs"]), vector["expected"], name)


def agree(found: Any, expected: Any, where: str) -> None:
    """Compare two nests of lists and mappings, number by number."""
    if isinstance(found, Tensor):
        found = found.tolist()
    if isinstance(expected, dict):
        assert set(found) == set(expected), where
        for key, value in expected.items():
            agree(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for index, value in enumerate(expected):
            agree(found[index], value, f"{where}[{index}]")
    else:
        assert found == pytest.approx(expected, rel=0, abs=1e-10), where


def double(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


class Flat:
    """A padded vector's inputs laid end to end, as the functions take them."""

    def __init__(self, inputs: dict[str, Any]) -> None:
        self.inputs = inputs
        self.mask_S_T = double(inputs["mask"]).bool()
        self.lengths = self.mask_S_T.sum(1).tolist()
        self.sequence = self.mask_S_T.nonzero()[:, 0]
        self.count = len(self.lengths)

    def row(self, key: str) -> Tensor:
        return double(self.inputs[key])[self.mask_S_T]

    def padded(self, values_N: Tensor) -> Tensor:
        out = torch.zeros(self.mask_S_T.shape, dtype=torch.float64)
        out[self.mask_S_T] = values_N.detach().double()
        return out

    def tokens(self, new: Tensor, old: str, advantages: list[float] | None = None) -> PolicyTokens:
        per_sequence = double(self.inputs["advantages"] if advantages is None else advantages)
        return PolicyTokens(
            logprobs=new,
            old_logprobs=self.row(old),
            advantages=per_sequence[self.sequence],
            sequence=self.sequence,
            num_sequences=self.count,
        )

    def reduce(self, loss_N: Tensor, reduction: str, longest: int = 5) -> Tensor:
        weights = compute_shares(
            self.lengths,
            groups=range(self.count),
            reduction=reduction,
            max_completion_length=longest,
        )
        return (double(weights)[self.sequence] * loss_N).sum()

    def run(
        self, loss: str, reduction: str, *, old: str = "logp_old", longest: int = 5, **parameters
    ) -> tuple[float, Tensor]:
        """Loss and gradient with respect to the new log-probabilities, padded."""
        new = self.row("logp_new").requires_grad_()
        token_loss = LOSSES[loss](self.tokens(new, old), **parameters).loss
        total = self.reduce(token_loss, reduction, longest)
        (gradient,) = torch.autograd.grad(total, new)
        return total.item(), self.padded(gradient)


# Advantages.


def outcomes(rewards, group, lengths=None, parts=None) -> list[list[Outcome | None]]:
    lengths = lengths or [1] * len(rewards)
    parts = parts or [()] * len(rewards)
    rows = list(zip(rewards, group, lengths, parts, strict=True))
    return [
        [Outcome(reward=r, length=int(n), parts=tuple(p)) for r, g, n, p in rows if g == wanted]
        for wanted in dict.fromkeys(group)
    ]


def advantages(groups, estimator="grpo", **scaling) -> list[float | None]:
    values = compute_advantages(groups, estimator=estimator, scaling=Scaling(**scaling))
    return [value for group in values for value in group]


@check(
    "adv_grpo_group_std_ddof1_eps1e-4",
    "adv_grpo_group_std_ddof1_eps1e-6",
    "adv_grpo_group_std_ddof0_eps0",
)
def group_std(i):
    return advantages(outcomes(i["rewards"], i["group"]), ddof=i["ddof"], epsilon=i["eps"])


@check("adv_batch_std")
def batch_std(i):
    groups = outcomes(i["rewards"], i["group"])
    return advantages(groups, by="batch", ddof=i["ddof"], epsilon=i["eps"])


@check("adv_opo")
def opo(i):
    return advantages(outcomes(i["rewards"], i["group"], i["lengths"]), "opo", by="none")


def plain(estimator) -> Callable[[Any], Any]:
    return lambda i: advantages(outcomes(i["rewards"], i["group"]), estimator, by="none")


CHECKS |= {
    "adv_dr_grpo_mean_only": plain("grpo"),
    "adv_rloo": plain("rloo"),
    "adv_rfpp_baseline_seq": plain("reinforce_plus_plus_baseline"),
    "adv_maxrl": plain("max_rl"),
    "adv_gpg_verl": plain("gpg_verl"),
}


@check("adv_gpg_paper")
def gpg_paper(i):
    found = plain("gpg")(i)
    centred = plain("grpo")(i)
    return {"alpha": found[3] / centred[3], "adv": found}


@check("adv_rfpp_baseline_tokenweighted")
def token_weighted(i):
    flat = Flat(i)
    groups = outcomes(i["rewards"], i["group"], flat.lengths)
    values = advantages(groups, "reinforce_plus_plus_baseline_tokens", by="none")
    return flat.padded(double(values)[flat.sequence])


@check("adv_reinforce_pp_tokens")
def reinforce_pp(i):
    flat = Flat(i)
    old, reference = flat.row("logp_old"), flat.row("logp_ref")
    penalties = i["beta"] * estimate_kl(old, reference, old, estimator="k1").values
    lengths, rewards = torch.tensor(flat.lengths), double(i["rewards"])
    returns = spread_rewards(rewards, penalties, lengths, gamma=i["gamma"])
    # With no discount nothing is carried over: what is left is each token's own reward.
    own = spread_rewards(rewards, penalties, lengths, gamma=0.0)
    return {
        "token_rewards": flat.padded(own),
        "returns": flat.padded(returns),
        "advantages": flat.padded(whiten_all(returns)),
    }


def whiten_all(values: Tensor) -> Tensor:
    return whiten(
        values,
        count=float(len(values)),
        total=values.sum().item(),
        squares=values.square().sum().item(),
    )


def several(i):
    """Groups whose members have several weighted rewards."""
    parts = [list(zip(i["weights"], row, strict=True)) for row in i["rewards_per_func"]]
    return outcomes([sum(w * r for w, r in row) for row in parts], i["group"], parts=parts)


@check("adv_grpo_sum_then_normalize")
def sum_then_normalise(i):
    return advantages(several(i), epsilon=i["eps"])


@check("adv_gdpo_normalize_then_sum")
def gdpo(i):
    return advantages(several(i), "gdpo", epsilon=i["eps"])


@check("zero_variance_filter")
def zero_variance(i):
    size = i["group_size"]
    groups = [i["rewards"][n : n + size] for n in range(0, len(i["rewards"]), size)]
    keep = [has_signal(group) for group in groups]
    return {
        "keep": keep,
        "frac_zero_std": 1 - sum(keep) / len(keep),
        # Without a filter each reward is centred and divided, however small the deviation.
        "adv_no_filter": [
            (r - np.mean(group)) / (np.std(group, ddof=1) + 1e-4) for group in groups for r in group
        ],
    }


@check("dynamic_sampling_expected_keep")
def expected_keep(i):
    silent = [compute_silent_probability(p, i["K"]) for p in i["pass_rates"]]
    return {
        "p_zero_variance": silent,
        "mean_keep": 1 - sum(silent) / len(silent),
        "expected_prompts": expect_prompts(
            i["pass_rates"], group_size=i["K"], num_wanted=i["prompts_needed"]
        ),
    }


# Policy losses.


@check(*(f"ppo_clip_{agg}" for agg in REDUCTIONS))
def ppo_clip(i):
    loss, gradient = Flat(i).run(
        "ppo_clip",
        REDUCTIONS[i["agg"]],
        longest=i["max_len"],
        epsilon=i["eps_low"],
        epsilon_high=i["eps_high"],
        delta=None,
    )
    return {"loss": loss, "grad_logp_new": gradient}


@check("ppo_clip_higher_token_mean")
def clip_higher(i):
    flat = Flat(i)
    tokens = flat.tokens(flat.row("logp_new"), "logp_old")
    result = LOSSES["ppo_clip"](
        tokens, epsilon=i["eps_low"], epsilon_high=i["eps_high"], delta=None
    )
    return {
        "loss": flat.reduce(result.loss, "token_mean").item(),
        "ratio": flat.padded(result.ratio),
        "clip_frac_low": result.clipped_low.double().mean().item(),
        "clip_frac_high": result.clipped_high.double().mean().item(),
        "clip_frac": (result.clipped_low | result.clipped_high).double().mean().item(),
    }


@check("dual_clip")
def dual_clip(i):
    ratio = double(i["ratio"])
    tokens = PolicyTokens(
        logprobs=ratio.log(),
        old_logprobs=torch.zeros_like(ratio),
        advantages=torch.full_like(ratio, i["advantage"]),
        sequence=torch.arange(3),
        num_sequences=3,
    )

    def bounded_by(delta):
        clip = {"epsilon": i["eps"], "epsilon_high": i["eps"], "delta": delta}
        return LOSSES["ppo_clip"](tokens, **clip).loss

    return {
        "no_dual": bounded_by(None),
        "dual_clip_c3": bounded_by(i["c"]),
        "two_sided_delta4": bounded_by(i["delta"]),
    }


@check("gspo")
def gspo(i):
    flat = Flat(i)
    low, high = i["wide"]
    wide, gradient = flat.run("gspo", "sequence_mean", epsilon=low, epsilon_high=high, delta=None)
    preset = resolve_objective("gspo")
    assert [preset.epsilon, preset.epsilon_high] == i["paper"]
    paper, _ = flat.run(
        "gspo",
        preset.loss_reduction,
        epsilon=preset.epsilon,
        epsilon_high=preset.epsilon_high,
        delta=None,
    )
    log_ratio = flat.row("logp_new") - flat.row("logp_old")
    return {
        "seq_ratio": sequence_mean(log_ratio, flat.sequence, flat.count).exp(),
        "loss_wide": wide,
        "loss_paper_eps": paper,
        "grad_wide": gradient,
    }


@check("luspo")
def luspo(i):
    preset = resolve_objective("luspo")
    low, high = i["eps"]
    loss, _ = Flat(i).run(
        preset.policy_loss, preset.loss_reduction, epsilon=low, epsilon_high=high, delta=None
    )
    return {"loss": loss}


@check("cispo_trl", "cispo_verl")
def cispo(i):
    epsilon = 1.0 if i["clamp_low"] is None else 1 - i["clamp_low"]
    loss, gradient = Flat(i).run(
        "cispo", "token_mean", epsilon=epsilon, epsilon_high=i["clamp_high"]
    )
    return {"loss_token_mean": loss, "grad_logp_new": gradient}


@check("sapo")
def sapo(i):
    loss, gradient = Flat(i).run(
        "sapo",
        "sequence_mean",
        sapo_temperature_pos=i["tau_pos"],
        sapo_temperature_neg=i["tau_neg"],
    )
    return {"loss_seq_mean": loss, "grad_logp_new": gradient}


@check("vespo")
def vespo(i):
    flat = Flat(i)
    parameters = {
        "vespo_k_pos": i["k_pos"],
        "vespo_lambda_pos": i["lambda_pos"],
        "vespo_k_neg": i["k_neg"],
        "vespo_lambda_neg": i["lambda_neg"],
    }
    log_ratio = flat.row("logp_new") - flat.row("logp_old")
    # The gradient at a token is -phi A: with advantages of size 1 it is phi itself.
    signs = [1.0 if a >= 0 else -1.0 for a in i["advantages"]]
    new = flat.row("logp_new").requires_grad_()
    loss_N = LOSSES["vespo"](flat.tokens(new, "logp_old", signs), **parameters).loss
    (gradient,) = torch.autograd.grad(loss_N.sum(), new)
    return {
        "seq_weight": sequence_sum(log_ratio, flat.sequence, flat.count).exp(),
        "phi": sequence_mean(gradient.abs(), flat.sequence, flat.count),
        "loss_token_mean": flat.run("vespo", "token_mean", **parameters)[0],
    }


@check("reinforce_token_mean")
def reinforce(i):
    loss, gradient = Flat(i).run("reinforce", "token_mean", old="logp_new")
    return {"loss": loss, "grad_logp_new": gradient}


@check("dppo_binary_tv_prime_rl")
def dppo(i):
    flat = Flat(i)
    assert i["adv_tau"] == 1.0
    parameters = {
        "epsilon": i["dppo_mask_low"],
        "epsilon_high": i["dppo_mask_high"],
        "dppo_kl_tau": i["kl_tau"],
    }
    tokens = flat.tokens(flat.row("logp_new"), "logp_rollout")
    result = LOSSES["dppo_tv"](tokens, **parameters)
    loss, gradient = flat.run("dppo_tv", "token_mean", old="logp_rollout", **parameters)
    masked = flat.padded(result.clipped_low | result.clipped_high).bool()
    return {"masked": masked, "loss": loss, "grad_logp_new": gradient}


@check("aipo")
def aipo(i):
    preset = resolve_objective("aipo", {"epsilon_high": i["rho"]})
    assert preset.old_logprobs == "sampler"
    loss, gradient = Flat(i).run(
        preset.policy_loss,
        preset.loss_reduction,
        old="logp_rollout",
        epsilon=preset.epsilon,
        epsilon_high=preset.epsilon_high,
    )
    return {"loss_token_mean": loss, "grad_logp_new": gradient}


@check("pipelinerl_reinforce")
def pipelinerl(i):
    assert len(i["mask"]) == i["batch_size"]
    loss, _ = Flat(i).run(
        "cispo",
        "sequence_sum",
        old="logp_rollout",
        epsilon=1.0,
        epsilon_high=1 + i["epsilon_high"],
    )
    return {"loss": loss}


@check("global_token_normalisation")
def global_normaliser(i):
    ranks = i["micro_losses"]
    sequences = [s for rank in ranks for s in rank]
    lengths = [len(s) for s in sequences]
    weights = compute_shares(
        lengths, groups=range(4), reduction="token_mean", max_completion_length=5
    )
    by_sequence = [w * sum(s) for w, s in zip(weights, sequences, strict=True)]
    # Ranks average their gradients, so each one's loss is scaled by their number.
    per_rank = [2 * sum(by_sequence[:2]), 2 * sum(by_sequence[2:])]
    means = [[sum(s) / len(s) for s in rank] for rank in ranks]
    return {
        "global_tokens": sum(lengths),
        "correct": sum(by_sequence),
        "mean_of_means": sum(sum(m) for m in means) / 4,
        "rank_local_token_mean": sum(
            sum(sum(s) for s in rank) / sum(len(s) for s in rank) for rank in ranks
        )
        / 2,
        "per_rank_scaled_loss": per_rank,
        "check_mean_over_ranks": sum(per_rank) / i["dp_size"],
        "token_grad_weight_correct": weights[0],
        "token_grad_weights_mean_of_means": [[1 / (4 * len(s)) for s in rank] for rank in ranks],
    }


@check("trl_dapo_window_normaliser")
def windows(i):
    lengths = [int(n) for n in i["tokens_per_microbatch"]]
    values = (0.6, 1.0, 0.2)  # the token losses of the three windows

    def weigh(numbers):
        return compute_shares(
            numbers, groups=numbers, reduction="token_mean", max_completion_length=9
        )

    # TRL weighs over all windows of a generation batch and multiplies by their number; here each
    # update has its own count.
    shared = [i["steps_per_generation"] * w for w in weigh(lengths)]
    own = [weigh([n])[0] for n in lengths]
    rows = list(zip(shared, own, lengths, values, strict=True))
    return {
        "normaliser_each_step": 1 / shared[0],
        "losses": [w * n * v for w, _, n, v in rows],
        "own_token_mean": [w * n * v for _, w, n, v in rows],
    }


# Sampler and trainer.


def ppo_under(name: str, weights_N: Tensor) -> float:
    """The token mean of the clipped surrogate under some weights."""
    inputs = VECTORS["ppo_clip_token-mean"]["inputs"]
    flat = Flat(inputs)
    parameters = {"epsilon": 0.2, "epsilon_high": 0.2, "delta": None}
    tokens = flat.tokens(flat.row("logp_new"), "logp_old")
    loss = compute_policy_loss(name, tokens, parameters).loss
    return flat.reduce(weights_N * loss, "token_mean").item()


@check("rollout_is_weights")
def rollout_is(i):
    flat = Flat(i)
    log_ratio = flat.row("logp_old") - flat.row("logp_rollout")
    place = (log_ratio, flat.sequence, flat.count)

    def weigh(mode, high, low=0.0):
        return compute_importance_weights(*place, mode=mode, low=low, high=high)

    def keep(mode, high, low=-INFINITY):
        return compute_kept(*place, mode=mode, low=low, high=high).double()

    tis = weigh("token_truncate", 2.0)
    weights = {
        "token_truncate_C2": tis,
        "token_mask_C3": weigh("token_mask", 3.0),
        "icepop_0.5_5": weigh("token_mask", 5.0, 0.5),
        "icepop_0.5_2": weigh("token_mask", 2.0, 0.5),
        "sequence_truncate_C2": weigh("sequence_truncate", 2.0),
        "sequence_mask_C3": weigh("sequence_mask", 3.0),
        "geo_mask_0.9_1.1_x_token_tis2": tis * keep("sequence_geometric", 1.1, 0.9),
        "token_truncate_C2_batchnorm": normalise_weights(tis, tis.mean().item()),
        "token_k3_reject_0.05": keep("token_k3", 0.05),
    }
    first = [flat.sequence.tolist().index(s) for s in range(flat.count)]
    return {
        "token_ratio": flat.padded(weigh("token_truncate", INFINITY)),
        "seq_ratio": sequence_product(*place)[first],
        "geo_ratio": sequence_geometric(*place)[first],
        "weights": {key: flat.padded(value) for key, value in weights.items()},
        "losses_token_mean": {k: ppo_under("ppo_clip", w) for k, w in weights.items()},
    }


@check("decoupled_ppo_uncapped")
def decoupled(i):
    flat = Flat(i)
    preset = resolve_objective("decoupled_ppo")
    weights = compute_importance_weights(
        flat.row("logp_old") - flat.row("logp_rollout"),
        flat.sequence,
        flat.count,
        mode=preset.importance_sampling,
        low=preset.importance_min,
        high=preset.importance_max,
    )
    assert preset.epsilon == i["eps"]
    return {
        "weight": flat.padded(weights),
        "loss_token_mean": ppo_under(preset.policy_loss, weights),
    }


@check("opsm_deepseek_v32")
def opsm(i):
    flat = Flat(i)
    new, sampler = flat.row("logp_new"), flat.row("logp_sampling")
    kept = keep_near_or_good(
        new,
        sampler,
        double(i["advantages"])[flat.sequence],
        flat.sequence,
        flat.count,
        threshold=i["threshold"],
    )
    return {
        "seq_kl": sequence_mean(sampler - new, flat.sequence, flat.count),
        "keep": sequence_mean(kept.double(), flat.sequence, flat.count).bool(),
    }


# The divergence from the reference.


@check("kl_estimators_token")
def kl_tokens(i):
    flat = Flat(i)
    reference = flat.row("logp_ref")
    found: dict[str, Any] = {"token_mean": {}}
    for name in ("k1", "k2", "k3"):
        new = flat.row("logp_new").requires_grad_()
        values = estimate_kl(new, reference, new.detach(), estimator=name).values
        (gradient,) = torch.autograd.grad(values.sum(), new)
        found[name], found[f"grad_{name}"] = flat.padded(values), flat.padded(gradient)
        found["token_mean"][name] = flat.reduce(values, "token_mean").item()
    found["abs"] = found["k1"].abs()
    return found


@check("kl_expected_gradients_categorical")
def kl_expected(i):
    reference = double(i["ref_logits"]).log_softmax(-1)
    behaviour = double(i["behaviour_logits"]).log_softmax(-1)

    def policy():
        logits = double(i["logits"]).requires_grad_()
        return logits, logits.log_softmax(-1)

    def expect(estimator, sampler=None, *, in_reward=False, weigh=False):
        """Exact mean gradient over the four samples, each with its chance under the sampler."""
        logits, logp = policy()
        drawn = logp.detach() if sampler is None else sampler
        values = estimate_kl(logp, reference, drawn, estimator=estimator).values
        if in_reward:  # a reward of minus KL: the loss is KL times log-probability
            values = values.detach() * logp
        if weigh:
            values = (logp - drawn).exp().detach() * values
        (gradient,) = torch.autograd.grad((drawn.exp() * values).sum(), logits)
        return gradient

    def mean(estimator):
        _, logp = policy()
        return (logp.exp() * estimate_kl(logp, reference, logp, estimator=estimator).values).sum()

    def divergence(reverse):
        logits, logp = policy()
        gap = logp - reference
        value = (logp.exp() * gap).sum() if reverse else -(reference.exp() * gap).sum()
        return value.item(), torch.autograd.grad(value, logits)[0]

    (reverse, grad_reverse), (forward, grad_forward) = divergence(True), divergence(False)
    return {
        "kl_reverse": reverse,
        "kl_forward": forward,
        "grad_reverse_kl": grad_reverse,
        "grad_forward_kl": grad_forward,
        "E_k1": mean("k1").item(),
        "E_k2": mean("k2").item(),
        "E_k3": mean("k3").item(),
        "E_grad_k1_in_loss": expect("k1"),
        "E_grad_k2_in_loss": expect("k2"),
        "E_grad_k3_in_loss": expect("k3"),
        "E_grad_k1_in_reward": expect("k1", in_reward=True),
        "E_grad_k3_in_reward": expect("k3", in_reward=True),
        "offpolicy_E_grad_k3_plain": expect("k3", behaviour),
        "offpolicy_E_grad_k2_plain": expect("k2", behaviour),
        "offpolicy_E_grad_rho_k3": expect("k3_ratio", behaviour),
        "offpolicy_E_grad_sg_rho_k2": expect("k2", behaviour, weigh=True),
    }


@check("adaptive_kl_controller")
def kl_controller(i):
    rows, beta = [], i["init"]
    for kl, count in i["updates"]:
        before = beta
        beta = adapt_beta(
            before,
            kl=kl,
            target=i["target"],
            num_samples=count,
            horizon=i["horizon"],
            bounds=(-INFINITY, INFINITY),
        )
        error = (beta / before - 1) * i["horizon"] / count
        rows.append({"kl": kl, "n_steps": count, "error": error, "coef": beta})
        # The published rule as it stands; the bounds that we use keep the weight positive.
        assert adapt_beta(
            before, kl=kl, target=i["target"], num_samples=count, horizon=i["horizon"]
        ) == pytest.approx(max(beta, before / 2))
    assert beta < 0
    return rows


@check("adaptive_entropy")
def adaptive_entropy(i):
    bonus, rows = EntropyBonus(coefficient=i["init"]), []
    for entropy in i["entropies"]:
        applied = bonus.applied(i["target"])
        bonus = bonus.after(
            entropy, target=i["target"], delta=i["delta"], lowest=i["min"], highest=i["max"]
        )
        rows.append({"entropy": entropy, "applied_coef": applied, "next_coef": bonus.coefficient})
    return rows


@check("entropy")
def entropy(i):
    logits = double(i["logits"]).requires_grad_()
    # The output layer is the identity, so that hidden states are logits.
    _, entropies = compute_logprobs(
        logits,
        torch.eye(4, dtype=torch.float64),
        None,
        torch.zeros(3, dtype=torch.long),
        temperature=1.0,
    )
    (gradient,) = torch.autograd.grad(entropies.sum(), logits)
    mask = double(i["mask"])
    return {
        "entropy": entropies,
        "masked_mean": ((entropies * mask).sum() / mask.sum()).item(),
        "grad_logits": gradient,
    }


@check("overlong_soft_punishment")
def overlong(i):
    lengths, longest, cache = i["lengths"], i["max_len"], i["cache"]
    paper = [
        compute_overlong_punishment(n, max_completion_length=longest, buffer_length=cache)
        for n in lengths
    ]
    # verl has no floor; up to the limit, beyond which no completion goes, the two are one.
    verl = [
        p if n <= longest else (longest - cache - n) / cache
        for n, p in zip(lengths, paper, strict=True)
    ]
    return {"paper": paper, "verl": verl}


# Critics and preferences.


@check("gae_g1.0_l1.0", "gae_g0.99_l0.95")
def gae(i):
    return gae_parts(i) | {"whitened": Flat(i).padded(whiten_all(gae_tokens(i)))}


@check("gae_multiturn_mask")
def gae_parts(i):
    flat, found = Flat(i), gae_tokens(i)
    return {
        "advantages": flat.padded(found),
        "returns": flat.padded(found + flat.row("values")),
    }


def gae_tokens(i):
    flat = Flat(i)
    return compute_gae(
        flat.row("token_rewards"),
        flat.row("values"),
        torch.tensor(flat.lengths),
        gamma=i["gamma"],
        lam=i["lam"],
    )


@check("value_loss_clipped")
def value_loss(i):
    flat = Flat(i)
    place = (flat.row("values_new"), flat.row("values_old"), flat.row("returns"))
    clipped = compute_value_loss(*place, clip_range=i["cliprange_value"])
    free = compute_value_loss(*place, clip_range=INFINITY)
    return {
        "loss": clipped.loss.mean().item(),
        "unclipped": free.loss.mean().item(),
        "clip_frac": clipped.clipped.double().mean().item(),
    }


@check("dpo")
def dpo(i):
    beta, smoothing = i["beta"], i["label_smoothing"]
    chosen = double(i["policy_chosen"]).requires_grad_()
    up = chosen - double(i["ref_chosen"])
    down = double(i["policy_rejected"]) - double(i["ref_rejected"])
    margin = up - down
    loss = sigmoid_loss(margin, beta=beta)
    (gradient,) = torch.autograd.grad(loss.mean(), chosen)
    per_token = up / double(i["chosen_len"]) - down / double(i["rejected_len"])
    return {
        "margin": margin,
        "sigmoid": loss,
        "sigmoid_mean": loss.mean().item(),
        "cdpo": sigmoid_loss(margin, beta=beta, label_smoothing=smoothing),
        "hinge": hinge_loss(margin, beta=beta),
        "ipo_token_avg": ipo_loss(per_token, beta=beta),
        "ipo_token_sum": ipo_loss(margin, beta=beta),
        "reward_chosen": beta * up,
        "reward_rejected": beta * down,
        "accuracy": (margin > 0).double().mean().item(),
        "grad_policy_chosen_mean": gradient,
    }


@check("kto")
def kto(i):
    place = (double(i["logratio"]), torch.tensor(i["label"]), double(i["kl_logratio"]))
    weights = {
        "desirable_weight": i["desirable_weight"],
        "undesirable_weight": i["undesirable_weight"],
    }
    return {
        "z0": double(i["kl_logratio"]).mean().clamp(min=0).item(),
        "losses": compute_kto_loss(*place, beta=i["beta"]),
        "weighted_mean": compute_kto_loss(*place, beta=i["beta"], **weights).mean().item(),
    }


# Evaluation.


@check("pass_at_k")
def pass_at_k(i):
    return [
        {
            "n": n,
            "c": c,
            "k": k,
            "pass_at_k": compute_pass_at_k(n, c, k),
            "naive": 1 - (1 - c / n) ** k,
        }
        for n, c, k in i["rows"]
    ]


@check("pass_hat_k")
def pass_hat_k(i):
    return [
        {"n": n, "c": c, "k": k, "pass_hat_k": compute_pass_hat_k(n, c, k)} for n, c, k in i["rows"]
    ]


@check("maj_at_k")
def maj_at_k(i):
    answers, gold = i["answers"], i["gold"]
    wrong = [answers.count(a) for a in {*answers} - {gold, None}]
    return {
        str(k): compute_maj_at_k(answers.count(gold), wrong, answers.count(None), k)
        for k in i["ks"]
    }


@check("binomial_ci_95")
def binomial(i):
    return [
        {
            "x": x,
            "n": n,
            "clopper_pearson": list(clopper_pearson(x, n)),
            "wilson": list(wilson(x, n)),
        }
        for x, n in i["rows"]
    ]


@check("clustered_se")
def clustered(i):
    values = i["per_problem_mean"]
    mean, error = sum(values) / len(values), compute_clustered_se(values)
    z = 1.959963984540054
    pooled = math.sqrt(mean * (1 - mean) / (len(values) * i["samples_per_problem"]))
    generator = np.random.default_rng(0)
    with patch("grpo.evaluation.intervals.make_numpy_random", lambda *_: generator):
        bootstrap = bootstrap_mean(values, seed=0)
    return {
        "mean": mean,
        "se_between_problems": error,
        "normal_ci95": [mean - z * error, mean + z * error],
        "bootstrap_ci95_seed0_b10000": list(bootstrap),
        "wrong_iid_se": pooled,
    }
