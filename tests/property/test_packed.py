"""Numbers of tokens in machine words: as good as the tuples they stand for, and exact on disk."""

import json
import pickle
import struct
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo.ahead import keep_gathered, read_gathered
from grpo.gather import Gathered
from grpo.packed import Packed, Spans, find_spans, pack_logprobs, pack_token_ids, to_json
from grpo.rollout_rows import encode_logprobs, encode_row, read_member
from grpo.values import Rollout, ScoredGroup, ScoredRollout
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict

token_ids = st.lists(st.integers(0, 2**31 - 1))
# What a sampler can say: any float of 32 bits up to 0, the smallest among them.
logprobs = st.lists(st.floats(width=32, max_value=0.0, allow_nan=False, allow_infinity=False))
versions = st.lists(st.integers(0, 3)).map(sorted)


@given(token_ids, logprobs, st.slices(20), token_ids)
def test_packed_numbers_are_read_like_tuples(ids, values, part, more):
    for packed, plain in (
        (pack_token_ids(ids), tuple(ids)),
        (pack_logprobs(values), tuple(values)),
    ):
        assert packed == plain == packed
        assert plain == packed == pickle.loads(pickle.dumps(packed))
        assert packed != (*plain, 1)
        assert hash(packed) == hash(plain)
        assert len(packed) == len(plain)
        assert json.loads(json.dumps(packed, default=to_json)) == list(plain)
        assert all(type(one) is type(other) for one, other in zip(packed, plain, strict=True))
        assert packed[part] == plain[part]
        assert [packed[place] for place in range(len(plain))] == list(plain)
        assert packed + tuple(more) == plain + tuple(more)
        assert tuple(more) + packed == tuple(more) + plain


def test_packed_numbers_cannot_be_changed_nor_cut():
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(pack_token_ids([1, 2]))[0] = 3
    with pytest.raises(OverflowError):
        pack_token_ids([2**31])


@given(token_ids)
def test_a_pickle_of_packed_numbers_takes_their_bytes_and_nothing_beside_itself(ids):
    beside = []
    content = pickle.dumps(pack_token_ids(ids), protocol=5, buffer_callback=beside.append)
    assert len(content) < 4 * len(ids) + 100
    assert not beside


@given(versions, st.slices(20))
def test_spans_are_read_like_tuples(plain, part):
    spans = Spans(find_spans(plain))
    assert spans == tuple(plain)
    assert tuple(plain) == spans == pickle.loads(pickle.dumps(spans))
    assert hash(spans) == hash(tuple(plain))
    assert len(spans) == len(plain)
    assert len(spans.spans) == len(set(plain))
    assert spans[part] == tuple(plain)[part]
    assert [spans[place] for place in range(len(plain))] == plain


def make_groups(ids, values, policy_versions):
    rollout = Rollout(
        problem_id="a",
        member=0,
        prompt_ids=pack_token_ids([1, 2]),
        completion_ids=pack_token_ids(ids),
        logprobs=pack_logprobs(values),
        text='né\n"',
        finish_reason="stop",
        policy_versions=Spans(find_spans(policy_versions)),
        seed=2**63,
    )
    verdict = Verdict(status=Status.CORRECT, score=1.0, reason=Reason.DIFFERENT, verifier="math@1")
    problem = Problem(id="a", prompt="?", verifier="math", reference=10**30, source="f:1")
    member = ScoredRollout(rollout=rollout, verdict=verdict, reward=0.1)
    return (ScoredGroup(problem=problem, members=(member,)),)


@given(token_ids, logprobs, versions)
def test_what_is_kept_of_a_rollout_comes_back_to_the_bit(ids, values, policy_versions):
    (group,) = make_groups(ids, values, policy_versions)
    row = json.loads(encode_row(1, group, 0))
    assert read_member(row) == group.members[0]
    found = read_member(row).rollout.logprobs
    assert [struct.pack("f", one) for one in found] == [struct.pack("f", one) for one in values]
    assert row["completion_ids"] == ids
    assert row["policy_versions"] == policy_versions
    assert row["reference"] == 10**30

    ahead = Gathered(step=1, groups=(group,), num_drawn=3)
    kept = json.loads(json.dumps(keep_gathered(ahead)))
    assert read_gathered(kept).groups[0].members == group.members
    # As checkpoints were written before tokens were packed.
    assert read_gathered(kept | {"rows": [row]}).groups[0].members == group.members


@given(st.floats(width=32, min_value=-1e4, max_value=-(2.0**-40)))
def test_a_log_probability_takes_no_more_digits_than_its_bits_need(value):
    text = encode_logprobs([value]).decode()[1:-1]
    assert len(Decimal(text).normalize().as_tuple().digits) <= 9
    assert np.float32(text) == value


def test_a_log_probability_that_is_no_number_is_kept_as_one():
    (group,) = make_groups([1], [float("nan")], [0])
    found = read_member(json.loads(encode_row(1, group, 0)))
    assert np.isnan(found.rollout.logprobs[0])
    assert isinstance(found.rollout.logprobs, Packed)
