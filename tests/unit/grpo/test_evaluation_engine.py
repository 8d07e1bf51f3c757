"""The evaluation engine with fakes around it: journals, resuming, and what never came."""

from __future__ import annotations

import itertools

import pytest

from grpo.evaluation import folder as folder_module
from grpo.evaluation.folder import open_folder, read_result, write_result
from grpo.evaluation.journal import Journal
from grpo.evaluation.record import EvaluationRecord, compute_model_digest, describe_difference
from grpo.evaluation.sampling import make_seeds, sample_groups
from grpo.evaluation.scores import EvaluationResult, score_set
from grpo.score_tables import describe_unverified
from grpo.values import Rollout, SamplingOptions
from verifiers.errors import UserError
from verifiers.problem import Problem
from verifiers.verdict import Reason, Status, Verdict

SAMPLING = SamplingOptions(max_completion_length=4, stop_token_ids=(0,))
PROBLEMS = [
    Problem(id=f"p{i}", prompt="?", verifier="math", reference="1", source=f"f:{i}")
    for i in range(5)
]
VERDICTS = {
    True: Verdict(status=Status.CORRECT, score=1.0, reason=Reason.EQUAL_TEXT, verifier="t@1"),
    False: Verdict(
        status=Status.INCORRECT, score=0.0, reason=Reason.DIFFERENT, verifier="t@1", extracted="7"
    ),
}


class FakePool:
    """A completion's text is its seed; the last group comes first."""

    def __init__(self, never=(), stop_after=None):
        self.never = never
        self.stop_after = stop_after
        self.asked = []

    def generate(self, requests, sampling, on_wait):
        self.asked += [request.problem_id for request in requests]
        pairs = ((r, m) for r in reversed(requests) for m in range(len(r.seeds)))
        for request, member in itertools.islice(pairs, self.stop_after):
            missing = (request.problem_id, member) in self.never
            yield Rollout(
                problem_id=request.problem_id,
                member=member,
                prompt_ids=request.prompt_ids,
                completion_ids=() if missing else (5, 0),
                logprobs=() if missing else (-0.5, 0.0),
                text="" if missing else str(request.seeds[member]),
                finish_reason="abort" if missing else "stop",
                policy_versions=() if missing else (0, 0),
                seed=request.seeds[member],
            )
        if self.stop_after is not None:
            raise KeyboardInterrupt

    def explain(self, rollout):
        return Reason.REQUEST_TIMED_OUT, "after 2 tries"


class FakeFleet:
    """Right is an even text; a group is judged once all of it is there."""

    def __init__(self):
        self.groups, self.ready = {}, []

    @property
    def pending(self):
        return sum(map(len, self.groups.values())) + len(self.ready)

    def submit(self, key, submission, *, group, group_size, on_wait=None):
        waiting = self.groups.setdefault(group, [])
        right = submission.completion[-1:] in set("02468")
        waiting.append((key, VERDICTS[right]))
        if len(waiting) == group_size:
            self.ready += self.groups.pop(group)

    def finished(self, timeout_s):
        ready, self.ready = self.ready, []
        return ready


def sample(pool, problems=PROBLEMS, num_samples=2, prefix=""):
    prompts = {problem.id: (1, 2) for problem in problems}
    return sample_groups(
        pool,
        FakeFleet(),
        problems,
        prompts=prompts,
        sampling=SAMPLING,
        num_samples=num_samples,
        seed=3,
        prefix=prefix,
    )


def make_record(**changes):
    values = {
        "model": "m",
        "revision": "r",
        "served": None,
        "chat_template": None,
        "num_samples": 2,
        "seed": 3,
        "sampling": {"temperature": 0.0},
        "verifiers": {"math": {}},
        "sets": (),
    }
    return EvaluationRecord.model_validate(values | changes)


def make_result(groups):
    score = score_set("s", groups, num_samples=2, ks=(1, 2), seed=0)
    return EvaluationResult(
        step=0,
        policy_version=0,
        model="m",
        temperature=0.0,
        top_p=1.0,
        max_completion_length=4,
        seed=3,
        seconds=1.0,
        sets=(score,),
        record=make_record(),
    )


def test_every_group_comes_out_whole_with_seeds_of_its_own():
    groups = {group.problem.id: group for group in sample(FakePool())}
    assert set(groups) == {problem.id for problem in PROBLEMS}
    for name, group in groups.items():
        assert tuple(member.rollout.seed for member in group.members) == make_seeds(3, name, 2)
        for member in group.members:
            assert (member.verdict.status is Status.CORRECT) == (member.rollout.seed % 2 == 0)


def test_what_never_came_is_an_outcome_with_a_name_and_not_a_wrong_answer():
    groups = list(sample(FakePool(never={("p1", 0)})))
    score = score_set("s", groups, num_samples=2, ks=(1,), seed=0)
    assert score.outcomes["error (request_timed_out)"] == 1
    assert score.unverified_fraction == pytest.approx(1 / 10)


def test_the_first_of_each_reason_is_shown_with_its_detail():
    groups = list(sample(FakePool(never={("p1", 0), ("p3", 1)})))
    assert describe_unverified(groups) == ["not verified, request_timed_out: p3: after 2 tries"]


