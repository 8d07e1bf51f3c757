"""What a rollout pool promises, whichever engine is behind it."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
import ray
import torch

from grpo.rollout import handles as handles_module
from grpo.rollout import stream as stream_module
from grpo.rollout import supervisor as supervisor_module
from grpo.rollout.buffer_checksum import compute_checksum
from grpo.rollout.engine import build_vllm_engine
from grpo.rollout.errors import EngineFailed, EngineStalled, RolloutError, WeightsRefused
from grpo.rollout.options import EngineOptions
from grpo.rollout.pool import RolloutPool
from grpo.rollout.protocol import Completion, EngineFacts
from grpo.rollout.transports import make_sender
from grpo.stopping import StopRequested
from grpo.values import RolloutRequest, SamplingOptions
from verifiers.errors import UserError

EOS = 1
# Padding, end and unknown.
SPECIAL = (0, EOS, 2)
GREEDY = SamplingOptions(temperature=0.0, max_completion_length=12, stop_token_ids=(EOS,))
SAMPLED = replace(GREEDY, temperature=1.0, max_completion_length=24)
# Prompts that make the scripted engine misbehave, and seeds that make it slow or have it forget its
# weights when it sleeps.
RAISE, HANG, DIE, LINGER = (100, 101, 102, 105)
SLOW, FORGETFUL = 103, 104


class ScriptedEngine:
    """An engine without a model: tokens depend on prompt, seed and position only."""

    facts = EngineFacts(
        version="scripted",
        model_runner="V1",
        device="cpu",
        dtype="float32",
        max_model_len=512,
        max_num_seqs=16,
        num_kv_cache_tokens=0,
        start_seconds=0.0,
    )

    def __init__(self, options, policy_version):
        if options.seed == RAISE:
            raise OSError("weights are truncated")
        self.version = policy_version
        self.seed = options.seed
        self.asleep = False
        self.seconds_per_step = 0.01 if options.seed == SLOW else 0.0
        self.running = {}
        self.ended = []
        self.num_added = 0

    @property
    def num_unfinished(self):
        return len(self.running) + len(self.ended)

    @property
    def num_generated(self):
        return sum(len(tokens) for _, _, _, tokens in self.running.values())

    def add_request(self, request_id, prompt_ids, seed, sampling):
        self.num_added += 1
        self.running[request_id] = (prompt_ids, seed, sampling, [])

    def add_scoring(self, request_id, token_ids):
        self.ended.append(
            Completion(
                request_id=request_id,
                token_ids=(EOS,),
                logprobs=(-1.0,),
                policy_versions=(self.version,),
                finish_reason="length",
                prompt_logprobs=(-1.0,) * (len(token_ids) - 1),
            )
        )

    def abort(self, request_ids):
        return [r for r in request_ids if self.running.pop(r, None)]

    def step(self):
        assert not self.asleep
        ended, self.ended = self.ended, []
        time.sleep(self.seconds_per_step)
        for request_id, (prompt_ids, seed, sampling, tokens) in list(self.running.items()):
            if prompt_ids[0] == RAISE:
                raise RuntimeError("the attention kernel failed")
            if prompt_ids[0] == DIE:
                os.kill(os.getpid(), signal.SIGKILL)
            if prompt_ids[0] == HANG:
                time.sleep(0.01)
                continue
            if prompt_ids[0] == LINGER:
                time.sleep(0.01)
            draw = random.Random(f"{prompt_ids} {seed * sampling.temperature} {len(tokens)}")
            tokens.append((draw.randrange(EOS, 20), self.version))
            if tokens[-1][0] in sampling.stop_token_ids:
                ended.append(self.end(request_id, "stop"))
            elif len(tokens) == sampling.max_completion_length:
                ended.append(self.end(request_id, "length"))
        return ended

    def end(self, request_id, reason):
        tokens = self.running.pop(request_id)[3]
        return Completion(
            request_id=request_id,
            token_ids=tuple(token for token, _ in tokens),
            logprobs=(-1.0,) * len(tokens),
            policy_versions=tuple(version for _, version in tokens),
            finish_reason=reason,
        )

    def decode(self, completions):
        return [" ".join(f"w{i}" for i in ids if i not in SPECIAL) for ids in completions]

    def receive_weights(self, payload, buffer):
        return compute_checksum(buffer)

    def load_weights(self, version, payload, buffer):
        if not payload.plan:
            raise KeyError("model.embed_tokens.weight")
        self.version = version
        return payload.checksum

    def sleep(self):
        assert not self.num_unfinished
        self.asleep = True
        return self.seed != FORGETFUL

    def wake(self):
        assert self.asleep
        self.asleep = False

    def close(self):
        pass


VLLM_TOKENS_PER_STEP = 512

# The actors' processes cannot import this file.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=200_000_000)
    yield
    ray.shutdown()


def start_scripted(model, **options):
    engine = EngineOptions(model=model, max_num_seqs=16, seed=options.pop("seed", 0))
    pool = RolloutPool(engine, build_engine=ScriptedEngine, **options)
    pool.start()
    return pool


@pytest.fixture(scope="module")
def scripted_pool(tiny_policy):
    pool = start_scripted(str(tiny_policy(tied=True)), num_engines=2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def vllm_pool(tiny_policy):
    options = EngineOptions(
        model=str(tiny_policy(tied=True)),
        max_num_seqs=16,
        # Fewer tokens a step than the prompts of a full batch have: some must wait, none be split.
        max_num_batched_tokens=VLLM_TOKENS_PER_STEP,
        max_model_len=VLLM_TOKENS_PER_STEP,
        num_threads=1,
        kv_cache_memory_mb=64,
    )
    pool = RolloutPool(options, build_engine=build_vllm_engine)
    pool.start()
    yield pool
    pool.close()


@pytest.fixture(
    params=[
        "scripted",
        pytest.param("vllm", marks=[pytest.mark.integration, pytest.mark.timeout(600)]),
    ]
)
def pool(request):
    return request.getfixturevalue(f"{request.param}_pool")


@pytest.fixture
def tensors(tiny_policy):
    from safetensors.torch import load_file

    return list(load_file(tiny_policy(tied=True) / "model.safetensors").items())


def make_requests(num_groups, size, first=3):
    return [
        RolloutRequest(
            problem_id=f"p{i}",
            prompt_ids=tuple(first + (5 * i + j) % 90 for j in range(8)),
            seeds=tuple(range(1000 * i, 1000 * i + size)),
        )
        for i in range(num_groups)
    ]


def by_member(rollouts):
    return {(r.problem_id, r.member): r for r in rollouts}


def test_every_member_comes_exactly_once_with_what_it_was_asked_with(pool):
    requests = make_requests(9, 8)
    rollouts = list(pool.generate(requests, SAMPLED))
    assert len(rollouts) == 72
    found = by_member(rollouts)
    for request in requests:
        for member, seed in enumerate(request.seeds):
            rollout = found[request.problem_id, member]
            assert rollout.prompt_ids == request.prompt_ids
            assert rollout.seed == seed
            assert rollout.policy_versions == (pool.policy_version,) * len(rollout.completion_ids)
            assert len(rollout.logprobs) == len(rollout.completion_ids) > 0
            assert all(logprob <= 0 for logprob in rollout.logprobs)


def test_a_completion_ends_at_a_stop_token_or_at_the_limit(pool):
    rollouts = list(pool.generate(make_requests(8, 8), SAMPLED))
    reasons = {r.finish_reason for r in rollouts}
    assert reasons == {"stop", "length"}
    for rollout in rollouts:
        *body, last = rollout.completion_ids
        assert EOS not in body
        assert (last == EOS) == (rollout.finish_reason == "stop")
        assert rollout.truncated == (rollout.finish_reason == "length")
        if rollout.truncated:
            assert len(rollout.completion_ids) == SAMPLED.max_completion_length


def test_only_the_stop_tokens_that_were_named_end_a_completion(pool):
    endless = replace(SAMPLED, stop_token_ids=())
    rollouts = list(pool.generate(make_requests(4, 8), endless))
    assert {r.finish_reason for r in rollouts} == {"length"}
    assert any(EOS in r.completion_ids for r in rollouts)


def test_text_is_the_completion_without_special_tokens(pool):
    for rollout in pool.generate(make_requests(2, 4), SAMPLED):
        assert "<eos>" not in rollout.text
        words = [t for t in rollout.completion_ids if t not in SPECIAL]
        assert rollout.text.replace(" ", "") == "".join(f"w{i}" for i in words)


def test_content_depends_on_seeds_and_not_on_the_company(pool):
    requests = make_requests(6, 4)
    together = by_member(pool.generate(requests, SAMPLED))
    alone = by_member(pool.generate(requests[::-1], SAMPLED)) | by_member(
        pool.generate(requests[2:3], SAMPLED)
    )
    for key, rollout in together.items():
        assert alone[key].completion_ids == rollout.completion_ids
        assert alone[key].logprobs == pytest.approx(rollout.logprobs, abs=1e-4)
    group = [together["p0", member].completion_ids for member in range(4)]
    assert len(set(group)) > 1


def test_nothing_to_do_is_no_rollout(pool):
    assert list(pool.generate([], SAMPLED)) == []


def test_two_streams_share_the_engines_and_do_not_mix(pool):
    first = pool.generate(make_requests(4, 8), SAMPLED)
    second = pool.generate(make_requests(4, 8, first=40), SAMPLED)
    taken = by_member(second)
    assert {r.prompt_ids[0] for r in first if r.problem_id == "p0"} == {3}
    assert {taken["p0", m].prompt_ids[0] for m in range(8)} == {40}
    assert len(taken) == 32


def test_two_threads_can_each_consume_a_stream(pool):
    results = [None, None]

    def consume(i):
        results[i] = list(pool.generate(make_requests(3, 8), SAMPLED))

    threads = [threading.Thread(target=consume, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert by_member(results[0]).keys() == by_member(results[1]).keys()


def test_leaving_a_stream_early_frees_the_engines(pool):
    long = replace(SAMPLED, max_completion_length=400, stop_token_ids=())
    with pool.generate(make_requests(8, 8), long) as stream:
        pass
    assert list(stream) == []
    rollouts = list(pool.generate(make_requests(2, 4), SAMPLED))
    assert len(rollouts) == 8


def test_aborted_members_come_out_as_aborted_and_the_others_finish(pool):
    # Those to be aborted must not have ended before they are told.
    requests = [
        replace(request, prompt_ids=(LINGER, *request.prompt_ids))
        if request.problem_id in ("p1", "p7")
        else request
        for request in make_requests(8, 8)
    ]
    long = replace(SAMPLED, max_completion_length=400, stop_token_ids=())
    stream = pool.generate(requests, long)
    stream.abort(["p1", "p7"])
    rollouts = list(stream)
    assert len(rollouts) == len(by_member(rollouts)) == 64
    for rollout in rollouts:
        if rollout.problem_id in ("p1", "p7"):
            assert rollout.finish_reason == "abort"
            assert rollout.completion_ids == rollout.logprobs == rollout.policy_versions == ()
        else:
            assert len(rollout.completion_ids) == 400


@pytest.mark.parametrize("transport", ["object", "shared_memory"])
def test_a_push_is_answered_with_version_and_checksum_and_stamps_what_follows(
    pool, tensors, transport
):
    sender = make_sender(transport)
    try:
        payload = sender.send(tensors)
        version = pool.policy_version + 1
        for push in pool.publish(version, payload):
            assert push.policy_version == version
            assert push.checksum == payload.checksum
            assert push.seconds > 0
    finally:
        sender.close()
    assert pool.policy_version == version
    for rollout in pool.generate(make_requests(2, 2), SAMPLED):
        assert set(rollout.policy_versions) == {version}


def test_damaged_weights_are_refused_and_the_old_policy_goes_on(pool, tensors):
    version = pool.policy_version
    before = by_member(pool.generate(make_requests(2, 2), SAMPLED))
    payload = replace(make_sender("object").send(tensors), checksum="0" * 16)
    with pytest.raises(WeightsRefused, match="engine"):
        pool.publish(version + 1, payload)
    assert pool.policy_version == version
    after = by_member(pool.generate(make_requests(2, 2), SAMPLED))
    assert {k: r.completion_ids for k, r in after.items()} == {
        k: r.completion_ids for k, r in before.items()
    }
    assert {v for r in after.values() for v in r.policy_versions} == {version}


def test_a_push_in_flight_changes_the_version_within_a_rollout(pool, tensors):
    long = replace(SAMPLED, max_completion_length=450, stop_token_ids=())
    old = pool.policy_version
    sender = make_sender("object")
    payload = sender.send(tensors)
    stream = pool.generate(make_requests(2, 4), long)
    time.sleep(0.2)
    pool.publish(old + 1, payload)
    for rollout in stream:
        assert len(rollout.policy_versions) == len(rollout.completion_ids) == 450
        assert list(rollout.policy_versions) == sorted(rollout.policy_versions)
        assert rollout.policy_versions[-1] in (old, old + 1)


def test_a_probe_gives_one_number_for_each_token_and_engine(pool):
    rollout = next(pool.generate(make_requests(1, 1), SAMPLED))
    scores = pool.score(rollout.prompt_ids + rollout.completion_ids, len(rollout.prompt_ids))
    assert len(scores) == len(pool.wait_ready())
    for logprobs in scores:
        assert logprobs == pytest.approx(rollout.logprobs, abs=1e-4)


@pytest.mark.parametrize("prompt_length", [0, 4])
def test_a_probe_without_prompt_or_completion_is_refused(pool, prompt_length):
    with pytest.raises(UserError, match="prompt_length"):
        pool.score((5, 6, 7, 8), prompt_length)


def test_a_prompt_that_leaves_no_room_is_refused_by_name(pool):
    with pytest.raises(UserError, match=r"p0.*8 prompt tokens.*512"):
        pool.generate(make_requests(1, 1), replace(SAMPLED, max_completion_length=505))


def test_more_prompt_tokens_than_a_step_takes_are_no_trouble_to_seeded_requests(pool):
    requests = [
        replace(request, prompt_ids=request.prompt_ids * 7) for request in make_requests(24, 2)
    ]
    assert len(list(pool.generate(requests, SAMPLED))) == 48


def test_work_is_spread_over_the_engines_and_fed_as_there_is_room(scripted_pool):
    def count(engine) -> Any:
        return ray.get(engine.actor.__ray_call__.remote(lambda actor: actor._loop.engine.num_added))

    engines = scripted_pool._engines.serving().values()
    before = [count(engine) for engine in engines]
    # More than both engines may be given at once.
    rollouts = list(scripted_pool.generate(make_requests(24, 8), SAMPLED))
    assert len(by_member(rollouts)) == 192
    after = [count(engine) for engine in engines]
    added = [now - then for now, then in zip(after, before, strict=True)]
    assert sum(added) == 192
    assert min(added) >= 64


def misbehave(token):
    return [RolloutRequest(problem_id="bad", prompt_ids=(token, 5), seeds=(1, 2))]


@pytest.mark.parametrize(
    ("token", "named"),
    [
        (RAISE, "engine 0.*RuntimeError.*attention kernel"),
        (DIE, "engine 0 died while generating"),
        (HANG, "engine 0 produced no token for.*bad"),
    ],
)
def test_without_restarts_the_last_engines_trouble_is_named(tiny_policy, token, named):
    pool = start_scripted(str(tiny_policy(tied=True)), max_restarts=0, stall_timeout_s=1.5)
    try:
        with pytest.raises(RolloutError, match=named):
            list(pool.generate(misbehave(token), SAMPLED))
        with pytest.raises(RolloutError, match="No rollout engine is left"):
            list(pool.generate(make_requests(1, 1), SAMPLED))
    finally:
        pool.close()


@pytest.mark.long
@pytest.mark.parametrize("token", [DIE, HANG])
def test_a_group_that_ends_every_engine_is_given_up_and_takes_no_other_with_it(tiny_policy, token):
    incidents = []
    pool = start_scripted(
        str(tiny_policy(tied=True)), stall_timeout_s=1.5, note=incidents.append, max_restarts=3
    )
    try:
        rollouts = list(pool.generate(make_requests(3, 2) + misbehave(token), SAMPLED))
    finally:
        pool.close()
    assert len(rollouts) == len(by_member(rollouts)) == 8
    for rollout in rollouts:
        assert (rollout.finish_reason == "abort") == (rollout.problem_id == "bad")
    *restarts, last = incidents
    assert [incident.action for incident in restarts] == ["restarted"] * 3
    assert all("bad" in incident.problem_ids for incident in restarts)
    assert (last.action, last.problem_ids, last.num_lost) == ("given up", ("bad",), 2)
    if token == HANG:
        assert "in step" in restarts[0].stack, "the report says where the engine hung"


def kill_engine(pool, place=0, kind=signal.SIGKILL):
    engine = pool._engines.serving()[place]
    os.kill(ray.get(engine.actor.__ray_call__.remote(lambda _: os.getpid())), kind)


def test_who_leaves_does_not_wait_for_an_engine_that_hangs(tiny_policy, monkeypatch):
    monkeypatch.setattr(stream_module, "CANCEL_WAIT_S", 0.5)
    monkeypatch.setattr(supervisor_module, "DOUBTED_CLOSE_S", 0.5)
    pool = start_scripted(str(tiny_policy(tied=True)), seed=SLOW)
    long = replace(SAMPLED, max_completion_length=400, stop_token_ids=())
    waits = []

    def leave():
        waits.append(time.monotonic())
        if len(waits) > 4:
            raise StopRequested

    stream = pool.generate(make_requests(2, 2), long, leave)
    kill_engine(pool, kind=signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(StopRequested), stream:
        list(stream)
    pool.close()
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("asked", ["publish", "score", "draw"])
def test_who_leaves_a_push_or_a_probe_does_not_wait_either(
    tiny_policy, tensors, monkeypatch, asked
):
    monkeypatch.setattr(handles_module, "LOOK_EVERY_S", 0.2)
    monkeypatch.setattr(supervisor_module, "DOUBTED_CLOSE_S", 0.5)
    pool = start_scripted(str(tiny_policy(tied=True)))
    pool.wait_ready()
    kill_engine(pool, kind=signal.SIGSTOP)
    sender = make_sender("object")

    def leave():
        raise StopRequested

    ask = {
        "publish": lambda: pool.publish(1, sender.send(tensors), leave),
        "score": lambda: pool.score((5, 6, 7), 1, leave),
        "draw": lambda: pool.finish_draws(pool.begin_draws((5, 6), SAMPLED), leave),
    }
    started = time.monotonic()
    with pytest.raises(StopRequested):
        ask[asked]()
    pool.close()
    assert time.monotonic() - started < 5
    sender.close()


def test_a_killed_engine_is_replaced_and_what_it_owed_is_sampled_once(tiny_policy, tensors):
    incidents = []
    pool = start_scripted(
        str(tiny_policy(tied=True)), num_engines=2, note=incidents.append, seed=SLOW
    )
    long = replace(SAMPLED, max_completion_length=300, stop_token_ids=())
    requests = make_requests(8, 8)
    try:
        pool.publish(1, make_sender("object").send(tensors))
        undisturbed = by_member(pool.generate(requests, long))
        stream = pool.generate(requests, long)
        time.sleep(1.0)
        kill_engine(pool)
        rollouts = list(stream)
        assert len(rollouts) == 64
        assert by_member(rollouts) == undisturbed
        (incident,) = incidents
        assert incident.worker == "rollout engine 0"
        assert "held" in incident.cause, "the last memory use is named"
        assert incident.num_redone > 0
        while len(pool._engines.serving()) < 2:
            time.sleep(0.1)
        # The new engine has today's weights, and takes the next.
        assert len(pool.publish(2, make_sender("object").send(tensors))) == 2
        versions = {v for r in pool.generate(requests, SAMPLED) for v in r.policy_versions}
        assert versions == {2}
    finally:
        pool.close()


@pytest.mark.long
def test_two_who_notice_the_same_failure_restart_the_engine_once(tiny_policy):
    incidents = []
    pool = start_scripted(str(tiny_policy(tied=True)), note=incidents.append)
    try:
        pool.wait_ready()
        engine = pool._engines.serving()[0]
        threads = [
            threading.Thread(target=pool._engines.replace, args=(engine, EngineStalled("no token")))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(list(pool.generate(make_requests(2, 2), SAMPLED))) == 4
        assert [incident.action for incident in incidents] == ["restarted"]
    finally:
        pool.close()


@pytest.mark.long
def test_the_only_engine_comes_back_with_the_pools_weights(tiny_policy, tensors):
    pool = start_scripted(str(tiny_policy(tied=True)))
    try:
        pool.publish(3, make_sender("object").send(tensors))
        kill_engine(pool)
        rollouts = list(pool.generate(make_requests(2, 2), SAMPLED))
        assert {v for r in rollouts for v in r.policy_versions} == {3}
        kill_engine(pool)
        assert [
            push.policy_version for push in pool.publish(4, make_sender("object").send(tensors))
        ] == [4]
        kill_engine(pool)
        assert len(pool.score((5, 6, 7), 1)) == 1
    finally:
        pool.close()


@pytest.mark.long
def test_an_engine_whose_node_is_lost_waits_for_a_place_and_the_pool_goes_on(
    tiny_policy, monkeypatch
):
    asked = []

    def has_place(index):
        asked.append(index)
        return len(asked) > 3

    # An actor that asks for what this cluster lacks waits like one whose node is lost.
    lacking = [False]
    incidents = []
    monkeypatch.setattr(handles_module, "PLACE_EVERY_S", 0.2)
    pool = start_scripted(
        str(tiny_policy(tied=True)),
        num_engines=2,
        has_place=has_place,
        start_timeout_s=20.0,
        actor_options=lambda index: {"resources": {"lacking": 1}} if lacking[0] else {},
        note=incidents.append,
        max_restarts=1,
    )
    try:
        pool.wait_ready()
        pool._engines._start_timeout_s = 0.3
        lacking[0] = True
        kill_engine(pool)
        assert len(list(pool.generate(make_requests(4, 4), SAMPLED))) == 16
        assert set(pool._engines.serving()) == {1}
        # From the fourth look on it has a place and still does not come up.
        while len(incidents) < 2:
            time.sleep(0.05)
        assert asked[:4] == [0] * 4
        assert incidents[0].action == "restarted"
        assert "did not finish within" in incidents[1].cause
    finally:
        pool.close()


def test_engines_sleep_and_wake_up(scripted_pool):
    assert scripted_pool.sleep(), "they keep their weights"
    scripted_pool.wake()
    assert len(list(scripted_pool.generate(make_requests(1, 2), SAMPLED))) == 2


@pytest.mark.long
def test_engines_that_forget_their_weights_say_so(tiny_policy):
    pool = start_scripted(str(tiny_policy(tied=True)), seed=FORGETFUL)
    try:
        pool.wait_ready()
        assert not pool.sleep()
    finally:
        pool.close()


def test_time_the_caller_spends_elsewhere_is_no_stall(tiny_policy):
    pool = start_scripted(str(tiny_policy(tied=True)), stall_timeout_s=1.0)
    try:
        stream = pool.generate(make_requests(4, 8), SAMPLED)
        next(stream)
        time.sleep(1.5)
        assert len(list(stream)) == 31
    finally:
        pool.close()


def test_an_engine_that_cannot_start_is_named(tiny_policy):
    pool = start_scripted(str(tiny_policy(tied=True)), seed=RAISE)
    try:
        with pytest.raises(EngineFailed, match=r"engine 0, while starting.*weights are truncated"):
            pool.wait_ready()
    finally:
        pool.close()


def test_weights_that_cannot_be_loaded_end_the_engine_by_name(tiny_policy):
    pool = start_scripted(str(tiny_policy(tied=True)), max_restarts=0)
    try:
        payload = replace(make_sender("object").send([("x", torch.zeros(4))]), plan=())
        with pytest.raises(RolloutError, match=r"engine 0.*version 1.*KeyError"):
            pool.publish(1, payload)
        with pytest.raises(RolloutError):
            list(pool.generate(make_requests(1, 1), SAMPLED))
    finally:
        pool.close()


def test_closing_twice_or_during_the_start_is_harmless(tiny_policy):
    pool = start_scripted(str(tiny_policy(tied=True)))
    pool.close()
    pool.close()
