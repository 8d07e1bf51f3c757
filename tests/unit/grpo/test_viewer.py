"""The page's server: what it answers, to whom, and what it makes of a run that still goes on."""

import json
import threading
import urllib.error
import urllib.request

import pytest

from grpo.config.data import DataConfig
from grpo.config.schema import RunConfig
from grpo.evaluation.scores import EvaluationResult, score_set
from grpo.run_directory import RunDirectory
from grpo.values import Rollout, ScoredGroup, ScoredRollout
from grpo.viewer.reading import RunReader
from grpo.viewer.server import Viewer
from verifiers.errors import UserError
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict

CHAT = ({"role": "user", "content": "2+2?"},)


def make_group(text="4"):
    verdict = Verdict(
        status=Status.CORRECT, score=1.0, reason=Reason.EQUAL_EXACT, verifier="math@1"
    )
    rollout = Rollout(
        problem_id="a",
        member=0,
        prompt_ids=(1, 2),
        completion_ids=(3, 4),
        logprobs=(-0.5, -1.5),
        text=text,
        finish_reason="stop",
        policy_versions=(0, 0),
        seed=1,
    )
    problem = Problem(id="a", prompt=CHAT, verifier="math", reference="4", source="f:1")
    return ScoredGroup(
        problem=problem, members=(ScoredRollout(rollout=rollout, verdict=verdict, reward=1.0),)
    )


def write_run(path):
    path.mkdir()
    directory = RunDirectory(path)
    directory.write_config(RunConfig(model="m", data=(DataConfig(path="a.jsonl"),)))
    for step in (1, 2):
        directory.append_line("metrics.jsonl", {"step": step, "loss": step / 2})
    directory.append_line("metrics.jsonl", {"step": 3, "loss": float("nan"), "skipped": "why"})
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')  # the run is writing this line
    directory.write_rollouts(2, [make_group("<script>alert(1)</script>")])
    score = score_set("maths", [make_group()], num_samples=1, ks=(1,), seed=0)
    result = EvaluationResult.model_construct(
        step=0,
        policy_version=0,
        model="m",
        temperature=1.0,
        top_p=1.0,
        max_completion_length=8,
        seed=0,
        seconds=1.0,
        sets=(score,),
    )
    directory.write_evaluation(result, [make_group()])
    return path


@pytest.fixture
def viewer(tmp_path):
    with Viewer([RunReader(write_run(tmp_path / "run"))], port=0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def fetch(viewer, path, **headers):
    request = urllib.request.Request(viewer.url.rstrip("/") + path, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers, answer.read()


def fetch_json(viewer, path):
    return json.loads(fetch(viewer, path)[1])


def test_the_page_and_what_it_refers_to_are_served(viewer):
    for path, word in {
        "/": "page.js",
        "/page.js": "ask",
        "/charts.js": "svg",
        "/page.css": "svg",
    }.items():
        headers, body = fetch(viewer, path)
        assert word.encode() in body
        assert headers["Content-Security-Policy"].startswith(
            "default-src 'none'; script-src 'self'"
        )


def test_overview_metrics_and_completions(viewer):
    assert fetch_json(viewer, "/api/runs") == ["run"]
    overview = fetch_json(viewer, "/api/0/overview")
    assert (overview["rollouts"], overview["evaluations"]) == ([2], [0])
    assert overview["summary"] is None
    assert fetch_json(viewer, "/api/0/metrics") == [
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": 1.0},
        {"step": 3, "loss": None, "skipped": "why"},
        {"step": 0, "heldout/maths/pass@1": 1.0},
    ]
    (row,) = fetch_json(viewer, "/api/0/rollouts/2")
    assert row["text"] == "<script>alert(1)</script>"
    assert row["prompt"] == list(CHAT)
    assert (row["num_tokens"], row["mean_logprob"]) == (2, -1.0)
    assert "completion_ids" not in row
    assert len(fetch_json(viewer, "/api/0/evaluations/0")) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/api/1/overview",
        "/api/0/rollouts/9",
        "/api/0/rollouts/../config.yaml",
        "/config.yaml",
        "/../run/config.yaml",
        "/api/0/summary.json",
    ],
)
def test_nothing_else_is_served(viewer, path):
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(viewer, path)
    assert refused.value.code == 404
    refused.value.close()


def test_a_foreign_name_for_this_address_is_refused(viewer):
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(viewer, "/api/runs", Host="evil.example:80")
    assert refused.value.code == 403
    refused.value.close()


def test_a_folder_that_is_no_run_and_a_port_that_is_taken_are_named(viewer, tmp_path):
    with pytest.raises(UserError, match="not a run's folder"):
        RunReader(tmp_path)
    with pytest.raises(UserError, match="--port 0"):
        Viewer([], port=viewer.server_address[1])
