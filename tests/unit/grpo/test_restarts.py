from __future__ import annotations

from grpo.restarts import WINDOW_S, RestartBudget


def test_restarts_are_bounded_within_the_window_and_allowed_again_after_it():
    now = 0.0
    budget = RestartBudget(2, clock=lambda: now)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    now = WINDOW_S + 1
    assert [budget.take() for _ in range(3)] == [True, True, False]


def test_no_restart_is_allowed_where_none_is_wanted():
    assert not RestartBudget(0).take()
