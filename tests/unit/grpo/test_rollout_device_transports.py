"""Weights from GPU to GPU, as far as it goes without one: who meets whom, and what is checked."""

from __future__ import annotations

import threading
import time
import warnings
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vllm.distributed.weight_transfer import packed_tensor
from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine

from grpo.learner.group import LearnerGroup
from grpo.rollout import desk, ipc, nccl
from grpo.rollout.errors import WeightsRefused
from grpo.rollout.ipc import IpcSender, Opened, make_ipc_update, merge_exports
from grpo.rollout.load_recorder import receive_recorded
from grpo.rollout.nccl import NcclReceiver, NcclSender
from grpo.rollout.nccl_group import NcclGroup, pack_pieces
from grpo.rollout.tensor_checksum import TensorChecksum
from grpo.rollout.vllm_ipc import IpcEngine

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
    """The learner's end of a group: what is broadcast in it is kept."""

    def __init__(self, world_size, *, dead):
        self.world_size, self.dead = world_size, dead
        self.taken, self.aborted = threading.Event(), threading.Event()
        self.bytes = b""

    def broadcast(self, pieces):
        if self.dead:
            self.aborted.wait()
            return
        self.bytes = read(pieces)
        self.taken.set()

    def abort(self):
        assert not self.aborted.is_set(), "left twice"
        self.aborted.set()


class Groups(dict):
    """Those that were opened, by port; those whose engine will `die` never end a broadcast."""

    dying = False

    def open(self, host, port, world_size):
        return self.setdefault(port, Group(world_size, dead=self.dying))


class Engine:
    """An engine's side, and what its workers were told."""

    def __init__(self, groups, name="e", num_workers=1):
        self.groups, self.joined = groups, []
        self.receiver = NcclReceiver(name, num_workers, self.joined.append)

    @property
    def group(self):
        return self.groups[self.joined[-1]["master_port"]]

    def take(self, payload):
        self.receiver.request(payload)
        wait_until(lambda: self.joined[-1]["master_port"] in self.groups)
        if not self.group.dead:
            assert self.group.taken.wait(10)
            self.group.taken.clear()
            assert self.group.bytes == self.groups.sent


def wait_until(condition):
    give_up = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def read(pieces):
    return torch.cat([piece.reshape(-1).view(torch.uint8) for piece in pieces]).numpy().tobytes()


@pytest.fixture(scope="module")
def address():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk, "own_address", lambda: "127.0.0.1")
        patch.setattr(nccl, "own_address", lambda: "127.0.0.1")
        yield


@pytest.fixture
def groups(monkeypatch):
    opened = Groups()
    monkeypatch.setattr(nccl, "open_group", opened.open)
    monkeypatch.setattr(nccl, "_FINISH_S", 0.2)
    return opened


@pytest.fixture
def sender(address):
    sender = NcclSender()
    yield sender
    sender.close()


def send(sender, groups, tensors):
    groups.sent = read(tensor for _, tensor in tensors)
    return sender.send(tensors)


def test_an_engine_joins_once_and_is_broadcast_each_push(groups, sender):
    engine = Engine(groups, num_workers=2)
    for value in (1.0, 2.0):
        tensors = [("a", torch.full((3,), value)), *TENSORS[1:]]
        payload = send(sender, groups, tensors)
        assert payload.checksum == compute(tensors)
        engine.take(payload)
    (info,) = engine.joined
    assert (info["world_size"], info["rank_offset"], engine.group.world_size) == (3, 1, 3)


def test_the_learner_may_change_its_weights_before_they_are_taken(groups, sender):
    weight = torch.ones(3)
    payload = send(sender, groups, [("a", weight)])
    weight.zero_()
    Engine(groups).take(payload)


def test_a_push_that_is_past_is_refused(groups, sender):
    old = sender.send(TENSORS)
    sender.send(TENSORS)
    with pytest.raises(WeightsRefused, match="packed a newer one"):
        Engine(groups).receiver.request(old)


def test_an_engine_joins_a_learner_that_was_started_anew(groups, sender):
    engine = Engine(groups)
    engine.take(send(sender, groups, TENSORS))
    again = NcclSender()
    try:
        engine.take(send(again, groups, TENSORS))
    finally:
        again.close()
    assert len({info["master_port"] for info in engine.joined}) == 2


