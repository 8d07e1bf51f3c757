"""Weights over gloo, between this process and another."""

from __future__ import annotations

import multiprocessing
import os

import numpy as np
import pytest
import torch

from grpo.rollout import desk, gloo
from grpo.rollout.buffer_checksum import compute_checksum
from grpo.rollout.errors import WeightsRefused
from grpo.rollout.transports import make_sender, open_payload
from grpo.rollout.weights import unpack_tensors


@pytest.fixture
def sender(monkeypatch):
    monkeypatch.setattr(desk, "own_address", lambda: "127.0.0.1")
    monkeypatch.setattr(gloo, "own_address", lambda: "127.0.0.1")
    # Small, so that a push has several.
    monkeypatch.setattr(gloo, "BUCKET_BYTES", 1000)
    sender = make_sender("gloo")
    yield sender
    sender.close()


def make_tensors(value):
    return [("a", torch.full((700,), value)), ("b", torch.arange(5, dtype=torch.bfloat16))]


def fetch(payload):
    """In a child process: what arrives, as a checksum."""
    return compute_checksum(open_payload(payload))


def fetch_in_child(pipe, payload):
    try:
        pipe.send(fetch(payload))
    except WeightsRefused as error:
        pipe.send(error)


def start_child(payload):
    # A fork has the fixture's small buckets and address; gloo's threads are made after it.
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=fetch_in_child, args=(theirs, payload))
    process.start()
    return process, ours


class DyingStore:
    """A connection whose process dies after so many messages."""

    def __init__(self, store, messages):
        self._store = store
        self._left = messages

    def __getattr__(self, name):
        def call(*arguments):
            answer = getattr(self._store, name)(*arguments)
            self._left -= 1
            if self._left == 0:
                os._exit(1)
            return answer

        return call


def die_asking(payload, messages):
    connect = desk.distributed.TCPStore
    desk.distributed.TCPStore = lambda *a, **k: DyingStore(connect(*a, **k), messages)
    fetch(payload)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_several_processes_fetch_the_same_push_at_once(sender):
    payload = sender.send(make_tensors(1.5))
    children = [start_child(payload) for _ in range(2)]
    for process, pipe in children:
        assert pipe.recv() == payload.checksum
        process.join()


def test_every_push_brings_its_own_weights_and_voids_the_one_before(sender):
    old = sender.send(make_tensors(1.5))
    new = sender.send(make_tensors(2.5))
    buffer = open_payload(new)
    assert compute_checksum(buffer) == new.checksum != old.checksum
    (_, tensor), _ = unpack_tensors(buffer, new.plan)
    assert torch.equal(tensor, torch.full((700,), 2.5))
    with pytest.raises(WeightsRefused, match="packed a newer one"):
        open_payload(old)


def test_a_receiver_that_leaves_does_not_disturb_the_next(sender):
    payload = sender.send(make_tensors(1.5))
    process, _ = start_child(payload)
    process.kill()
    process.join()
    assert compute_checksum(open_payload(payload)) == payload.checksum


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("messages", [1, 2])
def test_a_receiver_that_dies_while_it_asks_does_not_disturb_the_next(sender, messages):
    payload = sender.send(make_tensors(1.5))
    context = multiprocessing.get_context("fork")
    process = context.Process(target=die_asking, args=(payload, messages))
    process.start()
    process.join()
    assert process.exitcode == 1
    assert compute_checksum(open_payload(payload)) == payload.checksum


def test_a_sender_that_is_gone_is_named(sender, monkeypatch):
    payload = sender.send(make_tensors(1.5))
    sender.close()
    sender._desk._store = None
    monkeypatch.setattr(desk, "CONNECT_TIMEOUT", desk.timedelta(seconds=0.2))
    with pytest.raises(WeightsRefused, match=r"did not arrive over gloo from 127.0.0.1"):
        open_payload(payload)


def test_what_arrives_is_ours_to_write(sender):
    buffer = open_payload(sender.send(make_tensors(1.5)))
    assert isinstance(buffer, np.ndarray)
    assert buffer.flags.writeable
