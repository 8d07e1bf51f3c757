"""How a micro-batch is laid out for the model: padded rows, or one row of samples end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from grpo.learner.batching import MicroBatch
from grpo.values import TrainSample


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchTensors:
    """A micro-batch as the model takes it.

    S samples in B rows of T positions; N loss tokens, laid end to end in the samples' order.
    Padded, every sample has a row of its own, filled up on the right; packed, all share one row.

    Attributes:
        input_ids: Token ids, shape B, T.
        position_ids: Each token's place in its own sample, shape B, T: where it starts anew, the
            model keeps samples of one row apart. None for padded rows, which count from 0.
        num_sequences: S.
        positions: Index into the flattened B * T positions of the token before each loss token,
            shape N.
        targets: The loss tokens' ids, shape N.
        sequence: The sample of each loss token, shape N.
        advantages: The sample's advantage for each loss token, shape N.
        weights: What each loss token counts in the global loss, shape N.
        sampler_logprobs: What the sampler said of each loss token, shape N.
    """

    input_ids: Tensor
    position_ids: Tensor | None
    num_sequences: int
    positions: Tensor
    targets: Tensor
    sequence: Tensor
    advantages: Tensor
    weights: Tensor
    sampler_logprobs: Tensor


def build_tensors(
    microbatch: MicroBatch, device: torch.device, *, packed: bool
) -> MicroBatchTensors:
    """Lay a micro-batch out as tensors.

    What is a loss token follows from lengths alone, never from token ids.

    Args:
        microbatch: At least one sample, each with a prompt.
        device: Where the tensors go.
        packed: Whether samples share a row.
    """
    samples = [member.sample for member in microbatch]
    rows, starts = _pack(samples) if packed else _pad(samples)
    firsts = [start + len(s.prompt_ids) - 1 for start, s in zip(starts, samples, strict=True)]
    positions = [
        torch.arange(first, first + sample.num_loss_tokens)
        for first, sample in zip(firsts, samples, strict=True)
    ]
    lengths = torch.tensor([sample.num_loss_tokens for sample in samples])
    learned = [sample for sample in samples if not sample.masked]
    return MicroBatchTensors(
        input_ids=rows.to(device),
        position_ids=_count_places(samples).to(device) if packed else None,
        num_sequences=len(samples),
        positions=torch.cat(positions).to(device),
        targets=_join([sample.completion_ids for sample in learned], np.int64).to(device),
        sequence=torch.arange(len(samples)).repeat_interleave(lengths).to(device),
        advantages=_spread([sample.advantage for sample in samples], lengths).to(device),
        weights=_spread([member.token_weight for member in microbatch], lengths).to(device),
        sampler_logprobs=_join([sample.sampler_logprobs for sample in learned], np.float32).to(
            device
        ),
    )


def _pad(samples: Sequence[TrainSample]) -> tuple[Tensor, list[int]]:
    """Rows of token ids, and where each sample starts in them, end to end."""
    width = max(sample.num_tokens for sample in samples)
    rows = torch.zeros(len(samples), width, dtype=torch.long)
    for row, sample in zip(rows, samples, strict=True):
        row[: sample.num_tokens] = _join([sample.prompt_ids, sample.completion_ids], np.int64)
    return rows, [row * width for row in range(len(rows))]


def _pack(samples: Sequence[TrainSample]) -> tuple[Tensor, list[int]]:
    """As `_pad`: one row."""
    row = _join([part for s in samples for part in (s.prompt_ids, s.completion_ids)], np.int64)
    ends = accumulate((sample.num_tokens for sample in samples), initial=0)
    return row[None], list(ends)[:-1]


def _join(parts: Sequence[Sequence[float]], dtype: type[np.generic]) -> Tensor:
    """Numbers of tokens end to end."""
    pieces = [np.asarray(part, dtype=dtype) for part in parts]
    return torch.from_numpy(np.concatenate([np.zeros(0, dtype), *pieces]))


def _count_places(samples: Sequence[TrainSample]) -> Tensor:
    return torch.cat([torch.arange(sample.num_tokens) for sample in samples])[None]


def _spread(values: Sequence[float], lengths: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).repeat_interleave(lengths)
