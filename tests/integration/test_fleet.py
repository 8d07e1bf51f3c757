"""The verifier fleet on a real Ray instance: throughput, deaths, back-pressure, clean end."""

from __future__ import annotations

import os
import signal
import time
import warnings
from pathlib import Path

import pytest

from verifiers.errors import UserError
from verifiers.fleet import FleetError, VerifierFleet
from verifiers.problem import Problem, Submission
from verifiers.verdict import Reason, Status

CHECKS = """
import asyncio, os, time
def parity(completion): return completion == "odd"
def deadly(completion):
    if completion == "kill the actor":
        os.kill(int(open("/proc/%d/stat" % os.getppid()).read().split()[3]), 9)
    return True
def sleeper(completion):
    while completion == "sleep":
        time.sleep(1)
    return True
def slow(completion):
    time.sleep(0.2)
    return True
async def together(completion):
    # right only where as many as it says are judged at the same time
    folder, number = completion.split()
    open(os.path.join(folder, str(os.getpid())), "w").close()
    while len(os.listdir(folder)) < int(number):
        await asyncio.sleep(0.01)
    return True
def waiting(completion):
    folder, number = completion.split()
    open(os.path.join(folder, str(os.getpid())), "w").close()
    while len(os.listdir(folder)) < int(number):
        time.sleep(0.01)
    return True
def overlaps(completion):
    # how many are at it at the same time
    mark = os.path.join(completion, str(os.getpid()))
    open(mark, "w").close()
    time.sleep(0.2)
    most = len(os.listdir(completion))
    os.remove(mark)
    return most
def longest(completions):
    # right is the longest of the group, and only where all eight are there
    if "die" in completions and not os.path.exists(completions[0]):
        open(completions[0], "w").close()
        os.kill(int(open("/proc/%d/stat" % os.getppid()).read().split()[3]), 9)
    most = max(map(len, completions))
    return [len(text) == most if len(completions) == 8 else None for text in completions]
"""
ROUND_LIMIT_S = 120


@pytest.fixture(scope="module", autouse=True)
def ray_instance():
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=200_000_000,
            log_to_driver=False,
        )
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def checks(tmp_path_factory):
    path = tmp_path_factory.mktemp("fleet") / "checks.py"
    path.write_text(CHECKS)
    return path


@pytest.fixture
def make_fleet():
    fleets = []

    def make(*names, options=None, specs=None, num_workers=1, max_in_flight=256, **settings):
        specs = specs or {name: options or {} for name in names}
        fleets.append(
            VerifierFleet(
                specs=specs, num_workers=num_workers, max_in_flight=max_in_flight, **settings
            )
        )
        fleets[-1].start()
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.close()


def submission(verifier, completion, *, reference="42", problem="p"):
    return Submission(
        problem=Problem(
            id=problem, prompt="", verifier=verifier, reference=reference, source="rows:1"
        ),
        completion=completion,
    )


def drain(fleet):
    results = []
    give_up = time.monotonic() + ROUND_LIMIT_S
    while fleet.pending:
        assert time.monotonic() < give_up, f"{fleet.pending} submissions without a verdict"
        results.extend(fleet.finished(timeout_s=5.0))
    return results


