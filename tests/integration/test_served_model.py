"""A model served by vLLM's own OpenAI server scores as it does in an engine of ours."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def model():
    """SmolLM2, fetched once a checkout."""
    fetch = [sys.executable, "scripts/fetch_smollm2.py"]
    done = subprocess.run(fetch, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "models/smollm2-135m-instruct"


def find_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    """The address of vLLM's server."""
    port = find_port()
    log = tmp_path_factory.mktemp("server") / "log"
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--served-model-name", "smol", "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--max-model-len", "1024", "--max-num-batched-tokens", "4096"),
        *("--enforce-eager", "--no-enable-chunked-prefill", "--generation-config", "vllm"),
    ]
    env = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "TORCHDYNAMO_DISABLE": "1",
    }
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=env)
        try:
            wait_for(f"http://127.0.0.1:{port}/health", process, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait(timeout=60)


def wait_for(url, process, log):
    give_up = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < give_up:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(1.0)
    raise AssertionError(log.read_text()[-3000:])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_same_evaluation_gives_the_same_tokens_and_score(
    model, server, data_dir, verigrad, tmp_path
):
    def evaluate(name, *more):
        done = verigrad(
            "eval",
            "configs/eval/gsm8k.yaml",
            f"model={model}",
            f"evaluation.data.0.path={data_dir / 'gsm8k/test.jsonl'}",
            "evaluation.data.0.limit=12",
            "evaluation.max_completion_length=160",
            "max_prompt_length=512",
            # So little a model boxes nothing; its last number is now and then the right one.
            "verifiers.math.extraction=last_number",
            "verifiers.math.allow_truncated=true",
            *more,
            f"--output={tmp_path / name}",
            "--json",
        )
        assert done.returncode == 0, done.stderr
        lines = (tmp_path / name / "samples.jsonl").read_text().splitlines()
        rows = {row["problem_id"]: row for row in map(json.loads, lines)}
        return json.loads(done.stdout), rows

    here, our_rows = evaluate("here", "rollout.max_model_len=1024")
    there, their_rows = evaluate(
        "there", f"served.base_url={server}", "served.model=smol", "served.api=vllm"
    )
    assert our_rows.keys() == their_rows.keys()
    for name, ours in our_rows.items():
        theirs = their_rows[name]
        for column in ("prompt_ids", "completion_ids", "text", "finish_reason", "status"):
            assert ours[column] == theirs[column], (name, column)
    for ours, theirs in zip(here["sets"], there["sets"], strict=True):
        assert ours == theirs
    assert {row["status"] for row in our_rows.values()} == {"correct", "incorrect"}
    assert there["record"]["served"]["api"] == "vllm"
