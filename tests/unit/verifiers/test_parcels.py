"""A problem with megabytes of tests goes to an actor once, however many completions it has."""

from __future__ import annotations

import pickle

import pytest

from verifiers import parcels
from verifiers.parcels import Parcel, ProblemShelf, StoredProblem
from verifiers.problem import Problem, Submission


def make_problem(number=0):
    tests = [{"kind": "stdio", "input": "1" * 1_000_000, "output": str(number)}]
    return Problem(id="p", prompt="", verifier="code", reference=tests, source="rows:1")


@pytest.fixture
def store(monkeypatch):
    """Ray's object store as a dictionary, and how often something was fetched from it."""
    kept, fetched = {}, []

    def put(value):
        kept[len(kept)] = value
        return len(kept) - 1

    def get(reference):
        fetched.append(reference)
        return kept[reference]

    monkeypatch.setattr(parcels.ray, "put", put)
    monkeypatch.setattr(parcels.ray, "get", get)
    return fetched


def send(problem, stored, completion):
    """What is sent for one completion, in bytes."""
    submission = Submission(problem=problem, completion=completion, truncated=True)
    return pickle.dumps(Parcel.pack([submission], stored))


def test_completions_come_back_with_one_problem(store):
    problem, shelf = make_problem(), ProblemShelf()
    stored = StoredProblem.store(problem)
    sent = [send(problem, stored, completion) for completion in "abc"]
    assert max(map(len, sent)) < 1000
    submissions = [one for bytes_ in sent for one in shelf.unpack(pickle.loads(bytes_))]
    assert [(one.completion, one.truncated) for one in submissions] == [
        ("a", True), ("b", True), ("c", True),
    ]  # fmt: skip
    assert submissions[0].problem == problem
    assert len({id(one.problem.reference) for one in submissions}) == 1
    assert len(store) == 1


def test_another_problem_of_that_name_is_another(store):
    shelf = ProblemShelf()
    for number in (0, 1, 0):
        problem = make_problem(number)
        parcel = Parcel.pack(
            [Submission(problem=problem, completion="a")], StoredProblem.store(problem)
        )
        (found,) = shelf.unpack(parcel)
        assert found.problem == problem
    assert len(store) == 2, "the first of them is still there"


def test_an_actor_keeps_no_more_than_the_newest(store, monkeypatch):
    monkeypatch.setattr(parcels, "NUM_KEPT", 2)
    shelf = ProblemShelf()
    for number in (0, 1, 2, 0):
        problem = make_problem(number)
        shelf.unpack(
            Parcel.pack([Submission(problem=problem, completion="a")], StoredProblem.store(problem))
        )
    assert len(store) == 4


def test_a_small_problem_goes_with_its_completions(store):
    problem = make_problem()
    (found,) = ProblemShelf().unpack(
        Parcel.pack([Submission(problem=problem, completion="a")], None)
    )
    assert found.problem == problem
    assert store == []