def test_an_engine_that_dies_in_a_push_holds_up_no_other_push(groups, sender):
    lives, dies = Engine(groups, "lives"), Engine(groups, "dies")
    payload = send(sender, groups, TENSORS)
    groups.dying = True
    dies.take(payload)
    groups.dying = False
    lives.take(payload)
    payload = send(sender, groups, [("a", torch.zeros(2))])
    assert dies.group.aborted.is_set()
    assert not lives.group.aborted.is_set()
    lives.take(payload)
    assert len(lives.joined) == 1


def test_each_engine_that_was_replaced_gives_its_group_back(groups, sender):
    lives = Engine(groups, "lives")
    newest = lives
    for restart in range(4):
        newest = Engine(groups, f"engine-{restart}")
        payload = send(sender, groups, TENSORS)
        for engine in (lives, newest):
            engine.take(payload)
    send(sender, groups, TENSORS)
    open_groups = [group for group in groups.values() if not group.aborted.is_set()]
    assert open_groups == [lives.group, newest.group]
    sender.close()
    assert all(group.aborted.is_set() for group in groups.values())


def test_an_engine_that_was_wrongly_taken_for_lost_joins_anew(groups, sender):
    engine = Engine(groups)
    engine.take(send(sender, groups, TENSORS))
    sender.send(TENSORS)
    engine.take(send(sender, groups, TENSORS))
    first, second = (groups[info["master_port"]] for info in engine.joined)
    assert first.aborted.is_set()
    assert not second.aborted.is_set()


class Communicator:
    """vLLM's, on both sides: what one broadcasts, on its own stream, the other takes."""

    def __init__(self):
        self.queue, self.calls = [], []

    def synchronize(self):
        self.calls.append("synchronize")

    def destroy(self):
        self.calls.append("destroy")

    def broadcast(self, tensor, src, stream=None):
        if stream is None:
            tensor.copy_(self.queue.pop(0))
        else:
            assert (src, stream) == (0, self)
            self.queue.append(tensor)


@pytest.mark.parametrize("size", [1, 20, 24, 36, 1000])
def test_vllms_workers_read_the_pieces_that_are_broadcast(monkeypatch, size):
    tensors = [*TENSORS, ("c", torch.arange(4, dtype=torch.bfloat16)), ("d", torch.tensor(3.0))]
    monkeypatch.setattr(packed_tensor, "DEFAULT_PACKED_BUFFER_SIZE_BYTES", size)
    monkeypatch.setattr(packed_tensor, "_get_streams", lambda *_: (communicator,) * 2)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    communicator, taken = Communicator(), {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Tensor .* exceeds buffer_size_bytes")
        NcclGroup(communicator, communicator).broadcast(pack_pieces(tensors))
    assert communicator.calls == ["synchronize"]
    packed_tensor.packed_nccl_broadcast_consumer(
        iterator=((name, (list(t.shape), t.dtype)) for name, t in tensors),
        group=communicator,
        src=0,
        post_unpack_func=taken.update,
        buffer_size_bytes=size,
        device="cpu",
    )
    assert not communicator.queue
    assert compute(taken.items()) == compute(tensors)


class Cuda:
    """The part of CUDA that lends a GPU's memory to other processes, and counts what is lent."""

    def __init__(self, monkeypatch):
        self.gpu, self.exported, self.num_opened = "GPU-0", [], 0
        monkeypatch.setattr(ipc, "allocate", self.allocate)
        monkeypatch.setattr(ipc, "reduce_tensor", self.export)
        monkeypatch.setattr(ipc, "rebuild_cuda_tensor", self.open)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
        # What it imports takes seconds, and it is for layers that are not loaded here.
        monkeypatch.setattr(IPCWeightTransferEngine, "start_weight_update", lambda _: None)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid=self.gpu)
        )

    def allocate(self, num_bytes):
        return torch.full((num_bytes,), 77, dtype=torch.uint8), self.gpu

    def export(self, tensor):
        self.exported.append(tensor)
        arguments: list[int | None] = [None] * 15
        arguments[0], arguments[6] = len(self.exported) - 1, 5
        return None, tuple(arguments)

    def open(self, *arguments):
        assert arguments[6] == 0, "the device as the engine counts"
        assert len(arguments) == 15
        self.num_opened += 1
        return self.exported[arguments[0]]


@pytest.fixture
def cuda(monkeypatch):
    return Cuda(monkeypatch)


