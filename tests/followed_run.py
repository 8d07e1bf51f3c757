"""A training run whose output is followed, so that something can be done to it after a step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest


class FollowedRun:
    """The quickstart, with overrides, in a process group of its own."""

    def __init__(self, folder, *arguments, environment=None):
        self.folder = folder / "quickstart"
        self.lines = []
        command = [sys.executable, "-m", "grpo", "train", "configs/quickstart.yaml"]
        self.process = subprocess.Popen(
            [*command, f"output_dir={folder}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=os.environ | (environment or {}),
        )

    def wait_for(self, text):
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return
        pytest.fail(f"the run ended before {text!r}:\n" + "".join(self.lines))

    @contextmanager
    def held(self):
        """Have the command stand still, so that what is done within is done before its end."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def finish(self, timeout=550):
        rest, _ = self.process.communicate(timeout=timeout)
        self.lines.append(rest)
        assert self.process.returncode == 0, "".join(self.lines)
        return json.loads((self.folder / "summary.json").read_text())

    def stop(self):
        """End it if it has not ended; harmless at any time."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