def test_an_interrupted_evaluation_goes_on_to_the_result_of_an_uninterrupted_one(tmp_path):
    whole = {group.problem.id: group for group in sample(FakePool())}
    journal = Journal(tmp_path)

    def run_until_killed():
        for group in sample(FakePool(stop_after=5)):
            journal.append(group)

    with pytest.raises(KeyboardInterrupt):
        run_until_killed()
    # What a kill in the middle of a write leaves.
    text = journal.file.read_text()
    journal.file.write_text(text + text[:100])

    problems = {problem.id: problem for problem in PROBLEMS}
    again = Journal(tmp_path)
    groups = again.load(problems, 2)
    assert set(groups) == {"p4", "p3"}
    pool = FakePool()
    for group in sample(pool, [p for p in PROBLEMS if p.id not in groups]):
        again.append(group)
        groups[group.problem.id] = group
    assert set(pool.asked) == {"p0", "p1", "p2"}

    order = [problem.id for problem in PROBLEMS]
    assert make_result([groups[name] for name in order]) == make_result(
        [whole[name] for name in order]
    )
    assert len(again.file.read_text().splitlines()) == 10
    assert Journal(tmp_path).load(problems, 2) == groups


def test_a_group_with_a_sample_that_was_not_verified_is_tried_again(tmp_path):
    journal = Journal(tmp_path)
    for group in sample(FakePool(never={("p1", 0)})):
        journal.append(group)
    loaded = journal.load({problem.id: problem for problem in PROBLEMS}, 2)
    assert set(loaded) == {"p0", "p2", "p3", "p4"}


def test_only_an_unfinished_evaluation_of_the_same_is_gone_on_with(tmp_path):
    base = tmp_path / "e"

    def visit(record):
        with open_folder(base, record) as opened:
            return opened

    assert visit(make_record()) == (base, False)
    assert visit(make_record()) == (base, True)
    assert visit(make_record(seed=4)) == (tmp_path / "e-2", False)
    write_result(base, make_result(list(sample(FakePool()))))
    assert visit(make_record()) == (tmp_path / "e-3", False)


def test_an_evaluation_that_somebody_is_at_is_left_to_them(tmp_path):
    base = tmp_path / "e"
    with open_folder(base, make_record()):
        with (
            pytest.raises(UserError, match=r"Another `verigrad eval` of the same .*--output"),
            open_folder(base, make_record()),
        ):
            pass
        with open_folder(base, make_record(seed=4)) as (folder, _):
            assert folder == tmp_path / "e-2"


def test_one_that_was_finished_meanwhile_is_not_written_to(tmp_path, monkeypatch):
    base = tmp_path / "e"
    with open_folder(base, make_record()):
        pass
    hold = folder_module.hold_file

    def finish_first(file, *, busy):
        if file.parent == base:
            write_result(base, make_result(list(sample(FakePool()))))
        return hold(file, busy=busy)

    monkeypatch.setattr(folder_module, "hold_file", finish_first)
    with open_folder(base, make_record()) as opened:
        assert opened == (tmp_path / "e-2", False)


def test_a_folder_that_cannot_be_made_is_the_users_to_cure(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="--output"),
        open_folder(tmp_path / "file" / "e", make_record()),
    ):
        pass


def test_a_stored_result_reads_back_with_its_samples(tmp_path):
    result = make_result(list(sample(FakePool())))
    file = write_result(tmp_path, result)
    assert read_result(str(tmp_path)) == (result, None)
    (tmp_path / "samples.jsonl").write_text("")
    assert read_result(str(file)) == (result, tmp_path / "samples.jsonl")
    with pytest.raises(UserError, match="no evaluation"):
        read_result(str(tmp_path / "nowhere"))
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UserError, match="is no evaluation"):
        read_result(str(tmp_path / "other.json"))


def test_differences_are_named_by_option():
    ours = make_record()
    theirs = make_record(model="n", seed=4, sampling={"temperature": 0.6})
    assert describe_difference(ours, theirs) == [
        "sampling.temperature: 0.0 and 0.6",
        "seed: 3 and 4",
    ]
    assert ours.fingerprint != theirs.fingerprint


def test_a_models_digest_follows_its_weights(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"a")
    before = compute_model_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("not part of it")
    assert compute_model_digest(tmp_path) == before
    (tmp_path / "model.safetensors").write_bytes(b"b")
    assert compute_model_digest(tmp_path) != before


def test_verifiers_see_what_the_prompt_ends_with_as_the_completions_beginning():
    seen = []

    class Fleet(FakeFleet):
        def submit(self, key, submission, **options):
            seen.append(submission.completion)
            super().submit(key, submission, **options)

    prompts = {problem.id: (1,) for problem in PROBLEMS}
    groups = list(
        sample_groups(
            FakePool(),
            Fleet(),
            PROBLEMS[:1],
            prompts=prompts,
            sampling=SAMPLING,
            num_samples=1,
            seed=0,
            prefix="<think>",
        )
    )
    assert seen == ["<think>" + groups[0].members[0].rollout.text]
