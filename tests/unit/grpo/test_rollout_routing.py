from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grpo.rollout.routing import Load, Router


def test_a_group_goes_to_the_engine_with_the_fewest_tokens():
    router = Router(Load(2), max_sequences=100)
    assert router.place(4, 1000) == 0
    assert router.place(4, 10) == 1
    assert router.place(4, 10) == 1
    router.release(0, 4, 1000)
    assert router.place(4, 10) == 0


def test_full_engines_take_nothing_until_something_ends():
    router = Router(Load(1), max_sequences=8)
    assert router.place(8, 10) == 0
    assert router.place(8, 10) is None
    router.release(0, 8, 10)
    assert router.place(8, 10) == 0


def test_an_idle_engine_takes_a_group_larger_than_its_limit():
    router = Router(Load(1), max_sequences=4)
    assert router.place(16, 10) == 0
    assert router.place(1, 10) is None


@given(
    groups=st.lists(st.tuples(st.integers(1, 16), st.integers(1, 500)), min_size=1, max_size=60),
    num_engines=st.integers(1, 4),
)
def test_no_engine_idles_while_another_has_more_than_one_group_more(groups, num_engines):
    router = Router(Load(num_engines), max_sequences=10**6)
    loads = [0] * num_engines
    for size, tokens in groups:
        chosen = router.place(size, tokens)
        assert chosen is not None
        assert loads[chosen] == min(loads)
        loads[chosen] += size * tokens


@given(groups=st.lists(st.integers(1, 40), max_size=40), limit=st.integers(1, 64))
def test_an_engine_never_holds_more_than_its_limit_unless_by_one_large_group(groups, limit):
    router = Router(Load(2), max_sequences=limit)
    held: list[list[int]] = [[], []]
    for size in groups:
        chosen = router.place(size, 1)
        if chosen is None:
            chosen = max((0, 1), key=lambda i: sum(held[i]))
            router.release(chosen, held[chosen].pop(), 1)
            continue
        held[chosen].append(size)
        assert sum(held[chosen]) <= limit or held[chosen] == [size]


def test_a_call_that_is_not_consumed_keeps_no_other_from_starting():
    load = Load(1)
    assert Router(load, max_sequences=8).place(8, 10) == 0
    assert Router(load, max_sequences=8).place(8, 10) == 0


def test_calls_see_each_others_load():
    load = Load(2)
    assert Router(load, max_sequences=8).place(1, 1000) == 0
    assert Router(load, max_sequences=8).place(1, 10) == 1
