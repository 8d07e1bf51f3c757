import os
import signal

import pytest

from grpo.stopping import StopRequested, StopSignal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_seen_at_the_next_check_and_said_at_once(number):
    said = []
    with StopSignal(said.append) as stop:
        stop.check()
        os.kill(os.getpid(), number)
        assert len(said) == 1
        with pytest.raises(StopRequested):
            stop.check()


def test_the_second_signal_does_not_wait():
    with StopSignal(lambda _: None):
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopSignal(lambda _: None):
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