class Model(torch.nn.Module):
    """Keeps what it is given; its parameters are those of `TENSORS`."""

    def __init__(self):
        super().__init__()
        self.weights = {}
        for name, tensor in TENSORS:
            self.register_parameter(name, torch.nn.Parameter(tensor.clone(), requires_grad=False))

    def load_weights(self, weights):
        loaded = {name: tensor.clone() for name, tensor in weights}
        self.weights |= loaded
        return set(loaded)


class Worker:
    """vLLM's worker of an engine, with the real weight-transfer engine in it."""

    def __init__(self):
        self.model = Model()
        config: Any = SimpleNamespace(parallel_config=None, model_config=None)
        self.engine = IpcEngine(config, config, torch.device("cuda", 0), self.model)

    def take(self, payload):
        self.engine.start_weight_update()
        update: Any = self.engine.parse_update_info(make_ipc_update(payload))
        self.engine.receive_weights(update)
        assert self.engine.loaded_checksum == payload.checksum
        return self.model.weights


def test_an_engine_reads_each_push_from_a_buffer_that_is_exported_and_opened_once(cuda):
    sender, worker = IpcSender(), Worker()
    for value in (1.0, 2.0, 3.0):
        tensors = [("a", torch.full((6,), value)), *TENSORS[1:]]
        taken = worker.take(sender.send(tensors))
        assert compute(taken.items()) == compute(tensors)
        assert [taken[name].shape for name, _ in tensors] == [t.shape for _, t in tensors]
    assert (len(cuda.exported), cuda.num_opened) == (1, 1)


def test_engines_that_die_or_come_anew_cost_the_learner_no_memory(cuda):
    sender = IpcSender()
    for _ in range(3):
        sender.send(TENSORS)  # nobody opens it
        Worker().take(sender.send(TENSORS))
    assert len(cuda.exported) == 1


def test_an_engine_finds_the_buffer_of_a_learner_that_was_started_anew(cuda):
    worker, tensors = Worker(), [("a", torch.zeros(6)), *TENSORS[1:]]
    worker.take(IpcSender().send(TENSORS))
    taken = worker.take(IpcSender().send(tensors))
    assert compute(taken.items()) == compute(tensors)
    assert cuda.num_opened == 2


def test_every_engine_finds_the_buffer_of_its_own_gpu(cuda):
    payloads = []
    for cuda.gpu in ("GPU-0", "GPU-1"):
        payloads.append(IpcSender().send(TENSORS))
    merged = merge_exports(payloads)
    opened = Opened().find(make_ipc_update(merged)["exports"], torch.device("cuda", 0))
    assert opened is cuda.exported[1]
    cuda.gpu = "GPU-2"
    with pytest.raises(ValueError, match="no learner rank packs weights on GPU GPU-2"):
        Worker().take(merged)


def test_ranks_that_hold_different_weights_are_our_own_fault(cuda):
    payload = IpcSender().send(TENSORS)
    with pytest.raises(AssertionError, match="ranks differ"):
        merge_exports([payload, replace(payload, checksum="d")])


class Actor:
    """A learner rank that says what it was asked."""

    def __init__(self):
        self.set_version = SimpleNamespace(remote=lambda _: None)
        self.publish = SimpleNamespace(remote=self.pack)
        self.asked = []

    def pack(self, transport, *, keeps):
        self.asked.append(keeps)
        return IpcSender().send(TENSORS) if keeps else None


@pytest.mark.parametrize(
    ("transport", "sharding", "asked"),
    [
        ("ipc", "ddp", [[True], [True], [], []]),
        ("ipc", "fsdp2", [[True], [True], [False], [False]]),
        ("nccl", "ddp", [[True], [], [], []]),
        ("nccl", "fsdp2", [[True], [False], [False], [False]]),
    ],
)
def test_ranks_without_an_engine_on_their_gpu_pack_nothing(
    cuda, monkeypatch, transport, sharding, asked
):
    options: Any = SimpleNamespace(sharding=sharding)
    group = LearnerGroup(options, world_size=4, transport=transport, num_sharing=2)
    group._actors = actors = [Actor() for _ in range(4)]
    monkeypatch.setattr(group, "_collect", lambda references, _: references)
    payload = group.publish(1)
    assert [actor.asked for actor in actors] == asked
    assert payload.checksum == compute(TENSORS)


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
