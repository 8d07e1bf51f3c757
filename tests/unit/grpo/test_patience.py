import threading
from datetime import timedelta

import pytest

from grpo.rollout.patience import call_within

SHORT, LONG = timedelta(seconds=0.05), timedelta(seconds=60)


def fail():
    raise ConnectionError("refused")


def test_what_answers_in_time_is_as_if_called_directly():
    assert call_within(LONG, lambda: 7, doing="counting") == 7
    with pytest.raises(ConnectionError, match="refused"):
        call_within(LONG, fail, doing="connecting")


def test_what_does_not_answer_is_left_behind_by_name():
    never = threading.Event()
    with pytest.raises(RuntimeError, match="no word for 0 s while waiting for a friend"):
        call_within(SHORT, never.wait, doing="waiting for a friend")
    never.set()
