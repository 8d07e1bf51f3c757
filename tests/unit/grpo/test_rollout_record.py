"""The record of rollouts: written behind the loop's back, whole or not at all, and not for ever."""

import errno
import gzip
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest

from grpo.background import BackgroundJobs
from grpo.config.data import DataConfig
from grpo.config.schema import RunConfig
from grpo.packed import Spans, pack_logprobs, pack_token_ids
from grpo.run_directory import RunDirectory
from grpo.values import Rollout, ScoredGroup, ScoredRollout
from grpo.viewer.reading import RunReader
from tests.recorders import make_recorder
from verifiers.errors import UserError
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict


def make_group(text="7"):
    rollout = Rollout(
        problem_id="a",
        member=0,
        prompt_ids=pack_token_ids([1]),
        completion_ids=pack_token_ids([2, 0]),
        logprobs=pack_logprobs([-0.1, -1e-7]),
        text=text,
        finish_reason="stop",
        policy_versions=Spans([(3, 2)]),
        seed=9,
    )
    verdict = Verdict(status=Status.CORRECT, score=1.0, reason=Reason.DIFFERENT, verifier="math@1")
    return ScoredGroup(
        problem=Problem(id="a", prompt="?", verifier="math", reference="7", source="f:1"),
        members=(ScoredRollout(rollout=rollout, verdict=verdict, reward=1.0),),
    )


def names(folder):
    return sorted(file.name for file in (folder / "rollouts").iterdir())


@pytest.mark.parametrize("compressed", [False, True])
def test_plain_and_compressed_rollouts_are_read_alike(tmp_path, compressed):
    directory = RunDirectory(tmp_path)
    directory.write_config(RunConfig(model="m", data=(DataConfig(path="a.jsonl"),)))
    recorder = make_recorder(tmp_path, compress_rollouts=compressed)
    for step in (1, 2):
        recorder.keep_rollouts(step, [make_group()])
    recorder.settle()
    assert names(tmp_path)[0] == ("step-000001.jsonl.gz" if compressed else "step-000001.jsonl")
    (found,) = directory.read_rollouts(2)
    assert found.members == make_group().members
    viewer = RunReader(tmp_path)
    assert viewer.read_overview()["rollouts"] == [1, 2]
    assert viewer.read_rollouts("rollouts", 2)[0]["num_tokens"] == 2
    directory.forget_after(1)
    assert viewer.read_overview()["rollouts"] == [1]
    with pytest.raises(UserError, match="no rollouts of step 2"):
        directory.read_rollouts(2)


def test_a_compressed_file_that_was_cut_off_is_named(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.write_rollouts(1, [make_group("x" * 9_999)], compressed=True)
    file = tmp_path / "rollouts" / "step-000001.jsonl.gz"
    content = file.read_bytes()
    assert gzip.decompress(content).endswith(b"}\n")
    file.write_bytes(content[:-9])
    with pytest.raises(UserError, match=r"step-000001\.jsonl\.gz is damaged"):
        directory.read_rollouts(1)


def test_only_the_newest_steps_keep_their_rollouts(tmp_path):
    recorder = make_recorder(tmp_path, keep_rollouts=2)
    for step in range(1, 6):
        recorder.keep_rollouts(step, [make_group()])
    recorder.settle()
    assert names(tmp_path) == ["step-000004.jsonl", "step-000005.jsonl"]


def test_a_full_disk_costs_the_rollouts_of_a_step_and_is_told(tmp_path):
    said = []
    recorder = make_recorder(tmp_path, said)
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / ".step-000001.jsonl.partial").symlink_to("/dev/full")
    recorder.keep_rollouts(1, [make_group()])
    recorder.keep_rollouts(2, [make_group()])
    recorder.settle()
    ((worker, action),) = [(row["worker"], row["action"]) for row in said]
    assert (worker, action) == ("rollouts of step 1", "not kept")
    assert names(tmp_path)[1:] == ["step-000002.jsonl"]


def test_another_error_of_the_record_ends_the_run(tmp_path):
    recorder = make_recorder(tmp_path)
    (tmp_path / "rollouts").write_text("in the way")
    recorder.keep_rollouts(1, [make_group()])
    with pytest.raises(FileExistsError):
        recorder.settle()


def test_a_run_that_is_killed_while_it_writes_leaves_no_file_that_looks_whole(tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from grpo.run_directory import RunDirectory\n"
        "def lines():\n"
        "    yield b'{}' * 2**20\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "RunDirectory(Path(sys.argv[1]))._write('rollouts/step-000003.jsonl', lines())\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = names(tmp_path)
    assert left == ".step-000003.jsonl.partial"
    directory = RunDirectory(tmp_path)
    with pytest.raises(UserError, match="no rollouts of step 3"):
        directory.read_rollouts(3)
    directory.forget_after(5)
    assert not names(tmp_path)


class Jobs:
    """Jobs that end when they are let, in a queue with room for two."""

    def __init__(self):
        self.may_end = threading.Event()
        self.done = []
        self.queue = BackgroundJobs(lambda name: nullcontext(), most=2)

    def submit(self, number):
        self.queue.submit(f"job {number}", lambda: self._do(number))

    def _do(self, number):
        assert self.may_end.wait(20)
        self.done.append(number)


def test_jobs_are_done_in_order_while_their_owner_goes_on():
    jobs = Jobs()
    jobs.submit(1)
    jobs.submit(2)
    assert jobs.done == []
    jobs.may_end.set()
    jobs.submit(3)
    jobs.queue.settle()
    assert jobs.done == [1, 2, 3]


def test_no_more_jobs_are_held_than_there_is_room_for():
    jobs = Jobs()
    jobs.submit(1)
    jobs.submit(2)
    third = threading.Thread(target=jobs.submit, args=(3,))
    third.start()
    third.join(timeout=0.2)
    assert third.is_alive()
    jobs.may_end.set()
    third.join(timeout=20)
    jobs.queue.settle()
    assert jobs.done == [1, 2, 3]


def test_an_error_reaches_the_owner_once_under_the_jobs_name():
    seen = []
    queue = BackgroundJobs(lambda name: seen.append(name) or nullcontext(), most=2)

    def fail():
        raise OSError(errno.EIO, "the disk is sick")

    queue.submit("first", fail)
    with pytest.raises(OSError, match="sick"):
        queue.settle()
    queue.submit("second", lambda: None)
    queue.settle()
    assert seen == ["first", "second"]
