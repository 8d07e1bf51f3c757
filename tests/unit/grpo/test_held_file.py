"""One process at a time in a folder."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from grpo.config.schema import RunConfig
from grpo.held_file import hold_file
from grpo.run_directory import RunDirectory
from verifiers.errors import UserError

HOLD = """
import sys, time
from pathlib import Path
from grpo.held_file import hold_file
with hold_file(Path(sys.argv[1]), busy=""):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_file_is_free_again_when_its_holder_is_killed(tmp_path):
    file = tmp_path / "plan.json"
    file.write_text("{}")
    command = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with (
                pytest.raises(UserError, match="somebody has it"),
                hold_file(file, busy="somebody has it"),
            ):
                pass
        finally:
            holder.kill()
    with hold_file(file, busy="somebody has it"):
        assert file.read_text() == "{}"


def test_a_file_system_without_locks_is_worked_on_all_the_same(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    (tmp_path / "plan.json").write_text("")
    with hold_file(tmp_path / "plan.json", busy=""):
        pass


def test_a_run_that_somebody_is_at_is_not_resumed(tmp_path):
    directory = RunDirectory.create(str(tmp_path), "run")
    with directory.hold():
        directory.write_config(RunConfig(model="m", data=(), steps=7))
        with (
            pytest.raises(UserError, match=r"Another `verigrad train` is at work in .*--resume"),
            RunDirectory(directory.path).hold(),
        ):
            pass
