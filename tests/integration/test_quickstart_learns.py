"""The main job: the embedded policy learns maths and code from verified rewards."""

from __future__ import annotations

import json

import pytest

# Starting point and aim of the shipped policy, sampled at temperature 1 on held-out problems.
BOUNDS = {"maths": (0.55, 0.80), "code": (0.60, 0.80)}


@pytest.mark.timeout(900)
def test_the_quickstart_learns_both_tasks(train, tmp_path):
    run = train(tmp_path, "--json", timeout=880)
    assert run.returncode == 0, run.stderr
    held_out = json.loads(run.stdout)["held_out"]
    for name, (at_most, at_least) in BOUNDS.items():
        scores = held_out[name]
        before, after = scores["before"]["pass@1"], scores["after"]["pass@1"]
        assert before["value"] < at_most, name
        assert after["value"] >= at_least, name
        assert scores["pass@1_change"]["low"] > 0, f"{name}: the change may be chance"
