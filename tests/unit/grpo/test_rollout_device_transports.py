"""Weights from GPU to GPU, as far as it goes without one: who meets whom, and what is checked."""

from __future__ import annotations

import base64
import pickle
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo.rollout import desk, nccl
from grpo.rollout.errors import WeightsRefused
from grpo.rollout.ipc import make_ipc_update, merge_handles
from grpo.rollout.load_recorder import receive_recorded
from grpo.rollout.nccl import NcclReceiver, NcclSender
from grpo.rollout.tensor_checksum import TensorChecksum
from grpo.rollout.weights import WeightPayload, plan_tensors

TENSORS = [("a", torch.arange(6.0)), ("b", torch.ones(2, 3, dtype=torch.bfloat16))]


def compute(tensors):
    checksum = TensorChecksum()
    for name, tensor in tensors:
        checksum.add(name, tensor)
    return checksum.value()


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=20), st.data())
def test_the_checksum_knows_every_value_and_its_place(values, data):
    tensor = torch.tensor(values)
    one, other = (data.draw(st.integers(0, len(values) - 1)) for _ in range(2))
    changed, swapped = tensor.clone(), tensor.clone()
    changed.view(torch.int32)[one] ^= 1
    swapped[one], swapped[other] = tensor[other], tensor[one]
    same = torch.equal(swapped.view(torch.int32), tensor.view(torch.int32))
    assert compute([("a", changed)]) != compute([("a", tensor)])
    assert (compute([("a", swapped)]) == compute([("a", tensor)])) == same


def test_the_checksum_does_not_know_order_but_names_and_lengths():
    assert compute(TENSORS) == compute(TENSORS[::-1])
    (_, first), (_, second) = TENSORS
    assert compute(TENSORS) != compute([("b", first), ("a", second)])
    assert compute([("a", torch.zeros(3))]) != compute([("a", torch.zeros(4))])
    assert compute([("a", torch.zeros(3))]) != compute([])


def test_large_tensors_are_counted_in_pieces(monkeypatch):
    whole = compute(TENSORS)
    monkeypatch.setattr("grpo.rollout.tensor_checksum._CHUNK", 4)
    assert compute(TENSORS) == whole


class Group:
    """A sender's or a worker's end; what one broadcasts the other takes."""

    def __init__(self, world_size):
        self.world_size = world_size
        self.taken = threading.Event()
        self.tensors = []


@pytest.fixture(scope="module")
def address():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk, "own_address", lambda: "127.0.0.1")
        patch.setattr(nccl, "own_address", lambda: "127.0.0.1")
        yield


@pytest.fixture
def groups(monkeypatch):
    opened = {}

    def open_group(host, port, world_size):
        return opened.setdefault(port, Group(world_size))

    def broadcast(named, group):
        group.tensors = list(named)
        group.taken.set()

    monkeypatch.setattr(nccl, "open_group", open_group)
    monkeypatch.setattr(nccl, "broadcast", broadcast)
    return opened


@pytest.fixture(scope="module")
def sender(address):
    sender = NcclSender()
    yield sender
    sender.close()


def test_an_engine_joins_once_and_is_broadcast_each_push(groups, sender):
    joined = []
    receiver = NcclReceiver("e", 2, joined.append)
    for value in (1.0, 2.0):
        payload = sender.send([("a", torch.full((3,), value))])
        receiver.request(payload)
        (info,) = joined
        group = groups[info["master_port"]]
        assert group.taken.wait(10)
        group.taken.clear()
        assert compute(group.tensors) == payload.checksum
    assert (info["world_size"], info["rank_offset"], group.world_size) == (3, 1, 3)


def test_the_learner_may_change_its_weights_before_they_are_taken(groups, sender):
    weight = torch.ones(3)
    payload = sender.send([("a", weight)])
    weight.zero_()
    receiver = NcclReceiver("e", 1, lambda _: None)
    receiver.request(payload)
    (group,) = groups.values()
    assert group.taken.wait(10)
    assert compute(group.tensors) == payload.checksum


def test_a_push_that_is_past_is_refused(groups, sender):
    old = sender.send(TENSORS)
    sender.send(TENSORS)
    with pytest.raises(WeightsRefused, match="packed a newer one"):
        NcclReceiver("e", 1, lambda _: None).request(old)


def test_an_engine_joins_a_learner_that_was_started_anew(groups, sender):
    joined = []
    receiver = NcclReceiver("e", 1, joined.append)
    receiver.request(sender.send(TENSORS))
    again = NcclSender()
    try:
        receiver.request(again.send(TENSORS))
    finally:
        again.close()
    assert len({info["master_port"] for info in joined}) == 2


def make_ipc_payload(gpu):
    plan, num_bytes = plan_tensors(TENSORS)
    return WeightPayload(
        transport="ipc",
        handle=[{gpu: (gpu, name)} for name, _ in TENSORS],
        plan=plan,
        num_bytes=num_bytes,
        checksum="c",
    )


def test_every_engine_finds_the_handle_of_its_own_gpu():
    merged = merge_handles([make_ipc_payload("GPU-0"), make_ipc_payload("GPU-1")])
    update = make_ipc_update(merged)
    handles = pickle.loads(base64.b64decode(update["ipc_handles_pickled"]))
    assert handles[1] == {"GPU-0": ("GPU-0", "b"), "GPU-1": ("GPU-1", "b")}
    assert update["names"] == ["a", "b"]
    assert update["dtype_names"] == ["float32", "bfloat16"]
    assert update["shapes"] == [[6], [2, 3]]


def test_ranks_that_hold_different_weights_are_our_own_fault():
    other = replace(make_ipc_payload("GPU-1"), checksum="d")
    with pytest.raises(AssertionError, match="ranks differ"):
        merge_handles([make_ipc_payload("GPU-0"), other])


class Model:
    def __init__(self):
        self.weights = {}

    def load_weights(self, weights):
        loaded = dict(weights)
        self.weights |= loaded
        return set(loaded)


def test_what_is_loaded_in_pieces_is_counted_as_a_whole():
    engine, model = SimpleNamespace(), Model()
    engine.model = model

    def receive():
        for pair in TENSORS:
            engine.model.load_weights([pair])

    checksum = receive_recorded(engine, {"a", "b"}, receive)
    assert checksum == compute(TENSORS)
    assert engine.model is model
    assert set(model.weights) == {"a", "b"}
    with pytest.raises(ValueError, match="no weights for 1 parameters: c"):
        receive_recorded(engine, {"a", "b", "c"}, receive)
