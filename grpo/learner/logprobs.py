"""Log-probabilities and entropies of chosen tokens, without a tensor of all logits.

Shapes: `_N` runs over the chosen positions, `_H` over the hidden width, `_V` over the vocabulary.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

# Float32 logits held at once: 64 MiB on a CPU, where larger chunks gain nothing; 512 MiB elsewhere,
# because each chunk goes once through the whole gradient of the output layer, which on a GPU takes
# longer than the product of a small one.
_CPU_CHUNK = 2**24
_GPU_CHUNK = 2**27


def compute_logprobs(
    hidden_N_H: Tensor,
    weight_V_H: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    *,
    temperature: float,
    logits_per_chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the log-probability of each target and the entropy of its distribution.

    The logits are made chunk by chunk, in float32 or wider, and made again for the backward pass.
    Both results carry a gradient to the hidden states and to the output layer.

    Args:
        hidden_N_H: Final hidden state at the position *before* each target.
        weight_V_H: Weight of the output layer.
        bias_V: Its bias, if it has one.
        targets_N: Token ids.
        temperature: What logits are divided by; the sampler's. A nucleus (`top_p`, `top_k`,
            `min_p`) is not applied here: with one, the sampler's log-probabilities are of another,
            renormalised distribution.
        logits_per_chunk: Bounds the memory: rows of a chunk times the vocabulary. By default what
            suits the device.

    Returns:
        Log-probabilities and entropies in nats, both of shape N.
    """
    most = logits_per_chunk or (_CPU_CHUNK if weight_V_H.device.type == "cpu" else _GPU_CHUNK)
    rows = max(1, most // weight_V_H.shape[0])
    outputs = _ChosenLogprobs.apply(hidden_N_H, weight_V_H, bias_V, targets_N, temperature, rows)
    return cast("tuple[Tensor, Tensor]", outputs)


class _ChosenLogprobs(torch.autograd.Function):
    """The chunked computation and its gradient.

    With p the distribution: d logp_t / d z = onehot(t) - p, and d H / d z = -p (log p + H).
    """

    @staticmethod
    def forward(  # noqa: PLR0917 - autograd functions take positional arguments
        ctx: Any,
        hidden_N_H: Tensor,
        weight_V_H: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        temperature: float,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        dtype = _compute_dtype(weight_V_H)
        weight = weight_V_H.to(dtype)
        logprobs, entropies = [], []
        for chunk in _chunks(len(targets_N), rows):
            log_p = _log_distribution(hidden_N_H[chunk].to(dtype), weight, bias_V, temperature)
            logprobs.append(log_p.gather(1, targets_N[chunk, None]).squeeze(1))
            entropies.append(torch.special.entr(log_p.exp_()).sum(1))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(hidden_N_H, weight_V_H, bias_V, targets_N)
        ctx.temperature, ctx.rows, ctx.dtype = temperature, rows, dtype
        if not logprobs:
            empty_N = hidden_N_H.new_zeros(0, dtype=_wide(dtype))
            return empty_N, empty_N.clone()
        return torch.cat(logprobs), torch.cat(entropies)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden_N_H, weight_V_H, bias_V, targets_N = ctx.saved_tensors
        weight = weight_V_H.to(ctx.dtype)
        wanted = ctx.needs_input_grad
        grad_hidden = torch.zeros_like(hidden_N_H) if wanted[0] else None
        # Summed over chunks, so wider than what is summed up.
        wide = _wide(ctx.dtype)
        grad_weight = torch.zeros_like(weight_V_H, dtype=wide) if wanted[1] else None
        grad_bias = torch.zeros_like(bias_V, dtype=wide) if wanted[2] else None
        # Autocast is off in a backward pass; the dtype that the forward pass used is kept by hand.
        for chunk in _chunks(len(targets_N), ctx.rows):
            hidden = hidden_N_H[chunk].to(ctx.dtype)
            log_p = _log_distribution(hidden, weight, bias_V, ctx.temperature)
            upstream = [None if grad is None else grad[chunk] for grad in grads]
            grad_logits = _grad_logits(log_p, targets_N[chunk], *upstream).div_(ctx.temperature)
            if grad_bias is not None:
                grad_bias += grad_logits.sum(0)
            grad_logits = grad_logits.to(ctx.dtype)
            if grad_hidden is not None:
                grad_hidden[chunk] = (grad_logits @ weight).to(grad_hidden.dtype)
            if grad_weight is not None:
                grad_weight += grad_logits.T @ hidden
        sums = (
            None if total is None else total.to(like.dtype)
            for total, like in ((grad_weight, weight_V_H), (grad_bias, bias_V))
        )
        return grad_hidden, *sums, None, None, None


def _log_distribution(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float
) -> Tensor:
    logits = functional.linear(hidden, weight).to(_wide(weight.dtype))
    if bias is not None:
        logits = logits + bias
    return torch.log_softmax(logits.div_(temperature), dim=-1)


def _grad_logits(
    log_p: Tensor, targets: Tensor, grad_logprobs: Tensor | None, grad_entropies: Tensor | None
) -> Tensor:
    p = log_p.exp()
    grad = torch.zeros_like(p)
    if grad_logprobs is not None:
        grad.addcmul_(p, grad_logprobs[:, None], value=-1)
        grad.scatter_add_(1, targets[:, None], grad_logprobs[:, None])
    if grad_entropies is not None:
        # -p log p, which is 0 where p is: log p alone may be infinite there.
        entropy_terms = torch.special.entr(p)
        total = entropy_terms.sum(1, keepdim=True)
        grad += (entropy_terms - p * total) * grad_entropies[:, None]
    return grad


def _compute_dtype(weight: Tensor) -> torch.dtype:
    device = weight.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return weight.dtype


def _wide(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32


def _chunks(total: int, rows: int) -> list[slice]:
    return [slice(start, start + rows) for start in range(0, total, rows)]
