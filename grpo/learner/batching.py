"""Split a batch into micro-batches by tokens, and micro-batches over ranks."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from grpo.algorithms.reductions import compute_token_weights
from grpo.values import TrainSample
from verifiers.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSample:
    """A sample with the weight of each of its tokens in the global loss.

    Attributes:
        sample: The completion.
        token_weight: What one of its tokens counts, before the batch's normaliser; see
            `grpo.algorithms.reductions`.
    """

    sample: TrainSample
    token_weight: float


MicroBatch = tuple[WeightedSample, ...]


def weigh_samples(
    samples: Sequence[TrainSample], *, reduction: str, max_completion_length: int
) -> list[WeightedSample]:
    """Give every sample its token weight; those without loss tokens leave.

    Args:
        samples: Whole groups of the global batch.
        reduction: A key of `REDUCTIONS`.
        max_completion_length: The constant of the reduction `constant`.
    """
    weights = compute_token_weights(
        [sample.num_loss_tokens for sample in samples],
        groups=[sample.group_key for sample in samples],
        reduction=reduction,
        max_completion_length=max_completion_length,
    )
    return [
        WeightedSample(sample=sample, token_weight=weight)
        for sample, weight in zip(samples, weights, strict=True)
        if sample.num_loss_tokens
    ]


def split_by_groups(
    samples: Sequence[TrainSample], num_mini_batches: int
) -> list[list[TrainSample]]:
    """Split a batch into mini-batches of whole groups, as even in number as can be.

    Groups stay whole so that the advantages of every mini-batch sum to 0. Those that have no loss
    token are left out, and there are never more mini-batches than groups.

    Args:
        samples: Of the whole batch.
        num_mini_batches: How many there shall be.
    """
    groups: defaultdict[Hashable, list[TrainSample]] = defaultdict(list)
    for sample in samples:
        groups[sample.group_key].append(sample)
    members = [group for group in groups.values() if any(s.num_loss_tokens for s in group)]
    count = min(num_mini_batches, len(members))
    bounds = [len(members) * i // count for i in range(count + 1)] if count else []
    return [
        [sample for group in members[first:last] for sample in group]
        for first, last in pairwise(bounds)
    ]


def plan_microbatches(
    samples: Sequence[WeightedSample], *, max_tokens: int, world_size: int, packed: bool
) -> list[list[MicroBatch]]:
    """Bin samples and deal the bins out to the ranks.

    Padded, neighbours in length share a micro-batch, so that padding is small, and the longest come
    first: a budget that does not fit the memory fails at once. Packed, as a `Packer` does. Every
    rank gets the same number, as collective gradient exchange needs; a rank that would have none
    gets one that carries no loss.

    Args:
        samples: What is to be learned from.
        max_tokens: Of one micro-batch, padding included, at most.
        world_size: How many ranks there are.
        packed: Whether samples share a row, without padding.

    Returns:
        For each rank its micro-batches; none at all when there are no samples.

    Raises:
        UserError: If one sample alone is longer than `max_tokens`.
    """
    if not samples:
        return [[] for _ in range(world_size)]
    if packed:
        packer = Packer(max_tokens=max_tokens, world_size=world_size)
        rounds = [*packer.add(samples), *packer.finish()]
        return [[micro_batches[rank] for micro_batches in rounds] for rank in range(world_size)]
    _require_room(samples, max_tokens)
    by_length = _sort(samples)
    bins = _fill_bins(by_length, max_tokens)
    _even_out(bins, world_size)
    bins.sort(key=_padded_size, reverse=True)
    anchor = _without_loss(by_length[-1])
    while len(bins) % world_size:
        bins.append([anchor])
    # Dealing forth and back gives every rank its share of long and of short bins.
    ranks: list[list[MicroBatch]] = [[] for _ in range(world_size)]
    for index, members in enumerate(bins):
        turn, place = divmod(index, world_size)
        ranks[place if turn % 2 == 0 else world_size - 1 - place].append(tuple(members))
    return ranks


class Packer:
    """Packs samples as they come: whenever no more fit, one micro-batch for each rank is full.

    What shares a micro-batch follows from the order of the samples alone, so that a batch has the
    same ones, and the same gradient to the last bit, whether it came at once or bit by bit.

    Args:
        max_tokens: Of one micro-batch, at most.
        world_size: How many ranks there are.
    """

    def __init__(self, *, max_tokens: int, world_size: int) -> None:
        self._max_tokens = max_tokens
        self._world_size = world_size
        self._waiting: list[WeightedSample] = []
        self._num_tokens = self._longest = 0

    def add(self, samples: Sequence[WeightedSample]) -> list[list[MicroBatch]]:
        """Take samples in.

        Returns:
            For each time that they filled up, a micro-batch for every rank. More follow: what
            filled them up waits for its turn.

        Raises:
            UserError: If one sample alone is longer than `max_tokens`.
        """
        rounds: list[list[MicroBatch]] = []
        for sample in samples:
            _require_room([sample], self._max_tokens)
            if not self._has_room(sample):
                rounds += self.finish()
            self._waiting.append(sample)
            self._num_tokens += sample.sample.num_tokens
            self._longest = max(self._longest, sample.sample.num_tokens)
        return rounds

    def finish(self) -> list[list[MicroBatch]]:
        """What waits, as one micro-batch for every rank; nothing where nothing waits."""
        if not self._waiting:
            return []
        anchor = _without_loss(min(self._waiting, key=lambda s: s.sample.num_tokens))
        bins = _balance(self._waiting, self._world_size)
        self._waiting = []
        self._num_tokens = self._longest = 0
        return [[tuple(members or [anchor]) for members in bins]]

    def _has_room(self, sample: WeightedSample) -> bool:
        total = self._num_tokens + sample.sample.num_tokens
        room = self._max_tokens * self._world_size
        if total > room:
            return False
        longest = max(self._longest, sample.sample.num_tokens)
        # Balanced bins are apart by one sample at most, so far from the budget there is no need to
        # try.
        if total + longest * self._world_size <= room:
            return True
        bins = _balance([*self._waiting, sample], self._world_size)
        return max(sum(m.sample.num_tokens for m in b) for b in bins) <= self._max_tokens


def _balance(samples: Sequence[WeightedSample], count: int) -> list[list[WeightedSample]]:
    """Fill bins to equal sums, each sample from the longest down into the emptiest."""
    bins: list[list[WeightedSample]] = [[] for _ in range(count)]
    fills = [(0, index) for index in range(count)]
    for member in _sort(samples):
        fill, index = fills[0]
        bins[index].append(member)
        heapq.heapreplace(fills, (fill + member.sample.num_tokens, index))
    return bins


def _require_room(samples: Sequence[WeightedSample], max_tokens: int) -> None:
    longest = _sort(samples)[0].sample
    if longest.num_tokens > max_tokens:
        raise UserError(
            f"max_tokens_per_microbatch={max_tokens} is smaller than one sequence: completion"
            f" {longest.member} of problem {longest.problem_id!r} has {longest.num_tokens} tokens"
            f" ({len(longest.prompt_ids)} prompt + {len(longest.completion_ids)} completion). Raise"
            " max_tokens_per_microbatch to at least max_prompt_length + max_completion_length, or"
            " lower those"
        )


def _sort(samples: Sequence[WeightedSample]) -> list[WeightedSample]:
    return sorted(samples, key=lambda s: s.sample.num_tokens, reverse=True)


def _fill_bins(by_length: Sequence[WeightedSample], max_tokens: int) -> list[list[WeightedSample]]:
    """Fill bins from the longest down; the first member of a bin fixes the width of its rows."""
    bins: list[list[WeightedSample]] = []
    for member in by_length:
        if bins and (len(bins[-1]) + 1) * bins[-1][0].sample.num_tokens <= max_tokens:
            bins[-1].append(member)
        else:
            bins.append([member])
    return bins


def _even_out(bins: list[list[WeightedSample]], world_size: int) -> None:
    """Halve the largest bins until every rank can have the same number, or none can be halved."""
    while len(bins) % world_size:
        divisible = [index for index, members in enumerate(bins) if len(members) > 1]
        if not divisible:
            return
        largest = max(divisible, key=lambda index: _padded_size(bins[index]))
        members = bins[largest]
        half = (len(members) + 1) // 2
        bins[largest : largest + 1] = [members[:half], members[half:]]


def _padded_size(members: Sequence[WeightedSample]) -> int:
    return len(members) * members[0].sample.num_tokens


def _without_loss(member: WeightedSample) -> WeightedSample:
    return WeightedSample(sample=replace(member.sample, masked=True), token_weight=0.0)