def children(name):
    """Process ids whose command line has a name, by actor process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name in command:
            found.append(int(folder.name))
    return found


def actor_pids(fleet, ray):
    return [
        ray.get(station.handle.__ray_call__.remote(lambda _: os.getpid()))
        for station in fleet._assignment.stations
    ]


def test_every_submission_gets_its_own_verdict(make_fleet):
    fleet = make_fleet("math", num_workers=2)
    fleet.wait_ready()
    results = []
    for number in range(400):
        answer = number if number % 3 else -1
        fleet.submit(
            ("group", number),
            submission(
                "math", f"\\boxed{{{answer}}}", reference=str(number), problem=f"p{number // 8}"
            ),
        )
        results.extend(fleet.finished(timeout_s=0.0))
    results.extend(drain(fleet))
    assert len(results) == 400
    verdicts = dict(results)
    for number in range(400):
        right = verdicts["group", number].status is Status.CORRECT
        assert right == bool(number % 3)


def test_results_are_streamed_and_work_in_flight_is_bounded(make_fleet, checks):
    name = f"{checks}:slow"
    fleet = make_fleet(name, max_in_flight=4)
    fleet.wait_ready()
    for number in range(8):
        fleet.submit(number, submission(name, "x"))
        assert fleet._unanswered <= 4
    started = time.monotonic()
    first = fleet.finished(timeout_s=10.0)
    assert first
    assert time.monotonic() - started < 5
    assert {key for key, _ in [*first, *drain(fleet)]} == set(range(8))
    assert fleet.finished(timeout_s=0.0) == []


@pytest.mark.parametrize(
    ("function", "options", "at_once"), [("together", {}, 16), ("waiting", {"concurrency": 4}, 4)]
)
def test_one_worker_judges_as_many_at_a_time_as_its_verifier_says(
    make_fleet, checks, tmp_path, function, options, at_once
):
    name = f"{checks}:{function}"
    fleet = make_fleet(name, options=options)
    fleet.wait_ready()
    for number in range(at_once):
        fleet.submit(number, submission(name, f"{tmp_path} {at_once}"))
    assert {verdict.status for _, verdict in drain(fleet)} == {Status.CORRECT}


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_verifier_is_given_no_more_at_a_time_than_it_says(
    make_fleet, checks, tmp_path, concurrency
):
    """Whatever another verifier of the same worker may do at the same time."""
    bounded, unbounded = f"{checks}:overlaps", f"{checks}:slow"
    fleet = make_fleet(specs={bounded: {"concurrency": concurrency}, unbounded: {"concurrency": 8}})
    fleet.wait_ready()
    for number in range(12):
        fleet.submit(number, submission(bounded, str(tmp_path)))
        fleet.submit(-1 - number, submission(unbounded, "x"))
    verdicts = dict(drain(fleet))
    assert max(verdicts[number].score for number in range(12)) <= concurrency


@pytest.mark.long
def test_one_verifier_that_hangs_holds_up_no_other(make_fleet, checks, tmp_path):
    stuck, other, incidents = f"{checks}:sleeper", f"{checks}:parity", []
    fleet = make_fleet(
        specs={stuck: {"wall_limit_s": 600.0}, other: {}},
        stall_timeout_s=3.0,
        note=incidents.append,
    )
    fleet.wait_ready()
    fleet.submit("stuck", submission(stuck, "sleep"))
    for number in range(40):
        fleet.submit(number, submission(other, "odd"))
    results = drain(fleet)
    assert results[-1][0] == "stuck"
    assert results[-1][1].reason is Reason.STALLED
    assert {verdict.status for _, verdict in results[:-1]} == {Status.CORRECT}
    assert len(results) == 41


def test_killed_actors_lose_nothing(make_fleet, ray_instance, checks):
    name = f"{checks}:parity"
    fleet = make_fleet(name, num_workers=2)
    fleet.wait_ready()
    victims = dict(zip((100, 200), actor_pids(fleet, ray_instance), strict=True))
    for number in range(300):
        fleet.submit(number, submission(name, "odd" if number % 2 else "even", problem=f"{number}"))
        if number in victims:
            os.kill(victims[number], signal.SIGKILL)
    results = drain(fleet)
    verdicts = dict(results)
    assert len(results) == len(verdicts) == 300
    assert all(v.score == float(k % 2) for k, v in verdicts.items())


def test_killed_worker_processes_lose_nothing(make_fleet, ray_instance, checks):
    name = f"{checks}:parity"
    fleet = make_fleet(name)
    fleet.wait_ready()
    actor = actor_pids(fleet, ray_instance)[0]
    for number in range(200):
        fleet.submit(number, submission(name, "odd" if number % 2 else "even"))
        if number % 60 == 30:
            for pid in children("verifiers.fork_server"):
                if _ancestors(pid) & {actor}:
                    os.kill(pid, signal.SIGKILL)
    verdicts = dict(drain(fleet))
    assert len(verdicts) == 200
    # A worker that died twice on one item leaves it unverified; none may get a wrong score.
    assert all(v.score in (float(k % 2), None) for k, v in verdicts.items())
    assert sum(v.score is None for v in verdicts.values()) <= 4


def _ancestors(pid):
    found = set()
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            break
        found.add(pid)
    return found


def test_an_item_that_kills_its_actor_takes_no_other_with_it(make_fleet, checks):
    name = f"{checks}:deadly"
    fleet = make_fleet(name)
    fleet.wait_ready()
    for number in range(40):
        completion = "kill the actor" if number == 20 else "fine"
        fleet.submit(number, submission(name, completion))
    verdicts = dict(drain(fleet))
    killer = verdicts.pop(20)
    assert (killer.status, killer.score, killer.reason) == (
        Status.ERROR,
        None,
        Reason.WORKER_DIED,
    )
    assert {v.status for v in verdicts.values()} == {Status.CORRECT}


def test_a_group_comes_whole_to_a_verifier_that_wants_it(make_fleet, checks):
    name = f"{checks}:longest"
    fleet = make_fleet(name, num_workers=2, max_in_flight=16)
    fleet.wait_ready()
    results = []
    for member in range(8):  # groups grow side by side, beyond what may be in flight
        for group in range(20):
            text = "x" * (9 if member == group % 8 else member + 1)
            fleet.submit(
                (group, member),
                submission(name, text, problem=f"p{group}"),
                group=group,
                group_size=8,
            )
            results.extend(fleet.finished(timeout_s=0.0))
        assert member == 7 or (not results and fleet.pending == 20 * (member + 1))
    results.extend(drain(fleet))
    verdicts = dict(results)
    assert len(results) == len(verdicts) == 160
    assert all(v.score == float(m == g % 8) for (g, m), v in verdicts.items())


def test_a_group_whose_actor_dies_is_judged_whole_by_the_next(make_fleet, checks, tmp_path):
    name = f"{checks}:longest"
    fleet = make_fleet(name)
    fleet.wait_ready()
    killed = tmp_path / "killed"
    for member, text in enumerate([str(killed), "die", "", "", "", "", "", ""]):
        fleet.submit(member, submission(name, text), group="g", group_size=8)
    verdicts = dict(drain(fleet))
    assert killed.exists()
    assert [verdicts[member].score for member in range(8)] == [1.0] + [0.0] * 7


def test_work_that_hangs_its_actor_is_given_up_with_the_stack_and_takes_no_other_with_it(
    make_fleet, checks
):
    name, incidents = f"{checks}:sleeper", []
    # The verifier's own limit is out of reach, so that only the fleet's watch is left.
    fleet = make_fleet(
        name, options={"wall_limit_s": 600.0}, stall_timeout_s=3.0, note=incidents.append
    )
    fleet.wait_ready()
    for number in range(20):
        completion = "sleep" if number == 7 else "fine"
        fleet.submit(number, submission(name, completion, problem=f"p{number}"))
    verdicts = dict(drain(fleet))
    stuck = verdicts.pop(7)
    assert (stuck.status, stuck.score, stuck.reason) == (Status.ERROR, None, Reason.STALLED)
    assert len(verdicts) == 19
    assert {v.status for v in verdicts.values()} == {Status.CORRECT}
    assert sum(incident.num_lost for incident in incidents) == 1
    assert incidents[-1].problem_ids[0] == "p7"
    assert "has answered nothing for" in incidents[-1].cause
    assert "in judge" in incidents[-1].stack, "the report says where the actor hung"


def test_a_verifier_that_fails_its_self_check_stops_the_start(make_fleet):
    # So wide a tolerance takes the wrong one of its known answers as well.
    fleet = make_fleet("numeric", options={"rel_tol": 3.0})
    with pytest.raises(FleetError, match="self-check failed"):
        fleet.wait_ready()


def test_an_unknown_verifier_is_the_users_error():
    with pytest.raises(UserError, match="did you mean math"):
        VerifierFleet(specs={"maths": {}}, num_workers=1, max_in_flight=1)


def test_close_leaves_no_process(make_fleet, ray_instance, checks):
    name = f"{checks}:parity"
    before = set(children("verifiers.fork_server"))
    fleet = make_fleet(name, "math", num_workers=2)
    fleet.wait_ready()
    for number in range(20):
        fleet.submit(number, submission(name, "odd"))
    drain(fleet)
    assert set(children("verifiers.fork_server")) - before
    fleet.close()
    give_up = time.monotonic() + 10
    while set(children("verifiers.fork_server")) - before:
        assert time.monotonic() < give_up
        time.sleep(0.1)
