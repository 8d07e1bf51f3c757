"""A served model, played by a little HTTP server: what is sent, tried again and given up."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from grpo.served.client import ServedClient
from grpo.served.options import ServedOptions
from grpo.served.pool import ServedPool
from grpo.values import RolloutRequest, SamplingOptions
from verifiers.errors import UserError
from verifiers.verdict import Reason

SAMPLING = SamplingOptions(max_completion_length=8, stop_token_ids=(2,), temperature=0.5)
REQUEST = RolloutRequest(problem_id="p", prompt_ids=(5, 6), seeds=(11, 2**63 - 1))


def chat_reply(text="four", finish_reason="stop", **usage):
    message = {"role": "assistant", "content": text}
    choices = [{"message": message, "finish_reason": finish_reason}]
    return 200, {"choices": choices, "usage": {"completion_tokens": 3} | usage}


@pytest.fixture
def serve():
    """A function that starts a server with a script: what to answer to each POST in turn."""
    servers = []

    def start(*script: Any, models=("m",), models_status=200):
        log = []

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format, *args):  # noqa: A002 - the base class's name
                pass

            def answer(self, status, body, headers=()):
                payload = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def do_GET(self):
                body = {"data": [{"id": name} for name in models]}
                self.answer(models_status, body)

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                log.append((self.path, body, self.headers.get("Authorization")))
                step: Any = script[min(len(log), len(script)) - 1]
                if callable(step):
                    step = step()
                self.answer(*step)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/v1", log

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def make_pool(url, prompt="2+2?", **options):
    return ServedPool(ServedOptions(base_url=url, model="m", **options), {"p": prompt})


def sample(pool, request=REQUEST):
    try:
        return sorted(pool.generate([request], SAMPLING), key=lambda rollout: rollout.member)
    finally:
        pool.close()


def one(request=REQUEST):
    return RolloutRequest(problem_id="p", prompt_ids=request.prompt_ids, seeds=request.seeds[:1])


def test_a_chat_request_has_messages_sampling_seed_and_key(serve):
    url, log = serve(chat_reply())
    rollouts = sample(make_pool(url, api_key="secret"))
    assert [(r.member, r.text, r.finish_reason) for r in rollouts] == [
        (0, "four", "stop"),
        (1, "four", "stop"),
    ]
    path, body, authorization = log[0]
    assert (path, authorization) == ("/v1/chat/completions", "Bearer secret")
    assert body["messages"] == [{"role": "user", "content": "2+2?"}]
    assert (body["temperature"], body["max_tokens"], body["model"]) == (0.5, 8, "m")
    assert "top_k" not in body
    assert sorted(entry["seed"] for _, entry, _ in log) == [0, 11]


def test_completions_take_text_and_vllm_takes_and_gives_token_ids(serve):
    choice = {"text": "four", "finish_reason": "length", "token_ids": list(range(8))}
    url, log = serve((200, {"choices": [choice]}))
    sample(make_pool(url, api="completions"), one())
    (rollout,) = sample(make_pool(url, api="vllm"), one())
    assert log[0][1]["prompt"] == "2+2?"
    assert "return_token_ids" not in log[0][1]
    assert log[1][1]["prompt"] == [5, 6]
    assert log[1][1]["stop_token_ids"] == [2]
    assert (rollout.completion_ids, rollout.truncated) == (tuple(range(8)), True)


def test_what_is_too_busy_is_tried_again_after_the_time_it_asks_for(serve):
    busy = (429, "slow down", [("Retry-After", "0.2")])
    url, log = serve(busy, (503, "starting"), chat_reply())
    begun = time.monotonic()
    (rollout,) = sample(make_pool(url), one())
    assert rollout.text == "four"
    assert len(log) == 3
    assert time.monotonic() - begun > 0.2


@pytest.mark.parametrize(
    ("answer", "reason", "tries"),
    [
        ((429, "slow down", [("Retry-After", "0")]), Reason.RATE_LIMITED, 2),
        ((500, "oops"), Reason.SERVER_FAILED, 2),
        ((400, "no such parameter"), Reason.REQUEST_REFUSED, 1),
        ((200, "not JSON"), Reason.BAD_REPLY, 1),
        ((200, {"choices": []}), Reason.BAD_REPLY, 1),
        (chat_reply(finish_reason="content_filter"), Reason.BAD_REPLY, 1),
        (chat_reply(finish_reason="length"), Reason.CUT_SHORT, 1),
    ],
)
def test_what_is_given_up_is_named(serve, answer, reason, tries):
    url, log = serve(answer)
    pool = make_pool(url, max_retries=1)
    (rollout,) = sample(pool, one())
    assert (rollout.finish_reason, rollout.text) == ("abort", "")
    assert pool.explain(rollout)[0] is reason
    assert len(log) == tries


def test_a_request_that_takes_too_long_is_given_up_by_name(serve):
    def slow():
        time.sleep(1.0)
        return chat_reply()

    url, _ = serve(slow)
    pool = make_pool(url, timeout_s=0.2, max_retries=0)
    (rollout,) = sample(pool, one())
    reason, detail = pool.explain(rollout)
    assert reason is Reason.REQUEST_TIMED_OUT
    assert "0.2 s" in detail


def test_requests_keep_to_their_number_and_pace(serve):
    running, most, times = Counter(), [], []
    lock = threading.Lock()

    def busy():
        with lock:
            running["now"] += 1
            most.append(running["now"])
            times.append(time.monotonic())
        time.sleep(0.05)
        with lock:
            running["now"] -= 1
        return chat_reply()

    url, _ = serve(busy)
    request = RolloutRequest(problem_id="p", prompt_ids=(), seeds=tuple(range(6)))
    sample(make_pool(url, max_concurrency=2), request)
    assert max(most) == 2
    times.clear()
    sample(make_pool(url, requests_per_minute=600), request)
    assert max(times) - min(times) > 0.4


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"models": ("other",)}, "has no model 'm'; it has other"),
        ({"models_status": 401}, "api_key_env"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_at_the_start(serve, options, fragment):
    url, _ = serve(chat_reply(), **options)
    client = ServedClient(ServedOptions(base_url=url, model="m"))
    with pytest.raises(UserError, match=fragment):
        client.check()
    client.close()


def test_an_address_without_a_server_is_named():
    client = ServedClient(ServedOptions(base_url="http://127.0.0.1:9/v1", model="m"))
    with pytest.raises(UserError, match="No server answers"):
        client.check()
    client.close()
