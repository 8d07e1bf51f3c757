"""What a user reads when the machine lacks something: before any model loads, and what to do."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("overrides", "environment", "fragments"),
    [
        ((), {"DOCKER_HOST": "unix:///nowhere/docker.sock"}, ["Docker"]),
        (("sandbox.image=no-such-image:0",), {}, ["no-such-image:0", "verigrad sandbox build"]),
        pytest.param(
            ("sandbox.runtime=no-such-runtime",), {}, ["no-such-runtime"], marks=pytest.mark.long
        ),
        (("ray.address=127.0.0.1:1",), {}, ["ray.address"]),
        pytest.param(
            ("placement=dedicated", "rollout.num_threads=500"),
            {},
            ["placement=dedicated", "1 x {CPU: 500}", "largest node has", "the threads of either"],
            marks=pytest.mark.long,
        ),
        pytest.param(
            ("learner.num_threads=500",),
            {},
            ["learner.world_size=1 ranks of learner.num_threads=500", "this machine has"],
            marks=pytest.mark.long,
        ),
        pytest.param(
            ("rollout.kv_cache_memory_mb=100000000",),
            {},
            ["GB", "rollout.kv_cache_memory_mb"],
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_machines_trouble_is_named(verigrad, tmp_path, overrides, environment, fragments):
    done = verigrad(
        "train", "configs/quickstart.yaml", f"output_dir={tmp_path}", *overrides, env=environment
    )
    assert done.returncode == 2, done.stderr
    for fragment in fragments:
        assert fragment in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir()), "a run that never began left a folder"
