import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.container.wire import pack
from sandbox.errors import WorkerLost
from sandbox.stream import FrameStream


def piece(kind: int, body: bytes) -> bytes:
    return struct.pack(">BxxxI", kind, len(body)) + body


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    stream = FrameStream(ours, multiplexed=True)
    yield stream, theirs
    stream.close()
    theirs.close()


@given(st.lists(st.text(), max_size=5), st.integers(1, 40))
def test_frames_survive_any_split(messages, size):
    ours, theirs = socket.socketpair()
    stream = FrameStream(ours, multiplexed=True)
    raw = b"".join(map(pack, messages))
    cut = b"".join(piece(1, raw[i : i + size]) for i in range(0, len(raw), size))
    # From another thread: so many small pieces fill the socket.
    sender = threading.Thread(
        target=lambda: [theirs.sendall(cut[i : i + size]) for i in range(0, len(cut), size)]
    )
    sender.start()
    assert [stream.receive(timeout_s=5) for _ in messages] == messages
    sender.join()
    stream.close()
    theirs.close()


def test_error_output_is_kept_apart(ends):
    stream, theirs = ends
    theirs.sendall(piece(2, b"trouble") + piece(1, pack({"a": 1})))
    assert stream.receive(timeout_s=5) == {"a": 1}
    assert stream.complaint == "trouble"


def test_an_end_names_the_complaint(ends):
    stream, theirs = ends
    theirs.sendall(piece(2, b"Traceback: boom") + piece(1, pack(1)[:3]))
    theirs.close()
    with pytest.raises(WorkerLost, match="boom") as caught:
        stream.receive(timeout_s=5)
    assert caught.value.kind == "died"


def test_silence_is_late(ends):
    stream, _ = ends
    with pytest.raises(WorkerLost) as caught:
        stream.receive(timeout_s=0.05)
    assert caught.value.kind == "late"


@pytest.mark.parametrize("raw", [b"\xff\xff\xff\xff", struct.pack(">I", 3) + b"[[["])
def test_what_is_no_frame_is_a_protocol_error(ends, raw):
    stream, theirs = ends
    theirs.sendall(piece(1, raw))
    with pytest.raises(WorkerLost) as caught:
        stream.receive(timeout_s=5)
    assert caught.value.kind == "protocol"


def test_sending_to_a_closed_end_is_a_death(ends):
    stream, theirs = ends
    theirs.close()
    with pytest.raises(WorkerLost) as caught:
        stream.send("x" * 10_000_000, timeout_s=5)
    assert caught.value.kind == "died"
