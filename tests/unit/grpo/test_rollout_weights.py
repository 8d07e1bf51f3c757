from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo.rollout import segments
from grpo.rollout.buffer_checksum import BLOCK_BYTES, BufferChecksum, compute_checksum
from grpo.rollout.segments import OwnedSegment, open_segment
from grpo.rollout.transports import SharedMemorySender, open_payload
from grpo.rollout.weights import (
    ALIGNMENT,
    pack_tensors,
    plan_tensors,
    unpack_tensors,
)
from verifiers.errors import UserError

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64)


def make_tensors() -> list[tuple[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        ("embed.weight", torch.randn(7, 5, generator=generator)),
        ("norm.weight", torch.randn(3, generator=generator).to(torch.bfloat16)),
        ("scale", torch.tensor(2.5)),
        ("head.weight", torch.randn(5, 7, generator=generator).T),
    ]


def pack(tensors: list[tuple[str, torch.Tensor]]):
    plan, num_bytes = plan_tensors(tensors)
    buffer = np.zeros(num_bytes, dtype=np.uint8)
    pack_tensors(tensors, plan, buffer)
    return plan, buffer


@given(
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=6),
    dtypes=st.lists(st.sampled_from(DTYPES), min_size=6, max_size=6),
)
def test_what_is_packed_comes_out_again(shapes, dtypes):
    tensors = [
        (f"t{i}", (torch.arange(int(np.prod(shape))) - 7).reshape(shape).to(dtype))
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=False))
    ]
    plan, buffer = pack(tensors)
    assert all(spec.offset % ALIGNMENT == 0 for spec in plan)
    for (name, tensor), (got_name, got) in zip(tensors, unpack_tensors(buffer, plan), strict=True):
        assert name == got_name
        assert got.dtype == tensor.dtype
        assert torch.equal(got, tensor)


def test_read_only_buffer_unpacks_without_a_copy_or_a_warning():
    plan, buffer = pack(make_tensors())
    buffer.flags.writeable = False
    tensors = dict(unpack_tensors(buffer, plan))
    assert tensors["embed.weight"].data_ptr() == buffer.ctypes.data + plan[0].offset


def test_checksum_sees_one_flipped_bit():
    _, buffer = pack(make_tensors())
    before = compute_checksum(buffer)
    buffer[plan_tensors(make_tensors())[0][2].offset] ^= 1
    assert compute_checksum(buffer) != before


@pytest.mark.parametrize("num_bytes", [0, 5, BLOCK_BYTES, 2 * BLOCK_BYTES + 5])
def test_checksum_does_not_depend_on_how_the_bytes_come_in(num_bytes):
    whole = np.random.default_rng(0).integers(0, 256, num_bytes, dtype=np.uint8)
    buffer = np.zeros_like(whole)
    checksum = BufferChecksum(buffer)
    step = BLOCK_BYTES // 3 + 1
    for start in range(0, num_bytes, step):
        buffer[start : start + step] = whole[start : start + step]
        checksum.advance(min(start + step, num_bytes))
    assert checksum.value() == compute_checksum(whole)


def test_checksum_sees_blocks_that_traded_places():
    buffer = np.random.default_rng(0).integers(0, 256, 2 * BLOCK_BYTES, dtype=np.uint8)
    traded = np.concatenate([buffer[BLOCK_BYTES:], buffer[:BLOCK_BYTES]])
    assert compute_checksum(traded) != compute_checksum(buffer)


def test_packing_finds_the_checksum_of_what_it_packed():
    tensors = make_tensors()
    plan, num_bytes = plan_tensors(tensors)
    buffer = np.zeros(num_bytes, dtype=np.uint8)
    assert pack_tensors(tensors, plan, buffer) == compute_checksum(buffer)


def test_checksum_does_not_depend_on_who_holds_the_bytes():
    tensors = make_tensors()
    sender = SharedMemorySender()
    try:
        payload = sender.send(tensors)
        assert payload.checksum == compute_checksum(pack(tensors)[1])
        assert payload.checksum == compute_checksum(open_payload(payload))
    finally:
        sender.close()


def test_a_second_send_reuses_the_segment_and_readers_see_it():
    tensors = make_tensors()
    sender = SharedMemorySender()
    try:
        first = sender.send(tensors)
        mapped = open_payload(first)
        second = sender.send([(name, tensor + 1) for name, tensor in tensors])
        assert second.handle == first.handle
        assert second.checksum != first.checksum
        assert compute_checksum(mapped) == second.checksum
    finally:
        sender.close()


def test_closing_removes_the_segment_but_not_what_readers_have_mapped():
    segment = OwnedSegment()
    segment.reserve(100)[:] = 7
    name = segment.name
    mapped = open_segment(name, 100)
    segment.close()
    segment.close()
    assert not (segments.FOLDER / name.lstrip("/")).exists()
    assert mapped.sum() == 700


def test_a_killed_owner_leaves_no_segment_behind():
    program = textwrap.dedent("""
        import os, signal
        from grpo.rollout.segments import OwnedSegment
        segment = OwnedSegment()
        segment.reserve(4096)
        print(segment.name, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    name = done.stdout.strip()
    assert name, done.stderr
    assert not (segments.FOLDER / name.lstrip("/")).exists()


def test_reading_a_segment_does_not_remove_it_when_the_reader_exits():
    segment = OwnedSegment()
    segment.reserve(64)[:] = 1
    program = (
        "import sys; from grpo.rollout.segments import open_segment; "
        "print(int(open_segment(sys.argv[1], 64).sum()))"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, segment.name],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.strip() == "64", done.stderr
        assert (segments.FOLDER / segment.name.lstrip("/")).exists()
    finally:
        segment.close()


def test_too_little_shared_memory_is_said_before_the_kernel_kills_the_writer():
    free = os.statvfs(segments.FOLDER)
    with pytest.raises(UserError, match="shm-size"):
        OwnedSegment().reserve(free.f_bavail * free.f_frsize + 4096)


def test_packing_refuses_tensors_in_another_order():
    tensors = make_tensors()
    plan, num_bytes = plan_tensors(tensors)
    with pytest.raises(AssertionError):
        pack_tensors(tensors[::-1], plan, np.zeros(num_bytes, dtype=np.uint8))


def test_what_an_owner_left_that_was_killed_with_all_it_started_goes_with_the_next():
    script = textwrap.dedent(
        """
        import sys, time
        from grpo.rollout.segments import OwnedSegment
        segment = OwnedSegment()
        segment.reserve(100)
        print(segment.name, flush=True)
        time.sleep(60)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as owner:
        assert owner.stdout is not None
        left = segments.FOLDER / owner.stdout.readline().strip().lstrip("/")
        os.utime(left, (0, 0))
        segments.remove_orphans()
        assert left.exists(), "its owner lives"
        os.killpg(owner.pid, signal.SIGKILL)
    assert left.exists()
    os.utime(left, (0, 0))
    next_one = OwnedSegment()
    next_one.reserve(1)
    next_one.close()
    assert not left.exists()
